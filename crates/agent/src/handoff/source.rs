//! The source of a handoff: gives connections away. Drives [`watari_handoff::Source`].

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use watari_handoff::{Source, SourceAction, SourceEvent};
use watari_record::Fenced;
use watari_stream::Parts;
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName, SecretBytes, StayReason};
use watari_wire::{
    AgentToAgent, AgentToDispatcher, Cancel, OPENED_LEN_MAX, Propose, RESPONSE_BYTES_LEN_MAX, REST_LEN_MAX,
    ResponseRest, Rest, Ship, ShipInResponse, TAIL_LEN_MAX,
};

use super::live::{About, FencedBytes, Live};
use super::registry::Registry;
use crate::leg::{CurrentDispatcher, Leg};
use crate::node::metrics::{Counted, Metrics};
use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;

/// Messages that may wait for one departure. A move has fewer, so more mean that a peer floods.
const INBOX_LEN: usize = 16;

/// The result of an attempt to give a connection away.
pub(crate) enum Outcome {
    /// The move did not happen. The connection stays here.
    Stays(Box<Live>),
    /// The connection moved. Its leg is returned if it is free for another connection.
    Moved(Option<TcpStream>),
    /// The connection is lost. Its leg is reset.
    Lost,
}

/// A response in progress, as the target gets it. The target has prepared to continue it.
pub(crate) struct ShippedResponse {
    /// The number of the preparation.
    pub(crate) number: u32,
    /// The exported state of HTTP.
    pub(crate) http: Vec<u8>,
    /// Framed bytes that are not sealed.
    pub(crate) unwritten: SecretBytes,
    /// Content that follows and is not framed.
    pub(crate) pending: SecretBytes,
    pub(crate) rest: ResponseRest,
}

impl ShippedResponse {
    /// The message that ships the connection within this response.
    pub(super) fn ship_with(self, ship: Ship) -> ShipInResponse {
        let Self { number, http, unwritten, pending, rest } = self;
        ShipInResponse { ship, number, http, unwritten, pending, rest }
    }

    /// The bytes of the response that are shipped.
    fn len(&self) -> usize {
        self.unwritten.as_slice().len() + self.pending.as_slice().len()
    }
}

/// A dispatcher's message about a connection that is being given away.
pub(crate) struct DispatcherMessage {
    pub(crate) event: SourceEvent,
    /// Set if the dispatcher keeps the leg: the number of bytes of the client's stream that it has written there.
    pub(crate) leg_kept: Option<u64>,
}

impl From<SourceEvent> for DispatcherMessage {
    fn from(event: SourceEvent) -> Self {
        Self { event, leg_kept: None }
    }
}

/// Gives connections away, and finds the departure for a dispatcher's message.
pub(crate) struct Departures {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
    registry: Arc<Registry>,
    entries: Mutex<HashMap<ConnectionId, Waiting>>,
}

struct Waiting {
    dispatcher: CurrentDispatcher,
    tenure: Epoch,
    inbox: mpsc::Sender<DispatcherMessage>,
}

impl Departures {
    pub(crate) fn new(
        peers: Peers,
        settings: Arc<CurrentSettings>,
        metrics: Arc<Metrics>,
        registry: Arc<Registry>,
    ) -> Self {
        Self { peers, settings, metrics, registry, entries: Mutex::default() }
    }

    /// Tries to give `live` to `target`, within `response` if there is one. Makes no attempt if a link is down or too
    /// many bytes are buffered.
    pub(crate) async fn depart(
        &self,
        mut live: Box<Live>,
        target: NodeName,
        response: Option<ShippedResponse>,
    ) -> Outcome {
        if live.parts.io.is_detached() {
            // Its dispatcher may have given it up already. The next one asks it to leave if it drains or rebalances.
            return Outcome::Stays(live);
        }
        let possible = self.peers.is_up(&target) && self.peers.is_up(&live.about.dispatcher.get());
        if !possible {
            tracing::info!(connection = %live.about.id, %target, "connection not moved: no link to the target or the dispatcher");
            self.metrics.count_not_moved(AbortReason::NoLink);
            live.about.report_stay(&self.peers, StayReason::NoLink);
            return Outcome::Stays(live);
        }
        take_what_has_come(&mut live.parts);
        let is_response_long = response.as_ref().is_some_and(|response| response.len() > RESPONSE_BYTES_LEN_MAX);
        if live.parts.opened.len() > OPENED_LEN_MAX || live.parts.unsent.len() > TAIL_LEN_MAX || is_response_long {
            live.about.report_stay(&self.peers, StayReason::TooMuchInHand);
            self.metrics.count_not_moved(AbortReason::RestTooLong);
            return Outcome::Stays(live);
        }
        let events = self.enter(&live.about);
        let (id, tenure) = (live.about.id, live.about.tenure);
        let _counted = Counted::one_more(&self.metrics.fenced);
        let outcome = Departure::new(self, *live, response).run(target, events).await;
        self.leave(id, tenure);
        outcome
    }

