//! Versions and cipher suites.

use std::fmt;

use aws_lc_rs::{aead, hkdf};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl Version {
    /// The number in the protocol (`supported_versions` and `legacy_version`).
    pub const fn iana(self) -> u16 {
        match self {
            Self::Tls12 => 0x0303,
            Self::Tls13 => 0x0304,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

/// The supported cipher suites, with their IANA names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)]
#[repr(u16)]
pub enum CipherSuite {
    /// RFC 8446.
    TLS_AES_128_GCM_SHA256 = 0x1301,
    /// RFC 8446.
    TLS_AES_256_GCM_SHA384 = 0x1302,
    /// RFC 8446.
    TLS_CHACHA20_POLY1305_SHA256 = 0x1303,
    /// RFC 5289.
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = 0xc02b,
    /// RFC 5289.
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = 0xc02c,
    /// RFC 5289.
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = 0xc02f,
    /// RFC 5289.
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = 0xc030,
    /// RFC 7905.
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca8,
    /// RFC 7905.
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca9,
}

impl CipherSuite {
    /// All suites, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::TLS_AES_128_GCM_SHA256,
        Self::TLS_AES_256_GCM_SHA384,
        Self::TLS_CHACHA20_POLY1305_SHA256,
        Self::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        Self::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        Self::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        Self::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ];

    /// The suite with this IANA number. `None`: it is not supported.
    pub fn from_iana(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|suite| suite.iana() == number)
    }

    /// The IANA number.
    pub const fn iana(self) -> u16 {
        self as u16
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::TLS_AES_128_GCM_SHA256 => "TLS_AES_128_GCM_SHA256",
            Self::TLS_AES_256_GCM_SHA384 => "TLS_AES_256_GCM_SHA384",
            Self::TLS_CHACHA20_POLY1305_SHA256 => "TLS_CHACHA20_POLY1305_SHA256",
            Self::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            Self::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            Self::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            Self::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        }
    }

    /// The suite's TLS version. No suite belongs to both.
    pub const fn version(self) -> Version {
        match self {
            Self::TLS_AES_128_GCM_SHA256 | Self::TLS_AES_256_GCM_SHA384 | Self::TLS_CHACHA20_POLY1305_SHA256 => {
                Version::Tls13
            }
            _ => Version::Tls12,
        }
    }

    /// The AEAD that protects its records.
    pub const fn aead(self) -> Aead {
        match self {
            Self::TLS_AES_128_GCM_SHA256
            | Self::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | Self::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Aead::Aes128Gcm,
            Self::TLS_AES_256_GCM_SHA384
            | Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Aead::Aes256Gcm,
            Self::TLS_CHACHA20_POLY1305_SHA256
            | Self::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256
            | Self::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => Aead::ChaCha20Poly1305,
        }
    }

    /// The hash of its key schedule.
    pub const fn hash(self) -> Hash {
        match self {
            Self::TLS_AES_256_GCM_SHA384
            | Self::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | Self::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Hash::Sha384,
            _ => Hash::Sha256,
        }
    }
}

impl fmt::Display for CipherSuite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The AEAD algorithms of the suites (RFC 5116, RFC 8439). All have 12-byte nonces and 16-byte tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Aead {
    /// AES-128 in Galois/Counter mode.
    Aes128Gcm,
    /// AES-256 in Galois/Counter mode.
    Aes256Gcm,
    /// `ChaCha20` and Poly1305.
    ChaCha20Poly1305,
}

impl Aead {
    /// The length of a key, in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The most records that one key may protect.
    ///
    /// AES-GCM: RFC 8446, section 5.5, allows 2^24.5 full records. ChaCha20-Poly1305 has no limit below the number of
    /// sequence numbers. The limit of 2^62 keeps arithmetic on sequence numbers far from wrapping.
    pub const fn records_max(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 24,
            Self::ChaCha20Poly1305 => 1 << 62,
        }
    }

    pub(crate) fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Self::Aes128Gcm => &aead::AES_128_GCM,
            Self::Aes256Gcm => &aead::AES_256_GCM,
            Self::ChaCha20Poly1305 => &aead::CHACHA20_POLY1305,
        }
    }
}

/// The hashes of the suites' key schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

impl Hash {
    /// The length of its output, and so of a traffic secret, in bytes.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    pub(crate) fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Self::Sha256 => hkdf::HKDF_SHA256,
            Self::Sha384 => hkdf::HKDF_SHA384,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_is_found_by_its_number_and_no_other_number_is_one() {
        let found: Vec<CipherSuite> = (0..=u16::MAX).filter_map(CipherSuite::from_iana).collect();
        assert_eq!(found, CipherSuite::ALL);
    }

    #[test]
    fn names_tell_what_the_tables_tell() {
        for suite in CipherSuite::ALL {
            let name = suite.name();
            assert_eq!(format!("{suite:?}"), name);
            assert_eq!(name.contains("SHA384"), suite.hash() == Hash::Sha384);
            assert_eq!(name.contains("ECDHE"), suite.version() == Version::Tls12);
            assert_eq!(name.contains("AES_128_GCM"), suite.aead() == Aead::Aes128Gcm);
            assert_eq!(name.contains("AES_256_GCM"), suite.aead() == Aead::Aes256Gcm);
            assert_eq!(name.contains("CHACHA20_POLY1305"), suite.aead() == Aead::ChaCha20Poly1305);
            assert_eq!(suite.aead().key_len(), suite.aead().algorithm().key_len());
        }
    }
}
