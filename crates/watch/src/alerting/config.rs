//! Receivers of alerts: `[[receiver]]` in the configuration.
//!
//! ```toml
//! [[receiver]]
//! type = "webhook"             # or "alertmanager", "command", "syslog"
//! name = "pager"               # in logs and metrics; default: the type
//! hold_s = 30                  # how long a state has to last before a notice; default: 0
//! repeat_s = 14400             # interval of notices while it lasts; default: never (alertmanager: 60)
//! states = ["stopped"]         # default: saturated and stopped
//! timeout_s = 10               # the longest attempt
//! url = "https://alerts.example/hook"
//! ```

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Uri;
use serde::Deserialize;

use super::alerts::{Backoff, Policy};
use super::notice::Trouble;

/// The keys of a receiver in a file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReceiverFile {
    r#type: Type,
    name: Option<String>,
    hold_s: Option<u64>,
    repeat_s: Option<u64>,
    states: Option<Vec<Trouble>>,
    timeout_s: Option<u64>,
    url: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    external_url: Option<String>,
    program: Option<PathBuf>,
    args: Option<Vec<String>>,
    address: Option<String>,
    facility: Option<Facility>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Webhook,
    Alertmanager,
    Command,
    Syslog,
}

/// A receiver of alerts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receiver {
    /// The notices that it gets.
    pub policy: Policy,
    /// The longest attempt.
    pub timeout: Duration,
    pub target: Target,
}

/// The address and protocol of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It accepts the webhook of Alertmanager, version 4.
    Webhook(HttpTarget),
    /// It is Alertmanager, or has its API, version 2.
    Alertmanager(HttpTarget),
    /// A program that is run for each notice.
    Command {
        /// Its path, or its name in `PATH`.
        program: PathBuf,
        args: Vec<String>,
    },
    /// It accepts RFC 5424.
    Syslog { address: SyslogAddress, facility: Facility },
}

/// An HTTP server, and how to send requests to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpTarget {
    /// With `http` or `https`, a host and a path.
    pub url: Uri,
    /// The trusted authorities (PEM); `None` trusts those of the system.
    pub ca_file: Option<PathBuf>,
    /// A bearer token. The file is read for each notice, so that it may change.
    pub token_file: Option<PathBuf>,
    /// A page with further information for people; may be empty.
    pub external_url: String,
}

/// The address of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogAddress {
    /// A datagram socket.
    Unix(PathBuf),
    /// RFC 5426, `host:port`. Delivery is not acknowledged.
    Udp(String),
    /// RFC 6587 with octet counting, `host:port`.
    Tcp(String),
}

/// Syslog's facility (RFC 5424, section 6.2.1), with its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Facility {
    User = 1,
    #[default]
    Daemon = 3,
    Auth = 4,
    Syslog = 5,
    Local0 = 16,
    Local1 = 17,
    Local2 = 18,
    Local3 = 19,
    Local4 = 20,
    Local5 = 21,
    Local6 = 22,
    Local7 = 23,
}

/// A `[[receiver]]` section is invalid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AlertingConfigError {
    /// A required key is missing.
    #[error("the [[receiver]] {receiver} needs {key}: it is of type {kind}")]
    Missing {
        /// The name of the receiver.
        receiver: String,
        key: &'static str,
        /// The type of the receiver.
        kind: &'static str,
    },
    /// A key does not belong to this type of receiver.
    #[error("{key} is not allowed for the [[receiver]] {receiver}: it is of type {kind}")]
    Misplaced {
        /// The name of the receiver.
        receiver: String,
        key: &'static str,
        /// The type of the receiver.
        kind: &'static str,
    },
    /// A value is invalid.
    #[error("{key} of the [[receiver]] {receiver} is not {expected}")]
    Value {
        /// The name of the receiver.
        receiver: String,
        key: &'static str,
        expected: &'static str,
    },
    /// Two receivers have the same name.
    #[error("two [[receiver]] sections have the name {0}: give each its own")]
    Twice(String),
    /// There are too many receivers. The value is their number.
    #[error("there are {0} [[receiver]] sections, at most {RECEIVERS_MAX} are allowed")]
    TooMany(usize),
}

pub const RECEIVERS_MAX: usize = 16;

/// The receivers of `[[receiver]]` sections.
pub(super) fn receivers(files: &[ReceiverFile]) -> Result<Vec<Receiver>, AlertingConfigError> {
    if files.len() > RECEIVERS_MAX {
        return Err(AlertingConfigError::TooMany(files.len()));
    }
    let mut receivers: Vec<Receiver> = Vec::new();
    for file in files {
        let receiver = file.receiver()?;
        if receivers.iter().any(|other| other.policy.name == receiver.policy.name) {
            return Err(AlertingConfigError::Twice(receiver.policy.name));
        }
        receivers.push(receiver);
    }
    Ok(receivers)
}

impl ReceiverFile {
    /// Resolves relative paths against `directory`.
    pub(super) fn resolve(&mut self, directory: &Path) {
        for path in [&mut self.ca_file, &mut self.token_file].into_iter().flatten() {
            *path = directory.join(&*path);
        }
    }

