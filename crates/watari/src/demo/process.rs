//! A process of the demo.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::error::{DemoError, doing};

/// The time that a process gets to end after SIGINT.
const END_MAX: Duration = Duration::from_secs(5);
/// The length of the log's end that is shown if a process ends by itself, in bytes.
const LAST_WORDS_LEN: usize = 500;

/// A child process. It is killed when this value is dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts this program with `arguments`. Its standard error goes to `log`.
    pub(super) fn start(name: &str, arguments: &[&str], log: PathBuf) -> Result<Self, DemoError> {
        let program = std::env::current_exe().map_err(doing("finding the watari program"))?;
        let output = File::create(&log).map_err(doing(format!("making {}", log.display())))?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(output)
            .env_remove("NOTIFY_SOCKET")
            .kill_on_drop(true)
            .spawn()
            .map_err(doing(format!("starting {name}")))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The first line that the process prints.
    pub(super) async fn first_line(&mut self) -> Result<String, DemoError> {
        let mut line = String::new();
        if let Some(output) = self.child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut line).await;
            read.map_err(doing(format!("reading from {}", self.name)))?;
        }
        if line.is_empty() {
            return Err(self.ended().await);
        }
        Ok(line.trim_end().to_owned())
    }

    /// Fails if the process has ended.
    pub(super) fn check(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.report(status)),
            Err(cause) => Err(doing(format!("waiting for {}", self.name))(cause)),
        }
    }

    /// Waits until the process ends, which it should not, and returns the error.
    pub(super) async fn ended(&mut self) -> DemoError {
        match self.child.wait().await {
            Ok(status) => self.report(status),
            Err(cause) => doing(format!("waiting for {}", self.name))(cause),
        }
    }

    /// Sends SIGINT to the process, and kills it if it does not end.
    pub(super) async fn stop(&mut self) {
        let pid = self.child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // The system still holds the process, so its id cannot belong to another one.
            let _ = kill_process(pid, Signal::INT);
        }
        if timeout(END_MAX, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    fn report(&self, status: ExitStatus) -> DemoError {
        let log = fs::read(&self.log).unwrap_or_default();
        let last_words = &log[log.len().saturating_sub(LAST_WORDS_LEN)..];
        let last_words = String::from_utf8_lossy(last_words).trim().to_owned();
        DemoError::Ended { name: self.name.clone(), status: status.to_string(), last_words }
    }
}
