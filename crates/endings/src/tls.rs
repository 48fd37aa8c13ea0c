//! TLS as seen from outside (RFC 8446, RFC 5246): the version, the server name, whether a session was resumed, and how
//! long the handshake took.
//!
//! Nothing is decrypted. The parser reads hellos as they arrive, keeps only the message in progress, and drops that
//! when the handshake is over. Values that a capture has cut off are `None`.

mod messages;
mod records;
mod version;

use std::time::Duration;

use watari_packets::{Segment, Timestamp};

use crate::ending::Side;
use messages::{Hello, Message, Messages};
use records::{Piece, Records};

pub(crate) use records::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, begins_record, is_small};
pub use version::TlsVersion;

/// Record length of `EndOfEarlyData`: a message without content, a type and a tag.
const END_OF_EARLY_LEN: u16 = 4 + 1 + 16;

/// The visible part of a handshake.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The version that the server selected.
    pub version: Option<TlsVersion>,
    /// The server name that the client sent (RFC 6066, section 3).
    pub sni: Option<Box<str>>,
    /// Whether a session was resumed. TLS 1.3: the server accepted a pre-shared key, which in practice belongs to a
    /// session. Before: the server echoed the client's session id, sent no certificate, and sent its `ChangeCipherSpec`
    /// before the client's.
    pub is_resumed: Option<bool>,
    /// From the client's first hello to the last message of the handshake.
    pub handshake: Option<Duration>,
    /// Whether the client sent data before the server's hello.
    pub has_early_data: bool,
    /// The first alert that was not encrypted.
    pub alert: Option<Alert>,
}

/// An alert (RFC 8446, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alert {
    pub by: Side,
    /// The alert description: 40 is `handshake_failure`.
    pub description: u8,
}

/// A handshake in progress.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct Handshake {
    client: Stream,
    server: Stream,
    tls: Tls,
    started: Timestamp,
    /// The client's hello, with the session id that it offered.
    offered: Hello,
    /// Sequence number at which the server's stream begins.
    server_start: u32,
    has_certificate: bool,
    client_changed: bool,
    server_changed: bool,
    /// The records look like TLS 1.3. This decides if the server's hello was not seen.
    seems_1_3: bool,
    is_over: bool,
}

#[derive(Debug)]
struct Stream {
    records: Records,
    messages: Messages,
}

/// The records of one segment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Application data that may be a request.
    pub(crate) asks: bool,
    /// Application data that may be an answer.
    pub(crate) answers: bool,
    pub(crate) is_over: bool,
}

impl Handshake {
    /// `client` and `server`: sequence numbers at which the two streams begin.
    pub(crate) fn new(client: u32, server: u32, at: Timestamp) -> Self {
        let stream = |start| Stream { records: Records::new(start), messages: Messages::new() };
        Self {
            client: stream(client),
            server: stream(server),
            tls: Tls::default(),
            started: at,
            offered: Hello::default(),
            server_start: server,
            has_certificate: false,
            client_changed: false,
            server_changed: false,
            seems_1_3: false,
            is_over: false,
        }
    }

    /// Takes data of one side.
    pub(crate) fn see(&mut self, side: Side, from: u32, segment: &Segment<'_>) -> Seen {
        let mut seen = Seen::default();
        let mut position = from;
        let mut data = segment.data.get(..segment.len as usize).unwrap_or(segment.data);
        let mut len = segment.len;
        self.stream(side).records.locate(&mut position, &mut data, &mut len);
        while let Some(piece) = self.stream(side).records.next(&mut data, &mut len) {
            match piece {
                Piece::Record { kind, len } => self.see_record(side, kind, len, segment, &mut seen),
                Piece::Fragment { kind, bytes } => self.see_fragment(side, kind, bytes),
                Piece::Hidden => self.stream(side).messages.lose(),
            }
        }
        seen.is_over = self.is_over;
        seen
    }

    pub(crate) fn into_tls(self) -> Tls {
        self.tls
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.tls
    }

