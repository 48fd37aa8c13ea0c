//! Restrictions of a process that has dropped its privileges. Each case is a process of its own, in its own
//! network.
#![allow(clippy::unwrap_used)]

use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use nix::unistd::{Uid, geteuid, getgroups, getresuid, setresuid};
use watari_capture::privileges::{DEFAULT_USER, Dropped, Enforced, Keep, PrivilegesError, drop_all, user};
use watari_capture::{CaptureError, Options, Ring, open};

type Case = (&'static str, fn(&Path));

const CASES: [Case; 9] = [
    ("a_capture_goes_on_and_little_else_does", a_capture_goes_on_and_little_else_does),
    ("root_that_stays_root_cannot_do_more", root_that_stays_root_cannot_do_more),
    ("files_that_are_named_can_be_used", files_that_are_named_can_be_used),
    ("names_are_looked_up_if_they_may_be", names_are_looked_up_if_they_may_be),
    ("programs_run_if_they_may_and_have_no_privileges", programs_run_if_they_may_and_have_no_privileges),
    ("threads_that_start_later_have_none_either", threads_that_start_later_have_none_either),
    ("it_is_too_late_when_threads_are_running", it_is_too_late_when_threads_are_running),
    ("what_is_wrong_is_said", what_is_wrong_is_said),
    ("programs_do_not_inherit_the_capture", programs_do_not_inherit_the_capture),
];

/// The case that a process runs.
const CASE: &str = "WATARI_PRIVILEGES_CASE";

/// Runs the cases whose names contain one of the arguments.
fn main() -> ExitCode {
    if let Some(case) = env::var_os(CASE) {
        let (_, run) = CASES.into_iter().find(|(name, _)| case == *name).unwrap();
        run(&PathBuf::from(env::var_os("CASE_DIR").unwrap()));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<_> = env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted.as_str()));
    let failed = CASES.into_iter().filter(|(name, _)| is_wanted(name)).filter(|(name, _)| !passes(name)).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(name: &str) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    command.args(if geteuid().is_root() { &["--net"][..] } else { &["--map-root-user", "--net"] });
    command.arg(env::current_exe().unwrap()).env(CASE, name).env("CASE_DIR", dir.path());
    let output = command.output().unwrap();
    println!("test {name} ... {}", if output.status.success() { "ok" } else { "FAILED" });
    io::stdout().write_all(&output.stdout).unwrap();
    io::stderr().write_all(&output.stderr).unwrap();
    output.status.success()
}

fn ring() -> Ring {
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
    open(&Options::new("lo")).unwrap().remove(0)
}

/// Drops all privileges, and becomes the user `nobody` if possible: root in a user namespace may have no other user.
fn drop_to_other_user(keep: Keep) -> Dropped {
    let others = fs::read_to_string("/proc/self/uid_map").unwrap().split_whitespace().nth(2).unwrap() != "1";
    if !others {
        println!("SKIPPED: changing the user, of whom there is one here");
    }
    let dropped = drop_all(&Keep { user: user().filter(|_| others), ..keep }).unwrap();
    assert_eq!(dropped.user, others.then(|| DEFAULT_USER.to_owned()));
    report(&dropped);
    dropped
}

/// Prints which restrictions this kernel does not support.
fn report(dropped: &Dropped) {
    if dropped.files != Enforced::Fully || !dropped.calls {
        println!("SKIPPED: some of what this kernel lacks: {dropped}");
    }
}

/// A packet to a port of this host is captured.
fn captures(ring: &mut Ring) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(server.local_addr().unwrap()).unwrap();
    let port = server.local_addr().unwrap().port().to_be_bytes();
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(30));
        // The destination port of a SYN without IP options.
        if ring.next().unwrap().is_some_and(|frame| frame.data.get(36..38) == Some(&port)) {
            break;
        }
    }
    assert!(ring.counts().unwrap().received > 0);
}

fn cannot_have_privileges() {
    let opened = open(&Options::new("lo")).unwrap_err();
    assert!(matches!(opened, CaptureError::NotPermitted { .. }), "{opened:?}");
    assert!(socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), None).is_err());
    assert!(socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), None).is_err());
    let status = fs::read_to_string("/proc/thread-self/status");
    for line in status.iter().flat_map(|status| status.lines()).filter(|line| line.starts_with("Cap")) {
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
}

fn is_refused<T>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn a_capture_goes_on_and_little_else_does(dir: &Path) {
    let mut ring = ring();
    let (ours, mut open_file) = (dir.join("ours"), File::create(dir.join("open")).unwrap());
    fs::write(&ours, "ours").unwrap();
    let dropped = drop_to_other_user(Keep { read: vec!["/proc".into()], ..Keep::default() });
    cannot_have_privileges();
    assert!(is_refused(File::open("/etc/shadow")));
    if dropped.user.is_some() {
        assert!(getgroups().unwrap().is_empty());
        assert!(setresuid(Uid::from_raw(0), Uid::from_raw(0), Uid::from_raw(0)).is_err());
        let ids = getresuid().unwrap();
        assert!([ids.real, ids.effective, ids.saved].iter().all(|user| !user.is_root()));
    }
    if dropped.files == Enforced::Fully {
        assert!(
            is_refused(File::open("/etc/passwd")) && is_refused(File::open(&ours)) && is_refused(fs::read_dir("/"))
        );
        assert!(is_refused(fs::write("/tmp/watari-privileges", "")));
    }
    if dropped.calls {
        assert!(is_refused(Command::new("/bin/true").status()));
        assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(nix::Error::EPERM));
    }
    open_file.write_all(b"still open").unwrap();
    thread::spawn(move || captures(&mut ring)).join().unwrap();
}

