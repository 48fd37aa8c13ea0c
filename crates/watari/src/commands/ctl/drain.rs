//! `watari ctl drain`: the drain of an agent.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;
use tokio::time::{Instant, sleep};
use watari_values::NodeName;

use super::remote::{POLL, Remote};
use super::show::connection_table;
use super::unfulfilled::Unfulfilled;
use crate::admin::{Connection, Topic};
use crate::commands::print::{print, print_json};
use crate::failure::Failure;

/// The last output of `--json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Report {
    node: NodeName,
    /// Connections of the agent that were present when the drain began, and are not any more.
    moved_or_ended: usize,
    /// Connections that are still present.
    remaining: Vec<Connection>,
}

/// Orders the drain of `agent`, and waits until it has no connection or `grace` is over.
pub(super) async fn run(node: &Remote<'_>, agent: NodeName, grace: Duration) -> Result<(), Failure> {
    let before = of(node.connections().await?, &agent);
    node.give(Topic::Drain { node: agent.clone() }).await?;
    wait(node, &agent, Instant::now() + grace).await?;
    let report = Report::new(agent, &before, node.connections().await?);
    if node.json {
        print_json(&report)?;
    } else if !report.remaining.is_empty() {
        print(connection_table(&report.remaining))?;
    }
    report.verdict(grace)
}

/// Waits until the agent has no connection, or until `deadline`. Prints their number whenever it has changed. Asks for
/// counts only, because an agent may have many thousands of connections.
async fn wait(node: &Remote<'_>, agent: &NodeName, deadline: Instant) -> Result<(), Failure> {
    let mut shown = None;
    loop {
        let late = Instant::now() >= deadline;
        let remaining = node.connections_on(agent).await?;
        if !node.json && shown.replace(remaining) != Some(remaining) {
            print(format_args!("{agent}: {remaining} remaining\n"))?;
        }
        if remaining == 0 || late {
            return Ok(());
        }
        sleep(POLL.min(deadline.saturating_duration_since(Instant::now()))).await;
    }
}

/// The connections that `agent` serves.
fn of(mut connections: Vec<Connection>, agent: &NodeName) -> Vec<Connection> {
    connections.retain(|connection| connection.node == agent.as_str());
    connections
}

impl Report {
    /// `before` has the connections of `agent` at the beginning, `now` all connections at the end.
    fn new(agent: NodeName, before: &[Connection], now: Vec<Connection>) -> Self {
        let remaining = of(now, &agent);
        let still: HashSet<_> = remaining.iter().map(|connection| &connection.id).collect();
        let moved_or_ended = before.iter().filter(|connection| !still.contains(&connection.id)).count();
        Self { node: agent, moved_or_ended, remaining }
    }

    fn verdict(self, grace: Duration) -> Result<(), Failure> {
        if self.remaining.is_empty() {
            return Ok(());
        }
        let (remaining, seconds) = (self.remaining.len(), grace.as_secs_f64());
        Err(Unfulfilled::Remaining { node: self.node, remaining, seconds }.into())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn connection(id: &str, node: &str) -> Connection {
        Connection {
            id: id.into(),
            client: "192.0.2.1:1".parse().unwrap(),
            version: None,
            suite: None,
            alpn: None,
            handshake_node: "a1".into(),
            node: node.into(),
            moves: 0,
            resumed: None,
            stays: None,
        }
    }

    #[test]
    fn connections_that_left_and_that_remain_are_counted() {
        let agent = NodeName::new("a1").unwrap();
        let before = ["moved", "ended", "stayed"].map(|id| connection(id, "a1"));
        let now = vec![
            connection("moved", "a2"),
            connection("stayed", "a1"),
            connection("late", "a1"),
            connection("other", "a2"),
        ];
        let report = Report::new(agent, &before, now);
        assert_eq!(report.moved_or_ended, 2);
        assert_eq!(report.remaining, [connection("stayed", "a1"), connection("late", "a1")]);
        let failure = report.verdict(Duration::from_millis(1500)).unwrap_err();
        let expected = "2 of the connections on a1 remain after 1.5 s; it stays drained, and they continue";
        assert_eq!(failure.to_string(), expected);
    }

    #[test]
    fn an_empty_agent_is_drained() {
        let agent = NodeName::new("a1").unwrap();
        let report = Report::new(agent, &[connection("moved", "a1")], vec![connection("moved", "a2")]);
        assert_eq!(report.moved_or_ended, 1);
        assert!(report.verdict(Duration::from_secs(1)).is_ok());
    }
}
