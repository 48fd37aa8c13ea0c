//! The kind of key that a suite requires of the server.

/// The server's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// RSA, 2048 bits.
    Rsa,
    /// On the curve P-256, in a certificate that is signed with ECDSA.
    Ec,
    /// On the curve P-256, in a certificate that is signed with RSA, as `ECDH_RSA` requires (RFC 8422, section 2 of RFC
    /// 4492).
    EcByRsa,
    /// No key: the key exchange is anonymous.
    None,
}

impl Key {
    /// The key for the suite with this IANA name. `None` if this benchmark has no such key: DSS (the paper had none
    /// either), Kerberos, pre-shared keys, passwords, GOST.
    ///
    /// The suites of TLS 1.3 do not determine the kind of key. They are measured with RSA, like most others.
    pub(crate) fn of_suite(suite: &str) -> Option<Self> {
        let exchange = suite.strip_prefix("TLS_")?.split("_WITH_").next()?;
        match exchange {
            "RSA" | "RSA_EXPORT" | "DHE_RSA" | "DHE_RSA_EXPORT" | "ECDHE_RSA" => Some(Self::Rsa),
            "ECDHE_ECDSA" | "ECDH_ECDSA" => Some(Self::Ec),
            "ECDH_RSA" => Some(Self::EcByRsa),
            "DH_anon" | "DH_anon_EXPORT" | "ECDH_anon" => Some(Self::None),
            _ if !suite.contains("_WITH_") && is_tls13(exchange) => Some(Self::Rsa),
            _ => None,
        }
    }

    /// The name in reports. `None` for [`Key::None`].
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Rsa => Some("RSA-2048"),
            Self::Ec => Some("P-256"),
            Self::EcByRsa => Some("P-256 signed by RSA-2048"),
            Self::None => None,
        }
    }
}

/// Whether `rest`, a name without its `TLS_`, is a suite of TLS 1.3: only an AEAD and a hash (RFC 8446, section B.4).
fn is_tls13(rest: &str) -> bool {
    rest.starts_with("AES_") || rest.starts_with("CHACHA20_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_suite_says_what_key_it_wants() {
        let keys = [
            ("TLS_RSA_WITH_AES_128_CBC_SHA", Some(Key::Rsa)),
            ("TLS_DHE_RSA_EXPORT_WITH_DES40_CBC_SHA", Some(Key::Rsa)),
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", Some(Key::Ec)),
            ("TLS_ECDH_RSA_WITH_RC4_128_SHA", Some(Key::EcByRsa)),
            ("TLS_DH_anon_EXPORT_WITH_RC4_40_MD5", Some(Key::None)),
            ("TLS_CHACHA20_POLY1305_SHA256", Some(Key::Rsa)),
            ("TLS_DHE_DSS_WITH_AES_128_CBC_SHA", None),
            ("TLS_RSA_PSK_WITH_AES_128_CBC_SHA", None),
            ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", None),
            ("AES128-SHA", None),
        ];
        for (suite, key) in keys {
            assert_eq!(Key::of_suite(suite), key, "{suite}");
        }
    }
}
