//! What is understood of the data of a connection.

use watari_packets::{Segment, Timestamp};

use crate::ending::Side;
use crate::http::{Dialogue, Http, Pending, begins_request};
use crate::tls::{ALERT, APPLICATION_DATA, HANDSHAKE, Handshake, Tls, TlsVersion, begins_record, is_small};
use crate::turn::State;

/// What the data are. The first of the client show it.
#[derive(Debug, Default)]
pub(crate) enum App {
    /// None were seen.
    #[default]
    Unknown,
    /// Nothing that is understood: whose turn it is says all.
    Opaque,
    /// A handshake of TLS is in progress.
    Shaking(Box<Handshake>),
    /// What follows it.
    Sealed(Box<Tls>),
    Http(Box<Dialogue>),
    /// What follows an upgrade or `CONNECT`: octets of both sides, and no requests.
    Tunnel,
}

/// What a connection speaks, as far as it is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// Clear HTTP/1.
    Http,
    /// TLS.
    Tls,
    /// Neither, or not seen.
    Unknown,
}

impl Protocol {
    /// As logs have it, if it is known.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Http => Some("http"),
            Self::Tls => Some("tls"),
            Self::Unknown => None,
        }
    }
}

/// Where data stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// The first octet of this segment's data.
    pub(crate) from: u32,
    /// Where the client's octets begin, and where the server's next stand.
    pub(crate) client_start: u32,
    pub(crate) server_next: u32,
}

/// What data of the server are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) is_answer: bool,
    /// Where it ends, if that is seen.
    pub(crate) end: Option<u32>,
}

impl App {
    /// Data of the client; whether they ask for something.
    pub(crate) fn see_client(&mut self, place: Place, segment: &Segment<'_>, turn: State) -> bool {
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

    /// Data of the server.
    pub(crate) fn see_server(&mut self, from: u32, heard: u32, segment: &Segment<'_>) -> Answer {
        if matches!(self, Self::Unknown) && segment.data.starts_with(b"HTTP/1.") {
            *self = Self::Http(Box::new(Dialogue::new(heard, from)));
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

    /// The request behind the one that has just got its answer, if that was sent already.
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

    /// How many requests wait for the one before them.
    pub(crate) fn pending(&self) -> u32 {
        match self {
            // Behind an upgrade they are none.
            Self::Http(dialogue) if !dialogue.is_tunnel => dialogue.pending(),
            _ => 0,
        }
    }

    /// The client has all of the server's up to this. Where the answer ends, if only that shows it.
    pub(crate) fn acknowledge(&mut self, upto: u32) -> Option<u32> {
        match self {
            Self::Http(dialogue) => dialogue.acknowledge(upto),
            _ => None,
        }
    }

    /// Whether there are no requests any more.
    pub(crate) const fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel)
    }

    /// Whether an answer in this state lasts until the server closes.
    pub(crate) fn ends_with_stream(&self, turn: State) -> bool {
        match self {
            Self::Http(dialogue) => turn == State::Answering && dialogue.ends_with_stream(),
            _ => false,
        }
    }

    /// Whether a handshake of TLS is in progress.
    pub(crate) const fn is_shaking(&self) -> bool {
        matches!(self, Self::Shaking(_))
    }

    /// Whether an answer in this state is known to lack something.
    pub(crate) fn lacks(&self, turn: State) -> bool {
        match self {
            Self::Http(dialogue) => turn == State::Answering && dialogue.lacks(),
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

    /// Of the exchange in progress, or the one that was just completed.
    pub(crate) fn exchange(&self) -> Option<Http> {
        match self {
            Self::Http(dialogue) => Some(dialogue.exchange()),
            _ => None,
        }
    }

    /// Who says such a thing, if that is clear.
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
                // It was in progress already.
                APPLICATION_DATA => Self::Sealed(Box::default()),
                _ => Self::Shaking(Box::new(Handshake::new(place.from, place.server_next, segment.time))),
            };
        }
        // What comes first may yet come.
        if place.from == place.client_start && !data.is_empty() { Self::Opaque } else { Self::Unknown }
    }

    /// A handshake that is over needs no more than what was seen of it.
    fn settle(&mut self, is_over: bool) {
        if is_over && let Self::Shaking(handshake) = std::mem::take(self) {
            *self = Self::Sealed(Box::new(handshake.into_tls()));
        }
    }
}

/// Whether encrypted data of the client may be a request: a record that is no alert and not too small for one.
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

/// Whether encrypted data of the server are an alert and nothing else, such as that which says that it closes, too.
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

/// Types of messages (RFC 8446, section 4).
const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;

/// Of a record of TLS 1.3 that holds an alert: its two octets, its type, and a tag (RFC 8446, section 5.2).
const ALERT_1_3_LEN: u16 = 2 + 1 + 16;

/// When a request was made, for those that are told of later.
impl Pending {
    pub(crate) const fn asked(&self) -> (u32, Timestamp) {
        (self.from, self.at)
    }
}
