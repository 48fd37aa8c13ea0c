//! The connection as Zeek describes it: `conn_state` and `history`, as in the documentation of its `conn.log`.
//!
//! They describe the segments, not which side closed first. So they stand beside an [`crate::Ending`], and neither is
//! derived from the other. Invalid RSTs are in the history; they change no state.

use std::fmt;

use watari_packets::{Flags, Segment};

use crate::ending::Side;

/// Zeek's `conn_state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConnState {
    /// A SYN without an answer.
    S0,
    /// Established, not ended.
    S1,
    /// Established, ended by both.
    SF,
    /// A SYN that a RST answered.
    REJ,
    /// Established, closed by the client only.
    S2,
    /// Established, closed by the server only.
    S3,
    /// Reset by the client.
    RSTO,
    /// Reset by the server.
    RSTR,
    /// A SYN, then a RST of the client; no SYN-ACK was seen, nor an ACK, nor a FIN.
    RSTOS0,
    /// A SYN-ACK, then a RST of the server; no SYN was seen.
    RSTRH,
    /// A SYN, then a FIN of the client; no SYN-ACK was seen.
    SH,
    /// A SYN-ACK, then a FIN of the server; no SYN was seen.
    SHR,
    /// Anything else: the beginning was not seen.
    OTH,
}

impl ConnState {
    /// The name in `conn.log`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::S0 => "S0",
            Self::S1 => "S1",
            Self::SF => "SF",
            Self::REJ => "REJ",
            Self::S2 => "S2",
            Self::S3 => "S3",
            Self::RSTO => "RSTO",
            Self::RSTR => "RSTR",
            Self::RSTOS0 => "RSTOS0",
            Self::RSTRH => "RSTRH",
            Self::SH => "SH",
            Self::SHR => "SHR",
            Self::OTH => "OTH",
        }
    }
}

impl fmt::Display for ConnState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Zeek's state of each end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum End {
    #[default]
    Inactive,
    SynSent,
    /// Data without a SYN.
    Partial,
    Established,
    Closed,
    Reset,
    /// A RST behind its own FIN. A FIN of the other side turns it back into [`End::Closed`].
    ClosedReset,
}

impl End {
    const fn is_reset(self) -> bool {
        matches!(self, Self::Reset | Self::ClosedReset)
    }

    /// The state as `conn_state` distinguishes it.
    const fn plain(self) -> Self {
        match self {
            Self::ClosedReset => Self::Reset,
            end => end,
        }
    }
}

/// Both ends; the originator is the client.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ends {
    client: End,
    server: End,
}

impl Ends {
    /// Takes the flags of a valid segment.
    pub(crate) fn see(&mut self, side: Side, segment: &Segment<'_>) {
        let flags = segment.flags;
        let (end, peer) = match side {
            Side::Client => (&mut self.client, &mut self.server),
            Side::Server => (&mut self.server, &mut self.client),
        };
        if flags.contains(Flags::RST) {
            *end = match *end {
                End::Closed if *peer == End::Closed => End::Closed,
                End::Closed | End::ClosedReset => End::ClosedReset,
                _ => End::Reset,
            };
            return;
        }
        if *end == End::Inactive || *end == End::SynSent {
            *end = match side {
                _ if flags.contains(Flags::SYN) && side == Side::Client => End::SynSent,
                _ if flags.contains(Flags::SYN) => {
                    if *peer == End::SynSent {
                        *peer = End::Established;
                    }
                    End::Established
                }
                Side::Client if flags.contains(Flags::ACK) && *peer == End::Established => End::Established,
                _ if *end == End::SynSent => End::SynSent,
                // Some servers acknowledge a SYN before they answer it.
                Side::Server if segment.len == 0 && *peer == End::SynSent => End::Inactive,
                _ => End::Partial,
            };
        }
        if flags.contains(Flags::FIN) && !end.is_reset() {
            // A FIN and then a RST is a regular end if the peer ends by a FIN.
            if *end != End::Closed && *peer == End::ClosedReset {
                *peer = End::Closed;
            }
            *end = End::Closed;
        }
    }

