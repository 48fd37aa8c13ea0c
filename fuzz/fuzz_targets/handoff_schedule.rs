//! A small cluster under any schedule: longer streams, more moves and more faults of every kind at once than the model
//! can explore exhaustively. It is the model's own cluster; only the choice of the next step is the input's.
#![no_main]
#![allow(dead_code, reason = "the model has more than is needed here")]

#[path = "../../crates/handoff/tests/model/agent.rs"]
mod agent;
#[path = "../../crates/handoff/tests/model/cluster.rs"]
mod cluster;
#[path = "../../crates/handoff/tests/model/dispatcher.rs"]
mod dispatcher;
#[path = "../../crates/handoff/tests/model/driver.rs"]
mod driver;
#[path = "../../crates/handoff/tests/model/scenario.rs"]
mod scenario;
#[path = "../../crates/handoff/tests/model/steps.rs"]
mod steps;

use libfuzzer_sys::fuzz_target;

use crate::cluster::{Cluster, End};
use crate::driver::Driver;
use crate::scenario::{Budget, Scenario};

fuzz_target!(|input: &[u8]| {
    let Some((head, schedule)) = input.split_first_chunk::<5>() else { return };
    let [agents, rx_len, tx_len, flags, proposals] = *head;
    let Some((faults, schedule)) = schedule.split_first_chunk::<6>() else { return };
    let [losses, repeats, retries, restarts, client_resets, leg_failures] = faults.map(|count| count % 5);
    let scenario = Scenario {
        agents: 2 + usize::from(agents % 2),
        rx_len: u64::from(rx_len % 6),
        tx_len: u64::from(tx_len % 6),
        client_fin: flags & 1 != 0,
        impatient: flags & 2 != 0,
        drops_dead_letters: flags & 4 != 0,
        budget: Budget { proposals: proposals % 8, losses, repeats, retries, restarts, client_resets, leg_failures },
        sabotage: None,
    };
    let mut cluster = Cluster::new(&scenario);
    let mut steps = Vec::new();
    for choice in schedule {
        steps.clear();
        cluster.steps(&scenario, &mut steps);
        let Some(step) = steps.get(usize::from(*choice) % steps.len().max(1)) else { return };
        let mut driver = Driver { scenario: &scenario, cluster };
        driver.take(*step);
        cluster = driver.cluster;
        check(&scenario, &cluster);
    }
});

fn check(scenario: &Scenario, cluster: &Cluster) {
    assert!(cluster.observer.wrongs.is_empty(), "{:?}", cluster.observer.wrongs);
    assert!(cluster.agents.iter().filter(|agent| agent.may_seal()).count() <= 1, "two sealers");
    assert!(!scenario.is_harmless() || cluster.client.end != Some(End::Reset), "what can harm nobody has");
}
