//! A program that runs until it is stopped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::commands::{end_of, end_of_file};

/// How long a process may take to end after SIGTERM.
const STOP_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot {doing}: {error}")]
    File { doing: String, error: io::Error },
    #[error("{name} ended before it was ready ({status}): {output}")]
    Ended { name: String, status: ExitStatus, output: String },
    #[error("{name} is not ready after {} s: {output}", .waited.as_secs())]
    NotReady { name: String, waited: Duration, output: String },
}

/// It gets SIGKILL when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// The file of its standard error.
    errors: Option<PathBuf>,
}

impl Process {
    /// Starts a program whose outputs go to files.
    pub fn spawn(mut command: Command, output: &Path, errors: &Path) -> Result<Self, ProcessError> {
        let create = |path: &Path| File::create(path).map_err(file(format!("create {}", path.display())));
        command.stdin(Stdio::null()).stdout(create(output)?).stderr(create(errors)?);
        let child = command.spawn().map_err(file(shown(&command)))?;
        Ok(Self { child, errors: Some(errors.to_owned()) })
    }

    /// Starts a program for [`Self::wait_for_line`]. Its standard error is that of this process.
    pub(super) fn spawn_with_pipe(mut command: Command) -> Result<Self, ProcessError> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(file(shown(&command)))?;
        Ok(Self { child, errors: None })
    }

    /// Waits until it has printed a line.
    pub(super) fn wait_for_line(&mut self, name: &str, waiting_max: Duration) -> Result<(), ProcessError> {
        let output = self.child.stdout.take().expect("it has a pipe");
        let (send, received) = channel();
        spawn(move || {
            let mut lines = BufReader::new(output).lines();
            let _ = send.send(lines.next().is_some());
            // Until the process ends. A pipe without a reader would end it.
            lines.map_while(Result::ok).for_each(drop);
        });
        match received.recv_timeout(waiting_max) {
            Ok(true) => Ok(()),
            Ok(false) => {
                let status = self.child.wait().map_err(file(format!("wait for {name}")))?;
                Err(ProcessError::Ended { name: name.to_owned(), status, output: self.errors() })
            }
            Err(_) => Err(not_ready(name, waiting_max, self.errors())),
        }
    }

    /// Runs each command again and again until it has succeeded once.
    pub fn wait_ready(&mut self, name: &str, ready: Vec<Command>, waiting_max: Duration) -> Result<(), ProcessError> {
        let deadline = Instant::now() + waiting_max;
        for mut command in ready {
            let mut said = String::new();
            while let Err(stderr) = attempt(&mut command, deadline).map_err(file(shown(&command)))? {
                // The deadline may end the last attempt before it says anything.
                said = if stderr.is_empty() { said } else { stderr };
                if let Some(status) = self.has_ended() {
                    return Err(ProcessError::Ended { name: name.to_owned(), status, output: self.errors() });
                }
                if Instant::now() > deadline {
                    return Err(not_ready(name, waiting_max, format!("{said} {}", self.errors())));
                }
                sleep(POLL);
            }
        }
        Ok(())
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The end of its standard error.
    pub fn errors(&self) -> String {
        self.errors.as_deref().map_or_else(String::new, end_of_file)
    }

    /// SIGTERM, and SIGKILL if that does not end it in time.
    pub fn stop(&mut self) {
        if let (None, Some(pid)) = (self.has_ended(), Pid::from_raw(self.child.id().cast_signed())) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_MAX;
        while self.has_ended().is_none() && Instant::now() < deadline {
            sleep(POLL);
        }
        self.kill();
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs a command, and kills it at the deadline. Fails with the end of its standard error.
fn attempt(command: &mut Command, deadline: Instant) -> io::Result<Result<(), String>> {
    let mut errors = tempfile::tempfile()?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors.try_clone()?).spawn()?;
    let status = loop {
        match child.try_wait()? {
            None if Instant::now() > deadline => child.kill()?,
            None => sleep(POLL),
            Some(status) => break status,
        }
    };
    if status.success() {
        return Ok(Ok(()));
    }
    let mut text = Vec::new();
    errors.rewind()?;
    errors.read_to_end(&mut text)?;
    Ok(Err(end_of(&text)))
}

fn not_ready(name: &str, waited: Duration, output: String) -> ProcessError {
    ProcessError::NotReady { name: name.to_owned(), waited, output }
}

fn shown(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    format!("run {}", words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "))
}

fn file(doing: String) -> impl Fn(io::Error) -> ProcessError {
    move |error| ProcessError::File { doing: doing.clone(), error }
}
