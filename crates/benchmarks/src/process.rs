//! A process that is measured.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::cpu;
use crate::failure::{Failure, doing};
use crate::memory;

/// The longest time in which a process may end after SIGTERM. Then it gets SIGKILL.
const END_MAX: Duration = Duration::from_secs(5);
/// The longest time in which a process may become ready.
const READY_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// Length of the excerpt from the end of the log in errors, in bytes.
const LAST_WORDS_LEN: usize = 500;

/// A child process. It gets SIGTERM when this value is dropped, or when this program ends.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program`. Its output goes to `log`.
    pub(crate) fn start(name: &str, program: &str, arguments: &[&str], log: PathBuf) -> Result<Self, Failure> {
        let output = File::create(&log).map_err(doing(format!("making {}", log.display())))?;
        let errors = output.try_clone().map_err(doing("a second descriptor of a log"))?;
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "--", program])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .env_remove("NOTIFY_SOCKET")
            .spawn()
            .map_err(doing(format!("starting {name}")))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// Calls `ready` until it succeeds. Returns its last error after a timeout, or if the process ends.
    pub(crate) fn wait_until<T, E: ToString>(&mut self, mut ready: impl FnMut() -> Result<T, E>) -> Result<T, Failure> {
        let deadline = Instant::now() + READY_MAX;
        loop {
            let why = match ready() {
                Ok(value) => return Ok(value),
                Err(why) => why.to_string(),
            };
            let ended = self.child.try_wait().map_err(doing(format!("waiting for {}", self.name)))?;
            if ended.is_some() || Instant::now() > deadline {
                let why = ended.map_or(why, |status| format!("ended with {status}"));
                return Err(Failure::NotReady { name: self.name.clone(), why, last_words: self.last_words() });
            }
            sleep(POLL);
        }
    }

    /// CPU time of the process and its children.
    pub(crate) fn cpu(&self) -> Result<Duration, Failure> {
        cpu::of_tree(self.child.id()).map_err(doing(format!("reading the CPU time of {}", self.name)))
    }

    /// Memory of the process and its children, in bytes.
    pub(crate) fn memory(&self) -> Result<u64, Failure> {
        memory::of_tree(self.child.id()).map_err(doing(format!("reading the memory of {}", self.name)))
    }

    /// Sends a signal, and does not wait for its effect.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Failure> {
        // The id belongs to this child until `try_wait` has seen its end.
        let pid = Pid::from_raw(self.child.id().cast_signed()).ok_or(io::ErrorKind::NotFound.into());
        let sent = pid.and_then(|pid| kill_process(pid, signal).map_err(io::Error::from));
        sent.map_err(doing(format!("sending {} a signal", self.name)))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS_LEN)..]).trim().to_owned()
    }

    fn end(&mut self) -> io::Result<()> {
        // After the end of the child has been waited for, its id may belong to another process.
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        let _ = self.signal(Signal::TERM);
        let deadline = Instant::now() + END_MAX;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
            }
            sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{} cannot be ended: {error}", self.name);
        }
    }
}
