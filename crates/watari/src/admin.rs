//! Administration: questions and orders to a running node over a Unix socket that only the node's user may use.
//!
//! A connection carries one question and one answer, each a line of JSON ([`Question`], [`Answer`]). Messages carry a
//! version. A node answers an unknown question with an error.

mod addresses;
mod as_text;
mod cache;
mod client;
mod origins;
mod server;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use watari_proxy::OriginAddress;
use watari_values::{ConnectionId, NodeName};

use crate::config::Change;

pub(crate) use addresses::AddressEntry;
pub(crate) use cache::{Cache, Purged};
pub(crate) use client::{AskError, ask};
pub(crate) use origins::{Origin, Pool, Queue, Resource, Transfer};
pub(crate) use server::{BindError, Handle, Server, missing_directory, require_directory};

/// The version of the messages.
pub(crate) const VERSION: u32 = 1;

/// The subject of a question or order.
///
/// An order for a dispatcher fails on a node without that role, and an order for an agent likewise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Topic {
    /// The state of the node. Answer: [`Status`].
    Status,
    /// The nodes in the node's view. Answer: a list of [`Node`].
    Nodes,
    /// The client connections that the node holds. Answer: a list of [`Connection`].
    Connections,
    /// The sessions of an agent. Answer: [`Sessions`].
    Sessions,
    /// The origins of an agent. Answer: a list of [`Pool`].
    Origins,
    /// An agent drains an origin, or ends its drain. Answer: [`Answer::Done`] when the agent has begun.
    DrainOrigin {
        #[serde(with = "as_text")]
        origin: OriginAddress,
        draining: bool,
    },
    /// An agent continues a transfer from another origin. Answer: [`Answer::Done`] when the agent tries it.
    MoveTransfer {
        transfer: u64,
        #[serde(with = "as_text::option")]
        origin: Option<OriginAddress>,
    },
    /// The response cache of an agent. Answer: [`Cache`].
    Cache,
    /// All agents purge stored responses. An order for an agent. Answer: [`Answer::Done`].
    Purge { purge: Purged },
    /// A dispatcher moves a connection to another agent. Answer: [`Answer::Done`] when the dispatcher has asked the
    /// owner. [`Topic::Connections`] shows whether the connection moves.
    Move {
        #[serde(with = "as_text")]
        connection: ConnectionId,
        node: NodeName,
    },
    /// A dispatcher gives an agent no new connections, and moves the existing ones away without cutting any. Answer:
    /// [`Answer::Done`] when the drain has begun.
    Drain { node: NodeName },
    /// A dispatcher gives a drained agent connections again. Answer: [`Answer::Done`].
    Undrain { node: NodeName },
    /// All members end their links to a node. Answer: [`Answer::Done`] when this node's link to it has ended.
    Evict { node: NodeName },
    /// An evicted node may be a member again. Answer: [`Answer::Done`].
    Admit { node: NodeName },
    /// All agents derive ticket keys from a new seed. An order for an agent. Answer: [`Answer::Done`].
    RotateKeys,
    /// A new process takes over from the node's. Answer: [`Answer::Done`] when it has all connections.
    Upgrade {
        /// The program to run. `None`: the one that the node runs.
        program: Option<PathBuf>,
    },
    /// The service addresses for which the node is a candidate. Answer: a list of [`AddressEntry`].
    Addresses,
    /// A service address, or all, go to another node. Answer: [`Answer::Done`] when the owner was asked.
    /// [`Topic::Addresses`] shows whether they go.
    Switch {
        address: Option<IpAddr>,
        /// `None`: from the owner, to the best other candidate; from another node, to that node.
        node: Option<NodeName>,
    },
    /// The node reads its configuration again. Answer: [`Answer::Reloaded`].
    Reload,
}

/// A line to the node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    pub(crate) version: u32,
    pub(crate) topic: Topic,
}

/// A line from the node.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Status(Status),
    Nodes(Vec<Node>),
    Connections(Vec<Connection>),
    Sessions(Sessions),
    Origins(Vec<Pool>),
    Cache(Cache),
    Addresses(Vec<AddressEntry>),
    Reloaded(Reloaded),
    Upgraded(Upgraded),
    /// The node has followed the order, or has begun to.
    Done,
    /// The reason for a missing answer or a refused order, as one sentence.
    Error(String),
}

/// The connections in an upgrade.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upgraded {
    /// Those that the new process has.
    pub(crate) passed: usize,
    /// Those that the previous process still has. Some pass later.
    pub(crate) left: usize,
}

/// The changes that a reload made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reloaded {
    /// Changed keys of the configuration file.
    pub(crate) changes: Vec<Change>,
    /// Files of certificates, keys and authorities that differ from those loaded before.
    pub(crate) files: Vec<String>,
}

