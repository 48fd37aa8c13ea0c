#![allow(clippy::unwrap_used)]

use std::io::IoSlice;
use std::time::Duration;

use watari_record::Side;
use watari_values::SecretBytes;
use watari_wire::AgentToDispatcher;

use super::*;
use crate::handoff::testing::{ID, Node, about, is_reset, name, record_layer, shipped, streams};
use crate::settings::limits::Limits;

/// An agent to which others ship connections of the dispatcher `d`.
struct Rig {
    node: Node,
    registry: Arc<Registry>,
    slots: Arc<Slots>,
    /// A response is a number here.
    arrivals: Arrivals<u8>,
}

impl Rig {
    fn new(limits: Limits) -> Self {
        let node = Node::new(limits);
        let registry = Arc::new(Registry::new(node.peers.clone()));
        let slots = Slots::new(limits.connections_max);
        let (settings, metrics) = (node.settings.clone(), node.metrics.clone());
        let arrivals =
            Arrivals::new(node.peers.clone(), settings, metrics, (registry.clone(), Arc::default()), slots.clone());
        Self { node, registry, slots, arrivals }
    }

    /// The answers to the dispatcher since the last call.
    fn answers(&self) -> Vec<AgentToDispatcher> {
        self.node.links.to_dispatcher()
    }

    fn len(&self) -> usize {
        self.arrivals.held().arrivals.len()
    }

    /// Checks that nothing is held, and that nothing counts as held.
    fn is_empty(&self) -> bool {
        self.len() == 0 && self.arrivals.held().bytes == 0 && self.slots.taken() == 0
    }

