//! The versions, cipher suites and key exchange groups that a server accepts.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::{SupportedProtocolVersion, version};
use watari_record::{CipherSuite, Version};

/// The versions, cipher suites and key exchange groups that a server accepts. Of the common suites, the server's order
/// decides, unless the client prefers ChaCha20-Poly1305. Of the common groups, the client's order decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    pub versions: Vec<Version>,
    /// Suites of versions that are not accepted have no effect.
    pub suites: Vec<CipherSuite>,
    pub groups: Vec<Group>,
}

/// A key exchange group, by its IANA name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Hybrid of X25519 and ML-KEM-768. TLS 1.3 only.
    X25519MlKem768,
    /// Hybrid of P-256 and ML-KEM-768. TLS 1.3 only.
    Secp256r1MlKem768,
    /// RFC 7748.
    X25519,
    /// NIST P-256.
    Secp256r1,
    /// NIST P-384.
    Secp384r1,
}

/// No handshake could succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    /// The server would refuse every client.
    #[error("no TLS version is enabled")]
    NoVersion,
    /// The server would refuse every client of this version.
    #[error("{0} is enabled without any of its cipher suites")]
    NoSuite(Version),
    /// The server would refuse every client of this version.
    #[error("{0} is enabled without a key exchange group that it can use")]
    NoGroup(Version),
}

impl Default for Policy {
    /// All groups but `SecP256r1MLKEM768`: one group with ML-KEM is enough for clients that support any.
    fn default() -> Self {
        Self {
            versions: vec![Version::Tls12, Version::Tls13],
            suites: CipherSuite::ALL.to_vec(),
            groups: vec![Group::X25519MlKem768, Group::X25519, Group::Secp256r1, Group::Secp384r1],
        }
    }
}

impl Policy {
    /// Checks that each version has a suite and a group.
    pub fn check(&self) -> Result<(), BadPolicy> {
        if self.versions.is_empty() {
            return Err(BadPolicy::NoVersion);
        }
        for version in &self.versions {
            if !self.suites.iter().any(|suite| suite.version() == *version) {
                return Err(BadPolicy::NoSuite(*version));
            }
            if !self.groups.iter().any(|group| group.fits(*version)) {
                return Err(BadPolicy::NoGroup(*version));
            }
        }
        Ok(())
    }

    /// The suites of accepted versions.
    pub(crate) fn usable_suites(&self) -> impl Iterator<Item = CipherSuite> {
        self.suites.iter().copied().filter(|suite| self.versions.contains(&suite.version()))
    }

    /// The cryptography provider of rustls, limited to this policy, in its order.
    pub fn provider(&self) -> Arc<CryptoProvider> {
        let known = |suite: &CipherSuite| {
            let mut all = aws_lc_rs::ALL_CIPHER_SUITES.iter().copied();
            all.find(|known| u16::from(known.suite()) == suite.iana())
        };
        Arc::new(CryptoProvider {
            cipher_suites: self.suites.iter().filter_map(known).collect(),
            kx_groups: self.groups.iter().map(|group| group.rustls()).collect(),
            ..aws_lc_rs::default_provider()
        })
    }

    /// The versions as values of rustls.
    pub fn rustls_versions(&self) -> Vec<&'static SupportedProtocolVersion> {
        let of = |version: &Version| match version {
            Version::Tls12 => &version::TLS12,
            Version::Tls13 => &version::TLS13,
        };
        self.versions.iter().map(of).collect()
    }
}

impl Group {
    pub const ALL: [Self; 5] =
        [Self::X25519MlKem768, Self::Secp256r1MlKem768, Self::X25519, Self::Secp256r1, Self::Secp384r1];

    /// The group with this IANA name, if it is one of these.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.name() == name)
    }

    /// The group that a rustls connection negotiated, if it is one of these.
    pub fn agreed(group: &dyn SupportedKxGroup) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.rustls().name() == group.name())
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::X25519MlKem768 => "X25519MLKEM768",
            Self::Secp256r1MlKem768 => "SecP256r1MLKEM768",
            Self::X25519 => "x25519",
            Self::Secp256r1 => "secp256r1",
            Self::Secp384r1 => "secp384r1",
        }
    }

    /// Whether handshakes of a version can negotiate the group. Hybrid groups need the key shares of TLS 1.3.
    pub fn fits(self, version: Version) -> bool {
        version == Version::Tls13 || !matches!(self, Self::X25519MlKem768 | Self::Secp256r1MlKem768)
    }

    fn rustls(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519MlKem768 => kx_group::X25519MLKEM768,
            Self::Secp256r1MlKem768 => kx_group::SECP256R1MLKEM768,
            Self::X25519 => kx_group::X25519,
            Self::Secp256r1 => kx_group::SECP256R1,
            Self::Secp384r1 => kx_group::SECP384R1,
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_default_is_what_the_library_has_by_default() {
        let (ours, theirs) = (Policy::default().provider(), aws_lc_rs::default_provider());
        let groups =
            |provider: &CryptoProvider| provider.kx_groups.iter().map(|group| group.name()).collect::<Vec<_>>();
        assert_eq!(groups(&ours), groups(&theirs));
        let is_theirs = |suite| theirs.cipher_suites.contains(suite);
        assert!(ours.cipher_suites.iter().all(is_theirs) && ours.cipher_suites.len() == theirs.cipher_suites.len());
        assert_eq!(Policy::default().check(), Ok(()));
    }

    #[test]
    fn names_of_groups_are_those_of_iana() {
        for group in Group::ALL {
            assert_eq!(Group::from_name(group.name()), Some(group));
            assert!(group.rustls().name().as_str().is_none_or(|theirs| theirs.eq_ignore_ascii_case(group.name())));
        }
        assert_eq!(Group::from_name("P-256"), None);
    }

    #[test]
    fn what_leaves_a_version_without_a_handshake_is_refused() {
        let (tls12, tls13) = (Version::Tls12, Version::Tls13);
        let suites13 = vec![CipherSuite::TLS_AES_128_GCM_SHA256];
        let of = |versions: &[Version]| Policy { versions: versions.to_vec(), ..Policy::default() };
        let cases = [
            (of(&[]), Err(BadPolicy::NoVersion)),
            (Policy { suites: suites13.clone(), ..of(&[tls13]) }, Ok(())),
            (Policy { suites: suites13.clone(), ..of(&[tls12]) }, Err(BadPolicy::NoSuite(tls12))),
            (Policy { suites: suites13, ..of(&[tls13, tls12]) }, Err(BadPolicy::NoSuite(tls12))),
            (Policy { groups: vec![], ..of(&[tls13]) }, Err(BadPolicy::NoGroup(tls13))),
            (Policy { groups: vec![Group::X25519MlKem768], ..of(&[tls13]) }, Ok(())),
            (Policy { groups: vec![Group::X25519MlKem768], ..of(&[tls13, tls12]) }, Err(BadPolicy::NoGroup(tls12))),
        ];
        for (policy, expected) in cases {
            assert_eq!(policy.check(), expected, "{policy:?}");
        }
    }
}