/// The state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(crate) node: String,
    pub(crate) version: String,
    pub(crate) roles: Vec<String>,
    pub(crate) pid: u32,
    pub(crate) uptime_s: u64,
    /// Client connections that the node holds now.
    pub(crate) connections: usize,
    /// Peers with a link to this node.
    pub(crate) links_up: usize,
    /// Peers from the configuration, and those that members introduced.
    pub(crate) peers: usize,
    /// The service addresses for which the node is a candidate.
    #[serde(default)]
    pub(crate) addresses: Vec<AddressEntry>,
}

/// A node in the view of the node that answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    /// `None`: the node is evicted. An eviction holds only a name.
    pub(crate) mesh: Option<SocketAddr>,
    /// `configured`, `learned` or `evicted`. `None`: the entry is the answering node itself.
    pub(crate) member: Option<String>,
    /// Whether the entry is the answering node itself.
    pub(crate) this: bool,
    /// Whether the answering node has a link to it. True for the node itself.
    pub(crate) up: bool,
    /// Its known roles.
    pub(crate) roles: Vec<String>,
    /// Its uptime, in seconds, for the answering node itself; else the age of the link.
    pub(crate) up_s: Option<u64>,
    /// Whether the answering dispatcher gives it connections. `None`: it is not one of its agents.
    pub(crate) available: Option<bool>,
    /// Whether it passes the answering dispatcher's checks. `None`: it is not one of its agents.
    pub(crate) healthy: Option<bool>,
    /// Connections of the answering dispatcher that it serves now.
    pub(crate) connections: Option<usize>,
    /// Whether the answering dispatcher drains it, by order or because the agent is about to end. `None`: it is not one
    /// of its agents.
    pub(crate) draining: Option<bool>,
    /// The error that ended the last link or prevented it.
    pub(crate) last_error: Option<String>,
}

/// Sessions of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sessions {
    /// The mode of the configuration.
    pub(crate) mode: String,
    pub(crate) lifetime_s: u64,
    pub(crate) rotation_s: u64,
    /// Seeds whose ticket keys are still valid.
    pub(crate) seeds: usize,
    pub(crate) newest_seed_age_s: Option<u64>,
    /// Sessions in memory, and their size in bytes.
    pub(crate) kept: usize,
    pub(crate) kept_bytes: usize,
    /// Sessions in a file. `None`: the agent has no file for them.
    pub(crate) stored: Option<Stored>,
    /// The Redis server that stores the sessions instead. `None`: the agent uses none.
    pub(crate) redis: Option<RedisServer>,
    /// Counted since the node began.
    pub(crate) handshakes: Vec<Handshakes>,
}

/// Sessions in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stored {
    /// Stored sessions, and their size in bytes.
    pub(crate) sessions: u64,
    pub(crate) bytes: u64,
    /// Sessions that were not written since the node began: `dropped`, because the disk was too slow; `failed`, because
    /// of write errors.
    pub(crate) dropped: u64,
    pub(crate) failed: u64,
    /// Sessions that were removed before their lifetime was over.
    pub(crate) evicted: u64,
}

/// A Redis server that stores sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RedisServer {
    /// Whether the agent has a connection to the server now.
    pub(crate) connected: bool,
    /// Requests since the node began that had no usable result. `away`: not sent, because the server was not connected.
    /// `unanswered`: no response, or a late one. `refused`: an error, or an unexpected response.
    pub(crate) away: u64,
    pub(crate) unanswered: u64,
    pub(crate) refused: u64,
}

/// Handshakes of one TLS version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshakes {
    /// Such as `TLS 1.3`.
    pub(crate) version: String,
    pub(crate) full: u64,
    /// Handshakes that resumed a session, by where it was established: `here`, `elsewhere`, or `pulled` from there
    /// while the handshake waited.
    pub(crate) resumed: BTreeMap<String, u64>,
    /// Handshakes of `full` whose client offered a session, by the reason why the agent did not resume it.
    pub(crate) missed: BTreeMap<String, u64>,
}

/// A client's connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Connection {
    pub(crate) id: String,
    pub(crate) client: SocketAddr,
    /// Such as `TLS 1.3`. This field and the following ones are `None` before the handshake is complete.
    pub(crate) version: Option<String>,
    /// The name in the IANA registry.
    pub(crate) suite: Option<String>,
    /// Also `None` if the client offered none.
    pub(crate) alpn: Option<String>,
    /// The agent that did the handshake.
    pub(crate) handshake_node: String,
    /// The agent that serves it now.
    pub(crate) node: String,
    pub(crate) moves: u32,
    /// Whether the handshake resumed an earlier session.
    pub(crate) resumed: Option<bool>,
    /// The reason why the connection has not moved yet, although it is to move.
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
            (Topic::Admit { node: node.clone() }, json!({"admit": {"node": "a1"}})),
            (Topic::RotateKeys, json!("rotate_keys")),
            (Topic::Addresses, json!("addresses")),
            (
                Topic::Switch { address: Some([192, 0, 2, 1].into()), node: Some(node.clone()) },
                json!({"switch": {"address": "192.0.2.1", "node": "a1"}}),
            ),
            (Topic::Switch { address: None, node: None }, json!({"switch": {"address": null, "node": null}})),
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
