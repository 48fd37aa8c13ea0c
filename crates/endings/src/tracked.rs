//! The state of one connection.

mod data;
mod due;
mod resets;

use std::collections::VecDeque;

use watari_packets::{Flags, Segment, Timestamp};

use crate::app::App;
use crate::connection::Event;
use crate::ending::Side;
use crate::half::{Close, Half};
use crate::key::Key;
use crate::reorder;
use crate::sequence::{is_before, is_upto, later};
use crate::turn::{Turn, TurnState};
use crate::zeek::{Ends, History};
pub(crate) use due::Cause;

/// How long after later segments a SYN may be captured, in nanoseconds.
const REORDER_NS: u64 = 1_000_000_000;
/// How many octets the connection may have carried by then.
const REORDER_OCTETS: u32 = 1 << 16;

/// A connection; see the diagram in the crate's documentation.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent; the state is `stage`")]
pub(crate) struct TrackedConnection {
    pub(crate) key: Key,
    pub(crate) stage: Stage,
    client_is_first: bool,
    /// The RST that ended it may not have been accepted.
    is_doubtful: bool,
    pub(crate) is_connect_overdue: bool,
    /// Whether the client's window was 0 in its last segment before or with its FIN.
    pub(crate) is_shut: bool,
    life: u8,
    /// Number of its segments in [`crate::reorder`].
    pub(crate) held: u16,
    client: Half,
    server: Half,
    pub(crate) turn: Turn,
    pub(crate) app: App,
    pub(crate) zeek: Ends,
    pub(crate) history: History,
    pub(crate) started: Timestamp,
    pub(crate) last: Timestamp,
    /// Whether its handshake was complete, seen or not.
    pub(crate) is_established: bool,
    pub(crate) established: Option<Timestamp>,
    /// When the stage began; for [`Stage::Closing`] and [`Stage::Over`].
    staged: Timestamp,
}

/// The stage of a connection; see the diagram in the crate's documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its SYN may be captured later. All its segments wait for that.
    Ahead,
    /// The handshake is not complete.
    Opening,
    /// Data may flow.
    Open,
    /// Both sides have closed, or one has reset it.
    Closing,
    /// It is reported.
    Over,
}

impl TrackedConnection {
    /// A connection whose segments wait for the SYN.
    pub(crate) fn ahead(key: Key, at: Timestamp) -> Self {
        Self::at(Stage::Ahead, key, true, at)
    }

    /// A connection that begins with this segment.
    pub(crate) fn new(key: Key, client_is_first: bool, segment: &Segment<'_>) -> Self {
        // Without a SYN or RST, it was open before its first captured segment.
        let stage = if segment.flags.contains(Flags::SYN) || segment.flags.contains(Flags::RST) {
            Stage::Opening
        } else {
            Stage::Open
        };
        Self::at(stage, key, client_is_first, segment.time)
    }

    fn at(stage: Stage, key: Key, client_is_first: bool, time: Timestamp) -> Self {
        Self {
            key,
            stage,
            client_is_first,
            is_doubtful: false,
            is_connect_overdue: false,
            is_shut: false,
            life: 0,
            held: 0,
            client: Half::new(time),
            server: Half::new(time),
            turn: Turn::new(),
            app: App::default(),
            zeek: Ends::default(),
            history: History::default(),
            started: time,
            last: time,
            is_established: stage == Stage::Open,
            established: None,
            staged: time,
        }
    }

    /// The first packet came from the side that is taken for the server. Zeek marks such a direction as flipped.
    pub(crate) fn flip(&mut self) {
        self.history.flip();
    }

    pub(crate) fn side(&self, source_is_first: bool) -> Side {
        if source_is_first == self.client_is_first { Side::Client } else { Side::Server }
    }

    pub(crate) fn end(&self, side: Side) -> std::net::SocketAddr {
        self.key.end((side == Side::Client) == self.client_is_first)
    }

