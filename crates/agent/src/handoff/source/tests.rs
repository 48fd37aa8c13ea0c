#![allow(clippy::unwrap_used)]

use std::io::IoSlice;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use watari_record::Side;
use watari_values::DispatcherChange;
use watari_wire::{AgentToAgent, AgentToDispatcher, DetachLeg, Message, Stays};

use super::*;
use crate::handoff::testing::{ID, Node, about, is_reset, leg, leg_in, live, name, record_layer, streams};
use crate::leg::Continued;
use crate::settings::limits::Limits;

/// A source `a` that gives a connection of `d` to `b`.
struct Rig {
    node: Node,
    departures: Arc<Departures>,
    registry: Arc<Registry>,
}

/// Long enough that neither timer fires in a test that is not about it.
const NEVER: Duration = Duration::from_hours(1);

impl Rig {
    fn new(retry_interval: Duration, fence_timeout: Duration) -> Self {
        let node = Node::new(Limits { fence_timeout, retry_interval, ..Limits::default() });
        let registry = Arc::new(Registry::new(node.peers.clone()));
        let (settings, metrics) = (node.settings.clone(), node.metrics.clone());
        let departures = Departures::new(node.peers.clone(), settings, metrics, registry.clone());
        Self { node, departures: Arc::new(departures), registry }
    }

    fn without_timers() -> Self {
        Self::new(NEVER, NEVER)
    }

    /// Begins to give the connection away, and returns when it is proposed.
    async fn depart(&self, live: Box<Live>) -> (JoinHandle<Outcome>, Ship, Propose) {
        let departures = self.departures.clone();
        let task = tokio::spawn(async move { departures.depart(live, name("b"), None).await });
        let (mut shipped, mut proposed) = (Vec::new(), Vec::new());
        while proposed.is_empty() {
            tokio::task::yield_now().await;
            let (to_agent, to_dispatcher) = self.node.links.split();
            shipped.extend(to_agent);
            proposed.extend(to_dispatcher);
        }
        let (Some(AgentToAgent::Ship(ship)), Some(AgentToDispatcher::Propose(propose))) =
            (shipped.pop(), proposed.pop())
        else {
            panic!("a departure begins with a shipped state and a proposal")
        };
        (task, *ship, propose)
    }

    fn decide(&self, message: impl Into<DispatcherMessage>) {
        self.departures.send(&name("d"), ID, message);
    }

    /// The next message to the dispatcher.
    async fn next_to_dispatcher(&self) -> AgentToDispatcher {
        loop {
            if let Some(message) = self.node.links.to_dispatcher().pop() {
                return message;
            }
            tokio::task::yield_now().await;
        }
    }

    fn is_known(&self) -> bool {
        self.departures.entries().contains_key(&ID)
    }
}

fn left(outcome: Outcome) -> Option<TcpStream> {
    match outcome {
        Outcome::Moved(leg) => leg,
        Outcome::Lost => None,
        Outcome::Stays(_) => panic!("the connection stays"),
    }
}

fn stays(outcome: Outcome) -> Box<Live> {
    let Outcome::Stays(live) = outcome else { panic!("the connection has left") };
    live
}

fn kept(epoch: Epoch, rx_offset: u64) -> DispatcherMessage {
    DispatcherMessage { event: SourceEvent::Committed(epoch), leg_kept: Some(rx_offset) }
}

#[tokio::test]
async fn the_state_is_shipped_with_all_bytes_and_proposed() {
    let rig = Rig::without_timers();
    let (leg, mut end) = leg().await;
    end.write_all(b"more").await.unwrap();
    leg.readable().await;
    let (_entry, _leaves) = rig.registry.enter(&about(), true);
    let (_task, ship, propose) = rig.depart(live(leg)).await;
    assert_eq!((ship.connection, ship.epoch, &ship.dispatcher), (ID, Epoch(1), &name("d")));
    assert_eq!(ship.opened.as_slice(), b"opened");
    assert_eq!(ship.rest.as_slice(), b"restmore", "what has come on the leg saves a freeze");
    assert_eq!((ship.rx_offset, &ship.tail[..], ship.tail_offset), (14, &b"tail"[..], 20));
    assert_eq!((propose.connection, propose.epoch, &propose.target), (ID, Epoch(1), &name("b")));
    assert_eq!((propose.rx_offset, propose.tail_offset, propose.digest), (14, 20, ship.digest()));
    assert!(rig.registry.knows(ID, Epoch(1)), "the epoch is used");
}

