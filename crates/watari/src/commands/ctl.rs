//! `watari ctl`: questions to a running node.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{print, print_json};
use crate::admin::{Answer, Connection, Node, Status, Topic, ask};
use crate::config::DEFAULT_ADMIN;
use crate::failure::Failure;
use crate::table::Table;

/// Ask a running node
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Ctl {
    /// The node's administration socket
    #[arg(long, value_name = "SOCKET", default_value = DEFAULT_ADMIN)]
    admin: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// What to ask
    #[arg(value_enum)]
    what: What,
}

const EXAMPLES: &str = "\
Examples:
  watari ctl status
  watari ctl --admin d1.sock nodes
  watari ctl --json connections | jq '.[] | select(.moves > 0)'";

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// How the node is
    Status,
    /// The nodes it knows, itself included
    Nodes,
    /// The connections of clients that it holds
    Connections,
}

impl Ctl {
    pub(crate) fn execute(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::Start)?;
        let topic = match self.what {
            What::Status => Topic::Status,
            What::Nodes => Topic::Nodes,
            What::Connections => Topic::Connections,
        };
        let answer = runtime.block_on(ask(&self.admin, topic))?;
        if self.json { as_json(&answer) } else { print(as_text(&answer)) }
    }
}

fn as_json(answer: &Answer) -> Result<(), Failure> {
    match answer {
        Answer::Status(status) => print_json(status),
        Answer::Nodes(nodes) => print_json(nodes),
        Answer::Connections(connections) => print_json(connections),
        Answer::Error(sentence) => print_json(sentence),
    }
}

fn as_text(answer: &Answer) -> String {
    match answer {
        Answer::Status(status) => status_table(status).to_string(),
        Answer::Nodes(nodes) => node_table(nodes).to_string(),
        Answer::Connections(connections) => connection_table(connections).to_string(),
        Answer::Error(sentence) => sentence.clone(),
    }
}

fn status_table(status: &Status) -> Table {
    let mut table = Table::new(&["node", "version", "roles", "pid", "uptime_s", "connections", "links_up", "peers"]);
    table.row([
        status.node.clone(),
        status.version.clone(),
        status.roles.join(","),
        status.pid.to_string(),
        status.uptime_s.to_string(),
        status.connections.to_string(),
        status.links_up.to_string(),
        status.peers.to_string(),
    ]);
    table
}

fn node_table(nodes: &[Node]) -> Table {
    let mut table = Table::new(&["name", "mesh", "roles", "state", "up_s", "available", "connections", "last_error"]);
    for node in nodes {
        table.row([
            node.name.clone(),
            node.mesh.to_string(),
            or_dash((!node.roles.is_empty()).then(|| node.roles.join(","))),
            (if node.this {
                "this"
            } else if node.up {
                "up"
            } else {
                "down"
            })
            .to_owned(),
            or_dash(node.up_s),
            or_dash(node.available.map(|available| if available { "yes" } else { "no" })),
            or_dash(node.connections),
            or_dash(node.last_error.as_ref()),
        ]);
    }
    table
}

fn connection_table(connections: &[Connection]) -> Table {
    let mut table =
        Table::new(&["id", "client", "version", "suite", "alpn", "handshake_node", "node", "moves", "resumed"]);
    for connection in connections {
        table.row([
            connection.id.clone(),
            connection.client.to_string(),
            or_dash(connection.version.as_ref()),
            or_dash(connection.suite.as_ref()),
            or_dash(connection.alpn.as_ref()),
            connection.handshake_node.clone(),
            connection.node.clone(),
            connection.moves.to_string(),
            or_dash(connection.resumed.map(|resumed| if resumed { "yes" } else { "no" })),
        ]);
    }
    table
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
