//! Every transition of the arbiter, compared with `transitions.txt`.

#![allow(clippy::unwrap_used)]

use watari_values::{AbortReason, Epoch, NodeName};

use super::{Answer, Arbiter, ArbiterEvent, ArbiterState, ArbiterTimer, Offer};
use crate::transitions::{assert_pinned, table};

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn offer(target: &str, epoch: u32, rx_offset: u64, tail_offset: u64) -> Offer {
    Offer { target: name(target), epoch: Epoch(epoch), rx_offset, tail_offset, digest: [epoch as u8; 32] }
}

fn proposed(from: &str, offer: Offer) -> ArbiterEvent {
    ArbiterEvent::Proposed { from: name(from), offer }
}

fn held(by: &str, epoch: u32, rx_offset: u64) -> ArbiterEvent {
    ArbiterEvent::Held(offer(by, epoch, rx_offset, 20))
}

fn refused(from: &str, epoch: u32) -> ArbiterEvent {
    ArbiterEvent::Refused { from: name(from), epoch: Epoch(epoch), reason: AbortReason::Full }
}

fn cancelled(from: &str, epoch: u32) -> ArbiterEvent {
    ArbiterEvent::Cancelled { from: name(from), epoch: Epoch(epoch), reason: AbortReason::RestTooLong }
}

fn ends_at(from: &str, epoch: u32, tx_offset: u64) -> ArbiterEvent {
    ArbiterEvent::Final { from: name(from), epoch: Epoch(epoch), tx_offset }
}

/// Every kind of event, from the right and the wrong node, in and out of its epoch.
fn events() -> Vec<(&'static str, ArbiterEvent)> {
    let other_state = Offer { digest: [9; 32], ..offer("b", 1, 10, 20) };
    vec![
        ("a proposes 1 to b", proposed("a", offer("b", 1, 10, 20))),
        ("a proposes 1, read less", proposed("a", offer("b", 1, 8, 20))),
        ("a proposes 1, read too much", proposed("a", offer("b", 1, 11, 20))),
        ("a proposes 1, wrote too little", proposed("a", offer("b", 1, 10, 19))),
        ("a proposes 2 to c", proposed("a", offer("c", 2, 10, 20))),
        ("b proposes 1 to a", proposed("b", offer("a", 1, 10, 20))),
        ("b proposes 2 to a", proposed("b", offer("a", 2, 10, 20))),
        ("b holds 0", held("b", 0, 10)),
        ("b holds 1", held("b", 1, 10)),
        ("b holds 1, rest to come", held("b", 1, 8)),
        ("b holds 1, too much", held("b", 1, 11)),
        ("b holds 1, other state", ArbiterEvent::Held(other_state)),
        ("b holds 2", held("b", 2, 10)),
        ("c holds 1", held("c", 1, 10)),
        ("b refuses 1", refused("b", 1)),
        ("c refuses 1", refused("c", 1)),
        ("a cancels 1", cancelled("a", 1)),
        ("b cancels 1", cancelled("b", 1)),
        ("a ends 0 at 20", ends_at("a", 0, 20)),
        ("a ends 0 at 25", ends_at("a", 0, 25)),
        ("a ends 0 at 19", ends_at("a", 0, 19)),
        ("b ends 1 at 20", ends_at("b", 1, 20)),
        ("leg 1 ready", ArbiterEvent::LegReady(Epoch(1))),
        ("leg 1 fails", ArbiterEvent::LegFailed(Epoch(1))),
        ("leg 2 ready", ArbiterEvent::LegReady(Epoch(2))),
        ("leg 2 fails", ArbiterEvent::LegFailed(Epoch(2))),
        ("relayed 5 to the client", ArbiterEvent::RelayedTx(5)),
        ("relayed 6 to the client", ArbiterEvent::RelayedTx(6)),
        ("leg ends by FIN", ArbiterEvent::LegEnded { reset: false }),
        ("leg ends by reset", ArbiterEvent::LegEnded { reset: true }),
        ("client gone", ArbiterEvent::ClientGone),
        ("timeout: move", ArbiterEvent::Timeout(ArbiterTimer::Move)),
        ("timeout: final", ArbiterEvent::Timeout(ArbiterTimer::Final)),
    ]
}

/// An arbiter of owner a, with 10 bytes relayed from the client and 20 to it, after `events`.
fn after(events: impl IntoIterator<Item = ArbiterEvent>) -> Arbiter {
    let mut arbiter = Arbiter::new(name("a"));
    for event in [ArbiterEvent::RelayedRx(10), ArbiterEvent::RelayedTx(20)].into_iter().chain(events) {
        arbiter.handle(event, &mut Vec::new());
    }
    arbiter
}

