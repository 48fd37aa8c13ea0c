#![allow(clippy::unwrap_used)]

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;
use watari_handoff::SourceEvent;
use watari_record::{AlertDescription, Side};
use watari_sys::tcp;
use watari_values::{AbortReason, StayReason};
use watari_wire::leg::Kind;
use watari_wire::{AgentToDispatcher, Final, Leave, LegKept, Stays};

use super::*;
use crate::connection::http::Http;
use crate::connection::requests::Requests;
use crate::connection::stalls::Transfers;
use crate::handoff::live::Live;
use crate::handoff::registry::Undecided;
use crate::handoff::source::DispatcherMessage;
use crate::handoff::testing::{ID, Node, about, is_reset, leg_in, live, name, record_layer, streams};
use crate::node::slots::Slots;
use crate::sessions::service::SessionService;
use crate::sessions::sharing::Sharing;
use crate::settings::limits::Limits;

/// Long enough that no timer fires.
const NEVER: Duration = Duration::from_hours(1);

/// Only a failing test waits so long.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// Bytes of the client's stream that were read, and of the stream to it that were written, when a case begins.
const RECEIVED: u64 = 10;
const SENT: u64 = 20;

/// The state of a connection when a case begins.
#[derive(Debug, Clone, Copy)]
enum Start {
    Serving,
    /// It has to move to `b`.
    Parked,
}

/// What happens next to the connection. Each event waits for its effect.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// Asked to leave for `b`, it is fenced and proposed.
    Leaves,
    /// Asked to leave for `b`, to which there is no link, it stays.
    CannotLeave,
    /// Asked to pass to a successor, which does not exist, it goes on.
    CannotPass,
    Aborted,
    /// The dispatcher has written so much of the client's stream, and keeps the leg.
    Committed(u64),
    /// The dispatcher has no such connection.
    Gone,
    /// The client ends its stream, and the end is announced.
    Ends,
    /// The dispatcher keeps the leg of the ended connection.
    Kept,
    /// The dispatcher closes the leg.
    Closes,
    Resets,
}

/// The agent `a`, whose peers are played.
struct Rig {
    node: Node,
    connections: Connections,
}

impl Rig {
    fn new() -> Self {
        let limits = Limits { retry_interval: NEVER, fence_timeout: NEVER, end_timeout: NEVER, ..Limits::default() };
        let node = Node::new(limits);
        let Node { peers, settings, metrics, .. } = &node;
        let learned = metrics.ticket_seeds_learned.clone();
        let sessions = SessionService::new(peers.clone(), Sharing::default(), false, learned).unwrap();
        let (slots, transfers) = (Slots::new(1), Arc::<Transfers>::default());
        let requests = Arc::new(Requests::new(settings.clone(), metrics.clone(), slots, transfers));
        let registry = Arc::new(Registry::new(peers.clone()));
        let departures = Departures::new(peers.clone(), settings.clone(), metrics.clone(), registry.clone());
        let http = Http { peers: peers.clone(), settings: settings.clone(), requests };
        let handshakes = Handshakes::new(peers.clone(), settings.clone(), metrics.clone(), Arc::new(sessions));
        let connections = Connections {
            peers: peers.clone(),
            handshakes: Arc::new(handshakes),
            serving: Serving::new(http, settings.clone(), metrics.clone()),
            registry,
            leg_table: Arc::default(),
            departures: Arc::new(departures),
            endings: Arc::new(Endings::new(peers.clone(), settings.clone())),
            anchors: Arc::new(Anchors::new(peers.clone())),
            to_successor: Arc::default(),
        };
        Self { node, connections }
    }

    /// Drives a connection through `events`. Returns its leg if that is free.
    async fn run(&self, start: Start, events: &[Event]) -> Option<TcpStream> {
        let (leg, end) = leg_in(&self.connections.leg_table).await;
        let mut live = live(leg);
        live.parts.opened.clear();
        live.parts.unopened.clear();
        live.parts.unsent.clear();
        let driven = Box::pin(self.drive(start, live));
        let (leg, _end) = timeout(WAIT_MAX, async { tokio::join!(driven, self.play(start, events, end)) })
            .await
            .unwrap_or_else(|_| panic!("{start:?} {events:?}: it does not end"));
        assert!(self.connections.registry.not_passing().is_empty(), "{start:?} {events:?}");
        assert_eq!(self.node.links.to_dispatcher(), [], "{start:?} {events:?}");
        leg
    }

    async fn drive(&self, start: Start, live: Box<Live>) -> Option<TcpStream> {
        match start {
            Start::Serving => self.connections.run_moved(live, None).await,
            Start::Parked => {
                let (_entry, mut orders) = self.connections.registry.enter(&live.about, true);
                let parked = Parked { live, target: name("b"), within: None, undecided: None };
                self.connections.run(ConnectionState::Parked(Box::new(parked)), &mut orders).await
            }
        }
    }