#[tokio::test]
async fn a_response_in_progress_is_shipped_with_the_connection() {
    let rig = Rig::without_timers();
    let (leg, _end) = leg().await;
    let (unwritten, pending) = (SecretBytes::new(b"framed".to_vec()), SecretBytes::new(b"rest".to_vec()));
    let response = ShippedResponse { number: 5, http: b"state".to_vec(), unwritten, pending, rest: ResponseRest::End };
    let departures = rig.departures.clone();
    let live = live(leg);
    let _task = tokio::spawn(async move { departures.depart(live, name("b"), Some(response)).await });
    let (to_agent, to_dispatcher) = loop {
        tokio::task::yield_now().await;
        let (to_agent, to_dispatcher) = rig.node.links.split();
        if !to_dispatcher.is_empty() {
            break (to_agent, to_dispatcher);
        }
    };
    let ([AgentToAgent::ShipInResponse(shipped)], [AgentToDispatcher::Propose(propose)]) =
        (&to_agent[..], &to_dispatcher[..])
    else {
        panic!("{to_agent:?} {to_dispatcher:?}")
    };
    assert_eq!((shipped.number, &shipped.http[..], &shipped.rest), (5, &b"state"[..], &ResponseRest::End));
    assert_eq!((shipped.unwritten.as_slice(), shipped.pending.as_slice()), (&b"framed"[..], &b"rest"[..]));
    assert_eq!(propose.digest, shipped.digest());
}

#[tokio::test]
async fn a_response_that_is_too_long_to_ship_stays() {
    let rig = Rig::without_timers();
    let (leg, _end) = leg().await;
    let unwritten = SecretBytes::new(vec![0; RESPONSE_BYTES_LEN_MAX]);
    let pending = SecretBytes::new(vec![0]);
    let response = ShippedResponse { number: 1, http: Vec::new(), unwritten, pending, rest: ResponseRest::End };
    stays(rig.departures.depart(live(leg), name("b"), Some(response)).await);
    let stays = Stays { connection: ID, reason: StayReason::TooMuchInHand };
    assert_eq!(rig.node.links.to_dispatcher(), [AgentToDispatcher::Stays(stays)]);
}

#[tokio::test]
async fn a_commit_frees_the_leg_only_if_it_was_read_exactly_to_the_cut() {
    for (leg_kept, is_free) in [(Some(10), true), (Some(9), false), (Some(11), false), (None, false)] {
        let rig = Rig::without_timers();
        let (leg, _end) = leg().await;
        let (task, _, propose) = rig.depart(live(leg)).await;
        rig.decide(DispatcherMessage { event: SourceEvent::Committed(propose.epoch), leg_kept });
        assert_eq!(left(task.await.unwrap()).is_some(), is_free, "{leg_kept:?}");
        assert!(!rig.is_known());
        assert_eq!(rig.node.metrics.moved_out.get(), 1);
    }
}

#[tokio::test]
async fn after_an_abort_the_connection_continues_with_the_same_bytes() {
    let rig = Rig::without_timers();
    let (leg, _end) = leg().await;
    let mut expected = Vec::new();
    record_layer(Side::Server).seal(&[IoSlice::new(b"next")], 4, &mut expected).unwrap();
    let (task, ..) = rig.depart(live(leg)).await;
    rig.decide(SourceEvent::Aborted(Epoch(1), AbortReason::Timeout));
    let mut live = stays(task.await.unwrap());
    assert_eq!((&live.parts.opened[..], &live.parts.unopened[..]), (&b"opened"[..], &b"rest"[..]));
    assert_eq!((&live.parts.unsent[..], live.parts.received, live.parts.sent), (&b"tail"[..], 10, 20));
    let mut sealed = Vec::new();
    live.parts.connection.seal(&[IoSlice::new(b"next")], 4, &mut sealed).unwrap();
    assert_eq!(sealed, expected, "the next record has the next nonce");
    assert_eq!((live.about.tenure, live.about.last), (Epoch(0), Epoch(1)), "the next attempt has another epoch");
    let (_task, ship, _) = rig.depart(live).await;
    assert_eq!(ship.epoch, Epoch(2));
}

