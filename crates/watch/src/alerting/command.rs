//! Runs a program for each notice.
//!
//! Its standard input is the alert as a line of JSON, as in Alertmanager's webhook. Its environment is that of this
//! process, with `WATARI_*` variables for the alert. It runs in a process group of its own. After the timeout the whole
//! group is killed, so that no descendant stays.

use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::delivery::{DeliveryError, excerpt};
use super::messages;
use super::notice::{Notice, rfc3339};

/// Returns the program's output if it ended successfully.
pub(super) async fn run(
    program: &Path,
    args: &[String],
    notice: &Notice,
    limit: Duration,
) -> Result<String, DeliveryError> {
    let failed = |source| DeliveryError::Run { program: program.to_owned(), source };
    let mut command = Command::new(program);
    command.args(args).envs(environment(notice)).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let output = Output::of(&mut child, messages::alert(notice));
    let mut group = Group::of(child);
    if let Ok(status) = timeout(limit, group.wait()).await {
        let (status, output) = (status.map_err(failed)?, output.finish().await);
        return if status.success() { Ok(output) } else { Err(DeliveryError::Exit { status, output }) };
    }
    group.kill();
    group.wait().await.map_err(failed)?;
    Err(DeliveryError::Killed { limit, output: output.finish().await })
}

fn environment(notice: &Notice) -> Vec<(&'static str, String)> {
    let key = &notice.key;
    let ends_at = notice.over.as_ref().map_or_else(String::new, |over| rfc3339(over.at));
    vec![
        ("WATARI_STATUS", notice.status().to_owned()),
        ("WATARI_STATE", key.trouble.as_str().to_owned()),
        ("WATARI_SERVER", key.server.to_string()),
        ("WATARI_SENSOR", key.sensor.clone()),
        ("WATARI_ALERTNAME", key.trouble.alert_name().to_owned()),
        ("WATARI_SEVERITY", key.trouble.severity().to_owned()),
        ("WATARI_SUMMARY", notice.summary()),
        ("WATARI_DESCRIPTION", notice.description()),
        ("WATARI_STARTS_AT", rfc3339(notice.episode.since)),
        ("WATARI_ENDS_AT", ends_at),
        ("WATARI_FINGERPRINT", notice.fingerprint()),
    ]
}

/// A process and its descendants. Dropping this kills them.
struct Group {
    child: Child,
    has_ended: bool,
}

impl Group {
    const fn of(child: Child) -> Self {
        Self { child, has_ended: false }
    }

    async fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let status = self.child.wait().await;
        self.has_ended = true;
        status
    }

    /// Only before the process was reaped. Afterwards its number may belong to another process.
    fn kill(&self) {
        let id = self.child.id().filter(|_| !self.has_ended);
        let group = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group {
            // The group may have ended by itself.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The first part of the program's output.
struct Output {
    said: Arc<Mutex<Vec<u8>>>,
    pipes: JoinSet<()>,
}

/// The bytes of output that are stored.
const OUTPUT_LEN_MAX: usize = 4096;
/// How long to wait for output after the program's end, because a descendant may still hold the pipe.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

impl Output {
    fn of(child: &mut Child, input: Vec<u8>) -> Self {
        let said = Arc::default();
        let mut pipes = JoinSet::new();
        if let Some(mut stdin) = child.stdin.take() {
            pipes.spawn(async move {
                // The program need not read its input.
                let _ = stdin.write_all(&input).await;
            });
        }
        if let Some(stdout) = child.stdout.take() {
            pipes.spawn(keep(stdout, Arc::clone(&said)));
        }
        if let Some(stderr) = child.stderr.take() {
            pipes.spawn(keep(stderr, Arc::clone(&said)));
        }
        Self { said, pipes }
    }

    async fn finish(mut self) -> String {
        let _ = timeout(OUTPUT_GRACE, async { while self.pipes.join_next().await.is_some() {} }).await;
        excerpt(&self.said.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Stores the first bytes of a pipe. It reads the rest, too, so that the program does not block.
async fn keep(mut pipe: impl AsyncRead + Unpin, said: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = [0; 1024];
    while let Ok(len @ 1..) = pipe.read(&mut buffer).await {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        let room = OUTPUT_LEN_MAX - said.len();
        said.extend_from_slice(&buffer[..len.min(room)]);
    }
}
