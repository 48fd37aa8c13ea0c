//! When a node can serve clients.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use watari_dispatcher::Dispatcher;

/// How long a dispatcher waits for its first agent. Then it reports that it is ready, because agents may come later and
/// a service manager would otherwise count the start as failed.
const AGENT_MAX: Duration = Duration::from_secs(5);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits until `dispatcher` can serve clients, at most for [`AGENT_MAX`].
pub(super) async fn agent_available(dispatcher: &Dispatcher) {
    if !seen(|| dispatcher.agents().iter().any(|agent| agent.available)).await {
        let waited_s = AGENT_MAX.as_secs();
        tracing::warn!(waited_s, "no agent is available yet: clients are refused until one is");
    }
}

/// Whether the condition holds before [`AGENT_MAX`] is over.
async fn seen(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + AGENT_MAX;
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        sleep(LOOK_INTERVAL).await;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_agent_is_waited_for_and_not_for_ever() {
        let start = Instant::now();
        let after = |delay: Duration| move || start.elapsed() >= delay;
        assert!(seen(after(Duration::ZERO)).await);
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert!(seen(after(Duration::from_secs(4))).await);
        assert!(start.elapsed() < AGENT_MAX);
        let again = Instant::now();
        assert!(!seen(|| false).await);
        assert!(again.elapsed() >= AGENT_MAX && again.elapsed() < AGENT_MAX * 2);
    }
}