    fn stream(&mut self, side: Side) -> &mut Stream {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    /// Takes the header of a record.
    fn see_record(&mut self, side: Side, kind: u8, len: u16, segment: &Segment<'_>, seen: &mut Seen) {
        let at = segment.time;
        if kind == HANDSHAKE && self.has_changed(side) {
            // This is Finished, which TLS 1.3 would encrypt as application data.
            self.seems_1_3 = false;
        }
        match (kind, side) {
            (CHANGE_CIPHER_SPEC, _) => self.see_change(side, at),
            // The client sent it before anything of the server's arrived.
            (APPLICATION_DATA, Side::Client) if segment.acknowledgment == self.server_start => {
                self.tls.has_early_data = true;
                seen.asks = true;
            }
            // `EndOfEarlyData` (RFC 8446, section 4.5) comes before the end of the handshake.
            (APPLICATION_DATA, Side::Client) if self.tls.has_early_data && !self.is_over && len == END_OF_EARLY_LEN => {
            }
            // In TLS 1.3, the client's first encrypted record ends the handshake. Data follow.
            (APPLICATION_DATA, Side::Client) if self.is_1_3() && !self.is_over => self.end(at),
            (APPLICATION_DATA, Side::Client) => seen.asks |= !is_small(len, self.tls.version),
            // In TLS 1.3 this may be the rest of the handshake.
            (APPLICATION_DATA, Side::Server) => seen.answers |= !self.is_1_3() || self.tls.has_early_data,
            _ => {}
        }
    }

    fn see_fragment(&mut self, side: Side, kind: u8, bytes: &[u8]) {
        match kind {
            ALERT => {
                if let [_, description] = *bytes {
                    self.tls.alert.get_or_insert(Alert { by: side, description });
                }
            }
            // These are encrypted. TLS 1.3 encrypts its handshake in application data records.
            HANDSHAKE if self.has_changed(side) && !self.is_1_3() => {}
            HANDSHAKE => {
                let mut rest = bytes;
                while let Some(message) = self.stream(side).messages.next(&mut rest) {
                    self.see_message(side, message);
                }
            }
            _ => {}
        }
    }

    fn see_message(&mut self, side: Side, message: Message) {
        match (side, message) {
            (Side::Client, Message::ClientHello(hello, sni)) => {
                self.tls.sni = sni.or(self.tls.sni.take());
                self.offered = hello;
            }
            (Side::Server, Message::ServerHello(hello)) if hello.is_retry => {
                self.tls.version = Some(TlsVersion::TLS_1_3);
            }
            (Side::Server, Message::ServerHello(hello)) => {
                self.tls.version = Some(TlsVersion(hello.version));
                let is_echo = hello.session.len > 0 && hello.session == self.offered.session;
                self.tls.is_resumed = Some(if self.is_1_3() { hello.has_psk } else { is_echo });
            }
            (Side::Server, Message::Certificate) => {
                self.has_certificate = true;
                self.tls.is_resumed = Some(false);
            }
            _ => {}
        }
    }

    /// A side sends `ChangeCipherSpec`. In TLS 1.3 it has no meaning (RFC 8446, appendix D.4).
    fn see_change(&mut self, side: Side, at: Timestamp) {
        let is_first = !self.client_changed && !self.server_changed;
        match side {
            Side::Client => self.client_changed = true,
            Side::Server => self.server_changed = true,
        }
        self.seems_1_3 = true;
        if self.is_1_3() || self.tls.version.is_none() {
            return;
        }
        // On a resumption, the server sends it first (RFC 5246, section 7.3), without a certificate before.
        if is_first && !self.has_certificate {
            self.tls.is_resumed = Some(side == Side::Server);
        }
        if self.client_changed && self.server_changed {
            self.end(at);
        }
    }

    fn end(&mut self, at: Timestamp) {
        self.is_over = true;
        self.tls.handshake = Some(at.since(self.started));
    }

    fn is_1_3(&self) -> bool {
        self.tls.version.map_or(self.seems_1_3, |version| version == TlsVersion::TLS_1_3)
    }

    const fn has_changed(&self, side: Side) -> bool {
        match side {
            Side::Client => self.client_changed,
            Side::Server => self.server_changed,
        }
    }
}
