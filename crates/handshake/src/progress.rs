//! The results of a handshake and of its steps.

use std::fmt;

use watari_record::{CipherSuite, Secrets, Version};

use crate::sessions::{Miss, NewSession, SessionSource, Wanted};

/// The result of one call of [`Handshake::receive`](crate::Handshake::receive).
#[derive(Debug, Default)]
pub struct Progress {
    /// The number of input bytes that belong to the handshake. The rest begins with the next record, unopened.
    pub consumed: usize,
    /// Bytes for the client, to be sent after the sessions in `made` are stored.
    pub output: Vec<u8>,
    /// Sessions to store. With the output, the client gets their ids and may resume them at once.
    pub made: Vec<NewSession>,
    /// Sessions and seeds that the handshake needs. It takes no input before
    /// [`Handshake::provide`](crate::Handshake::provide).
    pub wanted: Wanted,
    /// The decision on early data, once it is made. `None`: the client announced none.
    pub early_data: Option<EarlyData>,
    /// Early data, if it was accepted: requests that were not sent before. Their client may not be connected any more.
    pub early: Vec<u8>,
    /// The result of the handshake, once the client's Finished has arrived.
    pub established: Option<Box<Established>>,
}

/// The decision on early data that a client has announced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EarlyData {
    /// The server skips it and announces that. The client sends it again after the handshake.
    Refused,
    /// The server takes it, and [`Handshake::seal`](crate::Handshake::seal) seals responses. `Info` is the result of
    /// the handshake if the client's Finished arrives.
    Accepted(Box<Info>),
}

/// The result of a handshake.
pub struct Established {
    /// For the record layer.
    pub secrets: Secrets,
    /// For all other parts.
    pub info: Info,
}

/// The negotiated values of a handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    pub version: Version,
    pub suite: CipherSuite,
    /// ALPN protocol (`h2`, `http/1.1`), empty if none was negotiated. At most 255 bytes.
    pub alpn: Vec<u8>,
    /// SNI host name in lower case, if the client sent one. At most 253 bytes.
    pub server_name: Option<String>,
    /// The origin of the session that the handshake resumed.
    pub resumed: Option<SessionSource>,
    /// Why the handshake is a full one, although the client offered a session.
    pub missed: Option<Miss>,
    /// The client's certificate (DER), from this handshake or from the resumed session.
    pub client_certificate: Option<Vec<u8>>,
    /// The key exchange group by its IANA name. A resumed TLS 1.2 session exchanges no keys.
    pub group: Option<&'static str>,
}

impl fmt::Debug for Established {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Established").field("info", &self.info).finish_non_exhaustive()
    }
}
