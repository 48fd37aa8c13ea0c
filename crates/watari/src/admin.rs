//! Administration: questions and orders to a running node, over a unix socket that only the node's user may use.
//!
//! A connection carries one question and one answer, each a line of JSON ([`Question`], [`Answer`]). What is said has a
//! version; a question that the node does not know is answered with an error.

mod as_text;
mod client;
mod origins;
mod server;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use watari_proxy::OriginAddress;
use watari_wire::{ConnectionId, NodeName};

use crate::config::Change;

pub(crate) use client::{AskError, ask};
pub(crate) use origins::{Origin, Pool, Queue, Resource, Transfer};
pub(crate) use server::{BindError, Server};

/// The version of what is said.
pub(crate) const VERSION: u32 = 1;

/// What can be asked, and what can be ordered. Orders are for dispatchers: they alone decide who serves a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Topic {
    /// How the node is: [`Status`].
    Status,
    /// Which nodes it knows: a list of [`Node`].
    Nodes,
    /// Which connections of clients it holds: a list of [`Connection`].
    Connections,
    /// How an agent resumes sessions: [`Sessions`].
    Sessions,
    /// The origins of an agent: a list of [`Pool`].
    Origins,
    /// That an origin be left, or not any more: [`Answer::Done`] when that begins. An order for an agent.
    DrainOrigin {
        #[serde(with = "as_text")]
        origin: OriginAddress,
        draining: bool,
    },
    /// That a transfer go on at another origin: [`Answer::Done`] when that is tried. An order for an agent.
    MoveTransfer {
        transfer: u64,
        #[serde(with = "as_text::option")]
        origin: Option<OriginAddress>,
    },
    /// That a connection go to another agent: [`Answer::Done`] when its owner is asked. The connections show whether it goes.
    Move {
        #[serde(with = "as_text")]
        connection: ConnectionId,
        node: NodeName,
    },
    /// That an agent get no new connections, and lose those it has without any being cut: [`Answer::Done`] when that begins.
    Drain { node: NodeName },
    /// That a drained agent get connections again: [`Answer::Done`].
    Undrain { node: NodeName },
    /// That a node be no member of the cluster any more, at all nodes: [`Answer::Done`] when its link to this node has
    /// ended.
    Evict { node: NodeName },
    /// That it may be one again: [`Answer::Done`].
    Admit { node: NodeName },
    /// That keys of tickets begin anew, at all agents: [`Answer::Done`]. An order for an agent.
    RotateKeys,
    /// The configuration is read again: [`Answer::Reloaded`].
    Reload,
}

/// One line to the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) version: u32,
    pub(crate) topic: Topic,
}

/// One line from the node.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Status(Status),
    Nodes(Vec<Node>),
    Connections(Vec<Connection>),
    Sessions(Sessions),
    Origins(Vec<Pool>),
    Reloaded(Reloaded),
    /// What was ordered is done, or has begun.
    Done,
    /// Why there is no answer, or why an order is not followed: one sentence.
    Error(String),
}

/// What a reload has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// In the configuration file.
    pub(crate) changes: Vec<Change>,
    /// Certificates, keys and authorities that are not what they were when they were read before.
    pub(crate) files: Vec<String>,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) node: String,
    pub(crate) version: String,
    pub(crate) roles: Vec<String>,
    pub(crate) pid: u32,
    pub(crate) uptime_s: u64,
    /// Client connections that it holds now.
    pub(crate) connections: usize,
    /// Peers that it has a link to.
    pub(crate) links_up: usize,
    /// Peers that it is configured with, or has learned of.
    pub(crate) peers: usize,
}

/// A node, as another sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// `None`: it is evicted, and only its name counts.
    pub(crate) mesh: Option<SocketAddr>,
    /// Why it is a member: `configured`, `learned`; or `evicted`. `None`: it is the node that was asked.
    pub(crate) member: Option<String>,
    /// Whether it is the node that was asked.
    pub(crate) this: bool,
    /// Whether there is a link to it; true of the node itself.
    pub(crate) up: bool,
    /// What it does, as far as that is known.
    pub(crate) roles: Vec<String>,
    /// For how long it has been up.
    pub(crate) up_s: Option<u64>,
    /// Whether this node, a dispatcher, gives it connections; `None`: it is not one of its agents.
    pub(crate) available: Option<bool>,
    /// Whether it answers this dispatcher's checks; `None`: it is not one of its agents.
    pub(crate) healthy: Option<bool>,
    /// Connections of this dispatcher that it serves now.
    pub(crate) connections: Option<usize>,
    /// Whether this dispatcher drains it, by order or because it is about to end; `None`: it is not one of its agents.
    pub(crate) draining: Option<bool>,
    /// Why its last link ended, or could not be made.
    pub(crate) last_error: Option<String>,
}