    pub(crate) fn half(&self, side: Side) -> &Half {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn halves(&mut self, side: Side) -> (&mut Half, &mut Half) {
        match side {
            Side::Client => (&mut self.client, &mut self.server),
            Side::Server => (&mut self.server, &mut self.client),
        }
    }

    /// Whether the segment begins the next connection between the same ends.
    pub(crate) fn is_left_behind(&self, side: Side, segment: &Segment<'_>) -> bool {
        let half = self.half(side);
        let is_over = matches!(self.stage, Stage::Closing | Stage::Over);
        if segment.flags.contains(Flags::RST) || !segment.flags.contains(Flags::SYN) {
            return false;
        }
        if segment.flags.contains(Flags::ACK) {
            // It belongs to another connection whose SYN was not seen, or there was no SYN at all.
            let peer = self.half(side.peer());
            return is_over && peer.is_placed && !peer.may_be_synchronized(segment.acknowledgment);
        }
        match half.syn {
            Some(syn) => syn != segment.sequence,
            None if half.is_placed => {
                let ahead = half.start.wrapping_sub(segment.sequence.wrapping_add(1));
                let is_late = segment.time.since(self.started).as_nanos() < u128::from(REORDER_NS);
                ahead != 0 && !(is_late && ahead < REORDER_OCTETS)
            }
            // The other side's SYN crossed this one.
            None => self.stage != Stage::Opening && !self.is_refused(side, segment),
        }
    }

    /// Whether a RST that was captured ahead of this SYN refused it.
    fn is_refused(&self, side: Side, syn: &Segment<'_>) -> bool {
        let reset = self.half(side.peer()).reset;
        let is_late = syn.time.since(self.started).as_nanos() < u128::from(REORDER_NS);
        is_late && reset.is_some_and(|reset| reset.acknowledgment == Some(syn.sequence.wrapping_add(1)))
    }

    /// Whether a segment follows one that was not seen yet, of its own side or of the other. A side of which nothing
    /// was seen can only send a SYN, or the answer to one.
    pub(crate) fn is_early(&self, side: Side, segment: &Segment<'_>) -> bool {
        if self.stage == Stage::Ahead {
            let has = |flag| segment.flags.contains(flag);
            return !has(Flags::SYN) || has(Flags::ACK) || has(Flags::RST);
        }
        if self.stage == Stage::Over || segment.flags.contains(Flags::SYN) {
            return false;
        }
        let (half, peer) = (self.half(side), self.half(side.peer()));
        half.syn.is_some() && !peer.is_placed
            || half.is_behind(segment.sequence, peer)
            || segment.flags.contains(Flags::ACK) && peer.is_behind(segment.acknowledgment, half)
    }

    /// Takes a segment of `side` that belongs to this connection. True if its timeout or its list may have changed.
    pub(crate) fn see(&mut self, side: Side, segment: &Segment<'_>, out: &mut VecDeque<Event>) -> bool {
        let before = self.urgency();
        self.last = self.last.max(segment.time);
        let (half, _) = self.halves(side);
        half.packets = half.packets.saturating_add(1);
        let is_first = half.packets == 1;
        self.write_history(side, segment);
        if segment.flags.contains(Flags::RST) {
            self.see_reset(side, segment);
        } else {
            self.see_regular(side, segment, out);
        }
        is_first || before != self.urgency()
    }

    /// Whether nothing of one side was seen.
    pub(crate) const fn is_one_sided(&self) -> bool {
        self.client.packets == 0 || self.server.packets == 0
    }

    /// The inputs of [`TrackedConnection::due`], except times that only grow.
    fn urgency(&self) -> (Stage, TurnState, Option<Timestamp>, [bool; 3]) {
        let is_half_closed = self.client.fin.is_some() || self.server.fin.is_some();
        (
            self.stage,
            self.turn.state,
            self.turn.asked_at,
            [is_half_closed, self.is_doubtful, self.waits_since().is_some()],
        )
    }

    fn write_history(&mut self, side: Side, segment: &Segment<'_>) {
        let half = self.half(side);
        let behind = segment.sequence.wrapping_add(segment.len);
        let is_repeated = half.syn.is_some_and(|syn| segment.flags.contains(Flags::SYN) && syn == segment.sequence)
            || half.fin.is_some_and(|fin| segment.flags.contains(Flags::FIN) && fin.sequence == behind)
            || half.reset.is_some_and(|reset| segment.flags.contains(Flags::RST) && reset.sequence == segment.sequence);
        self.history.see(side, segment, is_repeated);
        let peer_is_closed = self.half(side.peer()).fin.is_some();
        if segment.window == 0 && !segment.flags.contains(Flags::RST) && !peer_is_closed {
            let (half, _) = self.halves(side);
            half.zero_windows = half.zero_windows.saturating_add(1);
            let count = half.zero_windows;
            self.history.count(side, b'w', count);
        }
    }

    fn see_regular(&mut self, side: Side, segment: &Segment<'_>, out: &mut VecDeque<Event>) {
        let is_syn = segment.flags.contains(Flags::SYN);
        let (half, peer) = self.halves(side);
        if is_syn {
            if half.syn.is_some_and(|syn| syn != segment.sequence) {
                return;
            }
            let is_ack = segment.flags.contains(Flags::ACK);
            if is_ack && peer.is_placed && !peer.may_be_synchronized(segment.acknowledgment) {
                return;
            }
            let is_first = !half.is_placed;
            half.see_syn(segment);
            if side == Side::Server && is_first {
                // A request may have come with the client's SYN.
                self.turn.answer = segment.sequence.wrapping_add(1);
            }
        } else if side == Side::Server && half.knows_other(segment, peer) || !half.fits(segment, peer) {
            return;
        }
        if side == Side::Client && self.client.fin.is_none() {
            self.is_shut = segment.window == 0;
        }
        self.zeek.see(side, segment);
        if segment.flags.contains(Flags::ACK) {
            self.see_acknowledgment(side, segment.acknowledgment, segment.time, out);
        }
        let sequence = segment.sequence.wrapping_add(u32::from(is_syn));
        self.revive(side, segment, sequence);
        let (half, _) = self.halves(side);
        if let Some(data) = half.see_data(sequence, segment.len, segment.time) {
            self.see_data(side, sequence, data, segment, out);
        }
        // Receivers ignore a FIN in a SYN segment.
        if segment.flags.contains(Flags::FIN) && !is_syn {
            let acknowledgment = segment.flags.contains(Flags::ACK).then_some(segment.acknowledgment);
            let (half, _) = self.halves(side);
            half.see_fin(sequence.wrapping_add(segment.len), acknowledgment, segment.time);
        }
        self.step(side, segment);
    }

    fn see_acknowledgment(&mut self, side: Side, upto: u32, at: Timestamp, out: &mut VecDeque<Event>) {
        let (half, peer) = self.halves(side);
        let is_gap = peer.see_acked(upto);
        let gaps = peer.gaps;
        match half.acked {
            Some(acked) if is_upto(upto, acked) => {}
            before => {
                half.has_stepped = before == Some(upto.wrapping_sub(1));
                half.acked = Some(upto);
            }
        }
        // After a RST a side sends nothing more. A segment captured this soon was on its way already.
        let is_new = |reset: &&mut Close| at.since(reset.at) < reorder::WINDOW;
        if let Some(reset) = half.reset.as_mut().filter(is_new) {
            reset.acknowledgment = Some(reset.acknowledgment.map_or(upto, |known| later(known, upto)));
        }
        if let Some(reset) = peer.reset.as_mut().filter(is_new) {
            reset.peer_acked = half.acked;
        }
        if is_gap {
            self.history.count(side.peer(), b'g', gaps);
        }
        if side == Side::Client {
            self.see_unseen_answer(upto, at);
            self.see_unseen_end(upto, at, out);
        }
    }

    /// Accounts for data of the server that the client acknowledges and the capture lacks, if they are more than a FIN.
    fn see_unseen_answer(&mut self, upto: u32, at: Timestamp) {
        let fin = u32::from(self.server.packets > 0);
        if !is_before(self.server.next.wrapping_add(fin), upto) {
            return;
        }
        let (asked, answer) = (self.client.next, self.server.next);
        if self.turn.requests == 0 && matches!(self.app, App::Unknown) {
            // The request was not captured either.
            self.turn.imply_ask(asked.wrapping_sub(1), answer);
        }
        if self.turn.state == TurnState::Asked {
            self.turn.answer(asked, answer, at);
        }
    }

    fn step(&mut self, side: Side, segment: &Segment<'_>) {
        if !self.is_established && !segment.flags.contains(Flags::SYN) {
            // Only a client that got the SYN-ACK acknowledges it, and data are sent only to a side that is established.
            let has_ack = side == Side::Client && segment.flags.contains(Flags::ACK);
            if has_ack || segment.len > 0 || self.half(side).fin.is_some() {
                self.is_established = true;
                self.established = Some(segment.time);
            }
        }
        if self.stage == Stage::Opening && self.is_established {
            self.stage = Stage::Open;
        }
        if self.stage == Stage::Open && self.client.fin.is_some() && self.server.fin.is_some() {
            self.close(segment.time);
        }
    }

    fn close(&mut self, at: Timestamp) {
        self.staged = at;
        self.stage = Stage::Closing;
    }

    /// Marks it as reported. Later segments are ignored.
    pub(crate) fn bury(&mut self, now: Timestamp) {
        self.stage = Stage::Over;
        self.staged = now;
        self.app = App::default();
    }

    /// Whether it may continue although it is reported: it was not reset, and at most one side closed it.
    pub(crate) fn may_go_on(&self) -> bool {
        self.is_established && !self.is_reset() && (self.client.fin.is_none() || self.server.fin.is_none())
    }

    /// Whether a valid RST of either side was seen.
    pub(crate) const fn is_reset(&self) -> bool {
        self.client.reset.is_some() || self.server.reset.is_some()
    }

    /// Takes a segment after the report. Returns whether the connection could continue until then.
    pub(crate) fn see_rest(&mut self, side: Side, segment: &Segment<'_>) -> bool {
        if !self.may_go_on() {
            return false;
        }
        self.last = self.last.max(segment.time);
        let (half, _) = self.halves(side);
        let close = Close { sequence: segment.sequence, acknowledgment: None, peer_acked: None, at: segment.time };
        if segment.flags.contains(Flags::RST) {
            half.reset = Some(close);
        } else if segment.flags.contains(Flags::FIN) {
            half.fin.get_or_insert(close);
        }
        if !self.may_go_on() {
            self.staged = self.last;
        }
        true
    }
}
