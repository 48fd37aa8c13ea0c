#![allow(clippy::unwrap_used)]

use watari_wire::{LeaseGranted, SwitchWanted};

use super::*;
use crate::status::SwitchRefused;

const LEASE: Duration = Duration::from_millis(600);
const INTERVAL: Duration = Duration::from_millis(150);

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn ms(ms: u64) -> Time {
    Duration::from_millis(ms)
}

fn address() -> IpAddr {
    [192, 0, 2, 1].into()
}

fn terms() -> Terms {
    Terms { voters: ["a1", "d1", "d2"].map(name).into(), lease: LEASE, advert_interval: INTERVAL }
}

/// d1 at its start.
fn candidate() -> Candidate {
    let settings =
        Settings { node: name("d1"), incarnation: 7, address: address(), priority: 100, preempt: true, terms: terms() };
    let mut candidate = Candidate::new(settings, ms(0));
    handle(&mut candidate, Event::Ready(true), 0);
    candidate
}

fn handle(candidate: &mut Candidate, event: Event<'_>, at: u64) -> Vec<Action> {
    let mut actions = Vec::new();
    candidate.handle(event, ms(at), &mut actions);
    actions
}

fn hear(candidate: &mut Candidate, from: &str, message: &TakeoverMessage, at: u64) -> Vec<Action> {
    handle(candidate, Event::Message { from: &name(from), message }, at)
}

fn granted(round: u64) -> TakeoverMessage {
    let lease = LeaseNumber { incarnation: 7, round };
    TakeoverMessage::LeaseGranted(LeaseGranted { address: address(), lease })
}

fn refused(round: u64, holder: Option<&str>, remaining_ms: u32) -> TakeoverMessage {
    let lease = LeaseNumber { incarnation: 7, round };
    TakeoverMessage::LeaseRefused(LeaseRefused { address: address(), lease, holder: holder.map(name), remaining_ms })
}

fn advert(is_owner: bool, priority: u8, by_order: bool) -> TakeoverMessage {
    let voters = ["a1", "d1", "d2"].map(name).into();
    TakeoverMessage::Advert(Advert { address: address(), is_owner, priority, by_order, lease_ms: 600, voters })
}

/// The round of the last request in `actions`, and whether it is an inquiry.
fn asked(actions: &[Action]) -> Option<(u64, bool)> {
    actions.iter().rev().find_map(|action| match action {
        Action::ToVoters(TakeoverMessage::LeaseWanted(wanted)) => Some((wanted.lease.round, wanted.inquiry)),
        _ => None,
    })
}

fn returns(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::ToVoters(TakeoverMessage::LeaseReturned(_))))
}

/// Whether an advert says that the candidate has the address.
fn announces(actions: &[Action]) -> bool {
    actions
        .iter()
        .any(|action| matches!(action, Action::ToDispatchers(TakeoverMessage::Advert(advert)) if advert.is_owner))
}

/// d1 asks at 1 s, in this round.
fn asking() -> (Candidate, u64) {
    let mut candidate = candidate();
    let (round, inquiry) = asked(&handle(&mut candidate, Event::Tick, 1000)).unwrap();
    assert!(!inquiry);
    (candidate, round)
}

/// d1 owns the address since 1 s.
fn owner() -> Candidate {
    let (mut candidate, round) = asking();
    hear(&mut candidate, "d1", &granted(round), 1000);
    assert_eq!(hear(&mut candidate, "a1", &granted(round), 1010), [Action::Check]);
    let actions = handle(&mut candidate, Event::Checked(None), 1070);
    // 600 ms less 5 % and 30 ms, from the request on.
    assert_eq!(actions, [Action::Activate { until: ms(1540) }]);
    let status = candidate.status(ms(1070));
    assert_eq!((status.role, status.owner), (OwnershipRole::Asking, None));
    let actions = handle(&mut candidate, Event::Activated, 1080);
    assert!(announces(&actions), "{actions:?}");
    candidate
}

#[test]
fn a_majority_makes_an_owner() {
    let (mut candidate, round) = asking();
    assert_eq!(hear(&mut candidate, "a1", &granted(round), 1001), []);
    // The same voter again, a node that is none, and a request that was never made.
    for (from, round) in [("a1", round), ("x9", round), ("d2", round + 9)] {
        assert_eq!(hear(&mut candidate, from, &granted(round), 1002), []);
    }
    assert_eq!(hear(&mut candidate, "d2", &granted(round), 1003), [Action::Check]);
    assert_eq!(owner().status(ms(1080)).role, OwnershipRole::Active);
}

