//! Seeds of the simulation. A failure prints its seed: `SIM_SEED=7 cargo test -p watari-sim --test simulation replay --
//! --ignored --nocapture` prints all that happens in the run of seed 7.

#![allow(clippy::unwrap_used)]

use std::env;

use watari_sim::{Figures, Outcome, Sabotage, run, run_traced};

/// The seeds of each test run: some seconds.
const SEEDS: u64 = 250;

/// Each broken variant is found within so many seeds.
const SABOTAGE_SEEDS: u64 = 400;

fn check(seed: u64) -> Figures {
    let Outcome { violations, figures, .. } = run(seed, None);
    assert!(violations.is_empty(), "seed {seed}: {violations:#?}");
    figures
}

/// Checks these seeds, and prints what happened in them.
fn check_all(seeds: impl Iterator<Item = u64>) -> Figures {
    let mut total = Figures::default();
    for figures in seeds.map(check) {
        add(&mut total, figures);
    }
    println!("{total:?}");
    total
}

fn add(total: &mut Figures, of_run: Figures) {
    let Figures {
        moves,
        aborted,
        within_responses,
        with_skip,
        with_tail,
        with_rest,
        frozen,
        undelivered,
        drained,
        passed_on,
        legs_reused,
        begun_again,
        prepared,
        cut_by_origins,
        handovers,
        handovers_refused,
        chunked,
        unavailable,
        anchored,
        attached,
        came_back,
        tunnels,
        handshakes,
        offered,
        resumed,
        rotations,
        seeds_learned,
        records,
        complete,
        cut,
        vanished,
    } = of_run;
    total.moves += moves;
    total.aborted += aborted;
    total.within_responses += within_responses;
    total.with_skip += with_skip;
    total.with_tail += with_tail;
    total.with_rest += with_rest;
    total.frozen += frozen;
    total.undelivered += undelivered;
    total.drained += drained;
    total.passed_on += passed_on;
    total.legs_reused += legs_reused;
    total.begun_again += begun_again;
    total.prepared += prepared;
    total.cut_by_origins += cut_by_origins;
    total.handovers += handovers;
    total.handovers_refused += handovers_refused;
    total.chunked += chunked;
    total.unavailable += unavailable;
    total.anchored += anchored;
    total.attached += attached;
    total.came_back += came_back;
    total.tunnels += tunnels;
    total.handshakes += handshakes;
    total.offered += offered;
    total.resumed += resumed;
    total.rotations += rotations;
    total.seeds_learned += seeds_learned;
    total.records += records;
    total.complete += complete;
    total.cut += cut;
    total.vanished += vanished;
}

#[test]
fn the_invariants_hold() {
    let figures = check_all(0..SEEDS);
    // The runs contain what they are for.
    let Figures { moves, aborted, within_responses, with_skip, with_tail, with_rest, frozen, .. } = figures;
    let Figures { undelivered, drained, passed_on, legs_reused, complete, cut, vanished, .. } = figures;
    let frequent =
        [moves, aborted, within_responses, with_tail, frozen, undelivered, drained, passed_on, legs_reused, complete];
    assert!(frequent.iter().all(|count| *count > SEEDS / 2), "{figures:?}");
    let Figures { prepared, handovers, handovers_refused, cut_by_origins, chunked, .. } = figures;
    let Figures { anchored, attached, came_back, tunnels, handshakes, .. } = figures;
    assert!(handshakes > 2 * SEEDS, "{figures:?}");
    let Figures { offered, resumed, rotations, seeds_learned, .. } = figures;
    assert!([offered, resumed, rotations, seeds_learned].iter().all(|count| *count > SEEDS), "{figures:?}");
    // Some sessions are lost, and their clients fall back to a full handshake.
    assert!(offered - resumed > SEEDS / 25, "{figures:?}");
    let frequent = [prepared, handovers, anchored, attached, came_back, tunnels];
    assert!(frequent.iter().all(|count| *count > SEEDS / 3), "{figures:?}");
    let rare = [with_skip, with_rest, cut, vanished, handovers_refused, cut_by_origins, chunked];
    assert!(rare.iter().all(|count| *count > SEEDS / 20), "{figures:?}");
}

#[test]
fn a_seed_replays_exactly() {
    let mut lines = 0;
    for seed in 0..10 {
        let (first, second) = (run_traced(seed, None), run_traced(seed, None));
        lines += first.trace.lines.as_ref().unwrap().len();
        assert!(first == second, "seed {seed}");
    }
    assert!(lines > 1000, "{lines} lines");
    // Also the random bytes of TLS must not matter.
    for seed in 10..40 {
        assert!(run(seed, None) == run(seed, None), "seed {seed}");
    }
    assert_ne!(run(1, None).trace.digest, run(2, None).trace.digest);
}

#[test]
fn each_broken_variant_is_found() {
    for sabotage in Sabotage::ALL {
        let found = (0..SABOTAGE_SEEDS).map(|seed| run(seed, Some(sabotage))).find(|run| !run.violations.is_empty());
        let Outcome { seed, violations, .. } = found.unwrap_or_else(|| panic!("{sabotage:?} goes unnoticed"));
        println!("{sabotage:?}: seed {seed}: {}", violations[0]);
    }
}

#[test]
#[ignore = "takes as long as SIM_SEEDS says: make sim"]
fn many_seeds() {
    let seeds = env::var("SIM_SEEDS").map_or(2000, |seeds| seeds.parse().unwrap());
    check_all(SEEDS..SEEDS + seeds);
}

#[test]
#[ignore = "prints the run of SIM_SEED"]
fn replay() {
    let seed = env::var("SIM_SEED").expect("SIM_SEED is the seed to replay").parse().unwrap();
    let Outcome { violations, trace, figures, .. } = run_traced(seed, None);
    println!("{}\n{figures:?}\n{violations:#?}", trace.lines.unwrap().join("\n"));
}