/// How an agent resumes sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sessions {
    /// As in the configuration.
    pub(crate) mode: String,
    pub(crate) lifetime_s: u64,
    pub(crate) rotation_s: u64,
    /// From how many seeds the keys of tickets follow that are still good.
    pub(crate) seeds: usize,
    pub(crate) newest_seed_age_s: Option<u64>,
    /// How many sessions it keeps in memory, and how many bytes they take.
    pub(crate) kept: usize,
    pub(crate) kept_bytes: usize,
    /// What it keeps in a file, if anything.
    pub(crate) stored: Option<Stored>,
    /// The Redis server that keeps them instead, if one does.
    pub(crate) redis: Option<RedisServer>,
    /// Since the node began.
    pub(crate) handshakes: Vec<Handshakes>,
}

/// Sessions in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// How many, and how many bytes they take.
    pub(crate) sessions: u64,
    pub(crate) bytes: u64,
    /// Since the node began: sessions that were not written, because the disk was too slow, or did not take them.
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    /// Sessions that had to leave before their time.
    pub(crate) evicted: u64,
}

/// A Redis server that keeps sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RedisServer {
    /// Whether it can be asked at the moment.
    pub(crate) connected: bool,
    /// Since the node began: requests that it was not asked, because it was away; that it did not answer, or not in time; that it refused, or
    /// answered with something else.
    pub(crate) away: u64,
    pub(crate) unanswered: u64,
    pub(crate) refused: u64,
}

/// Handshakes of one version of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    /// As in `TLS 1.3`.
    pub(crate) version: String,
    pub(crate) full: u64,
    /// Handshakes that resumed a session, by where it was established: `here`, `elsewhere`, or `pulled` from there while it waited.
    pub(crate) resumed: BTreeMap<String, u64>,
    /// Those of `full` whose client offered a session, by why that was not resumed.
    pub(crate) missed: BTreeMap<String, u64>,
}

/// A client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) id: String,
    pub(crate) client: SocketAddr,
    /// As in `TLS 1.3`; this and the following are `None` before the handshake is done.
    pub(crate) version: Option<String>,
    /// As IANA names it.
    pub(crate) suite: Option<String>,
    /// `None` also where the client offered none.
    pub(crate) alpn: Option<String>,
    /// The agent that did the handshake.
    pub(crate) handshake_node: String,
    /// The agent that serves it now.
    pub(crate) node: String,
    pub(crate) moves: u32,
    /// Whether the handshake resumed an earlier session.
    pub(crate) resumed: Option<bool>,
    /// Why it is still where it is, though it shall leave.
    pub(crate) stays: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn questions_and_orders_are_written_as_they_always_were() {
        let node = NodeName::new("a1").unwrap();
        let connection = ConnectionId { boot: 255, number: 7 };
        let origin: OriginAddress = "http://o1".parse().unwrap();
        let cases = [
            (Topic::Status, json!("status")),
            (Topic::Nodes, json!("nodes")),
            (Topic::Connections, json!("connections")),
            (Topic::Sessions, json!("sessions")),
            (
                Topic::Move { connection, node: node.clone() },
                json!({"move": {"connection": "00000000000000ff-7", "node": "a1"}}),
            ),
            (Topic::Origins, json!("origins")),
            (
                Topic::DrainOrigin { origin: origin.clone(), draining: true },
                json!({"drain_origin": {"origin": "http://o1", "draining": true}}),
            ),
            (
                Topic::MoveTransfer { transfer: 7, origin: Some(origin) },
                json!({"move_transfer": {"transfer": 7, "origin": "http://o1"}}),
            ),
            (
                Topic::MoveTransfer { transfer: 7, origin: None },
                json!({"move_transfer": {"transfer": 7, "origin": null}}),
            ),
            (Topic::Drain { node: node.clone() }, json!({"drain": {"node": "a1"}})),
            (Topic::Undrain { node: node.clone() }, json!({"undrain": {"node": "a1"}})),
            (Topic::Evict { node: node.clone() }, json!({"evict": {"node": "a1"}})),
            (Topic::Admit { node }, json!({"admit": {"node": "a1"}})),
            (Topic::RotateKeys, json!("rotate_keys")),
            (Topic::Reload, json!("reload")),
        ];
        for (topic, written) in cases {
            let question = Question { version: VERSION, topic: topic.clone() };
            let line = json!({"version": 1, "topic": written});
            assert_eq!(serde_json::to_value(&question).unwrap(), line);
            assert_eq!(serde_json::from_value::<Question>(line).unwrap().topic, topic);
        }
        assert_eq!(serde_json::to_value(Answer::Done).unwrap(), json!("done"));
    }
}
