#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;
use proptest::prelude::*;

const HOUR: u64 = 3600;
/// A time in the middle of an epoch.
const START: u64 = 500_000 * HOUR + HOUR / 2;
const POLICY_ID: &[u8] = b"policy_id";

fn settings() -> RingSettings {
    RingSettings {
        lifetime: Duration::from_hours(12),
        period: Duration::from_hours(1),
        activation_delay: Duration::from_secs(5),
    }
}

fn ring(name: u8, now: u64) -> Ring {
    Ring::new(settings(), [name; 12], now)
}

/// A node that has made the first seed.
fn first(now: u64) -> Ring {
    let mut ring = ring(1, now);
    ring.rotate(now, &[1; RANDOM_LEN]).unwrap();
    ring
}

/// A node that has all seeds from another.
fn joined(name: u8, from: &Ring, now: u64) -> Ring {
    let mut ring = ring(name, now);
    ring.merge(from.share(), now);
    ring
}

fn seal(ring: &Ring, now: u64) -> Vec<u8> {
    ring.seal(POLICY_ID, Dated { since: now, session: b"session" }, [9; 12], now).unwrap()
}

/// Whether the ring opens a ticket that has not expired.
fn opens(ring: &Ring, ticket: &[u8]) -> Result<(), NotOpened> {
    ring.open(POLICY_ID, ticket, 0).map(|dated| assert_eq!(dated.session.as_slice(), b"session"))
}

/// A state of epoch 0 would take half a million steps to the current epoch.
#[test]
fn seeds_of_the_far_past_and_future_are_passed_over() {
    let mut ring = first(START);
    let epoch = u32::try_from(START / HOUR).unwrap();
    let received = |id: u8, epoch| {
        let state = EpochSecret { epoch, secret: SecretBytes::new(vec![id; 32]) };
        TicketSeed { id: [id; 8], made: 0, state: Some(state), keys: Vec::new() }
    };
    let far = vec![received(1, 0), received(2, epoch - 16), received(3, epoch + 2), received(4, u32::MAX)];
    assert_eq!(ring.merge(far, START), 0);
    assert_eq!(ring.merge(vec![received(5, epoch - 15), received(6, epoch + 1)], START), 2);
}

#[test]
fn where_there_is_no_room_the_eldest_can_be_given_up() {
    let mut ring = first(START);
    let oldest = seal(&ring, START);
    for number in 1..SEEDS_MAX as u64 {
        ring.rotate(START + number, &[2; RANDOM_LEN]).unwrap();
    }
    let now = START + 100;
    assert!(ring.rotate(now, &[3; RANDOM_LEN]).is_err());
    ring.make_room();
    ring.make_room();
    ring.rotate(now, &[3; RANDOM_LEN]).unwrap();
    assert_eq!((ring.len(), opens(&ring, &oldest)), (SEEDS_MAX, Err(NotOpened::NoKey)));
    assert_eq!(opens(&ring, &seal(&ring, now + 5)), Ok(()));
}

#[test]
fn every_node_opens_what_any_has_sealed() {
    let a = first(START);
    let b = joined(2, &a, START);
    assert_eq!(opens(&b, &seal(&a, START)), Ok(()));
    assert_eq!(opens(&a, &seal(&b, START)), Ok(()));
    assert_eq!(seal(&a, START).len(), 37 + 8 + 7 + 16);
    assert_ne!(seal(&a, START), seal(&b, START), "each has a key of its own");
    assert_eq!(ring(3, START).seal(POLICY_ID, Dated { since: START, session: b"session" }, [9; 12], START), None);
}

#[test]
fn a_ticket_is_good_for_its_terms_and_as_it_is() {
    let ring = first(START);
    let ticket = seal(&ring, START);
    assert_eq!(ring.open(b"others", &ticket, START), Err(NotOpened::Forged));
    for at in 0..ticket.len() {
        let mut changed = ticket.clone();
        changed[at] ^= 1;
        assert!(ring.open(POLICY_ID, &changed, START).is_err(), "byte {at}");
        assert!(ring.open(POLICY_ID, &ticket[..at], START).is_err(), "cut at {at}");
    }
    assert_eq!(ring.open(POLICY_ID, &[&ticket[..], &vec![0; 64 << 10]].concat(), START), Err(NotOpened::Forged));
}

