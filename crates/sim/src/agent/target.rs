//! Holds a shipped connection until the dispatcher decides. Drives [`watari_handoff::Target`].

use std::io::IoSlice;
use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use watari_connection::{Parts as HttpParts, Responding};
use watari_handoff::{Target, TargetAction, TargetEvent};
use watari_http1::Server;
use watari_record::Connection;
use watari_stream::{Parts, TlsStream};
use watari_values::{AbortReason, ConnectionId, Epoch};
use watari_wire::{AgentToDispatcher, AnchoredState, Held, Refused, Rest};

use super::preparations::Rest as PreparedRest;
use super::serving::Serving;
use super::site::SiteBody;
use super::source::import;
use super::tunnel::Tunnel;
use super::{About, HOLD, Site, name};
use crate::message::{ResponseRest, Shipped};
use crate::sabotage::Sabotage;
use crate::socket::Socket;
use crate::tls::LegStream;

/// A held connection. It must not seal yet.
pub(crate) struct Arrival {
    site: Site,
    target: Target,
    connection: Connection,
    about: About,
    opened: Vec<u8>,
    unopened: Vec<u8>,
    tail: Vec<u8>,
    rx_offset: u64,
    tail_offset: u64,
    http: Option<Server>,
    unwritten: Vec<u8>,
    rest: Continued,
    digest: [u8; 32],
    expires: Duration,
}

/// What follows in a response, or in a tunnel.
enum Continued {
    Nothing,
    Response(Responding<SiteBody>),
    /// These bytes, and then those of the anchor, once this agent is the owner.
    Anchored {
        state: AnchoredState,
        pending: Bytes,
    },
}

impl Arrival {
    /// Holds a shipped connection, or refuses it. A response in progress has to be `prepared`.
    pub(super) fn hold(site: &Site, shipped: &Shipped, prepared: Option<PreparedRest>) -> Option<Self> {
        let Shipped { ship, http, unwritten, rest, key, .. } = shipped;
        let response = match http.as_ref().map(|http| import(http)) {
            None => Some((None, Continued::Nothing)),
            Some(http) => http.and_then(|http| continuation(site, http, rest, prepared)),
        };
        let connection = Connection::import(ship.state.as_slice()).ok();
        let (Some(mut connection), Some((http, rest))) = (connection, response) else {
            let (connection, epoch, reason) = (ship.connection, ship.epoch, AbortReason::BadState);
            site.send_to_dispatcher(AgentToDispatcher::Refused(Refused { connection, epoch, reason }));
            return None;
        };
        if site.sabotage == Some(Sabotage::TargetSealsWhenHeld) {
            connection = seal_early(site, (ship.connection, *key), connection, ship.state.as_slice())?;
        }
        let mut actions = Vec::new();
        let mut arrival = Self {
            target: Target::hold(ship.epoch, ship.rx_offset, ship.tail_offset, &mut actions),
            connection,
            about: About {
                id: ship.connection,
                client: ship.client,
                tenure: ship.epoch,
                last: ship.epoch,
                key: *key,
                tls: ship.tls.clone(),
            },
            opened: ship.opened.as_slice().to_vec(),
            unopened: ship.rest.as_slice().to_vec(),
            tail: ship.tail.clone(),
            rx_offset: ship.rx_offset,
            tail_offset: ship.tail_offset,
            http,
            unwritten: unwritten.clone(),
            rest,
            digest: ship.digest(),
            expires: site.network.now() + HOLD,
            site: site.clone(),
        };
        arrival.carry_out(&actions);
        Some(arrival)
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.about.id
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.target.epoch()
    }

    pub(super) fn is_held(&self) -> bool {
        self.target.is_held()
    }

    pub(super) fn deadline(&self) -> Duration {
        self.expires
    }

    pub(super) fn handle(&mut self, event: &TargetEvent) {
        let mut actions = Vec::new();
        self.target.handle(event, &mut actions);
        self.carry_out(&actions);
    }

    pub(super) fn expire(&mut self) {
        if self.site.network.now() >= self.expires {
            self.handle(&TargetEvent::Expired);
        }
    }

    pub(super) fn on_rest(&mut self, rest: &Rest) {
        let (epoch, from_offset, len) = (rest.epoch, rest.from_offset, rest.bytes.len() as u64);
        let mut actions = Vec::new();
        self.target.handle(&TargetEvent::Rest { epoch, from_offset, len }, &mut actions);
        if actions.contains(&TargetAction::Keep) {
            let is_lost = self.site.sabotage == Some(Sabotage::RestLost);
            self.unopened.extend(rest.bytes.iter().map(|byte| if is_lost { 0 } else { *byte }));
            self.rx_offset += len;
        }
        self.carry_out(&actions);
    }