#[test]
fn a_lease_counts_from_the_request() {
    let mut candidate = owner();
    let (round, _) = asked(&handle(&mut candidate, Event::Tick, 1300)).unwrap();
    hear(&mut candidate, "d2", &granted(round), 1400);
    assert_eq!(hear(&mut candidate, "a1", &granted(round), 1410), [Action::Extend { until: ms(1840) }]);
    // Late answers to the first request change nothing.
    assert_eq!(hear(&mut candidate, "d2", &granted(round - 2), 1420), []);
}

/// After a stall, nothing precedes the end of the lease.
#[test]
fn a_stalled_owner_leaves_first() {
    for at in [1540, 10_000] {
        let mut candidate = owner();
        let actions = hear(&mut candidate, "a1", &granted(1), at);
        assert_eq!(actions[0], Action::Deactivate);
        assert!(!actions.iter().any(|action| matches!(action, Action::Extend { .. })), "{actions:?}");
        assert_eq!(candidate.status(ms(at)).reason, Reason::LeaseLost);
        assert!(returns(&handle(&mut candidate, Event::Removed, at + 1)));
    }
    assert!(owner().wake_at() <= ms(1540));
}

#[test]
fn a_refused_candidate_gives_back_and_asks_again() {
    let (mut candidate, round) = asking();
    assert!(!returns(&hear(&mut candidate, "d2", &refused(round, Some("d3"), 500), 1001)));
    assert!(returns(&hear(&mut candidate, "a1", &refused(round, Some("d3"), 90), 1002)));
    let status = candidate.status(ms(1002));
    assert_eq!((status.role, status.reason), (OwnershipRole::Standby, Reason::HeldBy(name("d3"))));
    assert!(asked(&handle(&mut candidate, Event::Tick, 1091)).is_none_or(|(_, inquiry)| inquiry));
    assert!(asked(&handle(&mut candidate, Event::Tick, 1200)).is_some());
}

#[test]
fn an_address_in_use_is_left_alone() {
    let (mut candidate, round) = asking();
    hear(&mut candidate, "d1", &granted(round), 1000);
    hear(&mut candidate, "a1", &granted(round), 1000);
    let by = [2, 0, 0, 0, 0, 1];
    assert!(returns(&handle(&mut candidate, Event::Checked(Some(by)), 1060)));
    assert_eq!(candidate.status(ms(1060)).reason, Reason::AddressInUse { by });
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 6000)), None);
    assert!(asked(&handle(&mut candidate, Event::Tick, 6200)).is_some());
}

#[test]
fn a_standby_waits_for_silence() {
    let mut candidate = candidate();
    hear(&mut candidate, "d2", &advert(true, 200, false), 1000);
    assert_eq!(candidate.status(ms(1000)).owner, Some(name("d2")));
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 1599)), None);
    assert!(asked(&handle(&mut candidate, Event::Tick, 1650)).is_some());
}

#[test]
fn a_node_that_cannot_serve_asks_for_nothing() {
    let mut candidate = candidate();
    handle(&mut candidate, Event::Ready(false), 10);
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 5000)), None);
}

#[test]
fn other_terms_are_shown_and_prevent_requests() {
    let mut candidate = candidate();
    let voters = ["a1", "a2", "d2"].map(name).into();
    let other = Advert { address: address(), is_owner: false, priority: 1, by_order: false, lease_ms: 600, voters };
    hear(&mut candidate, "d2", &TakeoverMessage::Advert(other), 900);
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 1000)), None);
    assert_eq!(candidate.status(ms(1000)).other_terms, Some(name("d2")));
    assert!(asked(&handle(&mut candidate, Event::Tick, 3000)).is_some());
}

/// The owner is asked to leave only when a majority of voters can be reached.
#[test]
fn preemption_needs_a_majority() {
    let mut candidate = candidate();
    let (round, inquiry) = asked(&hear(&mut candidate, "d2", &advert(true, 50, false), 100)).unwrap();
    assert!(inquiry);
    assert_eq!(hear(&mut candidate, "d1", &refused(round, Some("d2"), 500), 101), []);
    let actions = hear(&mut candidate, "a1", &refused(round, Some("d2"), 500), 102);
    let wanted = SwitchWanted { address: address(), to: name("d1"), priority: 100, by_order: false };
    // The owner learns first that this node is able.
    let messages = [advert(false, 100, false), TakeoverMessage::SwitchWanted(wanted)];
    assert_eq!(actions, messages.map(|message| Action::To(name("d2"), message)));
}

