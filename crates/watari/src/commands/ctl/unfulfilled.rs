//! Orders without effect.

use watari_values::{ConnectionId, NodeName};

/// An order was given, and has not had its effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unfulfilled {
    #[error("the connection {0} has ended, or belongs to another dispatcher")]
    Gone(ConnectionId),
    #[error("the connection {connection} is still on {node} after {seconds} s{}", in_brackets(.stays.as_deref()))]
    Stayed { connection: ConnectionId, node: String, seconds: u64, stays: Option<String> },
    #[error("{remaining} of the connections on {node} remain after {seconds} s; it stays drained, and they continue")]
    Remaining { node: NodeName, remaining: usize, seconds: f64 },
    #[error("{address} is not switched after {seconds} s: {}", who_has_it(.owner.as_deref()))]
    NotSwitched { address: String, owner: Option<String>, seconds: u64 },
}

fn who_has_it(owner: Option<&str>) -> String {
    owner.map_or_else(|| "no node has it".to_owned(), |owner| format!("{owner} has it"))
}

fn in_brackets(stays: Option<&str>) -> String {
    stays.map(|reason| format!(" ({reason})")).unwrap_or_default()
}