fn states() -> Vec<(&'static str, Arbiter)> {
    let to_b = || proposed("a", offer("b", 1, 10, 20));
    let late_tail = || offer("b", 1, 10, 25);
    let leg_ready = || ArbiterEvent::LegReady(Epoch(1));
    let fin = || ArbiterEvent::LegEnded { reset: false };
    vec![
        ("relaying", after([])),
        ("a target was early", after([held("b", 1, 10)])),
        ("a refusal was early", after([refused("b", 1)])),
        ("the source's end is announced", after([ends_at("a", 0, 25)])),
        ("the leg has ended", after([fin()])),
        ("moving", after([to_b()])),
        ("moving, frozen", after([proposed("a", offer("b", 1, 8, 20))])),
        ("moving, held", after([to_b(), held("b", 1, 10)])),
        ("moving, leg ready", after([to_b(), leg_ready()])),
        ("moving, tail missing", after([proposed("a", late_tail())])),
        (
            "moving, only the tail missing",
            after([proposed("a", late_tail()), ArbiterEvent::Held(late_tail()), leg_ready()]),
        ),
        ("moving, leg ended", after([to_b(), fin()])),
        ("aborted", after([to_b(), refused("b", 1)])),
        ("committed", after([to_b(), held("b", 1, 10), leg_ready()])),
        ("finished", after([ends_at("a", 0, 20)])),
        ("ended", after([ArbiterEvent::ClientGone])),
    ]
}

fn label(arbiter: &Arbiter) -> String {
    let Arbiter { state, owner, tenure, last, .. } = arbiter;
    let mut label = match state {
        ArbiterState::Relaying => format!("Relaying {owner}{tenure}, last {last}"),
        ArbiterState::Moving(attempt) => format!("Moving {owner}{tenure} to {}{last}", attempt.offer.target),
        ArbiterState::Finished => "Finished".to_owned(),
        ArbiterState::Ended => return "Ended".to_owned(),
    };
    let early = arbiter.early.as_ref().map(|(node, answer)| match answer {
        Answer::Held(_) => format!("{node} holds the next"),
        Answer::Refused(_) => format!("{node} refuses the next"),
    });
    let attempt = if let ArbiterState::Moving(attempt) = state { Some(attempt) } else { None };
    let details = [
        Some(format!("rx {}, tx {}", arbiter.rx_relayed, arbiter.tx_relayed)),
        attempt.filter(|attempt| attempt.held).map(|_| "held".to_owned()),
        attempt.filter(|attempt| attempt.leg_ready).map(|_| "leg ready".to_owned()),
        arbiter.last_abort.map(|reason| format!("aborted: {}", reason.as_str())),
        arbiter.final_offset.map(|offset| format!("ends at {offset}")),
        arbiter.leg_ended.then(|| "leg ended".to_owned()),
        early,
        arbiter.timer().map(|timer| format!("timer {timer:?}")),
    ];
    for detail in details.into_iter().flatten() {
        label.push_str(", ");
        label.push_str(&detail);
    }
    label
}

#[test]
fn every_transition() {
    let handle = |arbiter: &mut Arbiter, event: &ArbiterEvent, actions: &mut Vec<_>| {
        arbiter.handle(event.clone(), actions);
    };
    assert_pinned(&table(&states(), &events(), handle, label), include_str!("transitions.txt"));
}

/// The only event that is not always possible, because the arbiter itself decides whether the client is read.
#[test]
fn the_client_s_bytes_are_counted_while_it_is_read() {
    for (name, arbiter) in states().iter_mut().filter(|(_, arbiter)| arbiter.reads_client()) {
        let mut actions = Vec::new();
        arbiter.handle(ArbiterEvent::RelayedRx(5), &mut actions);
        assert_eq!((arbiter.rx_relayed, actions), (15, Vec::new()), "{name}");
    }
}

/// No epoch follows the last, and none is decided twice.
#[test]
fn epochs_run_out() {
    let mut arbiter = Arbiter { last: Epoch(u32::MAX), ..after([]) };
    for epoch in [0, 1, u32::MAX] {
        arbiter.handle(proposed("a", offer("b", epoch, 10, 20)), &mut Vec::new());
        arbiter.handle(held("b", epoch, 10), &mut Vec::new());
        assert!(!arbiter.is_moving());
    }
}
