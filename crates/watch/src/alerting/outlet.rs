//! Sends notices to a receiver of any type.

use std::path::PathBuf;
use std::time::Duration;

use watari_packets::Timestamp;

use super::config::{Facility, HttpTarget, Receiver, SyslogAddress, Target};
use super::delivery::DeliveryError;
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
}
