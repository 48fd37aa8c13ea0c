//! Every transition of the relay, compared with `transitions.txt`, and the counts of random connections.

#![allow(clippy::unwrap_used)]

mod random;

use std::time::{Duration, Instant};

use watari_handoff::{ArbiterEvent, Offer};
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName};
use watari_wire::DispatcherToAgent;
use watari_wire::leg::Kind;

use super::{PreparedLeg, Relay, Snapshot, Start, UNDELIVERED_LEN_MAX};
use crate::transitions::{assert_pinned, table};
use crate::{Action, ClientRead, Context, DispatcherState, Input, LegRead, Timeouts};

/// A dispatcher that keeps legs, if `true`, and to which no handshake was announced.
struct Dispatcher(bool);

impl DispatcherState for Dispatcher {
    fn keeps_legs_to(&self, _agent: &NodeName) -> bool {
        self.0
    }

    fn is_established(&self, _connection: ConnectionId) -> bool {
        false
    }
}

const TIMEOUTS: Timeouts = Timeouts {
    handshake: Duration::from_secs(10),
    idle: Duration::from_mins(1),
    lifetime: Duration::from_hours(1),
    attempt: Duration::from_secs(2),
    end: Duration::from_secs(5),
};

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn id(number: u64) -> ConnectionId {
    ConnectionId { boot: 1, number }
}

fn offer(tail_offset: u64) -> Offer {
    Offer { target: name("b"), epoch: Epoch(1), rx_offset: 10, tail_offset, digest: [1; 32] }
}

fn agent(event: ArbiterEvent) -> Input {
    Input::Agent(Box::new(event))
}

fn proposed(tail_offset: u64) -> Input {
    agent(ArbiterEvent::Proposed { from: name("a"), offer: offer(tail_offset) })
}

fn held(tail_offset: u64) -> Input {
    agent(ArbiterEvent::Held(offer(tail_offset)))
}

fn refused() -> Input {
    agent(ArbiterEvent::Refused { from: name("b"), epoch: Epoch(1), reason: AbortReason::Full })
}

fn ends_at(tx_offset: u64) -> Input {
    agent(ArbiterEvent::Final { from: name("a"), epoch: Epoch(0), tx_offset })
}

fn up(read: usize, written: usize) -> Input {
    Input::PassedUp { read, written }
}

fn down(read: usize, written: usize) -> Input {
    Input::PassedDown { read, written }
}

fn detached(tx_offset: u64) -> Input {
    Input::LegDetached { from: name("a"), number: 1, tx_offset }
}

fn attached() -> Input {
    Input::LegAttached { from: name("a"), number: 1 }
}

fn found() -> Input {
    Input::Found { id: id(2), owner: name("b"), bulk: None }
}

const OPENED: Input = Input::WrittenToLeg { written: 0, preface_left: false };

fn inputs() -> Vec<(&'static str, Input)> {
    vec![
        ("client sends 5, leg takes 5", up(5, 5)),
        ("client sends 5, leg takes 0", up(5, 0)),
        ("client sends FIN", up(0, 0)),
        ("client sends 5 to open with", Input::HeldUp(5)),
        ("client sends 20 KiB to open", Input::HeldUp(20 << 10)),
        ("client sends FIN to open with", Input::HeldUp(0)),
        ("client sends 5 to drop", Input::Discarded(5)),
        ("client sends FIN at the end", Input::Discarded(0)),
        ("leg takes a part of a preface", Input::WrittenToLeg { written: 0, preface_left: true }),
        ("leg takes a preface", OPENED),
        ("leg takes 5", Input::WrittenToLeg { written: 5, preface_left: false }),
        ("leg sends 5, client takes 5", down(5, 5)),
        ("leg sends 5, client takes 0", down(5, 0)),
        ("leg sends FIN", down(0, 0)),
        ("client takes 5", Input::WrittenToClient(5)),
        ("client resets", Input::ClientReset),
        ("leg is reset", Input::LegReset),
        ("prepared leg connects", Input::Connected { ok: true }),
        ("prepared leg does not connect", Input::Connected { ok: false }),
        ("prepared leg ends", Input::PreparedEnded),
        ("link to the owner is lost", Input::OwnerLost),
        ("a proposes 1 to b", proposed(20)),
        ("b holds 1", held(20)),
        ("b refuses 1", refused()),
        ("a ends at 20", ends_at(20)),
        ("another agent is found", found()),
        ("no other agent is found", Input::NotFound),
        ("the deadline", Input::Deadline),
        ("it is to go to e", Input::ChangeDispatcher { to: name("e") }),
        ("a has detached at 20", detached(20)),
        ("a has detached at 25", detached(25)),
        ("the change has failed", Input::ChangeFailed),
        ("a has attached", attached()),
    ]
}

