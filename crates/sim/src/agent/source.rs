//! Gives one connection away. Drives [`watari_handoff::Source`].

use std::time::Duration;

use watari_connection::Parts as HttpParts;
use watari_handoff::{Source, SourceAction, SourceEvent};
use watari_http1::{Limits, Server};
use watari_record::Fenced;
use watari_stream::{Parts, TlsStream};
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName, SecretBytes};
use watari_wire::{AgentToDispatcher, Cancel, Propose, REST_LEN_MAX, Rest, Ship};

use super::anchors::AnchoredStream;
use super::open_response::{OpenResponse, OpenRest};
use super::serving::Serving;
use super::{About, DISPATCHER, FENCE, Owned, RETRY, Site, Step, name, node};
use crate::message::{Message, ResponseRest, Shipped};
use crate::sabotage::Sabotage;
use crate::socket::Socket;
use crate::tls::LegStream;

/// A fenced connection: it does not open, seal or write until the dispatcher decides.
pub(crate) struct Departure {
    site: Site,
    pub(crate) about: About,
    source: Source,
    fenced: Fenced,
    leg: Socket,
    pub(super) opened: Vec<u8>,
    unopened: Vec<u8>,
    /// The offset of `unopened` in the client's stream.
    unopened_offset: u64,
    pub(super) unsent: Vec<u8>,
    sent: u64,
    response: OpenResponse,
    /// The rest of the response, as it is shipped.
    rest: ResponseRest,
    /// This agent's end, if it becomes the anchor of the response.
    begun: Option<AnchoredStream>,
    digest: [u8; 32],
    read_to: Option<u64>,
    /// The end of the client's stream on the leg, if the dispatcher keeps the leg.
    leg_kept: Option<u64>,
    outcome: Option<Outcome>,
    retry: Duration,
    expires: Duration,
}

enum Outcome {
    Thawed,
    Destroyed { moved: bool },
}

impl Departure {
    pub(super) fn new(site: Site, about: About, tls: Parts<Socket>, response: OpenResponse) -> Self {
        let now = site.network.now();
        let (rest, begun) = response.ship(&site);
        Self {
            rest,
            begun,
            source: Source::new(about.last, REST_LEN_MAX as u64),
            about,
            fenced: tls.connection.fence(),
            leg: tls.io,
            opened: tls.opened,
            unopened_offset: tls.received - tls.unopened.len() as u64,
            unopened: tls.unopened,
            unsent: tls.unsent,
            sent: tls.sent,
            response,
            digest: [0; 32],
            read_to: None,
            leg_kept: None,
            outcome: None,
            retry: now + RETRY,
            expires: now + FENCE,
            site,
        }
    }

    pub(super) fn begin(mut self, target: NodeName) -> Self {
        // If this process dies now, the bytes it has written must still arrive.
        self.leg.fin_on_close();
        self.read(REST_LEN_MAX / 2);
        let rx_offset = self.rx_offset();
        self.handle(SourceEvent::Propose { target, rx_offset });
        self
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.about.id
    }

    pub(crate) fn tenure(&self) -> Epoch {
        self.about.tenure
    }

    /// The dispatcher keeps the leg.
    pub(crate) fn leg_kept(&mut self, rx_offset: u64) {
        self.leg_kept = Some(rx_offset);
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.retry.min(self.expires)
    }

    pub(crate) fn handle(&mut self, event: SourceEvent) {
        if self.outcome.is_some() {
            return;
        }
        match (self.site.sabotage, &event) {
            (Some(Sabotage::SourceThawsAfterCommit), SourceEvent::Committed(_))
            | (Some(Sabotage::SourceThawsByTimeout), SourceEvent::Retry)
            | (Some(Sabotage::SourceIgnoresEpochs), SourceEvent::Aborted(..)) => {
                self.outcome = Some(Outcome::Thawed);
                return;
            }
            _ => {}
        }
        let mut actions = Vec::new();
        self.source.handle(event, &mut actions);
        self.about.last = self.source.epoch();
        for action in actions {
            self.carry_out(action);
        }
    }

    fn carry_out(&mut self, action: SourceAction) {
        let connection = self.about.id;
        match action {
            SourceAction::Ship { target, epoch, rx_offset } => self.ship(&target, epoch, rx_offset),
            SourceAction::Propose { target, epoch, rx_offset } => {
                let (tail_offset, digest) = (self.sent, self.digest);
                let propose = Propose { connection, epoch, target, rx_offset, tail_offset, digest };
                self.site.send_to_dispatcher(AgentToDispatcher::Propose(propose));
            }
            SourceAction::ReadTo(offset) => self.read_to = Some(offset),
            SourceAction::Rest { target, epoch, from_offset, to_offset } => {
                let range = (from_offset - self.unopened_offset) as usize..(to_offset - self.unopened_offset) as usize;
                let bytes = self.unopened[range].to_vec();
                self.site.network.count(|figures| figures.frozen += 1);
                self.site.send(node(&target), &Message::Rest(Rest { connection, epoch, from_offset, bytes }));
            }
            SourceAction::Cancel { epoch, reason } => self.cancel(epoch, reason),
            SourceAction::Thaw(_) => self.outcome = Some(Outcome::Thawed),
            SourceAction::Destroy { moved } => {
                self.site.network.note(|| format!("{} gives up {connection}, moved {moved}", self.site.node));
                if !moved {
                    self.leg.reset_on_close();
                }
                self.outcome = Some(Outcome::Destroyed { moved });
            }
        }
    }

