//! An agent's connections go elsewhere before it ends.

use std::time::Duration;

use tokio::time::interval;
use watari_agent::Agent;

use crate::process::EndSignals;

/// How often it is looked at how many connections are left.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Has the dispatchers take the agent's connections away, until none is left, `grace` is over, or the process is asked to
/// end again.
pub(super) async fn before_the_end(agent: &Agent, grace: Duration, end: &mut EndSignals) {
    tracing::info!(connections = agent.occupied(), grace_s = grace.as_secs_f64(), "draining");
    tokio::select! {
        left = agent.drain(grace) => match left {
            0 => tracing::info!("drained"),
            left => tracing::warn!(left, "not drained in time: the connections left end with the node"),
        },
        signal = end.next() => {
            let left = agent.occupied();
            tracing::warn!(%signal, left, "not drained: asked to end at once");
        }
        () = log_progress(agent) => {}
    }
}

/// Logs how many connections are left whenever that has changed. Never ends by itself.
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
