//! Runs the command.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// Far longer than any step takes. A test that hangs fails after it.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

/// The result of a command that has ended.
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) error: String,
}

/// `watari` in `dir`.
pub(crate) fn command(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    command.args(arguments).current_dir(dir).env_remove("NOTIFY_SOCKET").stdin(Stdio::null());
    command
}

/// Runs `watari` in `dir` to its end.
pub(crate) fn watari(dir: &Path, arguments: &[&str]) -> Ended {
    let output = command(dir, arguments).output().unwrap();
    Ended {
        status: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        error: String::from_utf8(output.stderr).unwrap(),
    }
}

impl Ended {
    /// The output of a command that succeeded.
    pub(crate) fn done(self) -> String {
        assert_eq!((self.status, self.error.as_str()), (Some(0), ""), "{}", self.out);
        self.out
    }

    /// The error, one sentence, of a command that failed.
    pub(crate) fn refused(self, status: i32) -> String {
        assert_eq!((self.status, self.out.as_str()), (Some(status), ""), "{}", self.error);
        assert_eq!(self.error.lines().count(), 1, "{}", self.error);
        self.error.trim_end().to_owned()
    }
}

/// A child process that ends with the test.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts a node and waits until it reports that it is ready.
    pub(crate) fn node(dir: &Path, config: &str) -> Self {
        let (running, manager) = Self::start_node(dir, config);
        assert_eq!(next_notification(&manager), "READY=1", "{config}");
        running
    }

    /// Starts a node. Its messages to the service manager arrive at the socket.
    pub(crate) fn start_node(dir: &Path, config: &str) -> (Self, UnixDatagram) {
        let (path, manager) = service_manager(dir, config);
        let child = command(dir, &["run", "--with-parent", "--config", config])
            .env("NOTIFY_SOCKET", path)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        (Self(child), manager)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let pid = Pid::from_raw(self.0.id().cast_signed()).unwrap();
        wait(&pidfd_open(pid, PidfdFlags::NONBLOCK).unwrap());
        self.0.wait().unwrap()
    }
}

/// Waits until a process has ended. Its descriptor is readable then (`pidfd_open(2)`).
pub(crate) fn wait(process: &OwnedFd) {
    let timeout = Timespec::try_from(WAIT_MAX).unwrap();
    let ended = retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)));
    assert_eq!(ended.unwrap(), 1);
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running demo, with its files in a directory of its own.
pub(crate) struct Demo {
    pub(crate) process: Running,
    /// The lines that it prints.
    pub(crate) guide: Vec<String>,
}

impl Demo {
    pub(crate) fn start(dir: &Path) -> Self {
        let mut child = command(dir, &["demo"]).env("TMPDIR", dir).stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let process = Running(child);
        let mut guide = Vec::new();
        for line in output.lines().map(Result::unwrap) {
            guide.push(line);
            if guide.last().is_some_and(|line| line.starts_with("Ctrl-C")) {
                return Self { process, guide };
            }
        }
        panic!("the demo did not come up: {guide:?}");
    }

    /// The directory of its files.
    pub(crate) fn files(&self) -> PathBuf {
        let line = self.guide.iter().find_map(|line| line.trim().strip_prefix("files ")).unwrap();
        line.trim().split(' ').next().unwrap().into()
    }
}

/// A socket for the messages of a service to its manager.
pub(crate) fn service_manager(dir: &Path, name: &str) -> (PathBuf, UnixDatagram) {
    let path = dir.join(format!("{name}.notify"));
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT_MAX)).unwrap();
    (path, manager)
}

/// The next message of a service.
pub(crate) fn next_notification(manager: &UnixDatagram) -> String {
    let mut buffer = [0; 64];
    let len = loop {
        match manager.recv(&mut buffer) {
            // The end of a child may interrupt a wait that has a timeout.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => break received.unwrap(),
        }
    };
    String::from_utf8(buffer[..len].to_vec()).unwrap()
}

/// A directory with the certificates and the configuration of one agent, `n1`, that serves `www`. No other test uses
/// its addresses.
pub(crate) fn agent() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    watari(dir.path(), &["pki", "init"]).done();
    watari(dir.path(), &["pki", "issue", "n1", "--role", "agent"]).done();
    fs::create_dir(dir.path().join("www")).unwrap();
    let ip = own_loopback();
    let config = format!(
        "[node]\nname = \"n1\"\npki = \"pki\"\nmesh = \"{ip}:7001\"\nadmin = \"n1.sock\"\nmetrics = \"{ip}:9001\"\n\
         [agent]\nlegs = \"{ip}:7101\"\n[agent.files]\nroot = \"www\"\n"
    );
    fs::write(dir.path().join("n1.toml"), config).unwrap();
    dir
}

/// Writes a private key with the mode that nodes require: other users cannot read it.
pub(crate) fn write_key(path: &Path, pem: &str) {
    let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(pem.as_bytes()).unwrap();
}

/// A loopback address that no other test uses: of 127.64.0.0/10, by process id and a counter.
pub(crate) fn own_loopback() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    format!("127.{}.{}.{number}", 64 + process / 256 % 64, process % 256)
}
