//! Tests of puts.

use super::*;

#[test]
fn a_session_goes_to_its_owners_and_the_first_to_have_it_is_enough() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([3, 1]))]);
    assert_eq!(receivers(&actions), [name(1), name(3)]);
    let put = put(request_to(1, &actions), vec![sent(key([3, 1]))]);
    assert!(actions.contains(&Action::SendSoon(name(1), put)));
    assert_eq!(exchange.on_message(after(1), &name(1), stored(request_to(1, &actions))), [Action::Stored(id)]);
    assert_eq!(exchange.next_timer(), Some(START.ms + 50), "the other has not acknowledged");
    assert_eq!(exchange.on_message(after(2), &name(3), stored(request_to(3, &actions))), []);
    assert_eq!((exchange.next_timer(), exchange.counters().puts_not_acknowledged), (None, 0));
}

/// The receivers of messages that are sent at once, in the order of `actions`.
fn at_once(actions: &[Action]) -> Vec<NodeName> {
    let to = actions.iter().filter_map(|action| match action {
        Action::Send(to, _) => Some(to.clone()),
        _ => None,
    });
    to.collect()
}

#[test]
fn only_messages_of_the_awaited_owner_are_sent_at_once() {
    for placement in [Placement::Owner, Placement::Push] {
        let mut exchange = node(0, placement);
        let (_, actions) = exchange.put(START, vec![session(key([3, 1]))]);
        assert_eq!(at_once(&actions), [name(3)]);
        let (_, actions) = exchange.put(START, vec![session(key([0, 4]))]);
        assert_eq!(at_once(&actions), [name(4)], "the first owner that is another node");
        assert!(at_once(&exchange.on_timer(after(50))).len() > 1, "what is not answered is urgent");
    }
    for (receiver, key, answers) in [(3, key([3, 1]), true), (1, key([3, 1]), false), (4, key([0, 4]), true)] {
        let actions = owner(receiver).on_message(START, &name(0), put(7, vec![sent(key)]));
        assert_eq!((receivers(&actions), at_once(&actions).len()), (vec![name(0)], usize::from(answers)));
    }
}

#[test]
fn an_owner_waits_for_the_other() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([4, 0]))]);
    assert_eq!((receivers(&actions), actions.len()), (vec![name(4)], 1));
    assert_eq!(exchange.on_message(after(1), &name(4), stored(request_to(4, &actions))), [Action::Stored(id)]);
}

#[test]
fn every_session_of_a_put_must_be_at_an_owner() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([1, 2])), session(key([2, 3])), session(key([0, 3]))]);
    assert_eq!(receivers(&actions), [name(1), name(2), name(3)], "one message each");
    assert_eq!(exchange.on_message(START, &name(1), stored(request_to(1, &actions))), []);
    assert_eq!(exchange.on_message(START, &name(3), stored(request_to(3, &actions))), [Action::Stored(id)]);
}

#[test]
fn push_sends_to_all_and_waits_for_an_owner() {
    let mut exchange = node(0, Placement::Push);
    let (id, actions) = exchange.put(START, vec![session(key([3, 1]))]);
    assert_eq!(receivers(&actions), (1..NODES).map(name).collect::<Vec<_>>());
    for number in [2, 4] {
        assert_eq!(exchange.on_message(START, &name(number), stored(request_to(number, &actions))), []);
    }
    assert_eq!(exchange.on_message(START, &name(3), stored(request_to(3, &actions))), [Action::Stored(id)]);
    assert_eq!(receivers(&exchange.on_timer(after(50))), [name(1), name(5)], "who has not acknowledged");
}

#[test]
fn a_copy_is_sent_five_times_with_growing_pauses() {
    let mut exchange = owner(0);
    let (id, first) = exchange.put(START, vec![session(key([3, 1]))]);
    let at_once = first.into_iter().map(|action| match action {
        Action::SendSoon(to, message) => Action::Send(to, message),
        other => other,
    });
    let again: Vec<_> = at_once.collect();
    for ms in [50, 150, 350, 750] {
        assert_eq!(exchange.next_timer(), Some(START.ms + ms));
        assert_eq!(exchange.on_timer(after(ms - 1)), []);
        assert_eq!(exchange.on_timer(after(ms)), again, "the same again, at once");
    }
    assert_eq!(exchange.on_timer(after(1550)), [Action::Stored(id)]);
    assert_eq!((exchange.next_timer(), exchange.counters().puts_not_acknowledged), (None, 1));
}