    /// Whether this commit makes this agent the owner of the connection.
    pub(super) fn activates(&mut self, committed: &TargetEvent) -> bool {
        let mut actions = Vec::new();
        self.target.handle(committed, &mut actions);
        actions == [TargetAction::Activate]
    }

    pub(super) fn into_serving(self, leg: Socket, surplus: &[u8]) -> Serving {
        let mut unopened = self.unopened;
        unopened.extend_from_slice(surplus);
        let tail = if self.site.sabotage == Some(Sabotage::TailNotSent) { Vec::new() } else { self.tail };
        let parts = Parts {
            io: leg,
            connection: self.connection,
            opened: self.opened,
            received: self.rx_offset + surplus.len() as u64,
            unopened,
            unsent: tail,
            sent: self.tail_offset,
        };
        let stream = LegStream::new(TlsStream::from_parts(parts));
        let Some(http) = self.http else { return Serving::new(self.site, self.about, stream) };
        let responding = match self.rest {
            Continued::Nothing => None,
            Continued::Response(responding) => Some(responding),
            Continued::Anchored { state, pending } => {
                let anchored = self.site.anchors.attach(self.about.tenure, &state);
                if http.is_tunnel() {
                    let tunnel = Box::new(Tunnel::anchored(anchored, pending));
                    return Serving::tunnel(self.site, self.about, (stream, http), tunnel);
                }
                let body = SiteBody::from_anchor(anchored);
                Some(Responding { body, position: 0, pending, skip: 0, resume: None, is_events: true })
            }
        };
        let (service, unwritten) = (self.site.service(), self.unwritten);
        let parts = HttpParts { stream, service, http, opened: Vec::new(), unwritten, responding };
        Serving::within(self.site, self.about, parts)
    }

    fn carry_out(&mut self, actions: &[TargetAction]) {
        let connection = self.about.id;
        for action in actions {
            match *action {
                TargetAction::Held { epoch, rx_offset, tail_offset } => {
                    let held = Held { connection, epoch, rx_offset, tail_offset, digest: self.digest };
                    self.site.send_to_dispatcher(AgentToDispatcher::Held(held));
                }
                TargetAction::Refuse(epoch, reason) => {
                    self.site.send_to_dispatcher(AgentToDispatcher::Refused(Refused { connection, epoch, reason }));
                }
                TargetAction::Keep | TargetAction::Activate | TargetAction::RefuseLeg | TargetAction::Drop => {}
            }
        }
    }
}

/// The rest of a response: as it was shipped, or as this agent has prepared it. It has to have the length that is left.
fn continuation(
    site: &Site,
    http: Server,
    rest: &ResponseRest,
    prepared: Option<PreparedRest>,
) -> Option<(Option<Server>, Continued)> {
    let (body, pending, skip, resume) = match (rest, prepared?) {
        (ResponseRest::Bytes(bytes), _) => (site.service().empty(), bytes.clone(), 0, None),
        (ResponseRest::Prepared { skip }, PreparedRest::Part(resume, body)) => {
            (body, Bytes::new(), *skip, Some(resume))
        }
        (ResponseRest::Anchored { state, pending }, PreparedRest::Anchored(anchor)) if state.anchor == name(anchor) => {
            let fits = http.is_tunnel() || http.content_left().is_none();
            let rest = Continued::Anchored { state: state.clone(), pending: pending.clone() };
            return fits.then_some((Some(http), rest));
        }
        _ => return None,
    };
    let len = pending.len() as u64 + body.size_hint().exact()?.checked_sub(skip)?;
    let fits = Some(len) == http.content_left();
    if !fits && site.sabotage != Some(Sabotage::OldPreparationTaken) {
        return None;
    }
    let skip = if site.sabotage == Some(Sabotage::NothingSkipped) { 0 } else { skip };
    let responding = Responding { body, position: 0, pending, skip, resume, is_events: false };
    Some((Some(http), Continued::Response(responding)))
}

/// The broken target: seals a piece before the decision.
fn seal_early(
    site: &Site,
    (id, key): (ConnectionId, u64),
    mut connection: Connection,
    state: &[u8],
) -> Option<Connection> {
    let before = connection.tx_sequence();
    let mut sealed = Vec::new();
    connection.seal(&[IoSlice::new(b"early")], usize::MAX, &mut sealed).ok()?;
    site.ledger.seal(site.node, id, key, before..connection.tx_sequence());
    Connection::import(state).ok()
}
