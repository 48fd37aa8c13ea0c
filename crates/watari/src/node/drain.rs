//! The waits for connections before a node ends.

use std::time::Duration;

use tokio::time::{Instant, interval};
use watari_agent::Agent;
use watari_dispatcher::Dispatcher;

use super::cache::NodeCache;
use crate::process::EndSignals;

/// How often the log task looks at the number of remaining connections.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// How often the node looks whether clients are left.
const CLIENTS_LOOK: Duration = Duration::from_millis(10);

/// Has the dispatchers move the agent's connections away, and then hands on the entries of its cache. Returns when that
/// is done, when `grace` is over, or at another signal to end.
pub(super) async fn before_the_end(agent: &Agent, cache: &NodeCache, grace: Duration, end: &mut EndSignals) {
    tracing::info!(connections = agent.occupied(), grace_s = grace.as_secs_f64(), "draining");
    let deadline = Instant::now() + grace;
    let drained = async {
        match agent.drain(grace).await {
            0 => tracing::info!("drained"),
            left => tracing::warn!(left, "not drained in time: the remaining connections end with the node"),
        }
        // Until then, the agent answers the others, and stores what its last clients request.
        cache.hand_on(deadline).await;
    };
    tokio::select! {
        () = drained => {}
        signal = end.next() => {
            let left = agent.occupied();
            tracing::warn!(%signal, left, "not drained: a second signal ends the node at once");
        }
        () = log_progress(agent) => {}
    }
}

/// Waits until no client of `dispatcher` is left.
pub(super) async fn until_clients_have_gone(dispatcher: &Dispatcher) {
    let mut interval = interval(CLIENTS_LOOK);
    while dispatcher.clients() > 0 {
        interval.tick().await;
    }
}

/// Waits until no connection of `agent` is left.
pub(super) async fn until_connections_have_gone(agent: &Agent) {
    let mut interval = interval(CLIENTS_LOOK);
    while agent.occupied() > 0 {
        interval.tick().await;
    }
}

/// Logs the number of remaining connections whenever it has changed. Never ends.
async fn log_progress(agent: &Agent) {
    let mut interval = interval(PROGRESS_INTERVAL);
    let mut logged = agent.occupied();
    loop {
        interval.tick().await;
        let left = agent.occupied();
        if left != logged {
            tracing::info!(left, "draining");
            logged = left;
        }
    }
}
