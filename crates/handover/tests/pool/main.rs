//! A governor over a simulated pool: the paper's experiments, lasting loads, and changing loads.
//!
//! The world checks every order: no transfer moves before its minimum stay, returns at once, or exceeds the limit on
//! moves. The budgets hold in every second.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::cast_sign_loss, reason = "the numbers are small")]

mod world;

use std::time::Duration;

use proptest::prelude::*;
use watari_handover::governor::{Availability, Cause, Damping, Metric, ResourceId, Settings, Unequal};

use crate::world::World;

const GIGABYTE: u64 = 1_000_000_000;
/// More than any origin sends to one client, in bytes per second.
const GIGABIT: f64 = 125e6;

/// Downloads at each origin, which last longer than any test.
fn world(settings: Settings, counts: &[usize]) -> World {
    let mut world = World::new(settings, counts.len());
    for (origin, count) in counts.iter().enumerate() {
        (0..*count).for_each(|_| world.begin(origin, 1_000_000 * GIGABYTE, GIGABIT));
    }
    world
}

fn pass(world: &mut World, seconds: u32) {
    (0..seconds).for_each(|_| world.pass_second());
}

/// The mean and the lowest rate of the transfers.
fn speeds(world: &World) -> (f64, f64) {
    let rates = world.rates();
    (rates.iter().sum::<f64>() / rates.len() as f64, rates.iter().copied().fold(f64::INFINITY, f64::min))
}

/// Table of the paper: clients per server before and after, and the gain of the mean and of the lowest speed in
/// percent. For two and five clients before, the paper prints three and three after, which is one client fewer. The
/// gains for three and four follow from its curve.
#[test]
fn rebalancing_gains_what_the_paper_says() {
    for (before, after, mean_gain, lowest_gain) in [
        ([1, 3], [2, 2], 18.70, 31.14),
        ([2, 5], [3, 4], 1.39, 16.05),
        ([3, 5], [4, 4], 5.93, 16.05),
        ([4, 6], [5, 5], 3.69, 20.00),
    ] {
        let mut world = world(Settings::default(), &before);
        let (mean, lowest) = speeds(&world);
        pass(&mut world, 60);
        assert_eq!(world.connections(), after);
        let (mean, lowest) = (speeds(&world).0 / mean, speeds(&world).1 / lowest);
        assert!((mean * 100.0 - 100.0 - mean_gain).abs() < 0.1, "{before:?}: mean {mean}");
        assert!((lowest * 100.0 - 100.0 - lowest_gain).abs() < 0.1, "{before:?}: lowest {lowest}");
        pass(&mut world, 1000);
        assert_eq!(world.connections(), after);
        let needed = after[0] - before[0];
        assert_eq!(world.orders.len(), needed, "no transfer moves without need");
    }
}

#[test]
fn a_slow_origin_is_left_and_a_stalled_one_at_once() {
    let settings = Settings { unequal: None, ..Settings::default() };
    let mut world = world(settings, &[2, 2]);
    pass(&mut world, 60);
    assert_eq!(world.orders, []);
    world.origins[0].speed = 0.1;
    pass(&mut world, 60);
    assert!(world.orders.iter().all(|(_, order)| order.cause == Cause::Slow));
    assert_eq!(world.connections(), [0, 4]);
    world.origins[1].speed = 0.0;
    world.origins[0].speed = 1.0;
    world.orders.clear();
    let before = world.now;
    pass(&mut world, 60);
    assert_eq!(world.connections(), [4, 0]);
    let first = &world.orders[0];
    assert_eq!((first.1.cause, first.0 - before), (Cause::Stalled, Duration::from_secs(11)));
}

#[test]
fn a_drain_empties_an_origin_but_for_what_nobody_else_has() {
    let mut world = world(Settings::default(), &[10, 10]);
    world.origins[0].availability = Availability::Draining;
    world.origins[1].lacks = Some(ResourceId(3));
    pass(&mut world, 60);
    assert_eq!(world.connections(), [2, 18]);
    assert!(world.orders.len() <= 12, "what was refused is not tried again and again");
}

/// The changing load of one origin.
#[derive(Debug, Clone)]
struct Tide {
    period_s: u32,
    /// Requests that cannot move, at high tide.
    fixed: usize,
    /// Its speed at low tide.
    speed: f64,
}

impl Tide {
    fn set(&self, world: &mut World, origin: usize, second: u32) {
        let high = second % self.period_s < self.period_s / 2;
        world.origins[origin].fixed = if high { self.fixed } else { 0 };
        world.origins[origin].speed = if high { 1.0 } else { self.speed };
    }
}

