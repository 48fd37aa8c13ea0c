//! What happens in a simulated run.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Microseconds of real time.
pub(crate) type Us = u64;

pub(crate) const MS: Us = 1000;

/// The faults end here, and the cluster has to recover.
pub(crate) const FAULTS_END: Us = 12_000 * MS;
/// Enough for a stall, a lease, and the waits after failures (5 s).
pub(crate) const END: Us = FAULTS_END + 12_000 * MS;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) dispatchers: usize,
    pub(crate) agents: usize,
    pub(crate) lease_ms: u64,
    pub(crate) preempt: bool,
    /// Of each node: the rate of its clock, in millionths.
    pub(crate) rates: Vec<u64>,
    /// Of 1,000 messages.
    pub(crate) lost: u32,
    pub(crate) repeated: u32,
    pub(crate) late: u32,
    /// In order of time.
    pub(crate) faults: Vec<(Us, Fault)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process ends, and another starts after this time.
    Kill {
        node: usize,
        for_us: Us,
    },
    /// The process stands still.
    Stall {
        node: usize,
        for_us: Us,
    },
    /// No message goes from the first node to the second.
    Cut {
        from: usize,
        to: usize,
        for_us: Us,
    },
    /// No message goes between the node and any other.
    Isolate {
        node: usize,
        for_us: Us,
    },
    Switch {
        at: usize,
        to: Option<usize>,
    },
    /// The node cannot serve clients.
    NotReady {
        node: usize,
        for_us: Us,
    },
}

impl Plan {
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let random = &mut random;
        let dispatchers = random.random_range(2..=3);
        let agents = if dispatchers == 2 { *pick(random, &[1, 3]) } else { *pick(random, &[0, 2]) };
        let nodes = dispatchers + agents;
        let is_calm = random.random_bool(0.3);
        let share = |random: &mut StdRng, max| if is_calm { 0 } else { random.random_range(0..max) };
        let mut plan = Self {
            seed,
            dispatchers,
            agents,
            lease_ms: *pick(random, &[300, 600, 1000]),
            preempt: random.random_bool(0.7),
            rates: (0..nodes).map(|_| random.random_range(980_000..=1_020_000)).collect(),
            lost: share(random, 100),
            repeated: share(random, 100),
            late: share(random, 100),
            faults: Vec::new(),
        };
        for _ in 0..random.random_range(2..12) {
            let at = random.random_range(500 * MS..FAULTS_END - 3000 * MS);
            let for_us = random.random_range(10 * MS..2500 * MS);
            let node = random.random_range(0..nodes);
            let dispatcher = random.random_range(0..dispatchers);
            let other = (node + random.random_range(1..nodes)) % nodes;
            let fault = match random.random_range(0..12) {
                0..2 => Fault::Kill { node: dispatcher, for_us },
                2 => Fault::Kill { node, for_us },
                3..5 => Fault::Stall { node: dispatcher, for_us },
                5 => Fault::Stall { node, for_us },
                6 => Fault::Cut { from: node, to: other, for_us },
                7..9 => Fault::Isolate { node, for_us },
                9..11 => {
                    let to = random.random_bool(0.5).then(|| random.random_range(0..dispatchers));
                    Fault::Switch { at: dispatcher, to }
                }
                _ => Fault::NotReady { node: dispatcher, for_us },
            };
            plan.faults.push((at, fault));
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }
}

fn pick<'a, T>(random: &mut StdRng, of: &'a [T]) -> &'a T {
    &of[random.random_range(0..of.len())]
}
