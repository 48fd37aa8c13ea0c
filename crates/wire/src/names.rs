//! Names of nodes, connections and attempts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A node's name, as in its certificate: 1 to 63 bytes of `[a-z0-9-]`, as a DNS label (RFC 1035, section 2.3.1), and
/// not digits alone, which certificates take for an address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 63;

    /// Checks `name` and takes it over.
    pub fn new(name: &str) -> Result<Self, InvalidNodeName> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let hyphen_at_an_end = name.starts_with('-') || name.ends_with('-');
        let only_digits = name.bytes().all(|b| b.is_ascii_digit()); // true of the empty name, too
        if only_digits || name.len() > Self::LEN_MAX || hyphen_at_an_end || !name.bytes().all(allowed) {
            return Err(InvalidNodeName);
        }
        Ok(Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for NodeName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidNodeName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        Self::new(&name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.as_ref().to_owned()
    }
}

/// A string is no [`NodeName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node name is 1 to 63 characters of a-z, 0-9 and '-', with no '-' at an end and not only digits")]
pub struct InvalidNodeName;

/// What a node may do in the cluster; its certificate says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Accepts clients, picks agents, decides moves. May hold no TLS secret.
    Dispatcher,
    /// Terminates TLS; may hold the state of connections.
    Agent,
    /// Makes load, or has others make it (`watari bench`). Says nothing on the links between nodes.
    Bench,
    /// Listens beside servers, and tells a judge (`watari watch live --report-to`). Says nothing on the links between nodes.
    Sensor,
    /// Judges servers by what sensors tell (`watari watch judge`). Says nothing on the links between nodes.
    Judge,
}

impl Role {
    /// Every role there is.
    pub const ALL: [Self; 5] = [Self::Dispatcher, Self::Agent, Self::Bench, Self::Sensor, Self::Judge];

    /// The role as certificates, configuration and links spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::Agent => "agent",
            Self::Bench => "bench",
            Self::Sensor => "sensor",
            Self::Judge => "judge",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|role| role.as_str() == name).ok_or(UnknownRole)
    }
}

/// A string names no [`Role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a role is `dispatcher`, `agent`, `bench`, `sensor` or `judge`")]
pub struct UnknownRole;

/// A client's TCP connection, named by the dispatcher that accepted it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ConnectionId {
    /// Drawn at random when the dispatcher's process starts: ids of an earlier life never come back.
    pub boot: u64,
    /// Counts up from 1 in the life of that process.
    pub number: u64,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.boot, self.number)
    }
}

impl FromStr for ConnectionId {
    type Err = InvalidConnectionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (boot, number) = text.split_once('-').ok_or(InvalidConnectionId)?;
        let id = Self {
            boot: u64::from_str_radix(boot, 16).map_err(|_| InvalidConnectionId)?,
            number: number.parse().map_err(|_| InvalidConnectionId)?,
        };
        // One form each: no signs, no other number of digits.
        if id.to_string() == text { Ok(id) } else { Err(InvalidConnectionId) }
    }
}

/// A string is no [`ConnectionId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a connection is named by 16 hexadecimal digits, '-', and its number")]
pub struct InvalidConnectionId;

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// By what a TLS session is found: a digest of its id and of the terms under which it was established. Who knows it knows neither.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub [u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({:08x}..)", u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]))
    }
}

/// Numbers the attempts to move one connection. The tenure of the agent that did the handshake is epoch 0; every
/// attempt has the next number, and the dispatcher decides each exactly once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Epoch(pub u32);

impl Epoch {
    /// The epoch of the next attempt.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_have_one_name_each() {
        let id = ConnectionId { boot: 0xab, number: 12 };
        assert_eq!(id.to_string(), "00000000000000ab-12");
        assert_eq!("00000000000000ab-12".parse(), Ok(id));
        for text in ["", "-", "ab-12", "00000000000000AB-12", "00000000000000ab-+12", "00000000000000ab-012", "x-1"] {
            assert_eq!(text.parse::<ConnectionId>(), Err(InvalidConnectionId), "{text:?}");
        }
    }

    #[test]
    fn node_names_are_labels() {
        for name in ["a", "a-1", "1a", "4-2", &"n".repeat(63)] {
            assert_eq!(NodeName::new(name).map(String::from).as_deref(), Ok(name));
        }
        for name in ["", "A", "a.b", "a_b", "-a", "a-", "7", "\u{e4}", &"n".repeat(64)] {
            assert_eq!(NodeName::new(name), Err(InvalidNodeName), "{name:?}");
        }
    }

    #[test]
    fn roles_come_back_from_their_names() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert_eq!("Agent".parse::<Role>(), Err(UnknownRole));
    }
}