#[test]
fn who_may_be_preempted() {
    for (priority, by_order, is_preempted) in
        [(99, false, true), (100, false, false), (99, true, false), (0, true, true), (0, false, true)]
    {
        let mut candidate = candidate();
        let actions = hear(&mut candidate, "d2", &advert(true, priority, by_order), 100);
        assert_eq!(asked(&actions).is_some(), is_preempted, "{priority} {by_order}");
    }
}

#[test]
fn an_owner_leaves_to_a_higher_priority_only() {
    for (priority, by_order, leaves) in [(101, false, true), (100, false, false), (1, true, true)] {
        let mut candidate = owner();
        hear(&mut candidate, "d2", &advert(false, priority, false), 1100);
        let wanted = SwitchWanted { address: address(), to: name("d2"), priority, by_order };
        let actions = hear(&mut candidate, "d2", &TakeoverMessage::SwitchWanted(wanted), 1110);
        assert_eq!(actions.contains(&Action::Deactivate), leaves, "{priority} {by_order}");
        if leaves {
            // Nothing is given back before the address is removed.
            assert!(!returns(&actions));
            let actions = handle(&mut candidate, Event::Removed, 1120);
            assert!(returns(&actions));
            let is_token =
                |action: &Action| matches!(action, Action::To(to, TakeoverMessage::Yielded(_)) if *to == name("d2"));
            assert!(actions.iter().any(is_token));
        }
    }
}

/// Also a candidate with a higher priority needs an advert first. So an owner that leaves an address in a planned way has
/// always prepared it.
#[test]
fn an_owner_does_not_leave_to_an_unknown_node() {
    let d2 = name("d2");
    let wanted = SwitchWanted { address: address(), to: d2.clone(), priority: 200, by_order: false };
    let wanted = TakeoverMessage::SwitchWanted(wanted);
    let event = Event::Message { from: &d2, message: &wanted };
    let mut candidate = owner();
    for advert in [None, Some(advert(false, 0, false))] {
        if let Some(advert) = advert {
            hear(&mut candidate, "d2", &advert, 1100);
        }
        assert_eq!(candidate.successor_by(&event, ms(1110)), None);
        assert!(!handle(&mut candidate, event, 1110).contains(&Action::Deactivate));
    }
    hear(&mut candidate, "d2", &advert(false, 200, false), 1120);
    assert_eq!(candidate.successor_by(&event, ms(1130)), Some(d2.clone()));
    assert!(handle(&mut candidate, event, 1130).contains(&Action::Deactivate));
}

/// Without an advert of the target, an order would only cause an outage.
#[test]
fn an_order_to_an_unknown_node_is_refused() {
    let mut candidate = owner();
    let mut actions = Vec::new();
    let mut order = |to: &str, at| candidate.order_switch(Some(&name(to)), ms(at), &mut actions);
    assert_eq!(order("d2", 1100), Err(SwitchRefused::UnknownCandidate(name("d2"))));
    assert_eq!(order("d1", 1100), Err(SwitchRefused::AlreadyThere(name("d1"))));
    hear(&mut candidate, "d2", &advert(false, 0, false), 1110);
    let refused = candidate.order_switch(Some(&name("d2")), ms(1120), &mut actions);
    assert_eq!(refused, Err(SwitchRefused::NotReady(name("d2"))));
    assert_eq!(candidate.order_switch(None, ms(1120), &mut actions), Err(SwitchRefused::NoCandidate));
    assert_eq!(actions, []);
}

