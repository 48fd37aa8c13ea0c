//! One connection, as far as it was seen.

use std::collections::VecDeque;

use watari_packets::{Flags, Segment, Timestamp};

use crate::app::{App, Place};
use crate::connection::{Event, Request};
use crate::ending::Side;
use crate::half::{Close, Data, Half, Reset};
use crate::http::Http;
use crate::key::Key;
use crate::sequence::{is_before, is_upto, later};
use crate::settings::Settings;
use crate::turn::{Exchange, State, Turn};
use crate::zeek::{Ends, History};

/// How long a SYN may be captured behind what followed it.
const REORDER_NS: u64 = 1_000_000_000;
/// How far into its octets a connection may then be.
const REORDER_OCTETS: u32 = 1 << 16;
/// Signs that who seems to have reset a connection lives on.
const LIFE_MIN: u8 = 2;

/// See the crate's picture of it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own; the state is `stage`")]
pub(crate) struct Flow {
    pub(crate) key: Key,
    pub(crate) stage: Stage,
    client_is_first: bool,
    /// The reset that ended it may not have been accepted.
    is_doubtful: bool,
    pub(crate) is_knock_overdue: bool,
    life: u8,
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
    /// When the stage began, if it is [`Stage::Closing`] or [`Stage::Over`].
    staged: Timestamp,
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The handshake is not complete.
    Opening,
    /// Data may flow.
    Open,
    /// Both have closed, or one has reset it.
    Closing,
    /// It is reported.
    Over,
}

/// Why a connection comes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nobody has answered its SYN for long.
    KnockOverdue,
    /// Nobody has answered its request for long.
    RequestOverdue,
    /// It is over, however.
    End,
    /// It lasts too long after its request.
    Timeout,
    /// It can be forgotten.
    Forget,
}

