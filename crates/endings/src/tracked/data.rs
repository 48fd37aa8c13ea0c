//! How data relate to the requests of a connection.

use std::collections::VecDeque;

use watari_packets::{Flags, Segment, Timestamp};

use crate::app::{App, Place};
use crate::connection::{Event, Request};
use crate::ending::Side;
use crate::half::Data;
use crate::http::Http;
use crate::sequence::{is_before, later};
use crate::tracked::TrackedConnection;
use crate::turn::{Exchange, TurnState};

impl TrackedConnection {
    pub(super) fn see_data(
        &mut self,
        side: Side,
        from: u32,
        data: Data,
        segment: &Segment<'_>,
        out: &mut VecDeque<Event>,
    ) {
        if data != Data::New {
            let (half, _) = self.halves(side);
            let count = half.retransmits;
            self.history.count(side, b't', count);
        }
        if data == Data::Seen {
            return;
        }
        if self.app.is_tunnel() {
            self.turn.pass_through(self.client.acked, segment.time);
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
        let acked = if segment.flags.contains(Flags::ACK) { segment.acknowledgment } else { self.client.next };
        // The server acknowledges client data that were not captured, and they are more than a FIN.
        let known = self.turn.acked().map_or(self.client.next, |acked| later(self.client.next, acked));
        if self.client.is_placed && self.turn.state != TurnState::Asked && is_before(known.wrapping_add(1), acked) {
            let over = self.turn.imply_ask(known, from);
            self.emit(over, out);
        }
        let is_begin_seen = self.client.syns > 0 || self.server.syns > 0;
        if !is_begin_seen && self.turn.requests == 0 && matches!(self.app, App::Unknown) {
            // A server sends only answers.
            let over = self.turn.imply_ask(acked.wrapping_sub(1), from);
            self.emit(over, out);
        }
        loop {
            let answer = self.app.see_server(from, acked, segment);
            let upto = from.wrapping_add(segment.len);
            if answer.is_answer {
                self.turn.answer(acked, upto, segment.time);
            } else {
                self.turn.pass(upto);
            }
            let Some(end) = answer.end else { return };
            self.complete(end, out);
            if end == upto || self.app.is_tunnel() {
                return;
            }
            // The next answer begins in the same segment.
        }
    }

    /// The client has acknowledged all of an answer with a known length, although not all of it was captured.
    pub(super) fn see_unseen_end(&mut self, upto: u32, at: Timestamp, out: &mut VecDeque<Event>) {
        if let Some(end) = self.app.acknowledge(upto) {
            self.turn.reach(end, at);
            self.complete(end, out);
        }
    }

    /// Ends the answer there. The next request becomes the one to be answered.
    fn complete(&mut self, end: u32, out: &mut VecDeque<Event>) {
        if self.turn.state == TurnState::Asked {
            // It was not the answer to this request: the server had none of it.
            return;
        }
        let over = self.turn.complete(end);
        self.emit(over, out);
        if let Some(next) = self.app.next_request() {
            let (asked, at) = next.asked();
            self.turn.begin(asked, Some(at), end);
        }
    }

    /// Reports the last request, and those pipelined behind it.
    pub(crate) fn tell_last(&mut self, out: &mut VecDeque<Event>) {
        let has_ended = self.server.fin.is_some() && self.server.reset.is_none();
        let is_complete = has_ended && self.app.ends_with_stream(self.turn.state);
        self.emit(self.turn.exchange(is_complete), out);
        while let Some(next) = self.app.next_request() {
            let (asked, at) = next.asked();
            self.turn.begin(asked, Some(at), self.turn.end);
            self.emit(self.turn.exchange(false), out);
        }
    }

    fn emit(&self, over: Option<Exchange>, out: &mut VecDeque<Event>) {
        self.tell_of(over, self.app.exchange(), out);
    }

    fn tell_of(&self, over: Option<Exchange>, http: Option<Http>, out: &mut VecDeque<Event>) {
        if let Some(exchange) = over {
            let (client, server) = (self.end(Side::Client), self.end(Side::Server));
            out.push_back(Event::Request(Request { client, server, exchange, http }));
        }
    }
}
