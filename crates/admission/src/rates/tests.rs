#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn rates(requests: u32, burst: u32, entries_max: usize) -> Rates {
    let limit = RateLimit {
        requests: requests.try_into().unwrap(),
        per: Duration::from_secs(1),
        burst: burst.try_into().unwrap(),
    };
    Rates::new(limit, entries_max.try_into().unwrap())
}

fn client(n: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 + n).into()
}

fn granted(rates: &mut Rates, n: u32, now: Instant) -> usize {
    (0..1000).take_while(|_| rates.check(client(n), now).is_ok()).count()
}

#[test]
fn a_burst_is_granted_at_once_and_the_rate_after_it() {
    let (mut rates, now) = (rates(10, 5, 100), Instant::now());
    assert_eq!(granted(&mut rates, 1, now), 5);
    let refused = rates.check(client(1), now).unwrap_err();
    assert_eq!((refused.duration(), refused.seconds()), (Duration::from_millis(100), 1));
    assert_eq!(granted(&mut rates, 1, now + Duration::from_millis(99)), 0);
    assert_eq!(granted(&mut rates, 1, now + Duration::from_millis(300)), 3);
    assert_eq!(granted(&mut rates, 1, now + Duration::from_mins(1)), 5);
}

#[test]
fn each_client_has_its_own_bucket() {
    let (mut rates, now) = (rates(1, 2, 100), Instant::now());
    assert_eq!((1..=50).map(|n| granted(&mut rates, n, now)).sum::<usize>(), 100);
}

/// A client that floods keeps its entry, for any number of other clients.
#[test]
fn the_client_that_asked_for_least_is_forgotten_first() {
    let (mut rates, now) = (rates(1, 10, 3), Instant::now());
    assert_eq!(granted(&mut rates, 1, now), 10);
    for n in 2..1000 {
        assert!(rates.check(client(n), now).is_ok());
        assert!(rates.full_at.len() <= 3 && rates.full_at.len() == rates.by_time.len());
    }
    assert!(rates.check(client(1), now).is_err());
}

#[test]
fn full_buckets_are_forgotten() {
    let (mut rates, now) = (rates(1, 10, 1000), Instant::now());
    for n in 0..100 {
        rates.check(client(n), now).unwrap();
    }
    for n in 0..60 {
        rates.check(client(0), now + Duration::from_secs(2 + n)).unwrap();
    }
    assert_eq!(rates.full_at.len(), 1);
}

proptest! {
    /// A bucket that counts its tokens grants the same.
    #[test]
    fn it_is_a_token_bucket(requests in 1..20_u32, burst in 1..10_u32, pauses_us in vec(0..300_000_u64, 1..100)) {
        let requests = if 1_000_000 % requests == 0 { requests } else { 10 };
        let (mut rates, mut now) = (rates(requests, burst, 10), Instant::now());
        let (token_us, mut counted_us) = (1_000_000 / u64::from(requests), 1_000_000 / u64::from(requests) * u64::from(burst));
        let full_us = counted_us;
        for pause_us in pauses_us {
            now += Duration::from_micros(pause_us);
            counted_us = (counted_us + pause_us).min(full_us);
            match rates.check(client(1), now) {
                Ok(()) => {
                    prop_assert!(counted_us >= token_us);
                    counted_us -= token_us;
                }
                Err(wait) => prop_assert_eq!(counted_us + wait.duration().as_micros() as u64, token_us),
            }
        }
    }
}