    /// Sends `message` to the departure, if there is one and `from` is its dispatcher. If the inbox is full, the
    /// message is dropped, as if it had been lost on the network.
    pub(crate) fn send(&self, from: &NodeName, connection: ConnectionId, message: impl Into<DispatcherMessage>) {
        if let Some(waiting) = self.entries().get(&connection).filter(|waiting| waiting.dispatcher.is(from))
            && waiting.inbox.try_send(message.into()).is_err()
        {
            tracing::debug!(%connection, peer = %from, "message dropped: the departure's inbox is full");
        }
    }

    /// Adds a departure. It replaces one of an earlier tenure, which is decided already and whose messages then end.
    fn enter(&self, about: &About) -> mpsc::Receiver<DispatcherMessage> {
        let (inbox, events) = mpsc::channel(INBOX_LEN);
        let waiting = Waiting { dispatcher: about.dispatcher.clone(), tenure: about.tenure, inbox };
        self.entries().insert(about.id, waiting);
        events
    }

    fn leave(&self, id: ConnectionId, tenure: Epoch) {
        let mut entries = self.entries();
        if entries.get(&id).is_some_and(|waiting| waiting.tenure == tenure) {
            entries.remove(&id);
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, Waiting>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads what has arrived after the client's Finished. To ship these bytes with the first message saves a freeze.
fn take_what_has_come(parts: &mut Parts<Leg>) {
    while parts.unopened.len() < REST_LEN_MAX / 2 {
        parts.unopened.reserve(4096);
        match parts.io.try_read_buf(&mut parts.unopened) {
            Ok(0) | Err(_) => break,
            Ok(read) => parts.received += read as u64,
        }
    }
}

/// A fenced connection: it does not open, seal or write until the dispatcher decides.
struct Departure<'a> {
    departures: &'a Departures,
    about: About,
    fenced: Fenced,
    leg: Leg,
    opened: Vec<u8>,
    unopened: Vec<u8>,
    /// The offset of `unopened` in the client's stream.
    unopened_offset: u64,
    unsent: Vec<u8>,
    sent: u64,
    /// The response in progress, until it is shipped.
    response: Option<ShippedResponse>,
    /// Digest of the shipped message.
    digest: [u8; 32],
    read_to: Option<u64>,
    shipped: bool,
    /// The `leg_kept` of the dispatcher's last message.
    leg_kept: Option<u64>,
}

impl<'a> Departure<'a> {
    fn new(departures: &'a Departures, live: Live, response: Option<ShippedResponse>) -> Self {
        let Live { about, mut parts } = live;
        // If this process dies now, the bytes it has written must still arrive, because the target continues after
        // them.
        parts.io.fin_on_close();
        Self {
            departures,
            about,
            fenced: parts.connection.fence(),
            leg: parts.io,
            unopened_offset: parts.received - parts.unopened.len() as u64,
            opened: parts.opened,
            unopened: parts.unopened,
            unsent: parts.unsent,
            sent: parts.sent,
            response,
            digest: [0; 32],
            read_to: None,
            shipped: false,
            leg_kept: None,
        }
    }

    async fn run(mut self, target: NodeName, mut events: mpsc::Receiver<DispatcherMessage>) -> Outcome {
        let mut source = Source::new(self.about.last, REST_LEN_MAX as u64);
        let mut retry = tokio::time::interval(self.departures.settings.limits().retry_interval);
        retry.reset();
        let expiry = Instant::now() + self.departures.settings.limits().fence_timeout;
        let mut event = SourceEvent::Propose { target, rx_offset: self.rx_offset() };
        let mut actions = Vec::new();
        loop {
            source.handle(event, &mut actions);
            self.about.last = source.epoch();
            for action in actions.drain(..) {
                match action {
                    SourceAction::Thaw(reason) => return self.thaw(reason),
                    SourceAction::Destroy { moved } => return self.destroy(moved),
                    other => self.carry_out(other),
                }
            }
            event = tokio::select! {
                message = events.recv() => self.on_message(message),
                rx_offset = read_to(&mut self.leg, &mut self.unopened, self.unopened_offset, &mut self.read_to) => {
                    SourceEvent::Read { rx_offset }
                }
                _ = retry.tick() => SourceEvent::Retry,
                () = tokio::time::sleep_until(expiry) => SourceEvent::Expired,
            };
        }
    }

    /// Handles a message. If a later departure has replaced this one, the channel has closed.
    fn on_message(&mut self, message: Option<DispatcherMessage>) -> SourceEvent {
        let DispatcherMessage { event, leg_kept } = message.unwrap_or(SourceEvent::Expired.into());
        self.leg_kept = leg_kept;
        event
    }

    fn carry_out(&mut self, action: SourceAction) {
        let connection = self.about.id;
        match action {
            SourceAction::Ship { target, epoch, rx_offset } => self.ship(&target, epoch, rx_offset),
            SourceAction::Propose { target, epoch, rx_offset } => {
                let (tail_offset, digest) = (self.sent, self.digest);
                let propose = Propose { connection, epoch, target, rx_offset, tail_offset, digest };
                self.send_to_dispatcher(AgentToDispatcher::Propose(propose));
                // Only the dispatcher ends an attempt, even if the shipped state could not be sent.
                if !self.shipped {
                    self.cancel(epoch, AbortReason::NoLink);
                }
            }
            SourceAction::ReadTo(offset) => self.read_to = Some(offset),
            SourceAction::Rest { target, epoch, from_offset, to_offset } => {
                let range = (from_offset - self.unopened_offset) as usize..(to_offset - self.unopened_offset) as usize;
                let bytes = self.unopened[range].to_vec();
                let rest = AgentToAgent::Rest(Rest { connection, epoch, from_offset, bytes });
                if !self.departures.peers.send(&target, rest) {
                    self.cancel(epoch, AbortReason::NoLink);
                }
            }
            SourceAction::Cancel { epoch, reason } => self.cancel(epoch, reason),
            SourceAction::Thaw(_) | SourceAction::Destroy { .. } => unreachable!("these end the departure"),
        }
    }

    fn ship(&mut self, target: &NodeName, epoch: Epoch, rx_offset: u64) {
        let bytes = FencedBytes {
            opened: &self.opened,
            unopened: &self.unopened,
            unsent: &self.unsent,
            received: rx_offset,
            sent: self.sent,
        };
        let ship = self.about.ship(epoch, &self.fenced, bytes);
        let message = if let Some(response) = self.response.take() {
            let shipped = response.ship_with(ship);
            self.digest = shipped.digest();
            AgentToAgent::ShipInResponse(Box::new(shipped))
        } else {
            self.digest = ship.digest();
            AgentToAgent::Ship(Box::new(ship))
        };
        self.departures.registry.departs(self.about.id, self.about.tenure, epoch);
        self.shipped = self.departures.peers.send(target, message);
    }

    fn cancel(&self, epoch: Epoch, reason: AbortReason) {
        self.send_to_dispatcher(AgentToDispatcher::Cancel(Cancel { connection: self.about.id, epoch, reason }));
    }

    fn send_to_dispatcher(&self, message: AgentToDispatcher) {
        self.departures.peers.send(&self.about.dispatcher.get(), message);
    }

    fn rx_offset(&self) -> u64 {
        self.unopened_offset + self.unopened.len() as u64
    }

    fn thaw(mut self, reason: AbortReason) -> Outcome {
        tracing::info!(connection = %self.about.id, reason = reason.as_str(), "connection not moved");
        self.departures.metrics.count_not_moved(reason);
        self.leg.reset_on_close();
        let parts = Parts {
            received: self.rx_offset(),
            io: self.leg,
            connection: self.fenced.thaw(),
            opened: self.opened,
            unopened: self.unopened,
            unsent: self.unsent,
            sent: self.sent,
        };
        Outcome::Stays(Box::new(Live { about: self.about, parts }))
    }

    /// Returns the leg for another connection only if the dispatcher has cut the stream where this node has read to:
    /// then no byte of this connection is on its way.
    fn destroy(mut self, moved: bool) -> Outcome {
        if moved {
            self.departures.metrics.moved_out.inc();
            let is_free = self.leg_kept == Some(self.rx_offset());
            return Outcome::Moved(if is_free { self.leg.into_free() } else { None });
        }
        tracing::info!(connection = %self.about.id, "connection lost in a handoff");
        self.departures.metrics.lost.inc();
        self.leg.reset_on_close();
        Outcome::Lost
    }
}

/// Reads from the leg until the client's stream is complete up to the wanted offset. Waits forever if there is none.
async fn read_to(leg: &mut Leg, unopened: &mut Vec<u8>, offset: u64, wanted: &mut Option<u64>) -> u64 {
    while let Some(to) = *wanted {
        let missing = (to - offset) as usize - unopened.len();
        if missing == 0 {
            *wanted = None;
            return to;
        }
        if read_at_most(leg, unopened, missing).await.is_err() {
            // The leg is lost. The dispatcher decides whether the connection is.
            *wanted = None;
        }
    }
    std::future::pending().await
}

async fn read_at_most(leg: &mut Leg, into: &mut Vec<u8>, len_max: usize) -> io::Result<()> {
    into.reserve(len_max);
    match leg.take(len_max as u64).read_buf(into).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