    /// A FIN or RST of this side was forged.
    pub(crate) fn revive(&mut self, side: Side) {
        let end = match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        };
        if *end == End::Closed || end.is_reset() {
            *end = End::Established;
        }
    }

    /// `octets`: data of both sides.
    pub(crate) fn conn_state(self, octets: u64, history: &History) -> ConnState {
        let is_inactive = |end| matches!(end, End::Inactive | End::Partial);
        match (self.client.plain(), self.server.plain()) {
            (End::SynSent, End::Reset) => ConnState::REJ,
            (End::Reset, End::Reset) if octets == 0 => ConnState::REJ,
            (client, End::Reset) if is_inactive(client) => ConnState::RSTRH,
            (_, End::Reset) => ConnState::RSTR,
            (End::Reset, server) if is_inactive(server) && history.is_syn_and_reset() => ConnState::RSTOS0,
            (End::Reset, server) if is_inactive(server) => ConnState::OTH,
            (End::Reset, _) => ConnState::RSTO,
            (End::Closed, End::Closed) => ConnState::SF,
            (End::Closed, server) if is_inactive(server) => ConnState::SH,
            (End::Closed, _) => ConnState::S2,
            (client, End::Closed) if is_inactive(client) => ConnState::SHR,
            (_, End::Closed) => ConnState::S3,
            (End::SynSent, End::Inactive) => ConnState::S0,
            (End::Established, End::Established) => ConnState::S1,
            _ => ConnState::OTH,
        }
    }
}

/// Zeek's `history`: a letter for each kind of event in order, in upper case for the client. It has at most 22 letters.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct History {
    letters: [u8; 22],
    len: u8,
    /// A bit for each letter that is written once: a d i q of each side.
    once: u8,
}

impl History {
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.letters[..usize::from(self.len)]).unwrap_or_default()
    }

    /// Whether the client sent a SYN first, then only retransmissions of it and data, and a RST.
    fn is_syn_and_reset(&self) -> bool {
        let letters = &self.letters[..usize::from(self.len)];
        let Some((b'S', rest)) = letters.split_first() else { return false };
        let first = rest.iter().find(|letter| b"HAFGIQR".contains(letter));
        first == Some(&b'R')
    }

    /// Adds the letters of a segment. `is_repeated`: the same SYN, FIN or RST was seen before.
    pub(crate) fn see(&mut self, side: Side, segment: &Segment<'_>, is_repeated: bool) {
        let has = |flag| segment.flags.contains(flag);
        match (has(Flags::SYN), has(Flags::FIN), has(Flags::RST)) {
            (false, false, false) if segment.len > 0 => self.add_once(side, b'd', 0),
            (false, false, false) if has(Flags::ACK) => self.add_once(side, b'a', 1),
            (false, false, false) => {}
            (_, true, true) => self.add_once(side, b'i', 2),
            (true, true, _) | (true, _, true) => self.add_once(side, b'q', 3),
            _ if is_repeated => {}
            (true, ..) if has(Flags::ACK) => self.add(side, b'h'),
            (true, ..) => self.add(side, b's'),
            (_, true, _) => self.add(side, b'f'),
            (_, _, true) => self.add(side, b'r'),
        }
    }

    /// Adds `letter` for its 1st, 10th, 100th .. occurrence.
    pub(crate) fn count(&mut self, side: Side, letter: u8, count: u32) {
        if count.checked_ilog10().is_some_and(|log| count == 10_u32.pow(log)) {
            self.add(side, letter);
        }
    }

    /// The first packet came from the server: ports, data or flags have shown which side is the client.
    pub(crate) fn flip(&mut self) {
        self.add(Side::Client, b'^');
    }

    fn add_once(&mut self, side: Side, letter: u8, bit: u8) {
        let bit = 1 << (bit * 2 + u8::from(side == Side::Server));
        if self.once & bit == 0 {
            self.once |= bit;
            self.add(side, letter);
        }
    }

    fn add(&mut self, side: Side, letter: u8) {
        if let Some(place) = self.letters.get_mut(usize::from(self.len)) {
            *place = if side == Side::Client { letter.to_ascii_uppercase() } else { letter };
            self.len += 1;
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
