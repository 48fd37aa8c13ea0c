//! A process that is measured.

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process, waitid};

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
///
/// The child's id is valid as long as this value exists: only [`Process::end`], which drops call, reaps the child. A
/// child that ends earlier stays a zombie, whose id the system gives to no other process.
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
            let ended = self.ended().map_err(doing(format!("waiting for {}", self.name)))?;
            if ended.is_some() || Instant::now() > deadline {
                let why = ended.map_or(why, |status| ended_with(&status));
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
        let sent = kill_process(Pid::from_child(&self.child), signal).map_err(io::Error::from);
        sent.map_err(doing(format!("sending {} a signal", self.name)))
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS_LEN)..]).trim().to_owned()
    }

    /// The status of the child if it has ended. Does not reap it.
    fn ended(&self) -> io::Result<Option<WaitIdStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?)
    }

    /// Ends the child and reaps it.
    fn end(&mut self) -> io::Result<()> {
        // A zombie ignores it.
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

fn ended_with(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("ended with exit status {code}"),
        (None, Some(signal)) => format!("ended by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::path::Path;

    use super::*;

    fn start(script: &str, dir: &Path) -> Process {
        Process::start("sh", "sh", &["-c", script], dir.join("log")).unwrap()
    }

    /// The state of a process in `/proc/PID/stat` (proc(5)). `None`: the system may give its id to another process.
    fn state(id: u32) -> Option<char> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.chars().next()
    }

    #[test]
    fn the_id_of_a_process_that_ends_early_stays_its_own() {
        let dir = tempfile::tempdir().unwrap();
        for (script, end) in [("echo no; exit 3", "exit status 3"), ("echo no; kill -KILL $$", "signal 9")] {
            let mut process = start(script, dir.path());
            let id = process.id();
            let failure = process.wait_until(|| Err::<(), _>("not ready")).unwrap_err();
            assert!(
                matches!(&failure, Failure::NotReady { why, last_words, .. } if why.ends_with(end) && last_words == "no"),
                "{failure}"
            );
            assert_eq!(state(id), Some('Z'));
            process.signal(Signal::TERM).unwrap();
            drop(process);
            assert_eq!(state(id), None);
        }
    }

    #[test]
    fn a_dropped_process_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let mut process = start("echo ready; exec sleep 60", dir.path());
        let log = process.log.clone();
        let ready = || if fs::read(&log).is_ok_and(|log| !log.is_empty()) { Ok(()) } else { Err("silent") };
        process.wait_until(ready).unwrap();
        let id = process.id();
        assert!(state(id).is_some_and(|state| state != 'Z'));
        drop(process);
        assert_eq!(state(id), None);
    }
}
