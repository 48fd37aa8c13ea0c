//! A network of a test's own, in which nobody else's packets are captured, and ports are as the test wants them.

use std::env;
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than anything takes: a test that hangs fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// How often is looked again.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Set in the process that is in the namespace: the test's name.
const INSIDE: &str = "WATARI_TEST_INSIDE";

/// Runs `test`, the test that asks, once more in a namespace of its own, unless this is that run: then it returns true, and the test
/// goes on. Without one of the programs that it needs it is not run, and says so.
pub(crate) fn is_inside(test: &str, needs: &[&str]) -> bool {
    if env::var(INSIDE).is_ok_and(|inside| inside == test) {
        run(program("ip").args(["link", "set", "lo", "up"]));
        return true;
    }
    #[expect(clippy::explicit_write, reason = "what `eprintln!` prints is kept from the eye where a test passes")]
    if let Some(missing) = needs.iter().find(|program| !is_there(program)) {
        writeln!(io::stderr(), "SKIPPED: {test}: there is no {missing}, which `scripts/deps test` installs").unwrap();
        return false;
    }
    let output = Command::new("unshare")
        .args(["--map-root-user", "--net", "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, test)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    // What was measured.
    io::stdout().write_all(said.as_bytes()).unwrap();
    false
}

/// A process that ends with the test, however that does.
pub(crate) struct Running(pub(crate) Child);

impl Running {
    /// Starts a program in `dir`, which says what it has to say to a file there.
    pub(crate) fn start(dir: &Path, program: &str, arguments: &[&str]) -> Self {
        let said = File::create(dir.join(format!("{program}.said"))).unwrap();
        let mut command = Command::new(program);
        command.args(arguments).current_dir(dir).env("PATH", path_with_servers());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        Self(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")))
    }

    /// Ends it as its administrator would, and waits until it has said all.
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

/// Waits until somebody takes connections.
pub(crate) fn wait_for(server: SocketAddr) {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(server).is_err() {
        assert!(Instant::now() < deadline, "nobody listens at {server}");
        thread::sleep(POLL);
    }
}

/// A program that is killed if it does not end.
pub(crate) fn program(name: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([&PATIENCE.as_secs().to_string(), name]);
    command
}

/// Runs a program to its end, which is to be a good one; returns what it prints.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where Debian keeps servers, too.
fn path_with_servers() -> String {
    format!("{}:/usr/sbin", env::var("PATH").unwrap_or_default())
}

fn is_there(program: &str) -> bool {
    env::split_paths(&path_with_servers()).any(|directory| directory.join(program).is_file())
}
