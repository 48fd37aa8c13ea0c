//! Values that TOML has no types for.

use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;
use tracing_subscriber::filter::Targets;
use watari_agent::Listener;
use watari_balance::{ClientPrefix, InvalidPrefix, WEIGHT_MAX};
use watari_dispatcher::NamePattern;
use watari_proxy::OriginAddress;
use watari_values::duration;

/// A duration above zero: `500ms`, `1.5s`, `5m`, `2h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Span(Duration);

impl Span {
    pub(crate) fn get(self) -> Duration {
        self.0
    }
}

/// An address to listen at or connect to: `IP:PORT`, the port not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Address(pub(super) SocketAddr);

/// An address that clients connect to, or a port alone: `IP:PORT`, `:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct ListenerAddress(pub(super) Listener);

/// `http://HOST:PORT`
#[derive(Debug)]
pub(super) struct Origin(pub(super) OriginAddress);

/// An address and the length of its prefix in bits: `192.0.2.0/24`.
#[derive(Debug)]
pub(super) struct Network(pub(super) IpNet);

/// `db.example.com`, `*.example.com`
#[derive(Debug)]
pub(super) struct HostPattern(pub(super) NamePattern);

/// An agent's share of connections, relative to other agents: 1 to 1000.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
pub(super) struct Weight(pub(super) u32);

/// `{ ipv4 = 24, ipv6 = 56 }`
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "RawPrefix")]
pub(super) struct Prefix(pub(super) ClientPrefix);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPrefix {
    #[serde(default = "whole_ipv4")]
    ipv4: u8,
    #[serde(default = "whole_ipv6")]
    ipv6: u8,
}

/// The levels of logged lines: one for all, or by module (`info,watari_mesh=debug`).
#[derive(Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Level(pub(super) Targets);

impl TryFrom<String> for Span {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match duration::parse(text) {
            Ok(Duration::ZERO) => Err(format!("\"{text}\" must be more than 0")),
            Ok(duration) => Ok(Self(duration)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<SocketAddr>() {
            Ok(address) if address.port() == 0 => Err(format!("\"{text}\" has port 0: expected 1 to 65535")),
            Ok(address) => Ok(Self(address)),
            Err(_) => {
                Err(format!("\"{text}\" is not an IP address with a port, such as 192.0.2.1:443 or [2001:db8::1]:443"))
            }
        }
    }
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<IpNet>() {
            Ok(network) if network.trunc() != network => {
                Err(format!("\"{text}\" has bits after its prefix: did you mean \"{}\"?", network.trunc()))
            }
            Ok(network) => Ok(Self(network)),
            Err(_) => Err(format!("\"{text}\" is not a network, such as 192.0.2.0/24 or 2001:db8::/32")),
        }
    }
}

impl TryFrom<String> for HostPattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("\"{text}\" is not a valid name: {error}"))
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<u32> for Weight {
    type Error = String;

    fn try_from(weight: u32) -> Result<Self, String> {
        if (1..=WEIGHT_MAX).contains(&weight) {
            Ok(Self(weight))
        } else {
            Err(format!("a weight is 1 to {WEIGHT_MAX}, not {weight}"))
        }
    }
}

impl TryFrom<RawPrefix> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(raw: RawPrefix) -> Result<Self, InvalidPrefix> {
        ClientPrefix::new(raw.ipv4, raw.ipv6).map(Self)
    }
}

fn whole_ipv4() -> u8 {
    32
}

fn whole_ipv6() -> u8 {
    128
}

impl TryFrom<String> for ListenerAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if let Some(port) = text.strip_prefix(':') {
            return match port.parse() {
                Ok(0) | Err(_) => Err(format!("\"{text}\" is not a port, such as :8443")),
                Ok(port) => Ok(Self(Listener { ip: None, port })),
            };
        }
        let Address(address) = text.try_into()?;
        if address.ip().is_unspecified() {
            return Err(format!(
                "clients cannot connect to {address}: write \":{}\" for all addresses",
                address.port()
            ));
        }
        Ok(Self(Listener { ip: Some(address.ip()), port: address.port() }))
    }
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error| format!("\"{text}\" is not an origin: {error}"))
    }
}

impl TryFrom<String> for Level {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let known = |level: &str| ["off", "error", "warn", "info", "debug", "trace"].contains(&level);
        // A bare word that is no level would count as the name of a module.
        let levels = text.split(',').map(|directive| directive.rsplit('=').next().unwrap_or_default());
        match Targets::from_str(&text) {
            Ok(targets) if levels.into_iter().all(known) => Ok(Self(targets)),
            _ => Err(format!("\"{text}\" is not a log level, such as info or info,watari_mesh=debug")),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn durations_are_above_zero() {
        let cases = [("1ms", 1), ("10s", 10_000), ("1.5s", 1500), ("2h", 7_200_000), ("7d", 604_800_000)];
        for (text, ms) in cases {
            assert_eq!(Span::try_from(text.to_owned()), Ok(Span(Duration::from_millis(ms))));
        }
        for text in ["", "10", "-1s", "0s", "0.0ms", "1w"] {
            assert!(Span::try_from(text.to_owned()).is_err(), "{text}");
        }
    }

    #[test]
    fn log_levels_are_read() {
        for text in ["info", "off", "info,watari_mesh=debug"] {
            assert!(Level::try_from(text.to_owned()).is_ok(), "{text}");
        }
        for text in ["", "loud", "info,", "watari_mesh=loud", "5"] {
            assert!(Level::try_from(text.to_owned()).is_err(), "{text}");
        }
    }
}
