//! The operator's program, which runs when an address becomes active or standby.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Runs that may wait for earlier ones. Further ones are dropped.
const WAITING_MAX: usize = 256;
/// The program is killed after this time.
const RUN_MAX: Duration = Duration::from_secs(30);

/// A change of a role.
pub(crate) struct Notice {
    pub(crate) is_active: bool,
    pub(crate) address: IpAddr,
    pub(crate) interface: String,
}

/// Runs the program for each notice, one after the other, so that the last run is about the last change.
#[derive(Clone)]
pub(crate) struct Notifier {
    key: &'static str,
    notices: Option<mpsc::Sender<Notice>>,
}

impl Notifier {
    /// `None`: there is no program. Must be called in a tokio runtime.
    /// `key`: its key in the configuration.
    pub(crate) fn start(key: &'static str, program: Option<PathBuf>) -> Self {
        Self {
            key,
            notices: program.map(|program| {
                // A name without a directory would be looked up in PATH.
                let program = std::path::absolute(&program).unwrap_or(program);
                let (sender, mut notices) = mpsc::channel(WAITING_MAX);
                tokio::spawn(async move {
                    while let Some(notice) = notices.recv().await {
                        run(&program, notice).await;
                    }
                });
                sender
            }),
        }
    }

    pub(crate) fn notify(&self, notice: Notice) {
        if let Some(sender) = &self.notices
            && sender.try_send(notice).is_err()
        {
            tracing::warn!("the program of {} is too slow: a change is not reported to it", self.key);
        }
    }
}

async fn run(program: &PathBuf, Notice { is_active, address, interface }: Notice) {
    let state = if is_active { "active" } else { "standby" };
    let mut command = Command::new(program);
    command.args([state, &address.to_string(), &interface]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let program = program.display();
    match timeout(RUN_MAX, command.status()).await {
        Ok(Ok(status)) if status.success() => tracing::debug!(%program, state, %address, "notified"),
        Ok(Ok(status)) => tracing::warn!(%program, state, %address, %status, "the program of notify failed"),
        Ok(Err(error)) => tracing::warn!(%program, state, %address, %error, "cannot run the program of notify"),
        Err(_) => tracing::warn!(%program, state, %address, "the program of notify was killed after 30 s"),
    }
}
