//! A network namespace for a test. It has no other traffic, and all ports are free.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use watari_test_origins::namespace;

/// Far longer than any step takes. A test that hangs fails after it.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(1);

/// The polling interval.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Runs `test`, the calling test, once more in a namespace of its own. In that run it returns true, and the test
/// continues. If a program that it needs is missing, the test is skipped with a message.
pub(crate) fn is_inside(test: &str, needs: &[&str]) -> bool {
    #[expect(clippy::explicit_write, reason = "the test harness hides the output of `eprintln!` if a test passes")]
    if let Some(missing) = needs.iter().find(|program| !is_there(program)) {
        writeln!(io::stderr(), "SKIPPED: {test}: there is no {missing}, which `scripts/deps test` installs").unwrap();
        return false;
    }
    let is_inside = namespace::is_inside(test);
    if is_inside {
        run(program("ip").args(["link", "set", "lo", "up"]));
    }
    is_inside
}

/// A process that ends with the test, also if the test fails.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts a program in `dir`. Its output goes to a file there.
    pub(crate) fn start(dir: &Path, program: &str, arguments: &[&str]) -> Self {
        let said = File::create(dir.join(format!("{program}.said"))).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir).env("PATH", path_with_servers());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    /// Ends it with the signal for an orderly exit, and waits until it has written all output.
    pub(crate) fn quit(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::QUIT).unwrap();
        self.0.wait().unwrap();
    }

    /// Kills it.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until the server accepts connections.
pub(crate) fn wait_for(server: SocketAddr) {
    let deadline = Instant::now() + WAIT_MAX;
    while TcpStream::connect(server).is_err() {
        assert!(Instant::now() < deadline, "no server listens at {server}");
        thread::sleep(POLL);
    }
}

/// A program that is killed if it does not end.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([&WAIT_MAX.as_secs().to_string(), name]);
    command
}

/// Runs a program to its end, which must be a success. Returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The search path, with the directories in which Debian has servers.
fn path_with_servers() -> String {
    format!("{}:/usr/sbin", env::var("PATH").unwrap_or_default())
}

fn is_there(program: &str) -> bool {
    env::split_paths(&path_with_servers()).any(|directory| directory.join(program).is_file())
}
