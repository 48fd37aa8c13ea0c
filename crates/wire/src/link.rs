//! Messages between two nodes about their link.
//!
//! They have the same layout in every version, so that nodes of different versions can agree on one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use watari_values::{NodeName, Role};

use crate::bounds::BadLength;
use crate::members::Members;

/// The oldest message version that this build supports.
pub const VERSION_MIN: u8 = 1;
/// The newest message version that this build supports.
pub const VERSION_MAX: u8 = 1;

/// A message about the link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkMessage {
    /// The first message of each end.
    Hello(Hello),
    /// A test of the link, to be answered with `Pong`.
    Ping,
    /// The answer to `Ping`.
    Pong,
    /// The sender has skipped a frame that it does not support.
    Unsupported {
        /// The version of that frame.
        version: u8,
        /// The kind of that frame.
        kind: u8,
    },
    /// Members of the cluster. A node whose build does not support this skips it, and uses only its own configuration.
    Members(Members),
}

/// See [`LinkMessage::Hello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest message version that the sender supports.
    pub version_min: u8,
    /// The newest message version that the sender supports.
    pub version_max: u8,
    /// The sender's name, as in its certificate.
    pub node: NodeName,
    /// The sender's roles, by [`Role::as_str`]. Its certificate has to allow each. At most 16 names of 32 bytes.
    pub roles: Vec<String>,
    /// A random number, drawn when the sender's process starts.
    pub incarnation: u64,
}

impl Hello {
    const ROLES_MAX: usize = 16;
    const ROLE_LEN_MAX: usize = 32;

    /// The `Hello` of this build for `node`.
    pub fn new(node: NodeName, roles: &BTreeSet<Role>, incarnation: u64) -> Self {
        let roles = roles.iter().map(|role| role.as_str().to_owned()).collect();
        Self { version_min: VERSION_MIN, version_max: VERSION_MAX, node, roles, incarnation }
    }

    /// The newest version that both the sender and this build support.
    pub fn agreed_version(&self) -> Option<u8> {
        let newest = self.version_max.min(VERSION_MAX);
        (newest >= self.version_min.max(VERSION_MIN)).then_some(newest)
    }

    /// The roles that this build has. A newer sender may have others.
    pub fn known_roles(&self) -> BTreeSet<Role> {
        self.roles.iter().filter_map(|role| role.parse().ok()).collect()
    }

    pub(crate) fn check_bounds(&self) -> Result<(), BadLength> {
        let bad = |field, len, max| Err(BadLength { field, len, min: 0, max });
        if self.roles.len() > Self::ROLES_MAX {
            return bad("roles", self.roles.len(), Self::ROLES_MAX);
        }
        match self.roles.iter().map(String::len).find(|len| *len > Self::ROLE_LEN_MAX) {
            Some(len) => bad("role", len, Self::ROLE_LEN_MAX),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn hello(version_min: u8, version_max: u8) -> Hello {
        let node = NodeName::new("a").unwrap();
        Hello { version_min, version_max, ..Hello::new(node, &BTreeSet::from(Role::ALL), 7) }
    }

    #[test]
    fn the_newest_common_version_is_agreed_on() {
        assert_eq!(hello(VERSION_MIN, VERSION_MAX).agreed_version(), Some(VERSION_MAX));
        assert_eq!(hello(VERSION_MAX, u8::MAX).agreed_version(), Some(VERSION_MAX));
        assert_eq!(hello(VERSION_MAX + 1, u8::MAX).agreed_version(), None);
        assert_eq!(hello(0, VERSION_MIN - 1).agreed_version(), None);
        assert_eq!(hello(u8::MAX, 0).agreed_version(), None);
    }

    #[test]
    fn roles_of_a_newer_node_are_passed_over() {
        let mut hello = hello(1, 1);
        hello.roles.push("conductor".to_owned());
        assert_eq!(hello.known_roles(), BTreeSet::from(Role::ALL));
        assert_eq!(hello.check_bounds(), Ok(()));
    }

    #[test]
    fn roles_are_bounded() {
        let mut many = hello(1, 1);
        many.roles = vec![String::new(); 17];
        assert_eq!(many.check_bounds().unwrap_err().field, "roles");
        let mut long = hello(1, 1);
        long.roles = vec!["r".repeat(33)];
        assert_eq!(long.check_bounds().unwrap_err().field, "role");
    }
}
