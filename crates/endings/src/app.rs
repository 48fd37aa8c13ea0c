//! The application protocol of a connection's data.

use watari_packets::{Segment, Timestamp};

use crate::ending::Side;
use crate::http::{Dialogue, Http, Pending, begins_request};
use crate::tls::{ALERT, APPLICATION_DATA, HANDSHAKE, Handshake, Tls, TlsVersion, begins_record, is_small};
use crate::turn::TurnState;

/// The protocol of the data. The client's first data decide it.
#[derive(Debug, Default)]
pub(crate) enum App {
    /// No data were seen.
    #[default]
    Unknown,
    /// An unknown protocol: only the direction of data separates requests and answers.
    Opaque,
    /// A TLS handshake is in progress.
    Shaking(Box<Handshake>),
    /// TLS after the handshake.
    Sealed(Box<Tls>),
    Http(Box<Dialogue>),
    /// Data of both sides after an upgrade or `CONNECT`, without requests.
    Tunnel,
}

/// The protocol of a connection, as far as it is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Clear HTTP/1.
    Http,
    Tls,
    /// Neither, or not seen.
    Unknown,
}

impl Protocol {
    /// The name in logs and JSON, if the protocol is known.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Http => Some("http"),
            Self::Tls => Some("tls"),
            Self::Unknown => None,
        }
    }
}

/// Sequence numbers of a segment's data and of the streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The first octet of this segment's data.
    pub(crate) from: u32,
    /// The first octet of the client's stream, and the next one of the server's.
    pub(crate) client_start: u32,
    pub(crate) server_next: u32,
}

/// The server's data of one segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) is_answer: bool,
    /// Sequence number behind the answer, if the end was seen.
    pub(crate) end: Option<u32>,
}

impl App {
    /// Takes data of the client. Returns whether they belong to a request.
    pub(crate) fn see_client(&mut self, place: Place, segment: &Segment<'_>, turn: TurnState) -> bool {
        if matches!(self, Self::Unknown) {
            *self = Self::recognize(place, segment);
        }
        match self {
            Self::Unknown | Self::Opaque => true,
            Self::Shaking(handshake) => {
                let seen = handshake.see(Side::Client, place.from, segment);
                self.settle(seen.is_over);
                seen.asks
            }
            Self::Sealed(tls) => asks(tls, segment),
            Self::Tunnel => false,
            Self::Http(dialogue) => dialogue.see_client(place.from, segment, turn),
        }
    }

    /// Takes data of the server.
    pub(crate) fn see_server(&mut self, from: u32, acked: u32, segment: &Segment<'_>) -> Answer {
        if matches!(self, Self::Unknown) && segment.data.starts_with(b"HTTP/1.") {
            *self = Self::Http(Box::new(Dialogue::new(acked, from)));
        }
        match self {
            Self::Unknown | Self::Opaque => Answer { is_answer: true, end: None },
            Self::Sealed(tls) => Answer { is_answer: !is_alert(tls, segment), end: None },
            Self::Tunnel => Answer { is_answer: false, end: None },
            Self::Shaking(handshake) => {
                let seen = handshake.see(Side::Server, from, segment);
                self.settle(seen.is_over);
                Answer { is_answer: seen.answers, end: None }
            }
            Self::Http(dialogue) => {
                let end = dialogue.see_server(from, segment);
                Answer { is_answer: !dialogue.is_interim(), end }
            }
        }
    }

    /// The request that the client sent behind the one just answered, if any.
    pub(crate) fn next_request(&mut self) -> Option<Pending> {
        match self {
            Self::Http(dialogue) if dialogue.is_tunnel => {
                *self = Self::Tunnel;
                None
            }
            Self::Http(dialogue) => dialogue.next_request(),
            _ => None,
        }
    }

    /// Pipelined requests behind the current one.
    pub(crate) fn pending(&self) -> u32 {
        match self {
            // After an upgrade there are no requests.
            Self::Http(dialogue) if !dialogue.is_tunnel => dialogue.pending(),
            _ => 0,
        }
    }

    /// The client has acknowledged the server's data up to here. Returns the end of the answer if only this shows it.
    pub(crate) fn acknowledge(&mut self, upto: u32) -> Option<u32> {
        match self {
            Self::Http(dialogue) => dialogue.acknowledge(upto),
            _ => None,
        }
    }

