#![allow(clippy::unwrap_used)]

mod model;

use std::net::SocketAddr;

use watari_endings::{Evidence, Reason, ServerState, Tally, Verdict};

use super::*;

const S: u64 = 1_000_000_000;
/// The time at which tests begin, in seconds.
const BEGAN_S: u64 = 1_000;

pub(super) fn at(seconds: u64) -> Timestamp {
    Timestamp((BEGAN_S + seconds) * S)
}

pub(super) fn server(number: u16) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1], number))
}

/// A server is in `state` since `since`, and the sensor decided that at `known`.
pub(super) fn change(number: u16, state: ServerState, since: Timestamp, known: Timestamp) -> Change {
    let reason = Reason::Unanswered;
    let span = Duration::from_secs(30);
    let evidence = Evidence { reason, value: 0.6, limit: 0.5, span, shares: None, tally: Tally::default() };
    let verdict = Verdict { state, since, at: known, evidence };
    Change { server: server(number), before: ServerState::Idle, verdict }
}

fn policy(hold_s: u64) -> Policy {
    Policy {
        name: "pager".to_owned(),
        hold: Duration::from_secs(hold_s),
        repeat: None,
        troubles: Trouble::ALL.to_vec(),
        backoff: Backoff::usual(),
    }
}

/// Alerts with one receiver.
struct One(Alerts);

impl One {
    fn new(policy: Policy) -> Self {
        Self(Alerts::new([policy]))
    }

    fn is(&mut self, number: u16, state: ServerState, at: Timestamp) {
        self.0.change("west", &change(number, state, at, at), at);
    }

    fn next(&mut self, now: Timestamp) -> Option<Delivery> {
        self.0.advance(now);
        self.0.next(0, now)
    }

    /// Delivers all notices that are due now: server, state, begin, end.
    fn delivered(&mut self, now: Timestamp) -> Vec<(u16, Trouble, u64, Option<u64>)> {
        let mut notices = Vec::new();
        while let Some(delivery) = self.next(now) {
            self.0.delivered(&delivery, now);
            let Notice { key, episode, over } = delivery.notice;
            let second = |at: Timestamp| at.0 / S - BEGAN_S;
            notices.push((key.server.port(), key.trouble, second(episode.since), over.map(|over| second(over.at))));
        }
        notices
    }

    fn fails(&mut self, retry: Retry, now: Timestamp, random: u64) {
        let delivery = self.next(now).unwrap();
        self.0.failed(&delivery, retry, now, random);
    }
}

use ServerState::{Idle, Normal};
use Trouble::{Saturated, Stopped};

#[test]
fn notices_report_begin_and_end() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Saturated, at(0));
    assert_eq!(alerts.delivered(at(0)), [(1, Saturated, 0, None)]);
    assert_eq!(alerts.delivered(at(100)), []);
    alerts.is(1, ServerState::Stopped, at(200));
    assert_eq!(alerts.delivered(at(200)), [(1, Saturated, 0, Some(200)), (1, Stopped, 200, None)]);
    alerts.is(1, Idle, at(300));
    assert_eq!(alerts.delivered(at(300)), [(1, Stopped, 200, Some(300))]);
    assert_eq!((alerts.0.firing(), alerts.0.timeout(), alerts.0.by_key.len()), (0, None, 0));
}

#[test]
fn an_alert_is_sent_when_its_state_has_lasted() {
    let mut alerts = One::new(policy(30));
    alerts.is(1, ServerState::Stopped, at(0));
    assert_eq!((alerts.delivered(at(29)), alerts.0.timeout()), (vec![], Some(at(30))));
    assert_eq!(alerts.delivered(at(30)), [(1, Stopped, 0, None)]);
    // The earlier begin counts, by the sensor's clock, which is an hour behind here.
    let seen = change(2, ServerState::Stopped, Timestamp(5 * S), Timestamp(25 * S));
    alerts.0.change("west", &seen, at(40));
    assert_eq!(alerts.0.timeout(), Some(at(50)));
}

#[test]
fn a_short_state_causes_no_notice() {
    let mut alerts = One::new(policy(30));
    alerts.is(1, ServerState::Stopped, at(0));
    alerts.is(1, Normal, at(29));
    assert_eq!((alerts.delivered(at(1000)), alerts.0.by_key.len()), (vec![], 0));
}

#[test]
fn an_undelivered_notice_is_superseded() {
    let mut alerts = One::new(policy(10));
    alerts.is(1, ServerState::Stopped, at(0));
    alerts.is(1, Normal, at(20));
    // It lasted and is over: one notice has both.
    alerts.is(1, ServerState::Stopped, at(30));
    // A held episode replaces no notice.
    assert_eq!(alerts.delivered(at(35)), [(1, Stopped, 0, Some(20))]);
    alerts.is(1, Normal, at(45));
    alerts.is(1, ServerState::Stopped, at(50));
    assert_eq!(alerts.delivered(at(60)), [(1, Stopped, 50, None)]);
}

#[test]
fn an_end_during_a_delivery_is_sent_next() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Stopped, at(0));
    let delivery = alerts.next(at(0)).unwrap();
    alerts.is(1, Normal, at(1));
    assert_eq!(alerts.next(at(1)), None, "one thing at a time");
    alerts.0.failed(&delivery, Retry::Later(None), at(2), 0);
    assert_eq!(alerts.delivered(at(9)), [(1, Stopped, 0, Some(1))]);
}

