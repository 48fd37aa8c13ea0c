//! What a handshake hands over to the record layer.

use zeroize::Zeroizing;

use crate::{CipherSuite, SecretsError, Version};

/// Which end of the connection a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that sent the `ClientHello`.
    Client,
    /// The end that answered it.
    Server,
}

/// Everything the record layer needs to go on where the handshake stopped.
pub struct Secrets {
    /// Whose state this is.
    pub side: Side,
    /// The negotiated suite; it fixes the version.
    pub suite: CipherSuite,
    /// The direction this end seals.
    pub tx: Direction,
    /// The direction this end opens.
    pub rx: Direction,
}

/// One direction of a connection.
pub struct Direction {
    /// The sequence number of the next record.
    pub sequence: u64,
    /// What protects it.
    pub secret: DirectionSecret,
}

/// The secret of one direction, in the form its version needs.
pub enum DirectionSecret {
    /// `[sender]_application_traffic_secret_N` (RFC 8446, section 7.1), as long as the suite's hash. Key and IV derive
    /// from it, and so does its successor at a `KeyUpdate`.
    Tls13(Zeroizing<Vec<u8>>),
    /// Write key and 12-byte IV. For AES-GCM the IV is the 4-byte salt (RFC 5288, section 3) and then the 8 bytes that
    /// make the explicit nonce by XOR with the sequence number, as rustls does; for ChaCha20-Poly1305 the
    /// whole fixed IV (RFC 7905, section 2).
    Tls12 {
        /// The AEAD key.
        key: Zeroizing<Vec<u8>>,
        /// The AEAD IV.
        iv: Zeroizing<[u8; 12]>,
    },
}

impl Direction {
    /// Whether this can be a direction of a connection with `suite`.
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