#[test]
fn a_successor_passes_the_token_on() {
    let mut candidate = candidate();
    hear(&mut candidate, "d2", &advert(true, 200, false), 1000);
    let lease = LeaseNumber { incarnation: 3, round: 44 };
    let yielded = TakeoverMessage::Yielded(Yielded { address: address(), lease, by_order: true });
    let actions = hear(&mut candidate, "d2", &yielded, 1010);
    let Some(Action::ToVoters(TakeoverMessage::LeaseWanted(wanted))) = actions.first() else { panic!("{actions:?}") };
    assert_eq!(wanted.after, Some(Predecessor { node: name("d2"), lease }));
    assert_eq!(candidate.status(ms(1010)).reason, Reason::OrderedFrom(name("d2")));
    let (round, _) = asked(&actions).unwrap();
    hear(&mut candidate, "d2", &granted(round), 1011);
    // Without a check for another machine with the address.
    assert!(matches!(hear(&mut candidate, "a1", &granted(round), 1012)[..], [Action::Activate { .. }]));
}

#[test]
fn an_owner_that_ends_leaves_to_the_best_candidate() {
    let mut candidate = owner();
    hear(&mut candidate, "d2", &advert(false, 5, false), 1100);
    assert!(handle(&mut candidate, Event::End, 1110).contains(&Action::Deactivate));
    assert!(!candidate.has_ended());
    let actions = handle(&mut candidate, Event::Removed, 1111);
    assert!(actions.iter().any(|action| matches!(action, Action::To(to, _) if *to == name("d2"))));
    assert!(candidate.has_ended());
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 9000)), None);
}

/// What makes an owner leave the address in a planned way names the successor before it is handled.
#[test]
fn a_planned_leave_names_the_successor_first() {
    let wanted = |to: &str, priority, by_order| {
        TakeoverMessage::SwitchWanted(SwitchWanted { address: address(), to: name(to), priority, by_order })
    };
    let d2 = name("d2");
    let from_d2 = |message| Event::Message { from: &d2, message };
    let (order, preemption, foreign) = (wanted("d2", 0, true), wanted("d2", 200, false), wanted("d1", 0, true));
    let weak = wanted("d2", 100, false);
    let mut candidate = owner();
    let leavings = [from_d2(&order), from_d2(&preemption), Event::End];
    for event in &leavings {
        assert_eq!(candidate.successor_by(event, ms(1100)), None, "no other candidate is known: {event:?}");
    }
    assert_eq!(candidate.successor_by_order(None, ms(1100)), None);
    hear(&mut candidate, "d2", &advert(false, 50, false), 1100);
    for event in leavings {
        assert_eq!(candidate.successor_by(&event, ms(1110)), Some(name("d2")), "{event:?}");
        let actions = handle(&mut candidate.clone(), event, 1110);
        assert!(actions.contains(&Action::Deactivate), "{event:?}: {actions:?}");
        // The lease is over: the owner leaves to no one.
        assert_eq!(candidate.successor_by(&event, ms(1540)), None, "{event:?}");
    }
    for event in [from_d2(&foreign), from_d2(&weak), Event::Tick, Event::Failed, Event::Renew] {
        assert_eq!(candidate.successor_by(&event, ms(1110)), None, "{event:?}");
    }
    for (to, successor) in [(None, Some("d2")), (Some("d2"), Some("d2")), (Some("d3"), None), (Some("d1"), None)] {
        let to = to.map(name);
        assert_eq!(candidate.successor_by_order(to.as_ref(), ms(1110)), successor.map(name), "{to:?}");
    }
    // An owner that cannot serve clients leaves at once.
    handle(&mut candidate, Event::Ready(false), 1120);
    assert_eq!(candidate.successor_by(&from_d2(&preemption), ms(1120)), None);
    assert_eq!(candidate.successor_by_order(None, ms(1120)), None);
    assert!(hear(&mut candidate, "d2", &preemption, 1120).contains(&Action::Deactivate));
    assert!(candidate.is_able(&name("d2"), ms(1120)) && !candidate.is_able(&name("d3"), ms(1120)));
    // Another candidate than the owner.
    let mut standby = self::candidate();
    hear(&mut standby, "d2", &advert(true, 50, false), 1000);
    assert_eq!(standby.successor_by_order(Some(&name("d1")), ms(1000)), None);
    assert_eq!(standby.successor_by(&Event::End, ms(1000)), None);
}

#[test]
fn a_refusal_of_the_kernel_ends_the_ownership() {
    let mut candidate = owner();
    assert!(handle(&mut candidate, Event::Failed, 1100).contains(&Action::Deactivate));
    handle(&mut candidate, Event::Removed, 1110);
    assert_eq!(asked(&handle(&mut candidate, Event::Tick, 6000)), None);
    assert!(asked(&handle(&mut candidate, Event::Tick, 6200)).is_some());
}