#[tokio::test]
async fn a_freeze_is_answered_with_the_bytes_up_to_the_cut() {
    let rig = Rig::without_timers();
    let (leg, mut end) = leg().await;
    let (task, ..) = rig.depart(live(leg)).await;
    rig.decide(SourceEvent::Freeze { epoch: Epoch(1), rx_offset: 13 });
    // One byte more than the cut, which another connection on this leg would own.
    end.write_all(b"cut!").await.unwrap();
    let rest = loop {
        if let (Some(AgentToAgent::Rest(rest)), _) = {
            let (mut to_agent, d) = rig.node.links.split();
            (to_agent.pop(), d)
        } {
            break rest;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((rest.epoch, rest.from_offset, &rest.bytes[..]), (Epoch(1), 10, &b"cut"[..]));
    rig.decide(kept(Epoch(1), 13));
    assert!(left(task.await.unwrap()).is_some());
}

#[tokio::test]
async fn a_cut_that_is_too_far_is_cancelled_and_the_fence_stays() {
    let rig = Rig::without_timers();
    let (leg, _end) = leg().await;
    let (task, ..) = rig.depart(live(leg)).await;
    rig.decide(SourceEvent::Freeze { epoch: Epoch(1), rx_offset: 11 + REST_LEN_MAX as u64 });
    let cancel = Cancel { connection: ID, epoch: Epoch(1), reason: AbortReason::RestTooLong };
    assert_eq!(rig.next_to_dispatcher().await, AgentToDispatcher::Cancel(cancel));
    assert!(!task.is_finished(), "only the dispatcher ends an attempt");
    rig.decide(SourceEvent::Aborted(Epoch(1), AbortReason::RestTooLong));
    stays(task.await.unwrap());
}

fn change() -> DispatcherChange {
    DispatcherChange { connection: ID, number: 1 }
}

fn detach() -> DetachLeg {
    DetachLeg { change: change(), to: name("e") }
}

#[tokio::test]
async fn a_fenced_connection_follows_its_next_dispatcher() {
    let rig = Rig::new(Duration::from_millis(1), NEVER);
    let table = Arc::default();
    let (leg, _end) = leg_in(&table).await;
    let (task, ..) = rig.depart(live(leg)).await;
    assert_eq!(table.on_detach(&name("d"), &detach(), Instant::now()).map(|detached| detached.tx_offset), Some(20));
    let (stream, mut end) = streams().await;
    let (stream, surplus) = (stream.into_std().unwrap(), b"next".to_vec());
    let leg = Continued { stream, change: change(), tenure: Epoch(0), rx_offset: 10, tx_offset: 20, surplus };
    assert!(table.on_continue(&name("e"), leg).is_ok());
    let is_proposed = async {
        while !rig.node.links.take().iter().any(|(to, _)| *to == name("e")) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(20), is_proposed).await.expect("the proposal is repeated to the next dispatcher");
    rig.decide(SourceEvent::Aborted(Epoch(1), AbortReason::Timeout));
    rig.departures.send(&name("e"), ID, SourceEvent::Freeze { epoch: Epoch(1), rx_offset: 14 });
    loop {
        let shipped = rig.node.links.take().into_iter().find_map(|(_, message)| match message {
            Message::AgentToAgent(AgentToAgent::Rest(rest)) => Some(rest.bytes),
            _ => None,
        });
        if let Some(bytes) = shipped {
            assert_eq!(bytes, b"next");
            break;
        }
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished(), "its previous dispatcher decides nothing");
    rig.departures.send(&name("e"), ID, SourceEvent::Aborted(Epoch(1), AbortReason::Timeout));
    let mut live = stays(task.await.unwrap());
    assert_eq!((&live.parts.unopened[..], live.parts.received), (&b"restnext"[..], 14));
    live.parts.io.write_all(b"tail").await.unwrap();
    let mut tail = [0; 4];
    end.read_exact(&mut tail).await.unwrap();
    assert_eq!(&tail, b"tail");
}

#[tokio::test]
async fn a_detached_connection_stays_unfenced() {
    let rig = Rig::without_timers();
    let table = Arc::default();
    let (leg, _end) = leg_in(&table).await;
    table.on_detach(&name("d"), &detach(), Instant::now()).unwrap();
    let live = stays(rig.departures.depart(live(leg), name("b"), None).await);
    assert_eq!(live.about.last, Epoch(0), "no epoch was used");
    assert!(!rig.is_known() && rig.node.links.take().is_empty());
}

#[tokio::test]
async fn without_a_link_the_connection_stays_unfenced() {
    for down in ["b", "d"] {
        let rig = Rig::without_timers();
        rig.node.links.set_down(down);
        let (leg, _end) = leg().await;
        let live = stays(rig.departures.depart(live(leg), name("b"), None).await);
        assert_eq!(live.about.last, Epoch(0), "{down}: no epoch was used");
        assert!(!rig.is_known());
    }
}

#[tokio::test]
async fn late_and_foreign_messages_decide_nothing() {
    let rig = Rig::without_timers();
    let (leg, _end) = leg().await;
    let (task, ..) = rig.depart(live(leg)).await;
    rig.departures.send(&name("e"), ID, SourceEvent::Gone);
    rig.departures.send(&name("e"), ID, SourceEvent::Committed(Epoch(1)));
    rig.decide(SourceEvent::Committed(Epoch(0)));
    rig.decide(SourceEvent::Aborted(Epoch(2), AbortReason::Timeout));
    rig.decide(SourceEvent::Read { rx_offset: 11 });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!task.is_finished());
    // Of two decisions, the first counts, and the second finds no departure.
    rig.decide(kept(Epoch(1), 10));
    rig.decide(SourceEvent::Aborted(Epoch(1), AbortReason::Timeout));
    assert!(left(task.await.unwrap()).is_some());
    rig.decide(SourceEvent::Committed(Epoch(1)));
}

#[tokio::test]
async fn the_proposal_is_repeated_until_it_is_decided() {
    let rig = Rig::new(Duration::from_millis(1), NEVER);
    let (leg, _end) = leg().await;
    let (task, ship, propose) = rig.depart(live(leg)).await;
    for _ in 0..2 {
        let repeated = loop {
            let (to_agent, mut to_dispatcher) = rig.node.links.split();
            assert!(to_agent.is_empty(), "the state is shipped once");
            if let Some(message) = to_dispatcher.pop() {
                break message;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(repeated, AgentToDispatcher::Propose(propose.clone()));
    }
    assert_eq!(propose.digest, ship.digest());
    rig.decide(kept(Epoch(1), 10));
    assert!(left(task.await.unwrap()).is_some());
}

#[tokio::test]
async fn a_fence_that_expires_loses_the_connection_and_resets_its_leg() {
    let rig = Rig::new(NEVER, Duration::from_millis(1));
    let (leg, end) = leg().await;
    let outcome = rig.departures.depart(live(leg), name("b"), None).await;
    assert!(left(outcome).is_none());
    assert!(is_reset(end).await);
    assert_eq!(rig.node.metrics.lost.get(), 1);
    assert!(!rig.is_known());
}

#[tokio::test]
async fn a_departure_of_a_later_tenure_replaces_an_earlier_one() {
    let rig = Rig::without_timers();
    let (first_leg, end) = leg().await;
    let (first, ..) = rig.depart(live(first_leg)).await;
    // The first one was committed unnoticed, and the connection came back with epoch 2.
    let (second_leg, _end) = leg().await;
    let mut returned = live(second_leg);
    returned.about.tenure = Epoch(2);
    returned.about.last = Epoch(2);
    let (second, ship, _) = rig.depart(returned).await;
    assert_eq!(ship.epoch, Epoch(3));
    assert!(left(first.await.unwrap()).is_none());
    assert!(is_reset(end).await);
    assert!(rig.is_known(), "the first one removes only its own entry");
    rig.decide(kept(Epoch(3), 10));
    assert!(left(second.await.unwrap()).is_some());
}
