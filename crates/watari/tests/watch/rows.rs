//! The output of `watari watch pcap`.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::capture::is_mark;

/// A line of `--json`: a connection.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Row {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    pub(crate) start: f64,
    pub(crate) ending: String,
    pub(crate) phase: String,
    pub(crate) closed_by: Option<String>,
    pub(crate) delivered: bool,
    pub(crate) requests: u64,
    pub(crate) bytes_to_client: u64,
    pub(crate) bytes_to_server: u64,
    pub(crate) packets_to_client: u64,
    pub(crate) packets_to_server: u64,
    pub(crate) tls_version: Option<String>,
    pub(crate) tls_resumed: Option<bool>,
}

/// A line of `--json --states`: a span of a server's state.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct SpanRow {
    pub(crate) server: SocketAddr,
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) state: String,
    pub(crate) shares: Option<Shares>,
    pub(crate) endings: BTreeMap<String, u64>,
}

/// The coordinates in the triangle of shares.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Shares {
    pub(crate) s_normal: f64,
    pub(crate) client_abort: f64,
    pub(crate) timeout: f64,
}

/// All connections of captures by their beginning, except the mark at the end.
pub(crate) fn connections(files: &[PathBuf], options: &[&str]) -> Vec<Row> {
    let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    sorted(watch(&[&["--json"], options, &files].concat(), Stdio::null()))
}

/// The same, of a capture that comes from the standard input.
pub(crate) fn connections_of_stdin(file: &Path, options: &[&str]) -> Vec<Row> {
    sorted(watch(&[&["--json"], options, &["-"]].concat(), File::open(file).unwrap().into()))
}

/// The states of one server.
pub(crate) fn spans(file: &Path, server: SocketAddr, options: &[&str]) -> Vec<SpanRow> {
    let server = server.to_string();
    let common = ["--json", "--states", "--server", &server, file.to_str().unwrap()];
    watch(&[&common, options].concat(), Stdio::null())
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|row| !is_mark(row.server));
    rows.sort_by(|one, other| {
        (one.client, one.server, one.start).partial_cmp(&(other.client, other.server, other.start)).unwrap()
    });
    rows
}

fn watch<T: DeserializeOwned>(arguments: &[&str], input: Stdio) -> Vec<T> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_watari"));
    let output = command.args(["watch", "pcap"]).args(arguments).stdin(input).output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((output.status.code(), &*error), (Some(0), ""), "{arguments:?}");
    out.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}