/// Lets half an hour pass. A download begins about every two seconds.
fn pass_tides(world: &mut World, tides: &[Tide], sizes: &[u64]) {
    for second in 0..1800 {
        for (origin, tide) in tides.iter().enumerate() {
            tide.set(world, origin, second);
        }
        let size = sizes[second as usize % sizes.len()];
        if world.transfers.len() < 30 {
            world.begin(size as usize % tides.len(), size, if size.is_multiple_of(3) { 1e6 } else { GIGABIT });
        }
        world.pass_second();
    }
}

/// Settings without limits on moves.
fn undamped() -> Settings {
    let damping = Damping {
        stay_min: Duration::ZERO,
        gain_min: 0.0,
        remaining_min: 0,
        moves_max: u32::MAX,
        origin_moves_per_s: 1000,
        moves_per_s: 1000,
        ..Damping::default()
    };
    let unequal = Unequal { high: 1.0, low: 1.0, settle: Duration::ZERO, ..Unequal::default() };
    Settings { unequal: Some(unequal), damping, ..Settings::default() }
}

#[test]
fn without_damping_transfers_flap() {
    let tide = |period_s, fixed| Tide { period_s, fixed, speed: 1.0 };
    let orders = |settings| {
        let mut world = world(Settings { slow: None, ..settings }, &[6, 6]);
        pass_tides(&mut world, &[tide(20, 12), tide(14, 8)], &[1_000_000 * GIGABYTE]);
        world.optional_orders()
    };
    let (damped, not_damped) = (orders(Settings::default()), orders(undamped()));
    assert!(damped <= 30, "hardly one for each of thirty: {damped}");
    assert!(not_damped > 50 * damped, "{damped} orders, and {not_damped} without damping");
}

#[test]
fn a_load_that_swings_within_the_hysteresis_moves_nothing() {
    let mut world = world(Settings::default(), &[12, 12]);
    for second in 0..1800 {
        world.origins[0].fixed = if second % 40 < 20 { 4 } else { 0 };
        world.origins[1].fixed = if second % 60 < 30 { 4 } else { 0 };
        world.pass_second();
    }
    assert_eq!(world.orders, []);
}

fn tides() -> impl Strategy<Value = Vec<Tide>> {
    let speed = prop_oneof![Just(1.0), Just(0.0), 0.01..1.0];
    let tide = (2..300u32, 0..20usize, speed).prop_map(|(period_s, fixed, speed)| Tide { period_s, fixed, speed });
    prop::collection::vec(tide, 2..5)
}

fn metrics() -> impl Strategy<Value = Option<Unequal>> {
    let metric = prop::sample::select(&[Metric::Connections, Metric::Response, Metric::Rate][..]);
    prop::option::of(metric.prop_map(|metric| Unequal { metric, ..Unequal::default() }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The world checks the orders.
    #[test]
    fn no_tide_makes_transfers_flap(
        tides in tides(), unequal in metrics(), sizes in prop::collection::vec(1_000_000..50 * GIGABYTE, 1..50),
        stay_s in 1..60u64, moves_max in 0..10u32, per_s in (0..5u32, 0..10u32),
    ) {
        let damping = Damping {
            stay_min: Duration::from_secs(stay_s),
            moves_max,
            origin_moves_per_s: per_s.0,
            moves_per_s: per_s.1,
            ..Damping::default()
        };
        let mut world = World::new(Settings { unequal, damping, ..Settings::default() }, tides.len());
        world.origins[0].lacks = Some(ResourceId(1));
        pass_tides(&mut world, &tides, &sizes);
    }

    #[test]
    fn an_imbalance_that_lasts_is_mended_and_then_there_is_peace(
        counts in prop::collection::vec((0..20usize, 0..20usize), 2..5),
    ) {
        let settings = Settings { slow: None, ..Settings::default() };
        let transfers: Vec<_> = counts.iter().map(|(transfers, _)| *transfers).collect();
        let mut world = world(settings, &transfers);
        for (origin, (_, fixed)) in world.origins.iter_mut().zip(&counts) {
            origin.fixed = *fixed;
        }
        pass(&mut world, 300);
        let orders = world.orders.len();
        let connections = world.connections();
        let least = *connections.iter().min().unwrap();
        for (origin, count) in connections.iter().enumerate() {
            let has_transfers = *count > counts[origin].1;
            let gains = *count as f64 >= settings.damping.gain_min * (least + 1) as f64;
            let unequal = *count as f64 > Unequal::default().high * least as f64;
            prop_assert!(!(has_transfers && gains && unequal), "{:?} became {connections:?}", counts);
        }
        pass(&mut world, 600);
        prop_assert_eq!(world.orders.len(), orders, "{:?}", connections);
    }
}
