//! The process of a server.

use std::fs::{self, File};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use super::error::StartError;
use super::plan::Plan;
use crate::raw;

/// Longer than any server takes to start or to end on the slowest machine.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The interval of the checks.
const PAUSE: Duration = Duration::from_millis(5);

/// Debian's `nobody` and `nogroup`.
const UNPRIVILEGED_ID: u32 = 65534;

/// The file with the output of a server, in its directory.
const OUTPUT: &str = "output";

#[derive(Debug)]
pub(super) struct Process {
    program: &'static str,
    child: Child,
    /// The signal that ends it.
    end: Signal,
    /// Deleted after the process has ended.
    dir: TempDir,
}

impl Process {
    /// Returns when the server answers.
    pub(super) fn start(
        program: &'static str,
        plan: Plan,
        dir: TempDir,
        address: SocketAddr,
    ) -> Result<Self, StartError> {
        let path = find(program).ok_or(StartError::Missing { program })?;
        let io = |error| StartError::Io { program, error };
        furnish(dir.path(), &plan).map_err(io)?;
        let end = plan.end;
        let child = spawn(&path, plan, dir.path()).map_err(io)?;
        let mut process = Self { program, child, end, dir };
        process.wait_until_it_answers(address)?;
        Ok(process)
    }

    fn wait_until_it_answers(&mut self, address: SocketAddr) -> Result<(), StartError> {
        let deadline = Instant::now() + WAIT_MAX;
        while !answers(address) {
            let (program, output) = (self.program, self.output());
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return Err(StartError::Ended { program, output });
            }
            if Instant::now() > deadline {
                return Err(StartError::Silent { program, output });
            }
            sleep(PAUSE);
        }
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    fn output(&self) -> String {
        fs::read(self.dir.path().join(OUTPUT)).map(|bytes| String::from_utf8_lossy(&bytes).into()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(self.end);
        // It may be stopped (SIGSTOP).
        self.signal(Signal::CONT);
        let deadline = Instant::now() + WAIT_MAX;
        while self.child.try_wait().is_ok_and(|status| status.is_none()) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            sleep(PAUSE);
        }
    }
}

/// Searches `PATH`, and the directory in which Debian has servers.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).chain(["/usr/sbin".into()]).map(|dir| dir.join(program));
    candidates.find(|path| path.is_file())
}

/// Writes the files of a server, for the user that runs it.
fn furnish(dir: &Path, plan: &Plan) -> io::Result<()> {
    for name in &plan.directories {
        fs::create_dir(dir.join(name))?;
        give(&dir.join(name))?;
    }
    for (name, content) in &plan.files {
        fs::write(dir.join(name), content)?;
        give(&dir.join(name))?;
    }
    give(dir)
}

fn give(path: &Path) -> io::Result<()> {
    if geteuid().is_root() { chown(path, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)) } else { Ok(()) }
}

fn spawn(program: &Path, plan: Plan, dir: &Path) -> io::Result<Child> {
    let output = File::create(dir.join(OUTPUT))?;
    give(&dir.join(OUTPUT))?;
    let mut command = Command::new(program);
    command.args(plan.arguments).envs(plan.variables).current_dir(dir);
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    if geteuid().is_root() {
        // This drops the other groups, too.
        command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
    }
    command.spawn()
}

/// Whether it sends any answer.
fn answers(address: SocketAddr) -> bool {
    raw::ask_within(WAIT_MAX, address, "HEAD", "/", &[]).is_ok()
}
