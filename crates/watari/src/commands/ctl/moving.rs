//! `watari ctl move`: moves a connection to another agent.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use watari_values::{ConnectionId, NodeName};

use super::remote::{POLL, Remote};
use super::unfulfilled::Unfulfilled;
use crate::admin::{Connection, Topic};
use crate::commands::print::{print, print_json};
use crate::failure::Failure;

/// Longer than a move takes, including retries. A connection that stays longer waits for the end of a request.
const MOVE_MAX: Duration = Duration::from_secs(5);

/// Orders the move of `id` to `target`, and waits until it is done.
pub(super) async fn run(node: &Remote<'_>, id: ConnectionId, target: &NodeName) -> Result<(), Failure> {
    node.give(Topic::Move { connection: id, node: target.clone() }).await?;
    let deadline = Instant::now() + MOVE_MAX;
    loop {
        let late = Instant::now() >= deadline;
        let Some(connection) = find(node.connections().await?, id) else {
            return Err(Unfulfilled::Gone(id).into());
        };
        if connection.node == target.as_str() {
            return report(node, &connection);
        }
        if late {
            return Err(stayed(id, connection).into());
        }
        sleep(POLL).await;
    }
}

fn find(connections: Vec<Connection>, id: ConnectionId) -> Option<Connection> {
    let id = id.to_string();
    connections.into_iter().find(|connection| connection.id == id)
}

fn report(node: &Remote<'_>, connection: &Connection) -> Result<(), Failure> {
    if node.json {
        return print_json(connection);
    }
    print(format_args!("{} is on {}\n", connection.id, connection.node))
}

fn stayed(id: ConnectionId, still: Connection) -> Unfulfilled {
    Unfulfilled::Stayed { connection: id, node: still.node, seconds: MOVE_MAX.as_secs(), stays: still.stays }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_reason_to_stay_is_named() {
        let id = ConnectionId { boot: 255, number: 7 };
        let mut connection: Connection = serde_json::from_value(serde_json::json!({
            "id": id.to_string(), "client": "192.0.2.1:1", "version": null, "suite": null, "alpn": null,
            "handshake_node": "a1", "node": "a1", "moves": 0, "resumed": null, "stays": "in_request",
        }))
        .unwrap();
        let said = stayed(id, connection.clone()).to_string();
        assert_eq!(said, "the connection 00000000000000ff-7 is still on a1 after 5 s (in_request)");
        connection.stays = None;
        let said = stayed(id, connection).to_string();
        assert_eq!(said, "the connection 00000000000000ff-7 is still on a1 after 5 s");
    }
}
