//! Answers of `watari ctl --json`.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::node::WATARI;

/// A line of `connections`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Connection {
    pub(crate) id: String,
    pub(crate) client: SocketAddr,
    pub(crate) version: Option<String>,
    pub(crate) suite: Option<String>,
    pub(crate) alpn: Option<String>,
    pub(crate) handshake_node: String,
    pub(crate) node: String,
    pub(crate) moves: u32,
    pub(crate) resumed: Option<bool>,
}

impl Connection {
    pub(crate) fn has_moved(&self) -> bool {
        self.handshake_node != self.node
    }
}

/// A line of `nodes`, as far as it matters here.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) available: Option<bool>,
}

pub(crate) fn connections(admin: &Path) -> Option<Vec<Connection>> {
    ask(admin, "connections")
}

pub(crate) fn nodes(admin: &Path) -> Option<Vec<NodeLine>> {
    ask(admin, "nodes")
}

/// `None` where the node does not answer.
fn ask<T: DeserializeOwned>(admin: &Path, topic: &str) -> Option<T> {
    let output = Command::new(WATARI).arg("ctl").arg("--admin").arg(admin).args(["--json", topic]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}
