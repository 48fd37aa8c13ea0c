//! Tests of gets.

use super::*;

/// Starts a search that has no response yet.
fn search<const N: usize>(exchange: &mut Exchange, keys: [SessionKey; N]) -> (GetId, Vec<Action>) {
    exchange.get(START, keys.to_vec())
}

#[test]
fn what_is_here_is_found_at_once() {
    let mut exchange = owner(0);
    exchange.put(START, vec![session(key([3, 1]))]);
    let (id, actions) = search(&mut exchange, [key([3, 1])]);
    assert_eq!(actions, [Action::Found(id, vec![found(key([3, 1]), Source::Own)], Outcome::Complete)]);
    assert_eq!(exchange.counters().found_here, 1);
}

#[test]
fn what_the_first_has_is_pulled_and_kept() {
    let mut exchange = owner(0);
    let sought = key([3, 1]);
    let (id, actions) = search(&mut exchange, [sought]);
    let request = request_to(3, &actions);
    assert_eq!(actions, [Action::Send(name(3), get(request, vec![sought]))]);
    let pulled = exchange.on_message(after(5), &name(3), answer(request, vec![sent(sought)]));
    assert_eq!(pulled, [Action::Found(id, vec![found(sought, Source::Pulled)], Outcome::Complete)]);
    assert_eq!((exchange.next_timer(), exchange.counters().pulled), (None, 1));
    let (id, actions) = search(&mut exchange, [sought]);
    assert_eq!(actions, [Action::Found(id, vec![found(sought, Source::Here)], Outcome::Complete)]);
}

#[test]
fn a_node_without_the_session_leads_to_the_next_and_the_third_is_the_last() {
    let mut exchange = owner(0);
    let (id, mut actions) = search(&mut exchange, [key([3, 1, 4])]);
    for (asked, next) in [(3, vec![name(1)]), (1, vec![name(4)])] {
        actions = exchange.on_message(START, &name(asked), answer(request_to(asked, &actions), Vec::new()));
        assert_eq!(receivers(&actions), next);
    }
    let last = exchange.on_message(START, &name(4), answer(request_to(4, &actions), Vec::new()));
    assert_eq!(last, [Action::Found(id, Vec::new(), Outcome::Unknown)]);
    assert_eq!((exchange.next_timer(), exchange.counters().unknown), (None, 1));
}

#[test]
fn this_node_is_not_asked() {
    let mut exchange = owner(0);
    let (id, actions) = search(&mut exchange, [key([0, 1, 4])]);
    assert_eq!(receivers(&actions), [name(1)]);
    let actions = exchange.on_message(START, &name(1), answer(request_to(1, &actions), Vec::new()));
    let last = exchange.on_message(START, &name(4), answer(request_to(4, &actions), Vec::new()));
    assert_eq!(last, [Action::Found(id, Vec::new(), Outcome::Unknown)]);
    let (id, actions) = Exchange::new(name(0), Placement::Owner, Store::new(1)).get(START, vec![key([0, 1])]);
    assert_eq!(actions, [Action::Found(id, Vec::new(), Outcome::Unknown)], "alone");
}

#[test]
fn a_silent_node_is_asked_again_and_the_next_too_for_one_second() {
    let mut exchange = owner(0);
    let (id, first) = search(&mut exchange, [key([3, 1, 4])]);
    assert_eq!(exchange.on_timer(after(99)), []);
    for (ms, asked) in [(100, [3, 1]), (200, [1, 4]), (300, [3, 4])] {
        assert_eq!(exchange.next_timer(), Some(START.ms + ms));
        let actions = exchange.on_timer(after(ms));
        assert_eq!(receivers(&actions), asked.map(name));
        if asked[0] == 3 {
            assert_eq!(request_to(3, &actions), request_to(3, &first), "the same request");
        }
    }
    let mut asked = Vec::new();
    for ms in (400..3000).step_by(100) {
        asked.extend(receivers(&exchange.on_timer(after(ms))));
    }
    asked.sort();
    assert_eq!(asked, [1, 1, 1, 3, 3, 4, 4, 4].map(name), "more and more rarely");
    assert_eq!(exchange.on_timer(after(3000)), [Action::Found(id, Vec::new(), Outcome::Unreachable)]);
    assert_eq!((exchange.next_timer(), exchange.counters().unreachable), (None, 1));
}

#[test]
fn a_late_answer_is_welcome() {
    let mut exchange = owner(0);
    let sought = key([3, 1, 4]);
    let (id, actions) = search(&mut exchange, [sought]);
    let request = request_to(3, &actions);
    exchange.on_timer(after(100));
    let late = exchange.on_message(after(150), &name(3), answer(request, vec![sent(sought)]));
    assert_eq!(late, [Action::Found(id, vec![found(sought, Source::Pulled)], Outcome::Complete)]);
    assert_eq!(exchange.on_message(after(160), &name(3), answer(request, Vec::new())), []);
}

#[test]
fn a_denial_by_one_whose_next_was_asked_leads_nowhere() {
    let mut exchange = owner(0);
    let (_, actions) = search(&mut exchange, [key([3, 1, 4])]);
    exchange.on_timer(after(100));
    assert_eq!(exchange.on_message(after(150), &name(3), answer(request_to(3, &actions), Vec::new())), []);
    assert_eq!(receivers(&exchange.on_timer(after(200))), [name(1), name(4)]);
}

