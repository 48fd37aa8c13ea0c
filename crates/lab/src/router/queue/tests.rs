use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn settings() -> Settings {
    Settings { round_trip: 30 * MS, ..Settings::default() }
}

/// What becomes due of packets of 1,500 octets, one each millisecond: offered, due.
fn offer_each_ms(settings: &Settings, seed: u64, packets: u32) -> Vec<(Instant, Option<Instant>)> {
    let mut queue = Queue::new(settings, seed);
    let start = Instant::now();
    (0..packets).map(|n| start + n * MS).map(|now| (now, queue.offer(now, 1500))).collect()
}

fn delays(offered: &[(Instant, Option<Instant>)]) -> Vec<Option<Duration>> {
    offered.iter().map(|(now, due)| due.map(|due| due - *now)).collect()
}

#[test]
fn each_direction_has_half_of_the_round_trip() {
    assert_eq!(delays(&offer_each_ms(&settings(), 1, 3)), [Some(15 * MS); 3]);
}

#[test]
fn a_packet_takes_its_time_at_the_rate() {
    let settings = Settings { rate: Some(12e6), ..settings() };
    let mut queue = Queue::new(&settings, 1);
    let now = Instant::now();
    assert_eq!(queue.offer(now, 1500), Some(now + 16 * MS));
    assert_eq!(queue.offer(now, 750), Some(now + 16 * MS + MS / 2));
    // The link has been free for a while.
    let later = now + 50 * MS;
    assert_eq!(queue.offer(later, 1500), Some(later + 16 * MS));
}

#[test]
fn a_packet_behind_a_backlog_of_over_100_ms_is_dropped_and_later_ones_pass() {
    let settings = Settings { rate: Some(12e6), ..settings() };
    let mut queue = Queue::new(&settings, 1);
    let now = Instant::now();
    let accepted = (0..500).filter(|_| queue.offer(now, 1500).is_some()).count();
    // One packet waits no time, and one waits exactly the longest time.
    assert_eq!(accepted, 101);
    assert_eq!(queue.offer(now + MS / 2, 1500), None);
    assert!(queue.offer(now + MS, 1500).is_some());
}

#[test]
fn a_link_of_a_low_rate_still_sends_large_packets_one_after_the_other() {
    let settings = Settings { rate: Some(super::super::RATE_MIN), ..settings() };
    let mut queue = Queue::new(&settings, 1);
    let now = Instant::now();
    assert_eq!(queue.offer(now, 1500), Some(now + 12_015 * MS));
    assert_eq!(queue.offer(now + MS, 1500), None);
    assert!(queue.offer(now + 12_000 * MS, 1500).is_some());
}

#[test]
fn an_overloaded_link_sends_at_its_rate() {
    // 1,500 octets each millisecond are 12 Mbit/s, three times the rate.
    let settings = Settings { rate: Some(4e6), ..settings() };
    let offered = offer_each_ms(&settings, 1, 3000);
    let start = offered[0].0;
    let in_second = |second: u32| {
        let span = start + second * 1000 * MS..start + (second + 1) * 1000 * MS;
        offered.iter().filter(|(_, due)| due.is_some_and(|due| span.contains(&due))).count() * 1500 * 8
    };
    for bits in [in_second(1), in_second(2)] {
        // A packet more or less.
        assert!(bits.abs_diff(4_000_000) <= 12_000, "{bits} bits in a second");
    }
}

#[test]
fn the_share_of_lost_packets_is_that_of_the_setting() {
    for (seed, loss) in [(1, 0.0), (2, 0.01), (3, 0.2), (4, 0.5), (5, 1.0)] {
        let lost = offer_each_ms(&Settings { loss, ..settings() }, seed, 100_000);
        let lost = lost.iter().filter(|(_, due)| due.is_none()).count() as f64;
        // Four standard deviations of a binomial distribution.
        let bound = 4.0 * (1e5 * loss * (1.0 - loss)).sqrt();
        assert!((lost - 1e5 * loss).abs() <= bound, "{lost} of 100,000 at {loss}");
    }
}

#[test]
fn jitter_is_spread_over_its_range() {
    // Packets come seldom enough that none waits for the one before.
    let settings = Settings { jitter: MS, ..settings() };
    let delays = delays(&offer_each_ms(&settings, 7, 10_000));
    let above =
        |share: f64| delays.iter().flatten().filter(|delay| **delay > 15 * MS + MS.mul_f64(share)).count() as f64 / 1e4;
    for share in [0.0, 0.25, 0.5, 0.75] {
        assert!((above(share) - (1.0 - share)).abs() < 0.02, "{} of jitters are over {share}", above(share));
    }
    assert!(above(1.0).abs() < f64::EPSILON);
}

#[test]
fn a_seed_repeats_losses_and_jitter_and_another_does_not() {
    let settings = Settings { jitter: 5 * MS, loss: 0.3, rate: Some(20e6), ..settings() };
    let run = |seed| delays(&offer_each_ms(&settings, seed, 1000));
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_dropped_packet_does_not_change_the_fate_of_others() {
    let lossy = Settings { loss: 0.3, ..settings() };
    let narrow = Settings { rate: Some(4e6), ..lossy.clone() };
    let (wide, narrow) = (offer_each_ms(&lossy, 1, 1000), offer_each_ms(&narrow, 1, 1000));
    // What a link loses without a rate, it also loses with one.
    assert!(wide.iter().zip(&narrow).all(|((_, wide), (_, narrow))| wide.is_some() || narrow.is_none()));
}

proptest! {
    #[test]
    fn packets_keep_their_order_and_delays_their_bounds(
        round_trip_us in 0_u64..200_000,
        jitter_us in 0_u64..50_000,
        loss in 0.0..0.5,
        rate in proptest::option::of(1e5..1e9),
        seed: u64,
        packets in proptest::collection::vec((0_u64..5_000, 40_usize..65_536), 1..200),
    ) {
        let [round_trip, jitter] = [round_trip_us, jitter_us].map(Duration::from_micros);
        let settings = Settings { round_trip, jitter, loss, rate, seed };
        let mut queue = Queue::new(&settings, seed);
        let mut now = Instant::now();
        let mut last = now;
        for (gap_us, len) in packets {
            now += Duration::from_micros(gap_us);
            let Some(due) = queue.offer(now, len) else { continue };
            prop_assert!(due >= last, "a packet overtakes another");
            last = due;
            let sending = rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(len as f64 * 8.0 / rate));
            prop_assert!(due - now >= round_trip / 2 + sending);
            let waiting = rate.map_or(Duration::ZERO, |_| BACKLOG_MAX);
            prop_assert!(due - now <= round_trip / 2 + jitter + waiting + sending);
        }
    }
}