    /// Returns the dispatcher's end of the leg, if it is open.
    async fn play(&self, start: Start, events: &[Event], end: TcpStream) -> Option<TcpStream> {
        let Connections { registry, departures, endings, .. } = &self.connections;
        let (d, mut end, mut epoch, mut received) = (name("d"), Some(end), Epoch(0), RECEIVED);
        while !registry.knows(ID, Epoch(0)) {
            tokio::task::yield_now().await;
        }
        if matches!(start, Start::Parked) {
            epoch = self.proposed().await;
        }
        let leave = Leave { connection: ID, target: Some(name("b")), or_end: false };
        for event in events {
            match event {
                Event::Leaves => {
                    registry.leave(&d, &leave);
                    let proposed = self.proposed().await;
                    assert_eq!(proposed, Epoch(epoch.0 + 1), "each attempt has an epoch of its own");
                    epoch = proposed;
                }
                Event::CannotLeave => {
                    self.node.links.set_down("b");
                    registry.leave(&d, &leave);
                    let stays = Stays { connection: ID, reason: StayReason::NoLink };
                    assert_eq!(self.to_dispatcher().await, AgentToDispatcher::Stays(stays));
                }
                Event::CannotPass => {
                    let undecided = Undecided::default();
                    registry.pass_on(&[ID], &undecided);
                    while !undecided.is_decided() || registry.not_passing() != [ID] {
                        tokio::task::yield_now().await;
                    }
                }
                Event::Aborted => departures.send(&d, ID, SourceEvent::Aborted(epoch, AbortReason::Timeout)),
                Event::Committed(rx_offset) => {
                    let event = SourceEvent::Committed(epoch);
                    departures.send(&d, ID, DispatcherMessage { event, leg_kept: Some(*rx_offset) });
                }
                Event::Gone => departures.send(&d, ID, SourceEvent::Gone),
                Event::Ends => {
                    let mut alert = Vec::new();
                    record_layer(Side::Client).seal_alert(AlertDescription::CLOSE_NOTIFY, &mut alert).unwrap();
                    end.as_mut().unwrap().write_all(&alert).await.unwrap();
                    received += alert.len() as u64;
                    let ended = Final { connection: ID, epoch: Epoch(0), tx_offset: SENT + alert.len() as u64 };
                    assert_eq!(self.to_dispatcher().await, AgentToDispatcher::Final(ended));
                }
                Event::Kept => {
                    let kept = LegKept { connection: ID, epoch: Epoch(0), rx_offset: received };
                    assert!(endings.on_leg_kept(&d, &kept));
                }
                Event::Closes => end = None,
                Event::Resets => end.take().iter().for_each(tcp::reset_on_close),
            }
        }
        end
    }

    /// The epoch of the next message to the dispatcher, a proposal.
    async fn proposed(&self) -> Epoch {
        match self.to_dispatcher().await {
            AgentToDispatcher::Propose(propose) => propose.epoch,
            other => panic!("no proposal: {other:?}"),
        }
    }

    /// The next message to the dispatcher.
    async fn to_dispatcher(&self) -> AgentToDispatcher {
        loop {
            if let Some(message) = self.node.links.to_dispatcher().pop() {
                return message;
            }
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn each_state_is_followed_by_the_one_of_the_diagram() {
    use Event::{Aborted, CannotLeave, CannotPass, Closes, Committed, Ends, Gone, Kept, Leaves, Resets};
    use Start::{Parked, Serving};
    for (start, events, is_leg_free) in [
        // Serving -> Ended.
        (Serving, &[Ends, Kept][..], true),
        (Serving, &[Ends, Closes], false),
        // Serving -> reset.
        (Serving, &[Resets], false),
        // Serving -> Fenced -> left.
        (Serving, &[Leaves, Committed(RECEIVED)], true),
        (Serving, &[Leaves, Committed(RECEIVED + 1)], false),
        (Serving, &[Leaves, Gone], false),
        // Serving -> Fenced -> Serving, and what may follow.
        (Serving, &[Leaves, Aborted, Ends, Kept], true),
        (Serving, &[Leaves, Aborted, Leaves, Committed(RECEIVED)], true),
        (Serving, &[Leaves, Aborted, Resets], false),
        // Serving -> Parked -> Serving: nothing was fenced.
        (Serving, &[CannotLeave, Ends, Kept], true),
        (Serving, &[CannotPass, Ends, Kept], true),
        (Serving, &[CannotPass, Leaves, Committed(RECEIVED)], true),
        // Right after the handshake, if the data belong elsewhere.
        (Parked, &[Committed(RECEIVED)], true),
        (Parked, &[Gone], false),
        (Parked, &[Aborted, Ends, Kept], true),
        (Parked, &[Aborted, Leaves, Committed(RECEIVED)], true),
    ] {
        let leg = Rig::new().run(start, events).await;
        assert_eq!(leg.is_some(), is_leg_free, "{start:?} {events:?}");
    }
}

/// Handshaking -> refused.
#[tokio::test]
async fn an_agent_without_certificates_resets_the_leg() {
    let rig = Rig::new();
    let (leg, end) = streams().await;
    let about = about();
    let kind = Kind::New { bulk: None };
    let preface = Preface { kind, connection: ID, epoch: Epoch(0), client: about.client, server: about.server };
    let run = rig.connections.run_new(leg, name("d"), &preface, Vec::new(), None);
    assert!(timeout(WAIT_MAX, Box::pin(run)).await.unwrap().is_none());
    assert!(is_reset(end).await);
    assert!(!rig.connections.registry.knows(ID, Epoch(0)));
}
