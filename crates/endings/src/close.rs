//! How a connection ended, from all that was seen of it.

use std::time::Duration;

use watari_packets::Timestamp;

use crate::connection::Connection;
use crate::ending::{Ending, Phase, Side};
use crate::half::Close;
use crate::sequence::{is_before, is_upto};
use crate::settings::Settings;
use crate::tracked::TrackedConnection;
use crate::turn::TurnState;

/// Why a connection is reported that neither side closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was silent, its slot was needed, or another connection began between the same ends.
    Silent,
    /// Its request timed out.
    Timeout,
    /// The input ended.
    Cut,
}

/// How long after a packet a duplicate from the capture may follow. Every system waits longer before it sends a SYN
/// again.
const COPY_MAX: Duration = Duration::from_millis(100);

impl TrackedConnection {
    /// The report of the connection at `now`.
    pub(crate) fn conclude(&self, left: Left, now: Timestamp, settings: &Settings) -> Connection {
        let (client, server) = (self.half(Side::Client), self.half(Side::Server));
        let closed_by = self.closed_by();
        let (ending, phase) = self.ending(closed_by, left, now, settings);
        let end = closed_by
            .and_then(|side| self.close_of(side))
            .map_or(if left == Left::Timeout { now } else { self.last }, |close| close.at);
        let (to_client, to_server) = (server.sent(client), client.sent(server));
        Connection {
            client: self.end(Side::Client),
            server: self.end(Side::Server),
            start: self.started,
            end,
            last: self.last_productive(),
            ending,
            phase,
            closed_by: closed_by.filter(|_| ending != Ending::Backscatter),
            is_delivered: self.is_delivered(closed_by, phase),
            was_overdue: self.is_connect_overdue && self.is_connecting()
                || self.turn.is_overdue && self.waits_since().is_some(),
            handshake: self.established.filter(|_| client.syns > 0).map(|at| at.since(self.started)),
            requests: self.turn.requests.saturating_add(self.app.pending()),
            bytes_to_client: to_client,
            bytes_to_server: to_server,
            missed_bytes: server.missed(client) + client.missed(server),
            packets_to_client: server.packets,
            packets_to_server: client.packets,
            protocol: self.app.protocol(),
            tls: self.app.tls(),
            conn_state: self.zeek.conn_state(to_client + to_server, &self.history),
            history: self.history,
        }
    }

    fn ending(&self, closed_by: Option<Side>, left: Left, now: Timestamp, settings: &Settings) -> (Ending, Phase) {
        if !self.is_established {
            return (self.ending_of_handshake(closed_by, left, now, settings), Phase::BeforeHandshake);
        }
        let Some(side) = closed_by else {
            let phase = self.phase_at(now, settings);
            return (if left == Left::Timeout { Ending::Timeout } else { Ending::Open }, phase);
        };
        let is_reset = self.half(side).is_cut_off();
        let ending = match (side, is_reset) {
            (Side::Client, false) => Ending::CNormal,
            (Side::Client, true) => Ending::CReset,
            (Side::Server, false) => Ending::SNormal,
            (Side::Server, true) => Ending::SReset,
        };
        (ending, self.phase_of_close(side, is_reset, settings))
    }

    fn ending_of_handshake(&self, by: Option<Side>, left: Left, now: Timestamp, settings: &Settings) -> Ending {
        let (client, server) = (self.half(Side::Client), self.half(Side::Server));
        let is_first = client.syns < 2 || self.last.since(self.started) < COPY_MAX;
        match by {
            // There was no SYN of the client.
            _ if client.syns == 0 => Ending::Backscatter,
            Some(Side::Client) => Ending::CReset,
            Some(Side::Server) if server.syns == 0 => Ending::Refused,
            Some(Side::Server) => Ending::SReset,
            None if server.packets > 0 => Ending::Open,
            // A client sends a second SYN because the first got no answer, except if it is a duplicate of the capture.
            None if left == Left::Cut && is_first && now.since(self.started) < settings.connect_overdue => Ending::Open,
            None => Ending::NoAnswer,
        }
    }

    /// The side that closed first. A side that had the other's FIN closed after it. If neither had, the close that was
    /// captured first is the first; at equal times, it is the server's.
    fn closed_by(&self) -> Option<Side> {
        match (self.close_of(Side::Client), self.close_of(Side::Server)) {
            (None, None) => None,
            (Some(_), None) => Some(if self.answers_unseen_fin(Side::Client) { Side::Server } else { Side::Client }),
            (None, Some(_)) => Some(if self.answers_unseen_fin(Side::Server) { Side::Client } else { Side::Server }),
            (Some(client), Some(server)) => {
                let client_knew = self.knew_fin(client, Side::Server);
                let server_knew = self.knew_fin(server, Side::Client);
                let is_server = if client_knew == server_knew { server.at <= client.at } else { client_knew };
                Some(if is_server { Side::Server } else { Side::Client })
            }
        }
    }

    /// Time of the last packet, or of the close of the second side.
    fn last_productive(&self) -> Timestamp {
        let closed_at = |side| {
            let half = self.half(side);
            half.fin.into_iter().chain(half.reset).map(|close| close.at).min()
        };
        closed_at(Side::Client).zip(closed_at(Side::Server)).map_or(self.last, |(client, server)| client.max(server))
    }

    fn close_of(&self, side: Side) -> Option<Close> {
        self.half(side).close()
    }

