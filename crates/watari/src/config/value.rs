//! Values that TOML has no types for.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::Targets;
use watari_agent::Listener;
use watari_balance::{ClientPrefix, InvalidPrefix, WEIGHT_MAX};
use watari_dispatcher::NamePattern;
use watari_proxy::OriginAddress;

/// The path of a file or directory. A relative path starts at the directory of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(rename = "path", with = "String")]
pub(super) struct FilePath(pub(super) PathBuf);

/// `IP:PORT`, such as `192.0.2.1:443` or `[2001:db8::1]:443`. The port is not 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "address", with = "String")]
pub(super) struct Address(pub(super) SocketAddr);

/// `IP:PORT`, or a port alone: `:PORT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "listener", with = "String")]
pub(super) struct ListenerAddress(pub(super) Listener);

/// `http://HOST:PORT` or `https://HOST:PORT`. Without a port: 80 or 443.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "origin", with = "String")]
pub(super) struct Origin(pub(super) OriginAddress);

/// An address and the length of its prefix in bits: `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "network", with = "String")]
pub(super) struct Network(pub(super) IpNet);

/// An address and the length of its prefix in bits: `192.0.2.10/24`, `2001:db8::10/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "service-address", with = "String")]
pub(super) struct ServiceAddress(pub(super) IpNet);

/// An IP address: `192.0.2.10`, `2001:db8::10`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(rename = "shared-address", with = "String")]
pub(super) struct SharedAddress(pub(super) IpAddr);

/// A DNS name, or all names below one: `db.example.com`, `*.example.com`.
#[derive(Debug, JsonSchema)]
#[schemars(rename = "host-pattern", with = "String")]
pub(super) struct HostPattern(pub(super) NamePattern);

/// A share in relation to others: 1 to [`WEIGHT_MAX`].
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u32")]
#[schemars(inline, with = "u32", extend("minimum" = 1, "maximum" = WEIGHT_MAX))]
pub(super) struct Weight(pub(super) u32);

/// The priority of a candidate for a service address: 1 to 254, as in VRRP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u8")]
#[schemars(inline, with = "u8", extend("minimum" = 1, "maximum" = 254))]
pub(super) struct Priority(pub(super) u8);

/// `{ ipv4 = 24, ipv6 = 56 }`
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "RawPrefix")]
#[schemars(inline, with = "RawPrefix")]
pub(crate) struct Prefix {
    ipv4: Option<u8>,
    ipv6: Option<u8>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RawPrefix {
    /// The bits of an IPv4 address that distinguish clients.
    #[schemars(range(min = 1, max = 32))]
    ipv4: Option<u8>,
    /// The bits of an IPv6 address that distinguish clients.
    #[schemars(range(min = 1, max = 128))]
    ipv6: Option<u8>,
}

/// The version of the PROXY protocol that carries the client's address.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ProxyProtocol {
    V2,
}

/// A level for all lines (`off`, `error`, `warn`, `info`, `debug`, `trace`), or levels by module:
/// `info,watari_mesh=debug`.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(rename = "levels")]
pub(super) struct Level(pub(super) Targets);

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

impl TryFrom<String> for ServiceAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<IpNet>() {
            Ok(net) if net.addr().is_unspecified() || net.addr().is_multicast() || net.addr().is_loopback() => {
                Err(format!("\"{text}\" is not an address that an interface can have for clients"))
            }
            Ok(net) => Ok(Self(net)),
            Err(_) => {
                Err(format!("\"{text}\" is not an address with a prefix, such as 192.0.2.10/24 or 2001:db8::10/64"))
            }
        }
    }
}

impl TryFrom<String> for SharedAddress {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.parse::<IpAddr>() {
            Ok(address) if address.is_unspecified() || address.is_multicast() || address.is_loopback() => {
                Err(format!("\"{text}\" is not an address that an interface can have for clients"))
            }
            Ok(address) => Ok(Self(address.to_canonical())),
            Err(_) => Err(format!("\"{text}\" is not an address, such as 192.0.2.10 or 2001:db8::10")),
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        // As in VRRP and keepalived.
        Self(100)
    }
}

impl TryFrom<u8> for Priority {
    type Error = String;

    fn try_from(priority: u8) -> Result<Self, String> {
        if (1..=254).contains(&priority) {
            Ok(Self(priority))
        } else {
            Err(format!("a priority is 1 to 254, not {priority}"))
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

impl Prefix {
    /// `default`, with the lengths that are configured.
    pub(super) fn or(self, default: ClientPrefix) -> ClientPrefix {
        default.with(self.ipv4, self.ipv6).expect("the lengths are checked when the table is read")
    }
}

impl TryFrom<RawPrefix> for Prefix {
    type Error = InvalidPrefix;

    fn try_from(raw: RawPrefix) -> Result<Self, InvalidPrefix> {
        let RawPrefix { ipv4, ipv6 } = raw;
        ClientPrefix::default().with(ipv4, ipv6).map(|_| Self { ipv4, ipv6 })
    }
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

impl From<Level> for String {
    fn from(level: Level) -> Self {
        level.0.to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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
