//! Builds and runs the programs.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use super::{Kind, Tally, Visits};
use crate::harness::site::SITE;

/// The program with OpenSSL, the one that pkg-config finds.
pub(super) fn openssl(service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        let build = "cc -O1 -Wall -Wextra -Werror -o \"$1\" \"$0\" $(pkg-config --cflags --libs openssl)";
        build_once("visitor.c", "openssl", |source, program| {
            finish(Command::new("sh").args(["-euc", build]).arg(source).arg(program));
        })
    });
    run(&mut Command::new(&*PROGRAM), service, ca, visits)
}

/// The program with Go. Its standard library is compiled into a cache beside it, if Go does not include it compiled.
pub(super) fn go(service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
    static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
        build_once("visitor.go", "go", |source, program| {
            let cache = program.with_file_name("go-cache");
            finish(Command::new("go").env("GOCACHE", cache).args(["build", "-o"]).arg(program).arg(source));
        })
    });
    run(&mut Command::new(&*PROGRAM), service, ca, visits)
}

/// The program with JSSE.
pub(super) fn jsse(service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
    static CLASSES: LazyLock<PathBuf> = LazyLock::new(|| {
        build_once("Visitor.java", "jsse", |source, classes| {
            finish(Command::new("javac").arg("-d").arg(classes).arg(source));
        })
    });
    let tickets = format!("-Djdk.tls.client.enableSessionTicketExtension={}", visits.kind != Kind::Ids);
    let mut command = Command::new("java");
    // A client runs for a short time, so the JVM should not spend CPU time on optimization.
    command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
    command.arg(tickets).arg("-cp").arg(&*CLASSES).arg("Visitor");
    run(&mut command, service, ca, visits)
}

fn run(command: &mut Command, service: SocketAddr, ca: &Path, visits: Visits) -> Tally {
    command.args([service.ip().to_string(), service.port().to_string()]).arg(ca).args([SITE, visits.kind.as_str()]);
    command.args([visits.sessions.to_string(), visits.resumptions.to_string()]);
    let said = finish(command);
    let numbers = said.trim().strip_prefix("full=").and_then(|rest| rest.split_once(" resumed="));
    let (full, resumed) = numbers.unwrap_or_else(|| panic!("it says {said:?}"));
    Tally { full: full.parse().unwrap(), resumed: resumed.parse().unwrap() }
}

/// Runs a command to its end, and returns its output.
fn finish(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| {
        panic!("cannot run {}, which `scripts/deps test` installs: {error}", command.get_program().display());
    });
    let (said, complaints) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {said}{complaints}");
    said.into_owned()
}

/// Builds `name` from the file `source`, in the directory that cargo gives to tests, if it is not built since the file
/// changed. Other processes of this test program wait meanwhile.
fn build_once(source: &str, name: &str, build: impl FnOnce(&Path, &Path)) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cluster/clients/visitors").join(source);
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("visitors");
    fs::create_dir_all(&directory).unwrap();
    let output = directory.join(name);
    // Written after a build that succeeded.
    let mark = directory.join(format!("{name}.built"));
    let lock = File::create(directory.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    if changed(&mark) <= changed(&source) {
        build(&source, &output);
        fs::write(&mark, "").unwrap();
    }
    output
}
