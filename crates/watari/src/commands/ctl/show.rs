//! The output of answers.

use serde_json::json;

use super::cache;
use super::cells::{or_dash, yes_or_no};
use super::origin_tables;
use crate::admin::{AddressEntry, Answer, Connection, Node, Reloaded, Sessions, Status, Upgraded};
use crate::commands::print::{print, print_json};
use crate::config::Change;
use crate::failure::Failure;
use crate::table::Table;

/// Prints the answer of a node.
pub(super) fn answer(answer: &Answer, json: bool) -> Result<(), Failure> {
    if json { as_json(answer) } else { print(as_text(answer)) }
}

fn as_json(answer: &Answer) -> Result<(), Failure> {
    match answer {
        Answer::Status(status) => print_json(status),
        Answer::Nodes(nodes) => print_json(nodes),
        Answer::Connections(connections) => print_json(connections),
        Answer::Sessions(sessions) => print_json(sessions),
        Answer::Origins(pools) => print_json(pools),
        Answer::Cache(cache) => print_json(cache),
        Answer::Addresses(addresses) => print_json(addresses),
        Answer::Reloaded(reloaded) => print_json(reloaded),
        Answer::Upgraded(Upgraded { passed, left }) => {
            print_json(&json!({"done": "upgrade", "passed": passed, "left": left}))
        }
        Answer::Done => Ok(()),
        Answer::Error(sentence) => print_json(sentence),
    }
}

fn as_text(answer: &Answer) -> String {
    match answer {
        Answer::Status(status) => status_text(status),
        Answer::Nodes(nodes) => node_table(nodes).to_string(),
        Answer::Connections(connections) => connection_table(connections).to_string(),
        Answer::Sessions(sessions) => session_text(sessions),
        Answer::Origins(pools) => origin_tables::text(pools),
        Answer::Cache(state) => cache::text(state),
        Answer::Addresses(addresses) => address_table(addresses).to_string(),
        Answer::Reloaded(reloaded) => reloaded_lines(reloaded),
        Answer::Upgraded(upgraded) => upgraded_line(*upgraded),
        Answer::Done => String::new(),
        Answer::Error(sentence) => sentence.clone(),
    }
}

/// A line for each change.
fn reloaded_lines(Reloaded { changes, files }: &Reloaded) -> String {
    let changes = changes.iter().map(Change::to_string);
    let lines: Vec<_> = changes.chain(files.iter().map(|file| format!("{file}: read again"))).collect();
    if lines.is_empty() { "no change\n".to_owned() } else { lines.join("\n") + "\n" }
}

fn upgraded_line(Upgraded { passed, left }: Upgraded) -> String {
    let line = format!("a new process has taken over the node, with its listeners and connections ({passed})");
    match left {
        0 => line + "\n",
        left => format!("{line}; the previous process still has {left}, until they can pass or end\n"),
    }
}

fn status_text(status: &Status) -> String {
    let table = status_table(status);
    if status.addresses.is_empty() {
        table.to_string()
    } else {
        format!("{table}\n{}", address_table(&status.addresses))
    }
}

fn address_table(addresses: &[AddressEntry]) -> Table {
    let mut table =
        Table::new(&["address", "interface", "role", "owner", "since_s", "lease_ms", "priority", "ready", "why"])
            .leaving_out(&["priority", "interface", "ready", "lease_ms"]);
    for address in addresses {
        table.row([
            address.address.clone(),
            address.interface.clone(),
            address.role.clone(),
            or_dash(address.owner.as_ref()),
            address.since_s.to_string(),
            or_dash(address.lease_ms),
            address.priority.to_string(),
            yes_or_no(address.ready).to_string(),
            address.why.clone(),
        ]);
    }
    table
}

fn status_table(status: &Status) -> Table {
    let mut table = Table::new(&["node", "version", "roles", "pid", "uptime_s", "connections", "links_up", "peers"])
        .leaving_out(&["version", "pid"]);
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

/// The settings of sessions, and a row for each TLS version.
fn session_text(sessions: &Sessions) -> String {
    let mut sharing = Table::new(&[
        "mode",
        "lifetime_s",
        "rotation_s",
        "seeds",
        "newest_seed_age_s",
        "kept",
        "kept_bytes",
        "stored",
        "redis",
    ])
    .leaving_out(&["redis", "stored", "kept_bytes", "newest_seed_age_s", "rotation_s", "seeds"]);
    sharing.row([
        sessions.mode.clone(),
        sessions.lifetime_s.to_string(),
        sessions.rotation_s.to_string(),
        sessions.seeds.to_string(),
        or_dash(sessions.newest_seed_age_s),
        sessions.kept.to_string(),
        sessions.kept_bytes.to_string(),
        or_dash(sessions.stored.as_ref().map(|stored| stored.sessions)),
        or_dash(sessions.redis.as_ref().map(|redis| if redis.connected { "connected" } else { "away" })),
    ]);
    let mut handshakes = Table::new(&["version", "full", "here", "elsewhere", "pulled", "missed"]);
    for of_version in &sessions.handshakes {
        let resumed = |from: &str| or_dash(of_version.resumed.get(from));
        let missed = of_version.missed.iter().filter(|(_, count)| **count > 0);
        let missed: Vec<_> = missed.map(|(cause, count)| format!("{cause}={count}")).collect();
        handshakes.row([
            of_version.version.clone(),
            of_version.full.to_string(),
            resumed("here"),
            resumed("elsewhere"),
            resumed("pulled"),
            or_dash((!missed.is_empty()).then(|| missed.join(","))),
        ]);
    }
    format!("{sharing}\n{handshakes}")
}

fn node_table(nodes: &[Node]) -> Table {
    let mut table = Table::new(&["name", "state", "roles", "member", "mesh", "up_s", "connections", "error"])
        .leaving_out(&["mesh", "member", "up_s", "roles"]);
    for node in nodes {
        table.row([
            format!("{}{}", node.name, if node.this { " (this)" } else { "" }),
            state(node).to_owned(),
            or_dash((!node.roles.is_empty()).then(|| node.roles.join(","))),
            or_dash(node.member.as_ref()),
            or_dash(node.mesh),
            or_dash(node.up_s),
            or_dash(node.connections),
            // If the node is up, the error is that of an earlier link.
            or_dash(node.last_error.as_ref().filter(|_| !node.up)),
        ]);
    }
    table
}

/// The state in one word. For a node that gets no connections, the reason.
fn state(node: &Node) -> &'static str {
    match node {
        Node { member: Some(member), .. } if member == "evicted" => "evicted",
        Node { up: false, .. } => "down",
        Node { draining: Some(true), .. } => "draining",
        Node { healthy: Some(false), .. } => "unhealthy",
        Node { available: Some(false), .. } => "unavailable",
        _ => "up",
    }
}

/// A row for each connection.
pub(super) fn connection_table(connections: &[Connection]) -> Table {
    let mut table = Table::new(&[
        "id",
        "client",
        "version",
        "suite",
        "alpn",
        "handshake_node",
        "node",
        "moves",
        "resumed",
        "stays",
    ])
    .leaving_out(&["alpn", "resumed", "suite", "version", "moves", "handshake_node"]);
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
            or_dash(connection.resumed.map(yes_or_no)),
            or_dash(connection.stays.as_ref()),
        ]);
    }
    table
}