    fn ship(&mut self, target: &NodeName, epoch: Epoch, rx_offset: u64) {
        let ship = Ship {
            connection: self.about.id,
            epoch,
            dispatcher: name(DISPATCHER),
            state: SecretBytes::new(self.fenced.state().to_vec()),
            tls: self.about.tls.clone(),
            client_certificate: None,
            client: self.about.client,
            server: self.about.client,
            handshake_node: name(self.site.node),
            moves: 0,
            opened: SecretBytes::new(self.opened.clone()),
            rx_offset,
            rest: SecretBytes::new(self.unopened.clone()),
            tail: self.unsent.clone(),
            tail_offset: self.sent,
        };
        self.digest = ship.digest();
        let OpenResponse { http, unwritten, how, .. } = &self.response;
        let rest = self.rest.clone();
        self.site.network.count(|figures| {
            figures.within_responses += u64::from(self.response.is_open());
            figures.with_skip += u64::from(matches!(rest, ResponseRest::Prepared { skip } if skip > 0));
            figures.with_tail += u64::from(!self.unsent.is_empty());
            figures.with_rest += u64::from(!self.unopened.is_empty());
        });
        let number = how.map_or(0, |how| how.number);
        let http = how.is_some().then(|| {
            let mut state = Vec::new();
            http.export(&mut state);
            state
        });
        let shipped = Shipped { ship, http, unwritten: unwritten.clone(), number, rest, key: self.about.key };
        self.site.send(node(target), &Message::Ship(Box::new(shipped)));
    }

    fn cancel(&self, epoch: Epoch, reason: AbortReason) {
        let cancel = Cancel { connection: self.about.id, epoch, reason };
        self.site.send_to_dispatcher(AgentToDispatcher::Cancel(cancel));
    }

    /// Continues as far as possible.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        let now = self.site.network.now();
        if let Some(to) = self.read_to {
            self.read((to - self.rx_offset()) as usize);
            if self.rx_offset() == to {
                self.read_to = None;
                self.handle(SourceEvent::Read { rx_offset: to });
            }
        }
        if now >= self.expires {
            self.handle(SourceEvent::Expired);
        } else if now >= self.retry {
            self.retry = now + RETRY;
            self.handle(SourceEvent::Retry);
        }
        match self.outcome {
            None => Step::Waits(Owned::Fenced(self)),
            Some(Outcome::Thawed) => Step::GoesOn(Owned::Serving(Box::new(self.stay()))),
            Some(Outcome::Destroyed { moved }) => self.leave(moved),
        }
    }

    /// The connection is at the target, or may be. Then the target may need its anchor.
    fn leave(self, moved: bool) -> Step {
        // No byte of this connection is on its way.
        let is_free = moved && self.leg_kept == Some(self.rx_offset());
        let Self { site, response, begun, leg, .. } = self;
        if moved || begun.is_some() {
            response.departs(&site, begun);
        }
        if is_free { Step::LegFree(leg) } else { Step::Gone }
    }

    /// Reads at most `max` bytes of the client's stream.
    fn read(&mut self, max: usize) {
        let end = self.unopened.len() + max;
        while self.unopened.len() < end {
            match self.leg.read(end - self.unopened.len()) {
                Some(Ok(bytes)) if !bytes.is_empty() => self.unopened.extend(bytes),
                _ => return,
            }
        }
    }

    fn rx_offset(&self) -> u64 {
        self.unopened_offset + self.unopened.len() as u64
    }

    /// Serves the connection again.
    pub(super) fn stay(self) -> Serving {
        let received = self.rx_offset();
        let Self { site, about, fenced, mut leg, opened, unopened, unsent, sent, response, .. } = self;
        leg.reset_on_close();
        let parts = Parts { io: leg, connection: fenced.thaw(), opened, unopened, unsent, received, sent };
        let stream = LegStream::new(TlsStream::from_parts(parts));
        response.stays();
        let is_open = response.is_open();
        let OpenResponse { service, http, unwritten, rest, .. } = response;
        match rest {
            OpenRest::Tunnel(tunnel) => Serving::tunnel(site, about, (stream, http), tunnel),
            OpenRest::Response(responding) if is_open => {
                let responding = responding.map(|responding| *responding);
                let parts = HttpParts { stream, service, http, opened: Vec::new(), unwritten, responding };
                Serving::within(site, about, parts)
            }
            OpenRest::Response(_) => Serving::new(site, about, stream),
        }
    }
}

/// The state of HTTP that was shipped.
pub(super) fn import(http: &[u8]) -> Option<Server> {
    Server::import(http, Limits::default()).ok()
}