#[test]
fn a_ticket_is_good_for_its_lifetime_and_then_its_key_is_gone() {
    let mut ring = first(START);
    let ticket = seal(&ring, START);
    ring.advance(START + 12 * HOUR);
    assert!(ring.open(POLICY_ID, &ticket, START + 12 * HOUR - 1).is_ok());
    assert_eq!(ring.open(POLICY_ID, &ticket, START + 12 * HOUR), Err(NotOpened::Expired));
    ring.advance(START + 14 * HOUR);
    assert_eq!(opens(&ring, &ticket), Err(NotOpened::NoKey));
    // Not with all that the node has in its memory, at any time of its clock.
    for now in [START, START + HOUR, START + 13 * HOUR] {
        assert_eq!(opens(&joined(2, &ring, now), &ticket), Err(NotOpened::NoKey));
    }
}

#[test]
fn a_stolen_state_is_worth_nothing_after_a_rotation() {
    let mut ring = first(START);
    let stolen = ring.share();
    ring.rotate(START + 60, &[2; RANDOM_LEN]).unwrap();
    let ticket = seal(&ring, START + 65);
    for later in [0, 65, HOUR, 2 * HOUR] {
        let mut thief = Ring::new(settings(), [8; 12], START + later);
        thief.merge(stolen.clone(), START + later);
        assert_eq!(opens(&thief, &ticket), Err(NotOpened::NoKey));
    }
}

#[test]
fn a_rotation_loses_no_ticket() {
    let mut a = first(START);
    let mut b = joined(2, &a, START);
    let before = seal(&a, START);
    let seed = a.rotate(START + 60, &[2; RANDOM_LEN]).unwrap();
    // B does not have the new seed yet, and A does not use it yet.
    assert_eq!(opens(&b, &seal(&a, START + 64)), Ok(()));
    // B gets it late, and reports which seed it lacks.
    let after = seal(&a, START + 65);
    assert_eq!((opens(&b, &after), b.missing(&after)), (Err(NotOpened::NoKey), Some(seed)));
    assert_eq!(b.merge(vec![a.share_one(&seed).unwrap()], START + 66), 1);
    assert_eq!((opens(&b, &after), b.missing(&after)), (Ok(()), None));
    for now in [START + 66, START + 2 * HOUR, START + 12 * HOUR] {
        a.advance(now);
        b.advance(now);
        assert_eq!((opens(&a, &before), opens(&b, &before)), (Ok(()), Ok(())));
    }
}

#[test]
fn nodes_that_rotate_at_once_agree() {
    let (mut a, now) = (first(START), START + 60);
    let mut b = joined(2, &a, START);
    a.rotate(now, &[2; RANDOM_LEN]).unwrap();
    b.rotate(now, &[3; RANDOM_LEN]).unwrap();
    let (of_a, of_b) = (a.share(), b.share());
    assert_eq!((a.merge(of_b, now), b.merge(of_a, now)), (1, 1));
    let later = now + 5;
    assert_eq!(seal(&a, later)[1..9], seal(&b, later)[1..9], "they seal with the same seed");
}

#[test]
fn a_superseded_seed_is_destroyed_when_its_tickets_have_expired() {
    let mut ring = first(START);
    ring.rotate(START + 60, &[2; RANDOM_LEN]).unwrap();
    let states = |ring: &Ring| ring.share().iter().filter(|seed| seed.state.is_some()).count();
    assert_eq!(states(&ring), 2);
    ring.advance(START + 65 + HOUR);
    assert_eq!((ring.share().len(), states(&ring)), (2, 1));
    ring.advance(START + 20 * HOUR);
    assert_eq!(ring.share().len(), 1);
}

#[test]
fn a_far_epoch_moves_nothing() {
    let ring = first(START);
    let before = ring.share();
    let mut ticket = seal(&ring, START);
    for epoch in [0, 500_002_u32, u32::MAX] {
        ticket[9..13].copy_from_slice(&epoch.to_be_bytes());
        assert_eq!((opens(&ring, &ticket), ring.missing(&ticket)), (Err(NotOpened::NoKey), None));
    }
    assert_eq!(ring.share(), before);
}