    fn receiver(&self) -> Result<Receiver, AlertingConfigError> {
        self.has_nothing_else()?;
        let timeout_s = self.seconds("timeout_s", self.timeout_s, 1)?.unwrap_or(TIMEOUT);
        Ok(Receiver { policy: self.policy()?, timeout: timeout_s, target: self.target()? })
    }

    fn policy(&self) -> Result<Policy, AlertingConfigError> {
        let name = self.name();
        let is_name = |name: &str| !name.is_empty() && name.len() <= 64 && !name.contains(char::is_control);
        if !is_name(&name) {
            return Err(self.not("name", "1 to 64 printable characters"));
        }
        let troubles = self.states.clone().unwrap_or_else(|| Trouble::ALL.to_vec());
        if troubles.is_empty() {
            return Err(self.not("states", "a list of saturated, stopped or both"));
        }
        let hold = self.seconds("hold_s", self.hold_s, 0)?.unwrap_or_default();
        let repeat = self.seconds("repeat_s", self.repeat_s, 1)?;
        let repeat = repeat.or((self.r#type == Type::Alertmanager).then_some(ALERTMANAGER_REPEAT));
        Ok(Policy { name, hold, repeat, troubles, backoff: Backoff::usual() })
    }

    fn target(&self) -> Result<Target, AlertingConfigError> {
        Ok(match self.r#type {
            Type::Webhook => Target::Webhook(self.http("a URL such as https://alerts.example/hook")?),
            Type::Alertmanager => Target::Alertmanager(self.http("a URL such as http://alertmanager.example:9093")?),
            Type::Command => {
                let program = self.program.clone().ok_or_else(|| self.needs("program"))?;
                let args = self.args.clone().unwrap_or_default();
                if args.iter().any(|arg| arg.contains('\0')) {
                    return Err(self.not("args", "a list of strings without NUL"));
                }
                Target::Command { program, args }
            }
            Type::Syslog => {
                let address = self.address.as_deref().unwrap_or("/dev/log");
                let expected = "a path such as /dev/log, udp://host:514 or tcp://host:601";
                let address = SyslogAddress::parse(address).ok_or_else(|| self.not("address", expected))?;
                Target::Syslog { address, facility: self.facility.unwrap_or_default() }
            }
        })
    }

    fn http(&self, expected: &'static str) -> Result<HttpTarget, AlertingConfigError> {
        let text = self.url.as_deref().ok_or_else(|| self.needs("url"))?;
        let url: Uri = text.parse().map_err(|_| self.not("url", expected))?;
        let authority = url.authority().filter(|_| matches!(url.scheme_str(), Some("http" | "https")));
        let Some(authority) = authority.filter(|authority| !authority.host().is_empty()) else {
            return Err(self.not("url", expected));
        };
        if authority.as_str().contains('@') {
            return Err(self.not("url", "a URL without a user name and a password: use token_file"));
        }
        if url.scheme_str() == Some("http") && self.ca_file.is_some() {
            return Err(self.not("ca_file", "allowed for a url without https"));
        }
        let external_url = self.external_url.clone().unwrap_or_default();
        Ok(HttpTarget { url, ca_file: self.ca_file.clone(), token_file: self.token_file.clone(), external_url })
    }

    /// Refuses keys of other types.
    fn has_nothing_else(&self) -> Result<(), AlertingConfigError> {
        use Type::{Alertmanager, Command, Syslog, Webhook};
        let http: &[Type] = &[Webhook, Alertmanager];
        let keys = [
            ("url", self.url.is_some(), http),
            ("ca_file", self.ca_file.is_some(), http),
            ("token_file", self.token_file.is_some(), http),
            ("external_url", self.external_url.is_some(), http),
            ("program", self.program.is_some(), &[Command]),
            ("args", self.args.is_some(), &[Command]),
            ("address", self.address.is_some(), &[Syslog]),
            ("facility", self.facility.is_some(), &[Syslog]),
        ];
        let misplaced = keys.into_iter().find(|(_, is_set, types)| *is_set && !types.contains(&self.r#type));
        misplaced.map_or(Ok(()), |(key, ..)| {
            Err(AlertingConfigError::Misplaced { receiver: self.name(), key, kind: self.r#type.as_str() })
        })
    }

    fn name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.r#type.as_str().to_owned())
    }

    fn seconds(
        &self,
        key: &'static str,
        value: Option<u64>,
        least: u64,
    ) -> Result<Option<Duration>, AlertingConfigError> {
        match value {
            Some(value) if !(least..=SECONDS_MAX).contains(&value) => {
                let (none, one) = ("a number of seconds, 0 to 604800", "a number of seconds, 1 to 604800");
                Err(self.not(key, if least == 0 { none } else { one }))
            }
            value => Ok(value.map(Duration::from_secs)),
        }
    }

    fn needs(&self, key: &'static str) -> AlertingConfigError {
        AlertingConfigError::Missing { receiver: self.name(), key, kind: self.r#type.as_str() }
    }

    fn not(&self, key: &'static str, expected: &'static str) -> AlertingConfigError {
        AlertingConfigError::Value { receiver: self.name(), key, expected }
    }
}

impl Type {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Alertmanager => "alertmanager",
            Self::Command => "command",
            Self::Syslog => "syslog",
        }
    }
}

impl SyslogAddress {
    fn parse(text: &str) -> Option<Self> {
        match text.split_once("://") {
            Some(("udp", place)) if is_place(place) => Some(Self::Udp(place.to_owned())),
            Some(("tcp", place)) if is_place(place) => Some(Self::Tcp(place.to_owned())),
            None if text.starts_with('/') => Some(Self::Unix(text.into())),
            _ => None,
        }
    }
}

/// Whether it is `host:port`.
fn is_place(text: &str) -> bool {
    let is_name = |(host, port): (&str, &str)| {
        !host.is_empty() && !host.contains([':', '/', '@']) && port.parse().is_ok_and(|port: u16| port > 0)
    };
    text.parse::<SocketAddr>().is_ok() || text.rsplit_once(':').is_some_and(is_name)
}

/// The default of `timeout_s`.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Alertmanager ends alerts that are not repeated.
const ALERTMANAGER_REPEAT: Duration = Duration::from_mins(1);
/// A week.
const SECONDS_MAX: u64 = 604_800;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[derive(Deserialize)]
    struct Config {
        receiver: Vec<ReceiverFile>,
    }

    fn parsed(text: &str) -> Result<Vec<Receiver>, String> {
        let config: Config = toml::from_str(text).map_err(|error| error.to_string())?;
        receivers(&config.receiver).map_err(|error| error.to_string())
    }

    fn one(lines: &str) -> Result<Receiver, String> {
        parsed(&format!("[[receiver]]\n{lines}")).map(|mut receivers| receivers.remove(0))
    }

    #[test]
    fn what_is_left_out_is_as_usual() {
        let webhook = one("type = 'webhook'\nurl = 'https://alerts.example/hook'").unwrap();
        let policy = Policy {
            name: "webhook".to_owned(),
            hold: Duration::ZERO,
            repeat: None,
            troubles: vec![Trouble::Saturated, Trouble::Stopped],
            backoff: Backoff::usual(),
        };
        assert_eq!((webhook.policy, webhook.timeout), (policy, TIMEOUT));
        let alertmanager = one("type = 'alertmanager'\nurl = 'http://[::1]:9093'").unwrap();
        assert_eq!(alertmanager.policy.repeat, Some(ALERTMANAGER_REPEAT));
        let syslog = one("type = 'syslog'").unwrap();
        let address = SyslogAddress::Unix("/dev/log".into());
        assert_eq!(syslog.target, Target::Syslog { address, facility: Facility::Daemon });
    }

    #[test]
    fn syslog_is_at_a_path_or_at_a_host_and_a_port() {
        let address = |text: &str| SyslogAddress::parse(text);
        assert_eq!(address("udp://log.example:514"), Some(SyslogAddress::Udp("log.example:514".to_owned())));
        assert_eq!(address("tcp://[2001:db8::1]:601"), Some(SyslogAddress::Tcp("[2001:db8::1]:601".to_owned())));
        for wrong in ["log", "udp://log", "udp://:514", "tcp://log:0", "tcp://a/b:1", "tls://log:1", "tcp://::1:99999"]
        {
            assert_eq!(address(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |lines: &str| one(lines).unwrap_err();
        assert_eq!(refused("type = 'webhook'"), "the [[receiver]] webhook needs url: it is of type webhook");
        assert_eq!(
            refused("type = 'command'\nname = 'page'\nprogram = '/bin/page'\nurl = 'http://a/'"),
            "url is not allowed for the [[receiver]] page: it is of type command"
        );
        let url = "url of the [[receiver]] webhook is not ";
        assert!(refused("type = 'webhook'\nurl = 'alerts.example'").starts_with(url));
        assert!(refused("type = 'webhook'\nurl = 'ftp://alerts.example'").starts_with(url));
        assert!(refused("type = 'webhook'\nurl = 'https://me:secret@alerts.example'").ends_with("use token_file"));
        let seconds = "timeout_s of the [[receiver]] syslog is not a number of seconds, 1 to 604800";
        assert_eq!(refused("type = 'syslog'\ntimeout_s = 0"), seconds);
        assert!(refused("type = 'syslog'\nstates = []").contains("states"));
        assert!(refused("type = 'syslog'\nstates = ['idle']").contains("unknown variant `idle`"));
        assert!(refused("type = 'syslog'\nhold = 3").contains("unknown field `hold`"));
        let twice = parsed("[[receiver]]\ntype = 'syslog'\n[[receiver]]\ntype = 'syslog'").unwrap_err();
        assert_eq!(twice, "two [[receiver]] sections have the name syslog: give each its own");
        let many = parsed(&"[[receiver]]\ntype = 'syslog'\n".repeat(17)).unwrap_err();
        assert_eq!(many, "there are 17 [[receiver]] sections, at most 16 are allowed");
    }
}