/// Whether a driver that keeps the contract can report this now.
fn is_possible(relay: &Relay, input: &Input, searching: bool) -> bool {
    let wanted = relay.interest();
    match input {
        Input::PassedUp { .. } => wanted.client_read == Some(ClientRead::Pass),
        Input::HeldUp(_) => wanted.client_read == Some(ClientRead::Hold),
        Input::Discarded(_) => wanted.client_read == Some(ClientRead::Discard),
        Input::WrittenToLeg { written, preface_left: true } => wanted.leg_write && relay.up.preface && *written == 0,
        Input::WrittenToLeg { written, .. } => wanted.leg_write && *written as u64 <= relay.up.len(),
        Input::PassedDown { read, written } => match wanted.leg_read {
            Some(LegRead::Pass) => true,
            Some(LegRead::Hold(max)) => *written == 0 && *read <= max,
            None => false,
        },
        Input::WrittenToClient(written) => wanted.client_write && *written as u64 <= relay.down.len(),
        Input::ClientReset
        | Input::OwnerLost
        | Input::Agent(_)
        | Input::Deadline
        | Input::ChangeDispatcher { .. }
        | Input::LegDetached { .. }
        | Input::LegAttached { .. } => true,
        Input::LegReset => !relay.leg_is_over(),
        Input::Connected { .. } => matches!(relay.prepared, PreparedLeg::Connecting(_)),
        Input::PreparedEnded => matches!(relay.prepared, PreparedLeg::Ready(_)),
        Input::Found { .. } | Input::NotFound => searching,
        Input::ChangeFailed => relay.giving.is_some(),
    }
}

fn start(reused_leg: bool, now: Instant) -> Relay {
    let start = Start { id: id(1), owner: name("a"), bulk: Some(name("b")), read_ahead: 0, reused_leg };
    after(Relay::new(start, TIMEOUTS, now), now, [])
}

fn handle(relay: &mut Relay, input: Input, now: Instant, actions: &mut Vec<Action>) {
    relay.handle(input, Context { now, dispatcher: &Dispatcher(true) });
    actions.extend(std::iter::from_fn(|| relay.poll_action()));
}

fn after(mut relay: Relay, now: Instant, inputs: impl IntoIterator<Item = Input>) -> Relay {
    while relay.poll_action().is_some() {}
    for input in inputs {
        let now = if input == Input::Deadline { relay.timeout() } else { now };
        handle(&mut relay, input, now, &mut Vec::new());
    }
    relay
}

/// Connections of a, with 10 bytes relayed from the client and 20 to it.
fn states(now: Instant) -> Vec<(&'static str, Relay)> {
    let fresh = start(false, now);
    let reused = start(true, now);
    let regular = || after(fresh.clone(), now, [OPENED, up(10, 10), down(20, 20)]);
    let with = |inputs: &[Input]| after(regular(), now, inputs.iter().cloned());
    let ready = Input::Connected { ok: true };
    let to_e = || Input::ChangeDispatcher { to: name("e") };
    let bound = down(UNDELIVERED_LEN_MAX, 0);
    vec![
        ("new leg", fresh.clone()),
        ("reused leg", reused.clone()),
        ("reused leg, opened", after(reused.clone(), now, [Input::HeldUp(10), OPENED])),
        ("reused leg, lost", after(reused, now, [Input::HeldUp(10), Input::LegReset])),
        ("regular", regular()),
        ("bytes wait for the leg", with(&[up(5, 0)])),
        ("bytes wait for the client", with(&[down(5, 0)])),
        ("client ended", with(&[up(0, 0)])),
        ("client ended, bytes wait for the leg", with(&[up(5, 0), up(0, 0)])),
        ("client's end relayed", with(&[up(0, 0), Input::Deadline])),
        ("leg ended", with(&[down(0, 0)])),
        ("moving", with(&[proposed(20)])),
        ("moving, held", with(&[proposed(20), held(20)])),
        ("moving, leg ready", with(&[proposed(20), ready.clone()])),
        ("moving, client ended", with(&[up(0, 0), proposed(20)])),
        ("moving, tail and delivery missing", with(&[down(5, 0), proposed(30), held(30), ready.clone()])),
        ("moving, as much waits as may", with(&[bound.clone(), proposed(20 + UNDELIVERED_LEN_MAX as u64)])),
        ("moving, leg ended", with(&[proposed(20), down(0, 0)])),
        ("aborted", with(&[proposed(20), refused()])),
        ("committed", with(&[proposed(20), held(20), ready.clone()])),
        ("committed, preface written", with(&[proposed(20), held(20), ready.clone(), OPENED])),
        ("end announced, bytes wait for the client", with(&[down(5, 0), ends_at(25)])),
        ("finished, leg kept", with(&[ends_at(20)])),
        ("finished, leg not kept", with(&[proposed(20), refused(), ends_at(20)])),
        ("detaching", with(&[to_e()])),
        ("detaching, bytes wait for the client", with(&[down(5, 0), to_e()])),
        ("detached, bytes missing", with(&[to_e(), detached(25)])),
        ("detached, quiet", with(&[to_e(), detached(20)])),
        ("attaching", with(&[to_e(), detached(20), Input::ChangeFailed])),
        ("over", with(&[Input::ClientReset])),
    ]
}

