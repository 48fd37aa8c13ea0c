#![allow(clippy::unwrap_used)]

use watari_wire::Predecessor;

use super::*;

const LEASE_MS: u32 = 600;

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn ms(ms: u64) -> Time {
    Duration::from_millis(ms)
}

fn number(incarnation: u64, round: u64) -> LeaseNumber {
    LeaseNumber { incarnation, round }
}

fn wanted(lease: LeaseNumber) -> LeaseWanted {
    LeaseWanted { address: [192, 0, 2, 1].into(), lease, lease_ms: LEASE_MS, inquiry: false, after: None }
}

/// `None`: granted. Otherwise the holder, and the remaining time in milliseconds.
fn refusal(answer: &TakeoverMessage) -> Option<(Option<&str>, u32)> {
    match answer {
        TakeoverMessage::LeaseGranted(_) => None,
        TakeoverMessage::LeaseRefused(refused) => {
            Some((refused.holder.as_ref().map(NodeName::as_str), refused.remaining_ms))
        }
        other => panic!("{other:?}"),
    }
}

/// A voter that has run for long, and has granted d1 a lease at 10 s.
fn voter() -> Voter {
    let mut voter = Voter::new(ms(0));
    assert_eq!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 5)), ms(10_000))), None);
    voter
}

#[test]
fn one_candidate_has_a_lease_at_a_time() {
    let mut voter = voter();
    let other = |voter: &mut Voter, at| refusal(&voter.wanted(&name("d2"), &wanted(number(2, 1)), ms(at))).map(|r| r.1);
    assert_eq!(other(&mut voter, 10_200), Some(400));
    // A renewal.
    assert_eq!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 6)), ms(10_500))), None);
    assert_eq!(other(&mut voter, 11_099), Some(1));
    assert_eq!(other(&mut voter, 11_100), None);
    let refused = voter.wanted(&name("d1"), &wanted(number(1, 7)), ms(11_200));
    assert_eq!(refusal(&refused), Some((Some("d2"), 500)));
}

#[test]
fn leases_of_other_addresses_are_apart() {
    let mut voter = voter();
    let other = LeaseWanted { address: "2001:db8::1".parse().unwrap(), ..wanted(number(2, 1)) };
    assert_eq!(refusal(&voter.wanted(&name("d2"), &other, ms(10_100))), None);
}

/// It may have granted a lease before it ended.
#[test]
fn a_voter_that_starts_grants_nothing_for_a_lease() {
    let mut voter = Voter::new(ms(10_000));
    assert_eq!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 1)), ms(10_000))), Some((None, 600)));
    assert_eq!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 2)), ms(10_599))), Some((None, 1)));
    assert_eq!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 3)), ms(10_600))), None);
}

/// The new process may not use what the old one was granted.
#[test]
fn another_incarnation_is_another_candidate() {
    let mut voter = voter();
    let again = voter.wanted(&name("d1"), &wanted(number(9, 1)), ms(10_100));
    assert_eq!(refusal(&again), Some((Some("d1"), 500)));
}

#[test]
fn a_lease_ends_when_it_is_given_back() {
    let returned = |lease| LeaseReturned { address: [192, 0, 2, 1].into(), lease };
    for (from, lease, ends) in [
        ("d1", number(1, 5), true),
        ("d1", number(1, 6), true),
        // A late message: the lease was renewed since.
        ("d1", number(1, 4), false),
        ("d1", number(2, 5), false),
        ("d2", number(1, 5), false),
    ] {
        let mut voter = voter();
        voter.returned(&name(from), &returned(lease));
        let asked = voter.wanted(&name("d2"), &wanted(number(2, 1)), ms(10_100));
        assert_eq!(refusal(&asked).is_none(), ends, "{from} {lease:?}");
    }
}

#[test]
fn a_successor_names_the_lease_of_its_predecessor() {
    for (lease, inquiry, granted) in
        [(number(1, 5), false, true), (number(1, 4), false, false), (number(1, 5), true, false)]
    {
        let mut voter = voter();
        let after = Some(Predecessor { node: name("d1"), lease });
        let asked = LeaseWanted { after, inquiry, ..wanted(number(2, 1)) };
        assert_eq!(refusal(&voter.wanted(&name("d2"), &asked, ms(10_100))).is_none(), granted, "{lease:?}");
    }
}

#[test]
fn an_inquiry_changes_nothing() {
    let mut voter = voter();
    let before = voter.clone();
    let inquiry = |lease| LeaseWanted { inquiry: true, ..wanted(lease) };
    let answer = voter.wanted(&name("d2"), &inquiry(number(2, 1)), ms(10_100));
    assert_eq!(refusal(&answer), Some((Some("d1"), 500)));
    assert_eq!(voter, before);
    let answer = voter.wanted(&name("d2"), &inquiry(number(2, 2)), ms(20_000));
    assert_eq!(refusal(&answer), Some((None, 0)));
}

#[test]
fn a_late_copy_renews_nothing() {
    let mut voter = voter();
    assert!(refusal(&voter.wanted(&name("d1"), &wanted(number(1, 4)), ms(10_500))).is_some());
    assert_eq!(refusal(&voter.wanted(&name("d2"), &wanted(number(2, 1)), ms(10_600))), None);
}

#[test]
fn a_hostile_dispatcher_fills_no_memory() {
    let mut voter = Voter::new(ms(0));
    for number in 0..2000_u32 {
        let address = IpAddr::from(number.to_be_bytes());
        let asked = LeaseWanted { address, lease_ms: 30_000, ..wanted(LeaseNumber { incarnation: 1, round: 1 }) };
        voter.wanted(&name("d1"), &asked, ms(100_000));
    }
    assert_eq!(voter.leases.len(), LEASES_MAX);
    let endless = LeaseWanted { lease_ms: u32::MAX, ..wanted(number(1, 1)) };
    let mut voter = Voter::new(ms(0));
    assert!(refusal(&voter.wanted(&name("d1"), &endless, Duration::from_secs(1 << 40))).is_some());
}
