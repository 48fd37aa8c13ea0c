//! Names and roles of nodes.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A node's name, as in its certificate: 1 to 63 bytes of `[a-z0-9-]`, as a DNS label (RFC 1035, section 2.3.1). Not
/// only digits, because certificates would take it for an address.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(rename = "node-name", extend("pattern" = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"))]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The longest name, in bytes.
    pub const LEN_MAX: usize = 63;

    /// Checks and copies `name`.
    pub fn new(name: &str) -> Result<Self, InvalidNodeName> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let hyphen_at_an_end = name.starts_with('-') || name.ends_with('-');
        let only_digits = name.bytes().all(|b| b.is_ascii_digit()); // also true for the empty name
        if only_digits || name.len() > Self::LEN_MAX || hyphen_at_an_end || !name.bytes().all(allowed) {
            return Err(InvalidNodeName);
        }
        Ok(Self(name.into()))
    }

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

/// A string is not a [`NodeName`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a node name is 1 to 63 characters of a-z, 0-9 and '-', with no '-' at an end and not only digits")]
pub struct InvalidNodeName;

/// The role of a node. Its certificate allows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Accepts clients, selects agents, decides moves. Has no TLS secrets.
    Dispatcher,
    /// Terminates TLS. May have the state of connections.
    Agent,
    /// Generates load, or controls processes that do (`watari bench`). Sends nothing on mesh links.
    Bench,
    /// Captures traffic at servers and reports to a judge (`watari watch live --report-to`). Sends nothing on mesh
    /// links.
    Sensor,
    /// Judges servers by the reports of sensors (`watari watch judge`). Sends nothing on mesh links.
    Judge,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [Self::Dispatcher, Self::Agent, Self::Bench, Self::Sensor, Self::Judge];

    /// The role as written in certificates, configuration and messages.
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

/// A string is not a [`Role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a role is `dispatcher`, `agent`, `bench`, `sensor` or `judge`")]
pub struct UnknownRole;

#[cfg(test)]
mod tests {
    use super::*;

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