    async fn activate(&self, dispatcher: &str, epoch: u32, rx_offset: u64, tail_offset: u64) -> Option<Activated<u8>> {
        let (leg, end) = streams().await;
        let committed = TargetEvent::Committed { epoch: Epoch(epoch), rx_offset, tail_offset };
        let activated = self.arrivals.activate(leg, b"surplus", &name(dispatcher), ID, &committed);
        assert!(activated.is_some() || is_reset(end).await, "a refused leg is reset");
        activated
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

/// The connection with this number, as `b` ships it.
fn ship(number: u64, epoch: u32) -> Ship {
    Ship { connection: ConnectionId { number, ..ID }, epoch: Epoch(epoch), ..shipped() }
}

fn held(ship: &Ship, rx_offset: u64) -> AgentToDispatcher {
    let Ship { connection, epoch, tail_offset, .. } = *ship;
    AgentToDispatcher::Held(wire::Held { connection, epoch, rx_offset, tail_offset, digest: ship.digest() })
}

fn refused(ship: &Ship, reason: AbortReason) -> AgentToDispatcher {
    AgentToDispatcher::Refused(Refused { connection: ship.connection, epoch: ship.epoch, reason })
}

fn rest(epoch: u32, from_offset: u64, bytes: &[u8]) -> Rest {
    Rest { connection: ID, epoch: Epoch(epoch), from_offset, bytes: bytes.to_vec() }
}

#[tokio::test]
async fn a_shipped_connection_is_held_and_then_served_with_its_bytes() {
    let rig = Rig::default();
    let ship = ship(ID.number, 1);
    rig.arrivals.on_ship(&ship, None);
    assert_eq!(rig.answers(), [held(&ship, 10)]);
    assert_eq!((rig.len(), rig.slots.taken()), (1, 1));
    let Activated { mut live, slot, response } = rig.activate("d", 1, 10, 20).await.unwrap();
    assert_eq!(response, None);
    assert_eq!((live.about.tenure, live.about.last, live.about.moves), (Epoch(1), Epoch(1), 1));
    assert_eq!((&live.parts.opened[..], &live.parts.unopened[..]), (&b"opened"[..], &b"restsurplus"[..]));
    assert_eq!((&live.parts.unsent[..], live.parts.received, live.parts.sent), (&b"tail"[..], 17, 20));
    let (mut sealed, mut expected) = (Vec::new(), Vec::new());
    live.parts.connection.seal(&[IoSlice::new(b"next")], 4, &mut sealed).unwrap();
    record_layer(Side::Server).seal(&[IoSlice::new(b"next")], 4, &mut expected).unwrap();
    assert_eq!(sealed, expected);
    assert_eq!((rig.len(), rig.slots.taken()), (0, 1), "the connection keeps its slot");
    drop(slot);
    assert!(rig.is_empty());
}

#[tokio::test]
async fn a_response_comes_with_its_connection_and_counts() {
    let rig = Rig::default();
    let ship = ship(ID.number, 1);
    let digest = [7; 32];
    rig.arrivals.on_ship(&ship, Some(InResponse { digest, len: 100, response: 9 }));
    let AgentToDispatcher::Held(held) = rig.answers().pop().unwrap() else { panic!("it is not held") };
    assert_eq!(held.digest, digest, "the digest is that of the connection with its response");
    assert_eq!(rig.arrivals.held().bytes, 114);
    assert_eq!(rig.activate("d", 1, 10, 20).await.unwrap().response, Some(9));
    assert_eq!(rig.arrivals.held().bytes, 0);
}

#[test]
fn connections_beyond_a_limit_are_refused() {
    let (one, other) = (ship(1, 1), ship(2, 1));
    // The limits: connections held, their bytes, and slots for connections. Each connection has 14 bytes.
    for (held_max, held_bytes_max, connections_max) in [(1, 100, 9), (9, 27, 9), (9, 100, 1)] {
        let rig = Rig::new(Limits { connections_max, held_max, held_bytes_max, ..Limits::default() });
        rig.arrivals.on_ship(&one, None);
        rig.arrivals.on_ship(&other, None);
        assert_eq!(rig.answers(), [held(&one, 10), refused(&other, AbortReason::Full)]);
        assert_eq!((rig.len(), rig.slots.taken()), (1, 1));
    }
}

#[tokio::test]
async fn the_rest_is_appended_once() {
    let rig = Rig::default();
    let ship = ship(ID.number, 1);
    rig.arrivals.on_ship(&ship, None);
    rig.arrivals.on_rest(&rest(1, 10, b"more"));
    assert_eq!(rig.answers(), [held(&ship, 10), held(&ship, 14)]);
    for ignored in [rest(1, 10, b"more"), rest(1, 15, b"gap"), rest(2, 14, b"other epoch")] {
        rig.arrivals.on_rest(&ignored);
        assert_eq!(rig.answers(), []);
    }
    let Activated { live, .. } = rig.activate("d", 1, 14, 20).await.unwrap();
    assert_eq!((&live.parts.unopened[..], live.parts.received), (&b"restmoresurplus"[..], 21));
    assert_eq!(rig.arrivals.held().bytes, 0);
}

#[test]
fn a_rest_beyond_the_bytes_is_refused() {
    let rig = Rig::new(Limits { held_bytes_max: 17, ..Limits::default() });
    let ship = ship(ID.number, 1);
    rig.arrivals.on_ship(&ship, None);
    rig.arrivals.on_rest(&rest(1, 10, b"more"));
    assert_eq!(rig.answers(), [held(&ship, 10), refused(&ship, AbortReason::Full)]);
}

#[test]
fn a_state_that_cannot_be_used_is_refused() {
    let rig = Rig::default();
    let broken = Ship { state: SecretBytes::new(vec![1; 8]), ..ship(1, 1) };
    let of_client = Ship { state: SecretBytes::new(record_layer(Side::Client).fence().state().to_vec()), ..ship(2, 1) };
    let too_long = Ship { rx_offset: 3, ..ship(3, 1) };
    for bad in [broken, of_client, too_long] {
        rig.arrivals.on_ship(&bad, None);
        assert_eq!(rig.answers(), [refused(&bad, AbortReason::BadState)]);
        assert!(rig.is_empty());
    }
}

#[test]
fn repeated_and_earlier_ships_are_ignored() {
    let rig = Rig::default();
    rig.arrivals.on_ship(&ship(ID.number, 2), None);
    rig.answers();
    for epoch in [1, 2] {
        rig.arrivals.on_ship(&ship(ID.number, epoch), None);
        assert_eq!(rig.answers(), []);
    }
    let later = ship(ID.number, 3);
    rig.arrivals.on_ship(&later, None);
    assert_eq!(rig.answers(), [held(&later, 10)]);
    assert_eq!((rig.len(), rig.slots.taken(), rig.arrivals.held().bytes), (1, 1, 14), "it replaces the earlier one");
}

#[test]
fn an_epoch_in_which_this_agent_owned_the_connection_is_ignored() {
    let rig = Rig::default();
    let (_entry, _leaves) = rig.registry.enter(&About { tenure: Epoch(2), last: Epoch(3), ..about() }, true);
    rig.arrivals.on_ship(&ship(ID.number, 3), None);
    assert!(rig.answers().is_empty() && rig.is_empty());
    rig.arrivals.on_ship(&ship(ID.number, 4), None);
    assert_eq!(rig.len(), 1);
}

#[tokio::test]
async fn only_the_commit_that_fits_activates() {
    let rig = Rig::default();
    assert!(rig.activate("d", 1, 10, 20).await.is_none(), "it is not held");
    rig.arrivals.on_ship(&ship(ID.number, 2), None);
    for (dispatcher, epoch, rx_offset, tail_offset) in
        [("e", 2, 10, 20), ("d", 1, 10, 20), ("d", 3, 10, 20), ("d", 2, 11, 20), ("d", 2, 10, 24)]
    {
        assert!(rig.activate(dispatcher, epoch, rx_offset, tail_offset).await.is_none());
        assert_eq!(rig.len(), 1, "{dispatcher} {epoch} {rx_offset} {tail_offset}");
    }
    let activated = rig.activate("d", 2, 10, 20).await;
    assert!(activated.is_some());
    assert!(rig.activate("d", 2, 10, 20).await.is_none(), "a repeated preface owns nothing");
}

#[test]
fn an_abort_of_its_dispatcher_drops_it() {
    let rig = Rig::default();
    let aborted = |epoch| Aborted { connection: ID, epoch: Epoch(epoch), reason: AbortReason::Timeout };
    rig.arrivals.on_ship(&ship(ID.number, 2), None);
    rig.arrivals.on_aborted(&name("e"), &aborted(2));
    rig.arrivals.on_aborted(&name("d"), &aborted(1));
    rig.arrivals.on_gone(&name("e"), ID);
    assert_eq!(rig.len(), 1);
    rig.arrivals.on_aborted(&name("d"), &aborted(2));
    assert!(rig.is_empty());
    rig.arrivals.on_aborted(&name("d"), &aborted(2));
    rig.arrivals.on_ship(&ship(ID.number, 3), None);
    rig.arrivals.on_gone(&name("d"), ID);
    assert!(rig.is_empty());
}

#[tokio::test]
async fn a_hold_that_expires_is_dropped_and_refused() {
    let rig = Rig::new(Limits { hold_timeout: Duration::ZERO, ..Limits::default() });
    let ship = ship(ID.number, 1);
    rig.arrivals.on_ship(&ship, None);
    rig.arrivals.expire();
    assert_eq!(rig.answers(), [held(&ship, 10), refused(&ship, AbortReason::Expired)]);
    assert!(rig.is_empty());
    assert!(rig.activate("d", 1, 10, 20).await.is_none());
    let rig = Rig::default();
    rig.arrivals.on_ship(&ship, None);
    rig.arrivals.expire();
    assert_eq!(rig.len(), 1);
}

#[test]
fn a_dispatcher_with_a_new_link_gets_the_list_of_its_holds() {
    let rig = Rig::default();
    let ours = ship(1, 1);
    rig.arrivals.on_ship(&ours, None);
    rig.arrivals.on_ship(&Ship { dispatcher: name("e"), ..ship(2, 1) }, None);
    rig.answers();
    rig.arrivals.on_link_up(&name("d"));
    assert_eq!(rig.answers(), [held(&ours, 10)]);
    rig.arrivals.on_link_up(&name("f"));
    assert_eq!(rig.answers(), []);
}
