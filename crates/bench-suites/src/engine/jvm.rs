//! A JVM that runs the program. It is killed if it does not answer in time.

use std::env;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::work::Work;

/// The file name of the program.
pub(super) const PROGRAM: &str = "Jsse.java";

/// The file that sets the disabled algorithms.
pub(super) const SECURITY: &str = "java.security";

/// An error of the JVM.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JvmError {
    /// The files of the program could not be written.
    #[error("cannot write the program for the JVM: {0}")]
    Files(io::Error),
    /// There is no JVM.
    #[error("java was found neither in JAVA_HOME nor in PATH")]
    Missing,
    /// It could not be started, or writing to it failed.
    #[error("cannot run {command}: {error}", command = command.display())]
    Run {
        /// The path of the JVM.
        command: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// It ended, for example because it has no compiler.
    #[error("java ended: {0}")]
    Ended(String),
    /// It did not answer in time.
    #[error("java did not answer within {} s", .0.as_secs())]
    Silent(Duration),
    /// Its answer could not be parsed.
    #[error("cannot parse the answer of java: {0}")]
    Garbled(serde_json::Error),
    #[error("{0}")]
    Suite(String),
}

/// The first line of the program's output.
#[derive(Deserialize)]
pub(super) struct Hello {
    pub(super) version: String,
    pub(super) suites: Vec<String>,
}

/// A running JVM. It is killed when this value is dropped.
pub(super) struct Jvm {
    pub(super) child: Child,
    command: PathBuf,
    tasks: ChildStdin,
    answers: Receiver<String>,
    complaints: PathBuf,
}

impl Jvm {
    /// Starts the program in `directory`, and waits for its first line.
    pub(super) fn start(directory: &Path) -> Result<(Self, Hello), JvmError> {
        let command = java();
        let complaints = directory.join("complaints");
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound => JvmError::Missing,
            _ => JvmError::Run { command: command.clone(), error },
        };
        let mut child = arguments(&command, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&complaints).map_err(JvmError::Files)?)
            .spawn()
            .map_err(failed)?;
        let (Some(tasks), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(ErrorKind::BrokenPipe.into()));
        };
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || forward(output, &sender));
        let mut jvm = Self { child, command, tasks, answers, complaints };
        let hello = jvm.answer(WAIT_MAX)?;
        Ok((jvm, hello))
    }

    /// Sends a task, and waits for the answer.
    pub(super) fn ask<T: DeserializeOwned>(&mut self, task: &str, limit: Duration) -> Result<T, JvmError> {
        match writeln!(self.tasks, "{task}") {
            Ok(()) => self.answer(limit),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(self.ended()),
            Err(error) => Err(JvmError::Run { command: self.command.clone(), error }),
        }
    }

    fn answer<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, JvmError> {
        let line = self.answers.recv_timeout(limit).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => JvmError::Silent(limit),
            mpsc::RecvTimeoutError::Disconnected => self.ended(),
        })?;
        serde_json::from_str(&line).map_err(JvmError::Garbled)
    }

    /// The error of a JVM that ended: the first line of its error output, or its exit status.
    fn ended(&mut self) -> JvmError {
        let mut text = Vec::new();
        let read = File::open(&self.complaints).and_then(|file| file.take(LINE_MAX).read_to_end(&mut text));
        let text = String::from_utf8_lossy(&text);
        match (read, text.lines().find(|line| !line.trim().is_empty())) {
            (Ok(_), Some(line)) => JvmError::Ended(line.trim().to_owned()),
            _ => JvmError::Ended(self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())),
        }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The timeout of a task: far longer than the slowest suite took in 2009.
pub(super) fn answer_timeout(work: Work) -> Duration {
    WAIT_MAX + Duration::from_millis(work.bulk_bytes / 1000) + Duration::from_millis(100) * work.connections
}

fn java() -> PathBuf {
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin/java"));
    home.filter(|java| fs::exists(java).unwrap_or(false)).unwrap_or_else(|| "java".into())
}

/// Sets all parameters that the engines share, and removes the Java options that the environment sets for other programs.
fn arguments(java: &Path, directory: &Path) -> Command {
    let mut command = Command::new(java);
    command
        .env_remove("JAVA_TOOL_OPTIONS")
        .env_remove("JDK_JAVA_OPTIONS")
        .env_remove("_JAVA_OPTIONS")
        .arg(format!("-Djava.security.properties={}", directory.join(SECURITY).display()))
        .args(TERMS)
        .arg(directory.join(PROGRAM))
        .arg(directory);
    command
}

/// Forwards lines until the JVM ends or prints a line longer than [`LINE_MAX`].
fn forward(output: ChildStdout, answers: &Sender<String>) {
    let mut output = BufReader::new(output);
    loop {
        let mut line = String::new();
        let read = output.by_ref().take(LINE_MAX).read_line(&mut line);
        if !matches!(read, Ok(1..)) || !line.ends_with('\n') || answers.send(line).is_err() {
            return;
        }
    }
}

/// Groups in the order of preference. The second is also the curve of the keys. The server stores sessions; up to TLS
/// 1.2 by their session ids.
const TERMS: [&str; 4] = [
    "-Djdk.tls.namedGroups=x25519,secp256r1,ffdhe2048",
    "-Djdk.tls.ephemeralDHKeySize=2048",
    "-Djdk.tls.server.enableSessionTicketExtension=false",
    "-Djdk.tls.client.enableSessionTicketExtension=false",
];

/// Far longer than a JVM takes to start and to compile.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// The longest line that is read, in bytes.
const LINE_MAX: u64 = 65_536;