#[test]
fn a_silent_one_and_denials_are_unreachable() {
    let mut exchange = owner(0);
    let (id, _) = search(&mut exchange, [key([3, 1, 4])]);
    let actions = exchange.on_timer(after(100));
    let actions = exchange.on_message(after(101), &name(1), answer(request_to(1, &actions), Vec::new()));
    assert_eq!(exchange.on_message(after(102), &name(4), answer(request_to(4, &actions), Vec::new())), []);
    assert_eq!(exchange.on_timer(after(3000)), [Action::Found(id, Vec::new(), Outcome::Unreachable)]);
}

#[test]
fn keys_of_one_node_go_in_one_message() {
    let mut exchange = owner(0);
    let (a, b, c) = (key([3, 1, 4]), key([3, 2, 4]), key([1, 2, 3]));
    let (id, actions) = search(&mut exchange, [a, b, c, a]);
    assert_eq!(receivers(&actions), [name(1), name(3)]);
    let request = request_to(3, &actions);
    let next = exchange.on_message(START, &name(3), answer(request, vec![sent(a)]));
    assert_eq!(receivers(&next), [name(2)], "for b alone");
    let of_b = answer(request_to(2, &next), vec![sent(b)]);
    assert_eq!(exchange.on_message(START, &name(2), of_b), []);
    let last = exchange.on_message(START, &name(1), answer(request_to(1, &actions), vec![sent(c)]));
    let all = [a, b, c].map(|key| found(key, Source::Pulled)).to_vec();
    assert_eq!(last, [Action::Found(id, all, Outcome::Complete)]);
}

#[test]
fn some_are_found_and_others_are_not() {
    let mut exchange = owner(0);
    let (a, b) = (key([3, 1, 4]), key([3, 2, 5]));
    exchange.put(START, vec![session(a)]);
    let (id, mut actions) = search(&mut exchange, [a, b]);
    for number in [3, 2, 5] {
        actions = exchange.on_message(START, &name(number), answer(request_to(number, &actions), Vec::new()));
    }
    assert_eq!(actions, [Action::Found(id, vec![found(a, Source::Own)], Outcome::Unknown)]);
    let counters = exchange.counters();
    assert_eq!((counters.found_here, counters.pulled, counters.unknown, counters.unreachable), (1, 0, 1, 0));
}

#[test]
fn an_answer_counts_only_from_the_asked_node_and_about_the_asked_keys() {
    let mut exchange = owner(0);
    let (sought, other) = (key([3, 1, 4]), key([3, 1, 5]));
    let (_, actions) = search(&mut exchange, [sought]);
    let request = request_to(3, &actions);
    assert_eq!(exchange.on_message(START, &name(1), answer(request, vec![sent(sought)])), []);
    assert_eq!(exchange.on_message(START, &name(3), answer(request + 1, vec![sent(sought)])), []);
    let denied = exchange.on_message(START, &name(3), answer(request, vec![sent(other)]));
    assert_eq!(receivers(&denied), [name(1)]);
    let expired = SentSession { expires_in_s: 0, ..sent(sought) };
    let denied = exchange.on_message(START, &name(1), answer(request_to(1, &denied), vec![expired]));
    assert_eq!((receivers(&denied), exchange.store().len()), (vec![name(4)], 0));
}

#[test]
fn one_that_leaves_leads_to_the_next() {
    let mut exchange = owner(0);
    let (id, _) = search(&mut exchange, [key([3, 1, 4, 2])]);
    let actions = exchange.set_members(START, &names([1, 2, 4, 5]));
    assert_eq!(receivers(&actions), [name(1)]);
    let actions = exchange.on_message(START, &name(1), answer(request_to(1, &actions), Vec::new()));
    let actions = exchange.on_message(START, &name(4), answer(request_to(4, &actions), Vec::new()));
    assert_eq!(receivers(&actions), [name(2)], "the first three of those that are left");
    let actions = exchange.set_members(START, &names([]));
    assert_eq!(actions, [Action::Found(id, Vec::new(), Outcome::Unknown)]);
}

#[test]
fn what_is_sent_here_meanwhile_ends_the_search() {
    let mut exchange = node(0, Placement::Push);
    let sought = key([3, 1, 4]);
    let (id, _) = search(&mut exchange, [sought]);
    exchange.on_message(after(50), &name(5), put(1, vec![sent(sought)]));
    let ended = exchange.on_timer(after(100));
    assert_eq!(ended, [Action::Found(id, vec![found(sought, Source::Here)], Outcome::Complete)]);
}

#[test]
fn a_get_beyond_the_limit_asks_no_node() {
    let mut exchange = owner(0);
    let (here, sought) = (key([0, 1]), key([3, 1]));
    exchange.put(START, vec![session(here)]);
    for _ in 0..PENDING_MAX {
        search(&mut exchange, [sought]);
    }
    let (id, actions) = search(&mut exchange, [here, sought]);
    assert_eq!(actions, [Action::Found(id, vec![found(here, Source::Own)], Outcome::Unreachable)]);
    let (id, actions) = search(&mut exchange, [here]);
    assert_eq!(actions, [Action::Found(id, vec![found(here, Source::Own)], Outcome::Complete)]);
    assert_eq!((exchange.counters().gets_over_limit, exchange.counters().unreachable), (1, 1));
}

#[test]
fn keys_beyond_the_bound_are_passed_over() {
    let mut exchange = owner(0);
    let (_, actions) = exchange.get(START, keys([3, 1]).take(SESSIONS_MAX + 5).collect());
    match &actions[..] {
        [Action::Send(_, Message::Request(_, Request::Get(keys)))] => assert_eq!(keys.len(), SESSIONS_MAX),
        other => panic!("{other:?}"),
    }
}
