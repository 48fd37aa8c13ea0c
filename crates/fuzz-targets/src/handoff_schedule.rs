//! A small cluster under an arbitrary schedule, with longer streams, more moves and more simultaneous faults than the
//! model can explore exhaustively. The cluster is the model's; only the choice of the next step comes from the input.
#![allow(dead_code, unreachable_pub, reason = "the modules of the model have items that this target does not use")]

#[path = "../../handoff/tests/model/agent.rs"]
mod agent;
#[path = "../../handoff/tests/model/cluster.rs"]
mod cluster;
#[path = "../../handoff/tests/model/dispatcher.rs"]
mod dispatcher;
#[path = "../../handoff/tests/model/driver.rs"]
mod driver;
#[path = "../../handoff/tests/model/scenario.rs"]
mod scenario;
#[path = "../../handoff/tests/model/steps.rs"]
mod steps;

use self::cluster::{Cluster, End};
use self::driver::Driver;
use self::scenario::{Budget, Scenario};

pub(crate) fn run(input: &[u8]) {
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
}

fn check(scenario: &Scenario, cluster: &Cluster) {
    assert!(cluster.observer.wrongs.is_empty(), "{:?}", cluster.observer.wrongs);
    assert!(cluster.agents.iter().filter(|agent| agent.may_seal()).count() <= 1, "two sealers");
    assert!(!scenario.is_harmless() || cluster.client.end != Some(End::Reset), "a harmless scenario reset the client");
}