    /// Whether the connection carries no more requests.
    pub(crate) const fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel)
    }

    /// Whether an answer in this state lasts until the server closes.
    pub(crate) fn ends_with_stream(&self, turn: TurnState) -> bool {
        match self {
            Self::Http(dialogue) => turn == TurnState::Answering && dialogue.ends_with_stream(),
            _ => false,
        }
    }

    /// Whether a TLS handshake is in progress.
    pub(crate) const fn is_shaking(&self) -> bool {
        matches!(self, Self::Shaking(_))
    }

    /// Whether an answer in this state is known to be incomplete.
    pub(crate) fn lacks(&self, turn: TurnState) -> bool {
        match self {
            Self::Http(dialogue) => turn == TurnState::Answering && dialogue.lacks(),
            _ => false,
        }
    }

    pub(crate) fn protocol(&self) -> Protocol {
        match self {
            Self::Unknown | Self::Opaque => Protocol::Unknown,
            Self::Shaking(_) | Self::Sealed(_) => Protocol::Tls,
            Self::Http(_) | Self::Tunnel => Protocol::Http,
        }
    }

    pub(crate) fn tls(&self) -> Option<Tls> {
        match self {
            Self::Shaking(handshake) => Some(handshake.tls().clone()),
            Self::Sealed(tls) => Some((**tls).clone()),
            _ => None,
        }
    }

    /// The exchange in progress, or the one that was just completed.
    pub(crate) fn exchange(&self) -> Option<Http> {
        match self {
            Self::Http(dialogue) => Some(dialogue.exchange()),
            _ => None,
        }
    }

    /// The side that sends such data, if they show it.
    pub(crate) fn speaker(data: &[u8]) -> Option<Side> {
        match data {
            [HANDSHAKE, 3, _, _, _, CLIENT_HELLO, ..] => Some(Side::Client),
            [HANDSHAKE, 3, _, _, _, SERVER_HELLO, ..] => Some(Side::Server),
            _ if data.starts_with(b"HTTP/1.") => Some(Side::Server),
            _ => begins_request(data).then_some(Side::Client),
        }
    }

    fn recognize(place: Place, segment: &Segment<'_>) -> Self {
        let data = segment.data;
        if begins_request(data) {
            return Self::Http(Box::new(Dialogue::new(place.from, place.server_next)));
        }
        if begins_record(data) {
            return match data[0] {
                // The session was in progress already.
                APPLICATION_DATA => Self::Sealed(Box::default()),
                _ => Self::Shaking(Box::new(Handshake::new(place.from, place.server_next, segment.time))),
            };
        }
        // The first octets of the stream may be captured later.
        if place.from == place.client_start && !data.is_empty() { Self::Opaque } else { Self::Unknown }
    }

    /// When the handshake is over, keeps only its result.
    fn settle(&mut self, is_over: bool) {
        if is_over && let Self::Shaking(handshake) = std::mem::take(self) {
            *self = Self::Sealed(Box::new(handshake.into_tls()));
        }
    }
}

/// Whether encrypted data of the client may be a request: a record that is not an alert and not too small for one.
fn asks(tls: &Tls, segment: &Segment<'_>) -> bool {
    let mut data = segment.data;
    let mut left = segment.len as usize;
    while left > 0 {
        if !begins_record(data) {
            return left > 22;
        }
        let len = u16::from_be_bytes([data[3], data[4]]);
        if data[0] != ALERT && !is_small(len, tls.version) {
            return true;
        }
        let record = 5 + usize::from(len);
        data = data.get(record..).unwrap_or_default();
        left = left.saturating_sub(record);
    }
    false
}

/// Whether encrypted data of the server are a single alert, such as `close_notify`.
fn is_alert(tls: &Tls, segment: &Segment<'_>) -> bool {
    let data = segment.data;
    if !begins_record(data) {
        return false;
    }
    let len = u16::from_be_bytes([data[3], data[4]]);
    let is_all = segment.len == 5 + u32::from(len);
    let is_like_one = tls.version != Some(TlsVersion::TLS_1_2) && len == ALERT_1_3_LEN;
    is_all && (data[0] == ALERT || data[0] == APPLICATION_DATA && is_like_one)
}

/// Handshake message types (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// Length of a TLS 1.3 record with an alert: two octets, its type, and a tag (RFC 8446, section 5.2).
const ALERT_1_3_LEN: u16 = 2 + 1 + 16;

/// When the client sent a pipelined request, for a later report.
impl Pending {
    pub(crate) const fn asked(&self) -> (u32, Timestamp) {
        (self.from, self.at)
    }
}
