//! The result of a handshake, for the record layer.

use zeroize::Zeroizing;

use crate::{CipherSuite, SecretsError, Version};

/// The end of the connection that a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that sent the `ClientHello`.
    Client,
    /// The end that answered it.
    Server,
}

/// All that the record layer needs to continue after a handshake.
pub struct Secrets {
    pub side: Side,
    /// The negotiated suite. It determines the version.
    pub suite: CipherSuite,
    /// The direction that this end seals.
    pub tx: Direction,
    /// The direction that this end opens.
    pub rx: Direction,
}

/// One direction of a connection.
pub struct Direction {
    /// The sequence number of the next record.
    pub sequence: u64,
    pub secret: DirectionSecret,
}

/// The secret of one direction. Its form depends on the version.
pub enum DirectionSecret {
    /// `[sender]_application_traffic_secret_N` (RFC 8446, section 7.1), with the length of the suite's hash output. Key
    /// and IV are derived from it, and so is its successor at a `KeyUpdate`.
    Tls13(Zeroizing<Vec<u8>>),
    /// Write key and 12-byte IV. For AES-GCM, the IV is the 4-byte salt (RFC 5288, section 3), followed by 8 bytes. XOR
    /// with the sequence number makes these the explicit nonce, as in rustls. For ChaCha20-Poly1305 it is the whole
    /// fixed IV (RFC 7905, section 2).
    Tls12 {
        /// The AEAD key.
        key: Zeroizing<Vec<u8>>,
        /// 12 bytes, see above.
        iv: Zeroizing<[u8; 12]>,
    },
}

impl Direction {
    /// Whether this secret fits `suite`.
    pub(crate) fn check(&self, suite: CipherSuite) -> Result<(), SecretsError> {
        let (len, expected) = match (&self.secret, suite.version()) {
            (DirectionSecret::Tls13(secret), Version::Tls13) => (secret.len(), suite.hash().output_len()),
            (DirectionSecret::Tls12 { key, .. }, Version::Tls12) => (key.len(), suite.aead().key_len()),
            _ => return Err(SecretsError::WrongVersion(suite)),
        };
        if len != expected {
            return Err(SecretsError::WrongLength { suite, len, expected });
        }
        Ok(())
    }
}