fn label(relay: &Relay, start: Instant) -> String {
    if relay.is_over() {
        return "over".to_owned();
    }
    let wanted = relay.interest();
    let (from_client, to_client, leg) = (relay.from_client, relay.to_client, relay.leg);
    let mut label = format!("{}: client {from_client:?}, to client {to_client:?}, leg {leg:?}", relay.owner());
    let waits = |direction: &str, len: u64| (len > 0).then(|| format!("{len} {direction}"));
    let parts = [
        (relay.prepared != PreparedLeg::None).then(|| format!("prepared {:?}", relay.prepared)),
        relay.giving.map(|giving| format!("{giving:?}")),
        relay.attaching.map(|failed| format!("{failed:?}")),
        relay.is_quiet().then(|| "quiet".to_owned()),
        relay.up.preface.then(|| "preface".to_owned()),
        waits("up", relay.up.len()),
        waits("down", relay.down.len()),
        relay.copied.map(|len| format!("{len} copied")),
        wanted.client_read.map(|how| format!("client? {how:?}")),
        wanted.leg_read.map(|how| format!("leg? {how:?}")),
        wanted.leg_write.then(|| "leg!".to_owned()),
        wanted.client_write.then(|| "client!".to_owned()),
        Some(format!("{} ms", relay.timeout().duration_since(start).as_millis())),
    ];
    for part in parts.into_iter().flatten() {
        label.push_str(", ");
        label.push_str(&part);
    }
    label
}

/// In a label, `client? Pass` and `leg? Pass` say what is read, `client!` and `leg!` what is written.
#[test]
fn every_transition() {
    let start = Instant::now();
    let states = states(start);
    let searching = states.iter().find(|(name, _)| *name == "reused leg, lost").unwrap().1.clone();
    let handle = |relay: &mut Relay, input: &Input, actions: &mut Vec<_>| {
        let now = if *input == Input::Deadline { relay.timeout() } else { start };
        if is_possible(relay, input, *relay == searching) {
            handle(relay, input.clone(), now, actions);
        }
    };
    let label = |relay: &Relay| label(relay, start);
    assert_pinned(&table(&states, &inputs(), handle, label), include_str!("transitions.txt"));
}

/// The relay that another process makes of a snapshot. `None`: there is none in this state.
fn restored(relay: &Relay, now: Instant) -> Option<Relay> {
    let bytes = postcard::to_stdvec(&relay.snapshot(now)?).unwrap();
    Some(Relay::restore(postcard::from_bytes::<Snapshot>(&bytes).unwrap(), now))
}

/// The relay as another process gets it.
fn without_change(relay: Relay) -> Relay {
    Relay { giving: None, ..relay }
}

#[test]
fn another_process_goes_on_with_every_state() {
    let now = Instant::now();
    for (state, relay) in states(now) {
        let is_left = relay.is_over() || matches!(relay.prepared, PreparedLeg::Connecting(_));
        assert_eq!(restored(&relay, now), (!is_left).then_some(without_change(relay)), "{state}");
    }
}

/// A client that stops reading does not keep a move from its decision, and gets every byte once the move is done.
#[test]
fn a_move_does_not_depend_on_the_speed_of_the_client() {
    let now = Instant::now();
    let mut actions = Vec::new();
    let mut relay = after(start(false, now), now, [OPENED, up(10, 10), down(5, 0)]);
    assert_eq!(relay.interest().leg_read, None, "backpressure");
    for input in [proposed(300_005), held(300_005), Input::Connected { ok: true }] {
        handle(&mut relay, input, now, &mut actions);
    }
    let mut left = 300_000;
    while left > 0 {
        let Some(LegRead::Hold(max)) = relay.interest().leg_read else { panic!("{left} bytes are not read") };
        let read = left.min(max).min(64 * 1024);
        handle(&mut relay, down(read, 0), now, &mut actions);
        left -= read;
    }
    assert!(actions.iter().any(|action| matches!(action, Action::Commit { .. })), "{actions:?}");
    assert_eq!(relay.interest().leg_read, None, "the target's bytes come after those that wait");
    assert_eq!(relay.waiting(), (0, 300_005));
    handle(&mut relay, Input::WrittenToClient(300_005), now, &mut actions);
    assert_eq!(relay.interest().leg_read, Some(LegRead::Pass));
}

