//! What a handshake hands over to the record layer.

use zeroize::Zeroizing;

/// Which end of the connection a state belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The end that sent the ClientHello.
    Client,
    /// The end that answered it.
    Server,
}

/// Protocol version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Version {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// The cipher suites the record layer protects, named as IANA names them.
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
    /// from it, and so does its successor at a KeyUpdate.
    Tls13(Zeroizing<Vec<u8>>),
    /// Write key and 12-byte IV. For AES-GCM the IV is the 4-byte salt (RFC 5288, section 3) and then the 8 bytes that
    /// are XORed with the sequence number to make the explicit nonce, as rustls does; for ChaCha20-Poly1305 the
    /// whole fixed IV (RFC 7905, section 2).
    Tls12 {
        /// The AEAD key.
        key: Zeroizing<Vec<u8>>,
        /// The AEAD IV.
        iv: Zeroizing<[u8; 12]>,
    },
}