#[test]
fn seeds_of_the_future_and_of_the_wrong_size_are_passed_over() {
    let mut ring = first(START);
    let mut other = Ring::new(settings(), [2; 12], START);
    let id = other.rotate(START, &[2; RANDOM_LEN]).unwrap();
    let good = other.share_one(&id).unwrap();
    let key = |epoch, len| EpochSecret { epoch, secret: SecretBytes::new(vec![7; len]) };
    let wrong = [
        TicketSeed { made: START + 2 * HOUR, ..good.clone() },
        TicketSeed { state: Some(key(500_002, 32)), ..good.clone() },
        TicketSeed { keys: vec![key(500_003, 32)], ..good.clone() },
        TicketSeed { state: Some(key(500_000, 31)), ..good.clone() },
        TicketSeed { keys: vec![key(500_000, 32); 100], ..good.clone() },
    ];
    for wrong in wrong {
        assert_eq!(ring.merge(vec![wrong], START), 0);
    }
    assert_eq!(ring.merge(vec![good.clone(), good], START), 1);
}

#[test]
fn a_ring_has_room_for_so_many() {
    let mut ring = first(START);
    let mut made = BTreeSet::new();
    for turn in 1..SEEDS_MAX {
        made.insert(ring.rotate(START, &[u8::try_from(turn).unwrap() + 1; RANDOM_LEN]).unwrap());
    }
    assert_eq!(made.len(), SEEDS_MAX - 1);
    assert_eq!(ring.rotate(START, &[99; RANDOM_LEN]), Err(TooManySeeds));
    assert_eq!(ring.merge(joined(2, &first(START - 1), START).share(), START), 0);
    assert!(ring.rotate(START + 20 * HOUR, &[99; RANDOM_LEN]).is_ok());
}

/// Events in a cluster.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Seconds pass.
    Pass(u64),
    /// A node makes a seed, and all others get it.
    Rotate(usize, u8),
    /// A node restarts empty, and gets the seeds from another.
    Restart(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..3 * HOUR).prop_map(Step::Pass),
        2 => (0..3_usize, any::<u8>()).prop_map(|(node, random)| Step::Rotate(node, random)),
        1 => (0..3_usize, 1..3_usize).prop_map(|(node, other)| Step::Restart(node, (node + other) % 3)),
    ];
    proptest::collection::vec(step, 1..40)
}

proptest! {
    /// Three nodes, whose clocks differ by up to five minutes: each opens a ticket of any node until it expires, even
    /// if it has been restarted since.
    #[test]
    fn no_ticket_is_lost(steps in steps(), skews in proptest::array::uniform3(0..600_u64)) {
        let mut now = START;
        let clock = |node: usize, now: u64| now + skews[node] - 300;
        let start = first(clock(0, now));
        let mut rings: Vec<_> = (0..3).map(|node| joined(node as u8 + 1, &start, clock(node, now))).collect();
        let mut tickets: Vec<(u64, Vec<u8>)> = Vec::new();
        for step in steps {
            match step {
                Step::Pass(seconds) => now += seconds,
                Step::Rotate(node, random) => {
                    let made = rings[node].rotate(clock(node, now), &[random; RANDOM_LEN]);
                    let shared = made.ok().and_then(|seed| rings[node].share_one(&seed));
                    for (node, ring) in rings.iter_mut().enumerate() {
                        ring.merge(shared.clone().into_iter().collect(), clock(node, now));
                    }
                }
                Step::Restart(node, other) => {
                    let from = rings[other].share();
                    rings[node] = ring(node as u8 + 1, clock(node, now));
                    rings[node].merge(from, clock(node, now));
                }
            }
            for (node, ring) in rings.iter_mut().enumerate() {
                ring.advance(clock(node, now));
            }
            tickets.retain(|(sealed, _)| sealed + 12 * HOUR >= now + 600);
            tickets.extend(rings.iter().enumerate().map(|(node, ring)| (now, seal(ring, clock(node, now)))));
            for (_, ticket) in &tickets {
                for ring in &rings {
                    prop_assert_eq!(opens(ring, ticket), Ok(()));
                }
            }
        }
    }

    #[test]
    fn nothing_panics(ticket: Vec<u8>, now: u64, made: u64, epoch: u32) {
        let mut ring = first(START);
        let _ = ring.open(POLICY_ID, &ticket, START);
        ring.missing(&ticket);
        let key = EpochSecret { epoch, secret: SecretBytes::new(vec![1; 32]) };
        ring.merge(vec![TicketSeed { id: [1; 8], made, state: Some(key.clone()), keys: vec![key] }], START);
        ring.advance(START + now % (1000 * HOUR));
    }
}