/// A leg is not given away where the dispatcher has no room for it.
#[test]
fn the_dispatcher_decides_whether_legs_are_kept() {
    let now = Instant::now();
    let mut relay = after(start(false, now), now, [OPENED, up(10, 10), down(20, 20), proposed(20), held(20)]);
    relay.handle(Input::Connected { ok: true }, Context { now, dispatcher: &Dispatcher(false) });
    let Some(Action::Commit { kept, .. }) = relay.poll_action() else { panic!("it commits") };
    assert_eq!(kept, None);
}

/// The next dispatcher goes on where the previous one has stopped, on a new leg.
#[test]
fn another_dispatcher_goes_on() {
    let now = Instant::now();
    let mut actions = Vec::new();
    let to_e = Input::ChangeDispatcher { to: name("e") };
    let inputs = [OPENED, up(10, 10), down(20, 20), to_e, up(7, 3), down(9, 4), detached(29)];
    let mut relay = after(start(false, now), now, inputs);
    assert!(relay.is_quiet());
    let change = relay.change().unwrap();
    assert!(relay.offer().is_some());
    let mut next = restored(&relay, now).unwrap();
    // The kernel of the previous dispatcher had 24 bytes, of which 6 have no room here.
    next.go_on(change, 6);
    actions.extend(std::iter::from_fn(|| next.poll_action()));
    let kind = Kind::Continue { change: 1, rx_offset: 13, tx_offset: 29 };
    assert_eq!(actions, [Action::OpenLeg { kind, epoch: Epoch(0) }]);
    assert_eq!(next.waiting(), (4, 11));
    let mut next =
        after(next, now, [Input::WrittenToLeg { written: 4, preface_left: false }, Input::WrittenToClient(11)]);
    handle(&mut next, Input::ChangeDispatcher { to: name("f") }, now, &mut Vec::new());
    assert_eq!(next.change().map(|change| change.number), Some(2), "numbers count up");
    // If it is not given, the previous one goes on.
    actions.clear();
    handle(&mut relay, Input::ChangeFailed, now, &mut actions);
    let attach = DispatcherToAgent::AttachLeg(change);
    assert_eq!(actions, [Action::Send { to: name("a"), message: attach }]);
    assert_eq!(relay.interest().client_read, None, "4 bytes wait");
}

/// A link that breaks when the agent is to write again costs no connection: the order is repeated, also by another
/// process.
#[test]
fn the_agent_is_asked_again_until_it_writes() {
    let now = Instant::now();
    let inputs = [OPENED, Input::ChangeDispatcher { to: name("e") }, detached(0)];
    let mut relay = after(start(false, now), now, inputs);
    let change = relay.change().unwrap();
    let attach = [Action::Send { to: name("a"), message: DispatcherToAgent::AttachLeg(change) }];
    let step = |relay: &mut Relay, input: Input| {
        let (at, mut actions) = (if input == Input::Deadline { relay.timeout() } else { now }, Vec::new());
        handle(relay, input, at, &mut actions);
        actions
    };
    assert_eq!(step(&mut relay, Input::ChangeFailed), attach);
    for _ in 0..3 {
        assert!(relay.timeout() - now < TIMEOUTS.handshake);
        assert_eq!(step(&mut relay, Input::Deadline), attach);
        relay = restored(&relay, now).unwrap();
    }
    let others = [("b", 1), ("a", 2)].map(|(from, number)| Input::LegAttached { from: name(from), number });
    for input in others {
        step(&mut relay, input);
        assert_eq!(step(&mut relay, Input::Deadline), attach, "that is another agent, or another change");
    }
    step(&mut relay, attached());
    assert_eq!(relay.timeout(), start(false, now).timeout(), "nothing is repeated");
    // Another change makes the order void.
    let again = after(relay, now, [Input::ChangeDispatcher { to: name("e") }, Input::ChangeFailed]);
    let again = after(again, now, [Input::ChangeDispatcher { to: name("e") }]);
    assert_eq!(again.timeout(), start(false, now).timeout());
}

#[test]
fn a_connection_that_begins_or_ends_keeps_its_dispatcher() {
    let now = Instant::now();
    let to_e = || Input::ChangeDispatcher { to: name("e") };
    for (state, relay) in states(now) {
        let asked = after(relay.clone(), now, [to_e()]);
        assert_eq!(asked.change().is_some(), relay.may_change().is_ok(), "{state}");
        let ended = after(asked, now, [up(0, 0)]);
        assert!(ended.is_over() || ended.change().is_none() || ended.interest().client_read.is_none(), "{state}");
    }
    let unopened = after(start(true, now), now, [to_e()]);
    assert!(unopened.is_quiet() && unopened.is_unopened(), "no agent has it");
}
