//! Answers of `watari ctl --json`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::Pid;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

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
    pub(crate) stays: Option<String>,
}

impl Connection {
    pub(crate) fn has_moved(&self) -> bool {
        self.handshake_node != self.node
    }
}

/// A line of `nodes`, with the fields that tests need.
#[derive(Debug, Deserialize)]
pub(crate) struct NodeLine {
    pub(crate) name: String,
    pub(crate) up: Option<bool>,
    pub(crate) available: Option<bool>,
    pub(crate) healthy: Option<bool>,
    pub(crate) member: Option<String>,
}

pub(crate) fn connections(admin: &Path) -> Option<Vec<Connection>> {
    ask(admin, "connections")
}

pub(crate) fn nodes(admin: &Path) -> Option<Vec<NodeLine>> {
    ask(admin, "nodes")
}

/// The session data of an agent.
pub(crate) fn sessions(admin: &Path) -> Option<Value> {
    ask(admin, "sessions")
}

/// Orders the move of a connection, or returns the reason of the refusal. Connects to the socket itself, which is
/// faster for many orders.
pub(crate) fn order_move(admin: &Path, id: &str, agent: &str) -> Result<(), String> {
    let mut stream = UnixStream::connect(admin).unwrap();
    let question = json!({"version": 1, "topic": {"move": {"connection": id, "node": agent}}});
    stream.write_all(format!("{question}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    match serde_json::from_str::<Value>(&answer).unwrap() {
        Value::String(done) if done == "done" => Ok(()),
        refused => Err(refused["error"].as_str().unwrap().to_owned()),
    }
}

/// Has a node evict or admit another. The error is the sentence of a refusal.
pub(crate) fn membership(admin: &Path, order: &str, node: &str) -> Result<(), String> {
    let output = ctl(admin, &["nodes", order, node]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// Begins to drain `agent`. The process ends with status 0 when the agent is empty.
pub(crate) fn drain(admin: &Path, agent: &str) -> Child {
    ctl(admin, &["drain", agent, "--grace", "60s"]).stdout(Stdio::null()).spawn().unwrap()
}

/// Ends the drain of `agent`.
pub(crate) fn undrain(admin: &Path, agent: &str) {
    succeed(admin, &["undrain", agent]);
}

/// Has an agent drain an origin, including running transfers.
pub(crate) fn drain_origin(admin: &Path, origin: &str) {
    succeed(admin, &["origins", "drain", origin]);
}

/// An agent's data of its origins.
pub(crate) fn origins(admin: &Path) -> Value {
    serde_json::from_slice(&succeed(admin, &["--json", "origins"])).unwrap()
}

/// Has an agent make a new ticket key.
pub(crate) fn rotate_keys(admin: &Path) {
    succeed(admin, &["keys", "rotate"]);
}

/// Has a node read its configuration again. Returns the changes, or the sentence of a refusal.
pub(crate) fn reload(admin: &Path) -> Result<Value, String> {
    let output = ctl(admin, &["--json", "reload"]).output().unwrap();
    if output.status.success() {
        return Ok(serde_json::from_slice(&output.stdout).unwrap());
    }
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), &b""[..]));
    Err(String::from_utf8(output.stderr).unwrap().trim_end().to_owned())
}

/// A command about the response cache of an agent. `options` are those of `ctl`.
pub(crate) fn cache(admin: &Path, options: &[&str], arguments: &[&str]) -> Output {
    ctl(admin, &[options, &["cache"], arguments].concat()).output().unwrap()
}

/// Replaces a node's process. The error is the sentence of a refusal.
pub(crate) fn upgrade(admin: &Path, program: Option<&Path>) -> Result<(), String> {
    let mut command = ctl(admin, &["upgrade"]);
    if let Some(program) = program {
        command.arg("--program").arg(program);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    if output.status.success() { Ok(()) } else { Err(said) }
}

/// The number of a node's process.
pub(crate) fn pid(admin: &Path) -> Option<Pid> {
    let status: Value = ask(admin, "status")?;
    Pid::from_raw(i32::try_from(status["pid"].as_i64()?).ok()?)
}

/// `None`: the node does not answer.
fn ask<T: DeserializeOwned>(admin: &Path, topic: &str) -> Option<T> {
    let output = ctl(admin, &["--json", topic]).output().unwrap();
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// The output of a command, which must succeed.
fn succeed(admin: &Path, arguments: &[&str]) -> Vec<u8> {
    let output = ctl(admin, arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn ctl(admin: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(WATARI);
    command.arg("ctl").arg("--admin").arg(admin).args(arguments);
    command
}