fn root_that_stays_root_cannot_do_more(_: &Path) {
    let mut ring = ring();
    let dropped = drop_all(&Keep { read: vec!["/proc".into()], ..Keep::default() }).unwrap();
    report(&dropped);
    assert_eq!(dropped.user, None);
    assert!(dropped.to_string().starts_with("user unchanged, no capabilities, files "), "{dropped}");
    cannot_have_privileges();
    if dropped.files == Enforced::Fully {
        assert!(is_refused(File::open("/etc/shadow")) && is_refused(File::open("/etc/passwd")));
    }
    assert!(!Uid::from_raw(1).is_root() && setresuid(Uid::from_raw(1), Uid::from_raw(1), Uid::from_raw(1)).is_err());
    captures(&mut ring);
}

fn files_that_are_named_can_be_used(dir: &Path) {
    let (read, write, other) = (dir.join("read"), dir.join("write"), dir.join("other"));
    for dir in [&read, &write, &other] {
        fs::create_dir(dir).unwrap();
        fs::write(dir.join("file"), "text").unwrap();
    }
    let file = other.join("named");
    fs::write(&file, "text").unwrap();
    let keep =
        Keep { read: vec![read.clone(), "/proc".into()], write: vec![write.clone(), file.clone()], ..Keep::default() };
    let dropped = drop_all(&keep).unwrap();
    report(&dropped);
    assert_eq!(fs::read_to_string(read.join("file")).unwrap(), "text");
    fs::write(write.join("new"), "new").unwrap();
    fs::rename(write.join("new"), write.join("file")).unwrap();
    fs::remove_file(write.join("file")).unwrap();
    fs::write(&file, "more").unwrap();
    if dropped.files == Enforced::Fully {
        assert!(is_refused(fs::write(read.join("file"), "")) && is_refused(fs::write(read.join("new"), "")));
        assert!(is_refused(fs::read(other.join("file"))) && is_refused(fs::remove_file(&file)));
    }
}

fn names_are_looked_up_if_they_may_be(_: &Path) {
    let dropped = drop_to_other_user(Keep { read: vec!["/proc".into()], names: true, ..Keep::default() });
    let addresses: Vec<_> = ("localhost", 80).to_socket_addrs().unwrap().collect();
    assert!(addresses.iter().all(|address| address.ip().is_loopback()) && !addresses.is_empty(), "{addresses:?}");
    fs::read("/etc/hosts").unwrap();
    assert!(dropped.files != Enforced::Fully || is_refused(fs::read("/usr/bin/env")));
}

fn programs_run_if_they_may_and_have_no_privileges(dir: &Path) {
    let script = "cat /proc/self/status; head -c 1 /etc/passwd >/dev/null && echo reads; true 2>/dev/null >$1/new || echo stays out; \
                  unshare --user true 2>/dev/null || echo has no namespaces";
    let dropped = drop_all(&Keep { programs: true, ..Keep::default() }).unwrap();
    report(&dropped);
    let output = Command::new("/bin/sh").args(["-c", script, "sh"]).arg(dir).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    for capabilities in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(text.contains(&format!("{capabilities}:\t0000000000000000\n")), "{text}");
    }
    assert!(text.contains("NoNewPrivs:\t1") && text.contains("reads"), "{text}");
    assert!(dropped.files != Enforced::Fully || text.contains("stays out") && !dir.join("new").exists(), "{text}");
    assert!(!dropped.calls || text.contains("has no namespaces"), "{text}");
}

fn threads_that_start_later_have_none_either(_: &Path) {
    let mut ring = ring();
    drop_to_other_user(Keep { read: vec!["/proc".into()], ..Keep::default() });
    thread::spawn(cannot_have_privileges).join().unwrap();
    thread::spawn(move || captures(&mut ring)).join().unwrap();
}

fn it_is_too_late_when_threads_are_running(_: &Path) {
    let (ours, theirs) = UnixDatagram::pair().unwrap();
    let thread = thread::spawn(move || theirs.recv(&mut [0]).unwrap());
    let refused = drop_all(&Keep::default()).unwrap_err();
    assert!(matches!(refused, PrivilegesError::Threads(2)), "{refused}");
    ours.send(b"x").unwrap();
    thread.join().unwrap();
    // No privileges were dropped.
    ring();
}

fn what_is_wrong_is_said(dir: &Path) {
    let missing = dir.join("missing");
    let refused = drop_all(&Keep { read: vec![missing.clone()], ..Keep::default() }).unwrap_err();
    let text = refused.to_string();
    assert!(text.starts_with(&format!("cannot open {}, which has to stay accessible: ", missing.display())), "{text}");
    let refused = drop_all(&Keep { user: Some("no-such-user".to_owned()), ..Keep::default() }).unwrap_err();
    assert_eq!(refused.to_string(), "there is no user no-such-user");
}

/// Without dropped privileges, too: libpcap itself would leave its sockets open to programs.
fn programs_do_not_inherit_the_capture(_: &Path) {
    let sockets = || {
        let output = Command::new("/bin/sh").args(["-c", "ls -l /proc/$$/fd"]).output().unwrap();
        assert!(output.status.success());
        String::from_utf8_lossy(&output.stdout).matches("socket:").count()
    };
    let before = sockets();
    let _ring = ring();
    assert_eq!(sockets(), before);
}
