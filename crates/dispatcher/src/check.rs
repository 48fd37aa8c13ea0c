//! Health checks of agents.
//!
//! A link shows that an agent's process answers other nodes. A check shows that it accepts legs: the dispatcher opens a
//! leg with a preface that marks it as a check. The agent closes the leg when it has read the preface, if it has a free
//! slot for another connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use watari_balance::Change;
use watari_values::{ConnectionId, Epoch, NodeName};
use watari_wire::leg::{Kind, Preface};

use crate::shared::DispatcherShared;

/// Checks all agents periodically until `shutdown`.
pub(crate) async fn run(shared: Arc<DispatcherShared>, shutdown: CancellationToken) {
    let mut last = Instant::now();
    loop {
        let next = last + shared.agents.settings().config.checks.interval;
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {
                last = Instant::now();
                check_all(&shared).await;
            }
            // The reload may have changed the interval.
            () = shared.reloaded.notified() => {}
            () = shutdown.cancelled() => return,
        }
        for agent in shared.agents.forget_retired(Instant::now()) {
            shared.metrics.forget_agent(&agent);
        }
    }
}

/// Checks all agents concurrently. Skips agents without a link: they get no connections anyway, and there is no key for
/// the preface.
async fn check_all(shared: &Arc<DispatcherShared>) {
    let mut checks = JoinSet::new();
    for (agent, _) in shared.agents.settings().agents().filter(|(_, agent)| agent.is_linked()) {
        let (shared, agent) = (shared.clone(), agent.clone());
        checks.spawn(async move {
            let outcome = check(&shared, &agent).await;
            report(&shared, &agent, &outcome);
        });
    }
    checks.join_all().await;
}

/// Why a check failed.
enum Failure {
    Slow,
    /// The peer did not close the leg: it is not an agent that understands checks, or it has no free slot.
    NotEnded,
    Io(io::Error),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow => f.write_str("no answer in time"),
            Self::NotEnded => {
                f.write_str("the agent did not close the leg: it does not understand checks, or has no free slot")
            }
            Self::Io(error) => error.fmt(f),
        }
    }
}

async fn check(shared: &DispatcherShared, agent: &NodeName) -> Result<(), Failure> {
    let limit = shared.agents.settings().config.checks.timeout;
    match timeout(limit, ask(shared, agent)).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) => Err(Failure::NotEnded),
        Ok(Err(error)) => Err(Failure::Io(error)),
        Err(_) => Err(Failure::Slow),
    }
}

/// Sends a check. Returns whether the agent closes the leg and sends nothing else.
async fn ask(shared: &DispatcherShared, agent: &NodeName) -> io::Result<bool> {
    let mut leg = shared.agents.connect(agent).await?;
    let preface = Preface {
        kind: Kind::Check,
        connection: ConnectionId { boot: 0, number: 0 },
        epoch: Epoch(0),
        client: leg.local_addr()?,
        server: leg.peer_addr()?,
    };
    leg.write_all(&shared.agents.sign(agent, &preface)?).await?;
    Ok(leg.read(&mut [0]).await? == 0)
}

fn report(shared: &DispatcherShared, agent: &NodeName, outcome: &Result<(), Failure>) {
    shared.metrics.count_check(agent, outcome.is_ok());
    if let Err(failure) = outcome {
        tracing::debug!(%agent, cause = %failure, "check failed");
    }
    match (shared.agents.checked(agent, outcome.is_ok()), outcome) {
        (Some(Change::Fell), Err(failure)) => {
            tracing::warn!(%agent, cause = %failure, "agent unhealthy: it gets no new connections until a check succeeds");
        }
        (Some(Change::Rose), _) => tracing::info!(%agent, "agent healthy again"),
        _ => {}
    }
    if let Some(known) = shared.agents.settings().agent(agent) {
        shared.metrics.show_health(agent, known.is_healthy());
    }
}