#[test]
fn an_alert_is_repeated_while_it_lasts() {
    let mut alerts = One::new(Policy { repeat: Some(Duration::from_mins(1)), ..policy(0) });
    alerts.is(1, ServerState::Stopped, at(0));
    assert_eq!(alerts.delivered(at(0)).len(), 1);
    assert_eq!((alerts.delivered(at(59)).len(), alerts.0.timeout()), (0, Some(at(60))));
    assert_eq!(alerts.delivered(at(61)), [(1, Stopped, 0, None)]);
    assert_eq!(alerts.0.timeout(), Some(at(121)));
    alerts.is(1, Normal, at(70));
    assert_eq!(alerts.delivered(at(1000)), [(1, Stopped, 0, Some(70))]);
}

#[test]
fn a_receiver_gets_only_its_alerts() {
    let mut alerts = One::new(Policy { troubles: vec![Stopped], ..policy(0) });
    alerts.is(1, ServerState::Saturated, at(0));
    assert_eq!(alerts.delivered(at(0)), []);
    alerts.is(1, ServerState::Stopped, at(5));
    assert_eq!(alerts.delivered(at(5)), [(1, Stopped, 5, None)]);
}

#[test]
fn a_receiver_that_is_away_is_tried_ever_more_seldom() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Stopped, at(0));
    let mut now = at(0);
    for wait_s in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        alerts.fails(Retry::Later(None), now, u64::MAX);
        let next = alerts.0.timeout().unwrap();
        assert_eq!(next.since(now), Duration::from_secs(wait_s));
        assert_eq!(alerts.next(Timestamp(next.0 - 1)), None);
        now = next;
    }
    alerts.fails(Retry::Later(None), now, 0);
    assert_eq!(alerts.0.timeout().unwrap().since(now), Duration::from_secs(150));
    let hour = Duration::from_hours(1);
    alerts.fails(Retry::Later(Some(hour)), now + hour, 0);
    assert_eq!(alerts.0.timeout(), Some(now + hour * 2));
    assert_eq!(alerts.delivered(now + hour * 2), [(1, Stopped, 0, None)]);
    // Then it is like any other.
    alerts.is(1, Normal, now + hour * 2);
    alerts.fails(Retry::Later(None), now + hour * 2, u64::MAX);
    assert_eq!(alerts.0.timeout(), Some(now + hour * 2 + Duration::from_secs(1)));
}

#[test]
fn what_is_refused_holds_up_nothing_else() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Stopped, at(0));
    alerts.is(2, ServerState::Stopped, at(0));
    alerts.fails(Retry::Slowly, at(0), u64::MAX);
    assert_eq!(alerts.delivered(at(0)), [(2, Stopped, 0, None)]);
    assert_eq!(alerts.0.timeout(), Some(at(900)));
    // The receiver may accept another notice of the same alert.
    alerts.is(1, Normal, at(10));
    assert_eq!(alerts.delivered(at(10)), [(1, Stopped, 0, Some(10))]);
}

#[test]
fn after_a_failure_another_is_tried_first() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Stopped, at(0));
    alerts.is(2, ServerState::Stopped, at(0));
    alerts.fails(Retry::Later(None), at(0), 0);
    assert_eq!(alerts.delivered(at(5)), [(2, Stopped, 0, None), (1, Stopped, 0, None)]);
}

#[test]
fn alerts_are_bounded() {
    let mut alerts = One::new(policy(0));
    let full = ALERTS_MAX as u16;
    for number in 0..full {
        alerts.is(number, ServerState::Stopped, at(0));
    }
    alerts.is(full, ServerState::Stopped, at(1));
    assert_eq!((alerts.0.firing(), alerts.0.given_up()), (ALERTS_MAX, 1));
    // An alert that is over makes room, the oldest first, if the receiver was not notified of it.
    let delivery = alerts.next(at(2)).unwrap();
    for number in [0, 7, 5] {
        alerts.is(number, Normal, at(2 + u64::from(number)));
    }
    alerts.0.failed(&delivery, Retry::Later(None), at(10), 0);
    alerts.is(full, ServerState::Stopped, at(10));
    assert_eq!((alerts.0.by_key.len(), alerts.0.given_up()), (ALERTS_MAX, 2));
    let is_held = |number: u16| alerts.0.by_key.contains_key(&Key::new("west", server(number), Stopped));
    assert_eq!([0, 5, 7, full].map(is_held), [true, false, true, true]);
}

#[test]
fn counts_are_of_notices() {
    let mut alerts = One::new(policy(0));
    alerts.is(1, ServerState::Stopped, at(0));
    alerts.is(2, ServerState::Stopped, at(0));
    alerts.fails(Retry::Later(None), at(0), 0);
    let delivery = alerts.next(at(1)).unwrap();
    alerts.0.delivered(&delivery, at(1));
    let counts: Vec<_> = alerts.0.counts().map(|(_, counts)| counts).collect();
    assert_eq!(counts, [Counts { delivered: 1, failed: 1, waiting: 1 }]);
}
