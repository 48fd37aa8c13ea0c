//! Sends notices to a receiver of any type.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use http::StatusCode;
use watari_packets::Timestamp;

use super::alerts::Retry;
use super::config::{Facility, HttpTarget, Receiver, SyslogAddress, Target};
use super::http::{Client, ClientError};
use super::notice::Notice;
use super::{command, messages, syslog};

/// The connection to a receiver.
#[derive(Debug)]
pub(super) struct Outlet {
    receiver: String,
    timeout: Duration,
    repeat: Option<Duration>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Webhook { client: Client, external_url: String },
    Alertmanager { client: Client, external_url: String },
    Command { program: PathBuf, args: Vec<String> },
    Syslog { address: SyslogAddress, facility: Facility },
}

/// A notice could not be delivered.
#[derive(Debug, thiserror::Error)]
pub(super) enum DeliveryError {
    #[error("it took longer than {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("it answered {status}: {body}")]
    Status { status: StatusCode, retry_after: Option<Duration>, body: String },
    #[error("the token file {}: {source}", .path.display())]
    Token { path: PathBuf, source: io::Error },
    #[error("the token in {} has characters that a token must not have", .0.display())]
    BadToken(PathBuf),
    #[error("cannot run {}: {source}", .program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("it ended with {status}: {output}")]
    Exit { status: ExitStatus, output: String },
    #[error("it ran longer than {} s and was killed: {output}", .limit.as_secs_f64())]
    Killed { limit: Duration, output: String },
    #[error("cannot send: {0}")]
    Send(io::Error),
    #[error("the delivery was aborted: {0}")]
    Lost(tokio::task::JoinError),
}

impl Outlet {
    /// Reads the files that it needs, such as the certificates of authorities.
    pub(super) fn new(receiver: &Receiver) -> Result<Self, ClientError> {
        let way = match receiver.target.clone() {
            Target::Webhook(target) => {
                let client = Client::new(&target)?;
                Way::Webhook { client, external_url: target.external_url }
            }
            Target::Alertmanager(target) => {
                let client = Client::new(&HttpTarget { url: api(&target.url), ..target.clone() })?;
                Way::Alertmanager { client, external_url: target.external_url }
            }
            Target::Command { program, args } => {
                if program.is_absolute() && !program.exists() {
                    let name = &receiver.policy.name;
                    tracing::warn!(receiver = name, program = %program.display(), "the program does not exist yet");
                }
                Way::Command { program, args }
            }
            Target::Syslog { address, facility } => Way::Syslog { address, facility },
        };
        let policy = &receiver.policy;
        Ok(Self { receiver: policy.name.clone(), timeout: receiver.timeout, repeat: policy.repeat, way })
    }

    /// Sends a notice, with one attempt.
    pub(super) async fn send(&self, notice: &Notice, now: Timestamp) -> Result<(), DeliveryError> {
        match &self.way {
            Way::Webhook { client, external_url } => {
                let body = messages::webhook(notice, &self.receiver, external_url);
                self.in_time(client.post(body)).await
            }
            Way::Alertmanager { client, external_url } => {
                let body = messages::alertmanager(notice, external_url, now, self.repeat);
                self.in_time(client.post(body)).await
            }
            Way::Command { program, args } => {
                let output = command::run(program, args, notice, self.timeout).await?;
                if !output.is_empty() {
                    tracing::info!(receiver = self.receiver, output, "a command of a receiver wrote output");
                }
                Ok(())
            }
            Way::Syslog { address, facility } => {
                let message = syslog::message(notice, *facility, now);
                self.in_time(syslog::send(address, &message, self.timeout / 2)).await
            }
        }
    }

    async fn in_time(&self, telling: impl Future<Output = Result<(), DeliveryError>>) -> Result<(), DeliveryError> {
        tokio::time::timeout(self.timeout, telling).await.unwrap_or(Err(DeliveryError::Timeout(self.timeout)))
    }
}

/// The API's URL. Alertmanager may be under a path, as set by `--web.route-prefix`.
fn api(url: &http::Uri) -> http::Uri {
    let prefix = url.path().trim_end_matches('/');
    let mut parts = url.clone().into_parts();
    parts.path_and_query = format!("{prefix}/api/v2/alerts").parse().ok();
    http::Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

impl DeliveryError {
    /// A receiver would refuse a refused notice (4xx) again, until it is repaired. Other failures may pass.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Status { status, retry_after, .. } if is_passing(*status) => Retry::Later(*retry_after),
            Self::Status { .. } => Retry::Slowly,
            _ => Retry::Later(None),
        }
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

/// The first part of a text from outside, without control characters, for a log.
pub(super) fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(&text[..text.len().min(EXCERPT_LEN_MAX)]);
    text.trim().chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// Length of an excerpt, in bytes.
const EXCERPT_LEN_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_api_is_below_the_address() {
        let of = |url: &str| api(&url.parse().unwrap()).to_string();
        assert_eq!(of("http://am:9093"), "http://am:9093/api/v2/alerts");
        assert_eq!(of("https://am/prefix/"), "https://am/prefix/api/v2/alerts");
    }

    #[test]
    fn what_is_refused_is_tried_slowly() {
        let retry = |code: u16, retry_after| {
            let status = StatusCode::from_u16(code).unwrap();
            DeliveryError::Status { status, retry_after, body: String::new() }.retry()
        };
        let minute = Some(Duration::from_mins(1));
        assert_eq!(retry(503, minute), Retry::Later(minute));
        assert_eq!(retry(429, minute), Retry::Later(minute));
        assert_eq!(retry(500, None), Retry::Later(None));
        for code in [301, 400, 401, 404, 422] {
            assert_eq!(retry(code, minute), Retry::Slowly, "{code}");
        }
        assert_eq!(DeliveryError::Timeout(Duration::ZERO).retry(), Retry::Later(None));
    }

    #[test]
    fn what_is_logged_of_others_is_short_and_one_line() {
        assert_eq!(excerpt(b"  no\x1b[2J\nway\n"), "no [2J way");
        assert_eq!(excerpt(&[b'a'; 5000]).len(), EXCERPT_LEN_MAX);
    }
}
