//! The results for one suite.

use std::time::Duration;

use serde::ser::{Serialize, Serializer};

use crate::engine_name::EngineName;
use crate::key::Key;
use crate::work::Work;

/// One suite of one engine.
#[derive(Clone, Debug)]
pub struct Row {
    pub engine: EngineName,
    pub suite: String,
    /// The server's key.
    pub key: Key,
    pub work: Work,
    /// The results, or the error.
    pub measured: Result<Measured, String>,
}

/// The results of the three tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The negotiated version: `TLSv1`, `TLSv1.1`, `TLSv1.2`, `TLSv1.3`.
    pub version: String,
    /// One connection with a large amount of data.
    pub bulk: Cost,
    /// Connections with full handshakes.
    pub new: Cost,
    /// Connections that offered a session.
    pub reuse: Cost,
    /// How many of `reuse` resumed the session, according to their handshakes.
    pub reused: u32,
}

/// The time that a task took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub wall: Duration,
    /// CPU time of the client's thread.
    pub client_cpu: Duration,
    /// CPU time of the server's thread.
    pub server_cpu: Duration,
}

/// A flat object. Times are in seconds. If the suite failed, they are null, and `error` has the cause.
impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let measured = self.measured.as_ref().ok();
        let cost = |of: fn(&Measured) -> Cost| measured.map(of);
        RowOut {
            engine: self.engine.as_str(),
            suite: &self.suite,
            version: measured.map(|measured| measured.version.as_str()),
            key: self.key.name(),
            bulk_bytes: self.work.bulk_bytes,
            connections: self.work.connections,
            bulk_s: cost(|m| m.bulk).map(wall_s),
            new_s: cost(|m| m.new).map(wall_s),
            reuse_s: cost(|m| m.reuse).map(wall_s),
            reused: measured.map(|measured| measured.reused),
            bulk_cpu: cost(|m| m.bulk).map(CpuOut::of),
            new_cpu: cost(|m| m.new).map(CpuOut::of),
            reuse_cpu: cost(|m| m.reuse).map(CpuOut::of),
            error: self.measured.as_ref().err().map(String::as_str),
        }
        .serialize(serializer)
    }
}

/// The object that `--json` prints for a row.
#[derive(serde::Serialize)]
struct RowOut<'a> {
    engine: &'static str,
    suite: &'a str,
    version: Option<&'a str>,
    key: Option<&'static str>,
    bulk_bytes: u64,
    connections: u32,
    bulk_s: Option<f64>,
    new_s: Option<f64>,
    reuse_s: Option<f64>,
    reused: Option<u32>,
    bulk_cpu: Option<CpuOut>,
    new_cpu: Option<CpuOut>,
    reuse_cpu: Option<CpuOut>,
    error: Option<&'a str>,
}

/// CPU time in seconds.
#[derive(serde::Serialize)]
struct CpuOut {
    client_s: f64,
    server_s: f64,
}

impl CpuOut {
    fn of(cost: Cost) -> Self {
        Self { client_s: cost.client_cpu.as_secs_f64(), server_s: cost.server_cpu.as_secs_f64() }
    }
}

fn wall_s(cost: Cost) -> f64 {
    cost.wall.as_secs_f64()
}