    /// Whether the side that sent `close` had the FIN of `of`.
    fn knew_fin(&self, close: Close, of: Side) -> bool {
        let fin = self.half(of).fin;
        fin.zip(close.acknowledgment).is_some_and(|(fin, known)| is_before(fin.sequence, known))
    }

    /// Whether the close of `side` acknowledges one number more than there were data: a FIN that was not captured. If
    /// nothing of the peer was captured, the number is compared with the previous acknowledgment.
    fn answers_unseen_fin(&self, side: Side) -> bool {
        let (half, peer) = (self.half(side), self.half(side.peer()));
        let known = self.close_of(side).and_then(|close| close.acknowledgment);
        if peer.packets == 0 {
            return half.has_stepped && known == half.acked;
        }
        peer.is_placed && known == Some(peer.next.wrapping_add(1))
    }

    fn phase_of_close(&self, by: Side, is_reset: bool, settings: &Settings) -> Phase {
        let turn = &self.turn;
        if turn.requests == 0 {
            return Phase::BeforeRequest;
        }
        // A FIN that was not captured has no time. The close that answers it is close enough.
        let close = self.close_of(by).or(self.close_of(by.peer()));
        let Some(close) = close else { return Phase::InAnswer };
        let after = if close.at.since(turn.last_at) < settings.idle_after { Phase::AfterAnswer } else { Phase::Idle };
        let knew = self.close_of(by).and_then(|close| close.acknowledgment);
        let knew = knew.or(self.half(by).acked);
        match by {
            Side::Client => self.phase_of_client(knew, after),
            Side::Server => self.phase_of_server(knew, is_reset, after),
        }
    }

    /// The phase when the client closed, by the part of the answer that it had.
    fn phase_of_client(&self, knew: Option<u32>, after: Phase) -> Phase {
        let turn = &self.turn;
        if turn.state == TurnState::Asked || knew.is_some_and(|knew| is_upto(knew, turn.answer)) {
            return Phase::BeforeAnswer;
        }
        let has_all = knew.is_none_or(|knew| is_upto(turn.end, knew));
        // With a closed window nothing more could come, and the server had not shown the end of the answer.
        let is_shut = turn.state == TurnState::Answering && self.is_shut;
        let is_cut = is_shut || self.app.lacks(turn.state) || self.app.ends_with_stream(turn.state);
        if has_all && !is_cut { after } else { Phase::InAnswer }
    }

    /// The phase when the server closed, by the part of the request that it had and the answer that it had sent.
    fn phase_of_server(&self, knew: Option<u32>, is_reset: bool, after: Phase) -> Phase {
        let turn = &self.turn;
        if turn.state == TurnState::Asked {
            // The request crossed the close.
            if knew.is_some_and(|knew| is_upto(knew, turn.asked)) && !is_reset {
                return if turn.requests == 1 { Phase::BeforeRequest } else { after };
            }
            return Phase::BeforeAnswer;
        }
        let (client, server) = (self.half(Side::Client), self.half(Side::Server));
        let acked = server.reset.and_then(|reset| reset.peer_acked);
        let is_in_flight = client.packets > 0 && acked.is_none_or(|acked| is_before(acked, turn.end));
        let lacks = self.app.lacks(turn.state) || is_reset && self.app.ends_with_stream(turn.state);
        let is_cut = turn.state == TurnState::Answering && (lacks || is_reset && is_in_flight);
        if is_cut { Phase::InAnswer } else { after }
    }

    /// The phase of a connection that neither side closed.
    fn phase_at(&self, now: Timestamp, settings: &Settings) -> Phase {
        let turn = &self.turn;
        let is_quiet = settings.idle_after <= now.since(turn.last_at);
        let has_all = self.half(Side::Client).has_acked(turn.end);
        match turn.state {
            _ if turn.requests == 0 => Phase::BeforeRequest,
            TurnState::Quiet | TurnState::Asked => Phase::BeforeAnswer,
            TurnState::Answering if self.app.lacks(turn.state) || !is_quiet || !has_all => Phase::InAnswer,
            _ if is_quiet => Phase::Idle,
            _ => Phase::AfterAnswer,
        }
    }

    /// Whether the client has the whole answer to its last request.
    fn is_delivered(&self, closed_by: Option<Side>, phase: Phase) -> bool {
        let (turn, client, server) = (&self.turn, self.half(Side::Client), self.half(Side::Server));
        if matches!(turn.state, TurnState::Quiet | TurnState::Asked) || self.app.lacks(turn.state) {
            return false;
        }
        // A client that was not captured shows no acknowledgments.
        let knew = client.reset.and_then(|reset| reset.acknowledgment);
        let has_it =
            client.packets == 0 || client.has_acked(turn.end) || knew.is_some_and(|knew| is_upto(turn.end, knew));
        // A client that leaves with its window closed, or by a RST after a pause, may do so because the answer is
        // incomplete. A server that resets an idle connection closes it after its idle timeout. A server that resets at
        // once breaks off the answer.
        let is_shut = closed_by == Some(Side::Client) && self.is_shut;
        let is_reset =
            client.is_cut_off() && phase == Phase::Idle || server.is_cut_off() && phase == Phase::AfterAnswer;
        let is_whole = turn.state == TurnState::Answered
            || server.fin.is_some() && server.reset.is_none() && !is_shut
            || matches!(phase, Phase::AfterAnswer | Phase::Idle) && !is_reset;
        has_it && is_whole
    }
}