impl Flow {
    /// Begins with this segment of `side`.
    pub(crate) fn new(key: Key, client_is_first: bool, segment: &Segment<'_>) -> Self {
        let time = segment.time;
        // Without a SYN of either, it was open before it was seen.
        let stage = if segment.flags.contains(Flags::SYN) || segment.flags.contains(Flags::RST) {
            Stage::Opening
        } else {
            Stage::Open
        };
        Self {
            key,
            stage,
            client_is_first,
            is_doubtful: false,
            is_knock_overdue: false,
            life: 0,
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

    /// Whether the segment is none of this connection's, but begins the next one between the same ends.
    pub(crate) fn is_left_behind(&self, side: Side, segment: &Segment<'_>) -> bool {
        let half = self.half(side);
        let is_over = matches!(self.stage, Stage::Closing | Stage::Over);
        if segment.flags.contains(Flags::RST) || !segment.flags.contains(Flags::SYN) {
            return false;
        }
        if segment.flags.contains(Flags::ACK) {
            // Another connection's, whose SYN was not seen; or nobody's.
            let peer = self.half(side.peer());
            return is_over && peer.is_placed && segment.acknowledgment != peer.start;
        }
        match half.syn {
            Some(syn) => syn != segment.sequence,
            None if half.is_placed => {
                let ahead = half.start.wrapping_sub(segment.sequence.wrapping_add(1));
                let is_late = segment.time.since(self.started).as_nanos() < u128::from(REORDER_NS);
                ahead != 0 && !(is_late && ahead < REORDER_OCTETS)
            }
            // The other side's SYN crossed this one.
            None => self.stage != Stage::Opening,
        }
    }

    /// Takes a segment of `side` that is this connection's. True if it is to be looked at sooner.
    pub(crate) fn see(&mut self, mut side: Side, segment: &Segment<'_>, out: &mut VecDeque<Event>) -> bool {
        if self.stage == Stage::Over {
            return false;
        }
        let before = self.urgency();
        self.last = self.last.max(segment.time);
        if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::RST) {
            side = self.turn_round(side, segment);
        }
        let (half, _) = self.halves(side);
        half.packets = half.packets.saturating_add(1);
        self.write_history(side, segment);
        if segment.flags.contains(Flags::RST) {
            self.see_reset(side, segment);
        } else {
            self.see_regular(side, segment, out);
        }
        before != self.urgency()
    }

    /// What decides when it is looked at, but for times that only move on.
    fn urgency(&self) -> (Stage, State, Option<Timestamp>, [bool; 2]) {
        let is_half_closed = self.client.fin.is_some() || self.server.fin.is_some();
        (self.stage, self.turn.state, self.turn.asked_at, [is_half_closed, self.waits_since().is_some()])
    }

    /// A SYN that came late may show that the ends were taken for each other.
    fn turn_round(&mut self, side: Side, segment: &Segment<'_>) -> Side {
        let is_ack = segment.flags.contains(Flags::ACK);
        let is_known = self.client.syns > 0 || self.server.syns > 0;
        if is_known || (side == Side::Client) != is_ack || !(self.client.is_placed || self.server.is_placed) {
            return side;
        }
        std::mem::swap(&mut self.client, &mut self.server);
        self.client_is_first = !self.client_is_first;
        self.turn = Turn::new();
        self.app = App::default();
        side.peer()
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

    fn see_reset(&mut self, side: Side, segment: &Segment<'_>) {
        let worth = self.worth(side, segment);
        if worth == Reset::Forged {
            return;
        }
        self.zeek.see(side, segment);
        let (half, peer) = self.halves(side);
        if half.reset.is_none() {
            let acknowledgment = segment.flags.contains(Flags::ACK).then_some(segment.acknowledgment).or(half.acked);
            half.reset =
                Some(Close { sequence: segment.sequence, acknowledgment, heard: peer.acked, at: segment.time });
        }
        if self.stage != Stage::Closing {
            self.is_doubtful = worth == Reset::Doubtful;
            self.close(segment.time);
        } else if worth == Reset::Sure {
            self.is_doubtful = false;
        }
    }

    fn worth(&self, side: Side, segment: &Segment<'_>) -> Reset {
        let (half, peer) = (self.half(side), self.half(side.peer()));
        if let Some(syn) = peer.syn
            && !half.is_placed
            && segment.flags.contains(Flags::ACK)
            && !(is_before(syn, segment.acknowledgment) && is_upto(segment.acknowledgment, peer.next))
        {
            return Reset::Forged;
        }
        half.judge_reset(segment.sequence, peer)
    }

    fn see_regular(&mut self, side: Side, segment: &Segment<'_>, out: &mut VecDeque<Event>) {
        let is_syn = segment.flags.contains(Flags::SYN);
        let (half, peer) = self.halves(side);
        if is_syn {
            if half.syn.is_some_and(|syn| syn != segment.sequence) {
                return;
            }
            if segment.flags.contains(Flags::ACK) && peer.is_placed && segment.acknowledgment != peer.start {
                return;
            }
            half.see_syn(segment);
        } else if !half.fits(segment, peer) {
            return;
        }
        self.zeek.see(side, segment);
        if segment.flags.contains(Flags::ACK) {
            self.see_acknowledgment(side, segment.acknowledgment, segment.time);
        }
        let sequence = segment.sequence.wrapping_add(u32::from(is_syn));
        self.revive(side, segment, sequence);
        let (half, _) = self.halves(side);
        if let Some(data) = half.see_data(sequence, segment.len, segment.time) {
            self.see_data(side, sequence, data, segment, out);
        }
        if segment.flags.contains(Flags::FIN) {
            let acknowledgment = segment.flags.contains(Flags::ACK).then_some(segment.acknowledgment);
            let (half, _) = self.halves(side);
            half.see_fin(sequence.wrapping_add(segment.len), acknowledgment, segment.time);
        }
        self.step(side, segment);
    }

    fn see_acknowledgment(&mut self, side: Side, upto: u32, at: Timestamp) {
        let (half, peer) = self.halves(side);
        let is_gap = peer.see_acked(upto);
        let gaps = peer.gaps;
        match half.acked {
            Some(acked) if is_upto(upto, acked) => {}
            _ => half.acked = Some(upto),
        }
        if is_gap {
            self.history.count(side.peer(), b'g', gaps);
        }
        if side == Side::Client {
            self.see_unseen_answer(upto, at);
        }
    }

    /// The client has more of the server than was seen, and it is no FIN.
    fn see_unseen_answer(&mut self, upto: u32, at: Timestamp) {
        let fin = u32::from(self.server.packets > 0);
        if self.turn.state == State::Asked && is_before(self.server.next.wrapping_add(fin), upto) {
            self.turn.answer(self.client.next, at);
        }
    }

    fn see_data(&mut self, side: Side, from: u32, data: Data, segment: &Segment<'_>, out: &mut VecDeque<Event>) {
        if data != Data::New {
            let (half, _) = self.halves(side);
            let count = half.retransmits;
            self.history.count(side, b't', count);
        }
        if data == Data::Seen {
            return;
        }
        match side {
            Side::Client => self.see_question(from, segment, out),
            Side::Server => self.see_answer(from, segment, out),
        }
    }

    fn see_question(&mut self, from: u32, segment: &Segment<'_>, out: &mut VecDeque<Event>) {
        let place = Place { from, client_start: self.client.start, server_next: self.server.next };
        let http = self.app.exchange();
        if self.app.see_client(place, segment, self.turn.state) {
            let upto = from.wrapping_add(segment.len);
            let over = self.turn.ask(from, upto, segment.time, self.server.next);
            self.tell_of(over, http, out);
        }
    }

    fn see_answer(&mut self, from: u32, segment: &Segment<'_>, out: &mut VecDeque<Event>) {
        let heard = if segment.flags.contains(Flags::ACK) { segment.acknowledgment } else { self.client.next };
        // What the server has heard of the client was not seen; and it was more than a FIN.
        let known = self.turn.heard().map_or(self.client.next, |heard| later(self.client.next, heard));
        if self.client.is_placed && self.turn.state != State::Asked && is_before(known.wrapping_add(1), heard) {
            let over = self.turn.imply_ask(known, heard, from);
            self.tell(over, out);
        }
        loop {
            let answer = self.app.see_server(from, heard, segment);
            if answer.is_answer {
                self.turn.answer(heard, segment.time);
            }
            let Some(end) = answer.end else { return };
            let over = self.turn.complete(end);
            self.tell(over, out);
            if let Some(next) = self.app.next_request() {
                let (asked, at) = next.asked();
                self.turn.begin(asked, at, end);
            }
            if end == from.wrapping_add(segment.len) {
                return;
            }
            // The next answer begins in the same segment.
        }
    }

    /// What comes behind its own FIN or RST, or knows more than its RST, shows that those were another's.
    fn revive(&mut self, side: Side, segment: &Segment<'_>, sequence: u32) {
        let end = sequence.wrapping_add(segment.len);
        let (half, _) = self.halves(side);
        if segment.len > 0 && half.fin.is_some_and(|fin| is_before(fin.sequence, end)) {
            half.fin = None;
            self.reopen(side);
        }
        let (half, _) = self.halves(side);
        let Some(reset) = half.reset else { return };
        let says_more = is_before(reset.sequence, end);
        let knows_more = reset.acknowledgment.is_some_and(|known| is_before(known, segment.acknowledgment));
        self.life += if says_more { LIFE_MIN } else { u8::from(knows_more) };
        if self.life >= LIFE_MIN {
            let (half, _) = self.halves(side);
            half.reset = None;
            self.life = 0;
            self.reopen(side);
        }
    }

    fn reopen(&mut self, side: Side) {
        self.zeek.revive(side);
        if self.stage == Stage::Closing {
            self.stage = if self.is_established { Stage::Open } else { Stage::Opening };
        }
    }

    fn step(&mut self, side: Side, segment: &Segment<'_>) {
        if !self.is_established && !segment.flags.contains(Flags::SYN) {
            // Only who has got a SYN-ACK acknowledges it, and only to who has is data sent.
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

    pub(crate) fn tell(&self, over: Option<Exchange>, out: &mut VecDeque<Event>) {
        self.tell_of(over, self.app.exchange(), out);
    }

    fn tell_of(&self, over: Option<Exchange>, http: Option<Http>, out: &mut VecDeque<Event>) {
        if let Some(exchange) = over {
            let (client, server) = (self.end(Side::Client), self.end(Side::Server));
            let was_overdue = self.turn.is_overdue;
            out.push_back(Event::Request(Request { client, server, exchange, was_overdue, http }));
        }
    }

    /// It is reported; what still comes is heard no more.
    pub(crate) fn bury(&mut self, now: Timestamp) {
        self.stage = Stage::Over;
        self.staged = now;
        self.app = App::default();
    }

    /// When and why to look at it, if nothing comes until then.
    pub(crate) fn due(&self, settings: &Settings) -> (Timestamp, Cause) {
        match self.stage {
            Stage::Opening if self.is_knocking() && !self.is_knock_overdue => {
                (self.started + settings.knock_patience, Cause::KnockOverdue)
            }
            Stage::Opening => (self.last + settings.handshake_timeout, Cause::End),
            Stage::Open => self.due_open(settings),
            Stage::Closing if self.is_doubtful => (self.staged + settings.settle_doubtful, Cause::End),
            Stage::Closing => (self.staged + settings.settle, Cause::End),
            Stage::Over => (self.staged + settings.linger, Cause::Forget),
        }
    }

    fn due_open(&self, settings: &Settings) -> (Timestamp, Cause) {
        if self.client.fin.is_some() || self.server.fin.is_some() {
            return (self.last + settings.half_closed_timeout, Cause::End);
        }
        if let Some(asked_at) = self.waits_since() {
            if !self.turn.is_overdue {
                return (asked_at + settings.request_patience, Cause::RequestOverdue);
            }
            return (asked_at + settings.timeout, Cause::Timeout);
        }
        if self.turn.state == State::Answering {
            let since = self.turn.asked_at.unwrap_or(self.turn.first_at);
            return (since + settings.timeout, Cause::Timeout);
        }
        (self.last + settings.silence_max, Cause::End)
    }

    /// Since when the client has waited for the first octet of an answer, be it of a handshake.
    pub(crate) fn waits_since(&self) -> Option<Timestamp> {
        match self.turn.state {
            State::Asked => Some(self.turn.asked_at.unwrap_or(self.last)),
            State::Quiet if self.app.is_shaking() && self.server.data_at < self.client.data_at => {
                Some(self.client.data_at)
            }
            _ => None,
        }
    }

    /// Whether there is a SYN, and no answer to it.
    pub(crate) fn is_knocking(&self) -> bool {
        self.client.syns > 0 && self.server.packets == 0
    }
}