#[test]
fn an_acknowledgement_counts_for_what_was_sent_to_whom() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([3, 1]))]);
    let request = request_to(3, &actions);
    assert_eq!(exchange.on_message(START, &name(1), stored(request)), [], "that was sent to another");
    assert_eq!(exchange.on_message(START, &name(3), stored(request + 7)), []);
    assert_eq!(exchange.on_message(START, &name(3), stored(request)), [Action::Stored(id)]);
    assert_eq!(exchange.on_message(START, &name(3), stored(request)), [], "it is said once");
}

#[test]
fn alone_it_is_stored_at_once() {
    for placement in [Placement::Owner, Placement::Push] {
        let mut exchange = Exchange::new(name(0), placement, Store::new(1 << 20));
        let (id, actions) = exchange.put(START, vec![session(key([3, 1]))]);
        assert_eq!((actions, exchange.next_timer()), (vec![Action::Stored(id)], None));
        assert_eq!((exchange.store().len(), exchange.counters().puts_not_acknowledged), (1, 0));
    }
}

#[test]
fn the_next_in_rank_takes_the_place_of_an_owner_that_leaves() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([3, 1, 2]))]);
    let instead = exchange.set_members(after(10), &names([1, 2, 4, 5]));
    assert_eq!(receivers(&instead), [name(2)]);
    assert_eq!(exchange.on_message(after(11), &name(3), stored(request_to(3, &actions))), [], "it is gone");
    assert_eq!(exchange.on_message(after(11), &name(2), stored(request_to(2, &instead))), [Action::Stored(id)]);
    assert_eq!(receivers(&exchange.on_timer(after(50))), [name(1)]);
}

#[test]
fn an_owner_that_leaves_after_it_has_acknowledged_is_replaced_too() {
    let mut exchange = owner(0);
    let (id, actions) = exchange.put(START, vec![session(key([3, 1, 2]))]);
    assert_eq!(exchange.on_message(START, &name(3), stored(request_to(3, &actions))), [Action::Stored(id)]);
    assert_eq!(receivers(&exchange.set_members(after(10), &names([1, 2, 4, 5]))), [name(2)]);
}

#[test]
fn a_node_that_becomes_an_owner_waits_for_the_other() {
    for placement in [Placement::Owner, Placement::Push] {
        let mut exchange = node(0, placement);
        let (id, actions) = exchange.put(START, vec![session(key([3, 1, 0]))]);
        assert_eq!(exchange.set_members(after(10), &names([1, 2, 4, 5])), []);
        let request = request_to(1, &actions);
        assert_eq!(exchange.on_message(after(11), &name(1), stored(request)), [Action::Stored(id)]);
        // No node is left to wait for.
        let (id, _) = exchange.put(after(12), vec![session(key([1, 0]))]);
        assert_eq!(exchange.set_members(after(13), &BTreeSet::new()), [Action::Stored(id)]);
    }
}

#[test]
fn one_that_comes_changes_nothing_for_those_on_their_way() {
    let mut exchange = owner(0);
    exchange.set_members(START, &names([1, 2, 4, 5]));
    let (id, actions) = exchange.put(START, vec![session(key([3, 1, 2]))]);
    assert_eq!(exchange.set_members(START, &names(0..NODES)), []);
    assert_eq!(exchange.on_message(START, &name(2), stored(request_to(2, &actions))), [Action::Stored(id)]);
}

#[test]
fn a_message_holds_so_many() {
    let mut exchange = owner(0);
    let (_, actions) = exchange.put(START, keys([1, 0]).take(SESSIONS_MAX + 1).map(session).collect());
    let sizes = actions.iter().filter_map(|action| match action {
        Action::Send(_, Message::Request(_, Request::Put(sessions)))
        | Action::SendSoon(_, Message::Request(_, Request::Put(sessions))) => Some(sessions.len()),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [SESSIONS_MAX, 1]);
}

#[test]
fn what_is_too_long_stays_here() {
    let mut exchange = owner(0);
    let long = SecretBytes::new(vec![1; SESSION_LEN_MAX + 1]);
    let (id, actions) = exchange.put(START, vec![(key([3, 1]), Session { secret: long, ..session_of(0) })]);
    assert_eq!(actions, [Action::Stored(id)]);
    assert_eq!((exchange.store().len(), exchange.counters().puts_not_acknowledged), (1, 1));
}

#[test]
fn a_put_beyond_the_limit_does_not_wait() {
    let mut exchange = owner(0);
    for _ in 0..PENDING_MAX {
        assert_eq!(exchange.put(START, vec![session(key([3, 1]))]).1.len(), 2);
    }
    let (id, actions) = exchange.put(START, vec![session(key([3, 1]))]);
    assert_eq!((receivers(&actions).len(), actions.last()), (2, Some(&Action::Stored(id))), "sent, and not waited for");
    assert_eq!(exchange.counters().puts_over_limit, 1);
}
