//! Candidates and voters of a cluster under a seeded scheduler with virtual time.
//!
//! * Messages are lost, late, repeated and reordered. Links are cut in one direction or in both.
//! * Processes are killed, start again, and stand still for any time. The gate of an address goes on without them.
//! * Clocks start anywhere and differ in rate by up to 2 %.
//! * Operators order switches, interfaces fail, addresses are in use elsewhere.
//!
//! At every moment at most one node answers at the address. When the faults have ended, one does. `sabotage` breaks one
//! rule at a time, and the simulation has to find that.
#![allow(clippy::unwrap_used)]

mod plan;
mod sabotage;
mod world;

use plan::Plan;
use sabotage::Sabotage;
use world::{Broken, World};

/// Runs the plan of `seed`. An error says which property does not hold.
fn run(seed: u64, sabotage: Option<Sabotage>) -> Result<World, Broken> {
    let plan = Plan::of(seed);
    let mut world = World::new(&plan, sabotage);
    world.run(&plan)?;
    Ok(world)
}

fn seeds(default: u64) -> u64 {
    std::env::var("TAKEOVER_SEEDS").map_or(default, |seeds| seeds.parse().unwrap())
}

/// `TAKEOVER_SEEDS` is the number of seeds.
#[test]
fn one_node_at_most_has_the_address() {
    let (mut activations, mut switches) = (0, 0);
    for seed in 0..seeds(300) {
        let world = run(seed, None).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        activations += world.activations;
        switches += world.switches;
    }
    println!("{activations} activations, {switches} switches by order");
    assert!(activations > 100 && switches > 10, "the plans disturb too much, or too little");
}

/// Each sabotage is found with few seeds.
#[test]
fn a_broken_rule_is_found() {
    for sabotage in Sabotage::ALL {
        let is_found = |seed: &u64| matches!(run(*seed, Some(sabotage)), Err(Broken::TwoOwners(_)));
        let seed = (0..2000).find(is_found).unwrap_or_else(|| panic!("{sabotage:?} goes unnoticed"));
        println!("{sabotage:?}: seed {seed}");
    }
}

#[test]
fn a_seed_replays() {
    for seed in 0..20 {
        let [first, second] = [run(seed, None).unwrap(), run(seed, None).unwrap()];
        assert_eq!(first.log, second.log, "seed {seed}");
    }
}
