//! Moves connections by themselves, from agents with more than their share of the load to agents with less.
//!
//! [`watari_balance::Rebalancer`] plans. This file measures loads once a second, and asks connections to leave, as a
//! drain does. A connection that cannot move says so and stays.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use watari_balance::{LoadKind, Rebalancer, Transfer};
use watari_values::NodeName;
use watari_wire::{DispatcherToAgent, Leave};

use crate::config::Rebalance;
use crate::shared::DispatcherShared;

/// The interval between two measurements.
const PERIOD: Duration = Duration::from_secs(1);

/// Moves connections as the configuration permits, until `shutdown`.
pub(crate) async fn run(shared: Arc<DispatcherShared>, shutdown: CancellationToken) {
    let begun = Instant::now();
    let (mut rebalancer, mut kind) = (Rebalancer::default(), None);
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shutdown.cancelled() => return,
        }
        let wanted = kind_of(shared.agents.settings().config.policies.rebalance);
        if wanted != kind {
            (rebalancer, kind) = (Rebalancer::default(), wanted);
        }
        if let Some(kind) = kind {
            step(&shared, &mut rebalancer, kind, begun.elapsed());
        }
    }
}

fn kind_of(rebalance: Rebalance) -> Option<LoadKind> {
    match rebalance {
        Rebalance::Off => None,
        Rebalance::Connections => Some(LoadKind::Connections),
        Rebalance::Load => Some(LoadKind::Bytes),
    }
}

fn step(shared: &DispatcherShared, rebalancer: &mut Rebalancer<NodeName>, kind: LoadKind, now: Duration) {
    shared.metrics.rebalance_rounds.inc();
    let loads = shared.agents.loads(kind, &shared.table.loads());
    for Transfer { from, to, connections, load } in rebalancer.plan(now, kind, &loads) {
        #[expect(clippy::cast_sign_loss, reason = "no load is below 0")]
        let of_bytes = (kind == LoadKind::Bytes).then_some(load as u64);
        let movers = shared.table.movers(&from, connections, of_bytes, Instant::now());
        tracing::debug!(%from, %to, planned = connections, asked = movers.len(), "connections asked to move");
        shared.metrics.rebalanced.inc_by(movers.len() as u64);
        rebalancer.take_back(connections.saturating_sub(movers.len()));
        for connection in movers {
            let leave = Leave { connection, target: Some(to.clone()), or_end: false };
            shared.send(&from, DispatcherToAgent::Leave(leave));
        }
    }
}
