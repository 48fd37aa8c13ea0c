//! The fuzz targets: functions that take arbitrary bytes and assert properties that hold for all of them.
//!
//! The workspace in `fuzz/` runs them with libFuzzer, guided by coverage, for any time (`make fuzz`). The tests of this
//! crate run each target on its corpus and on mutations of it (`tests/replay.rs`), in the same build as all other
//! tests.
#![allow(clippy::needless_pass_by_value, reason = "a target owns the value made from its input")]

mod cache;
mod capture_files;
mod client_hello;
pub mod connections;
mod continuation;
mod files;
mod flow_answers;
mod frame;
mod frames;
mod handoff_events;
mod handoff_schedule;
pub mod http1;
mod http1_client;
mod http1_response;
mod http1_server;
mod http2_server;
mod lists;
mod passed_name;
mod preface;
mod proxy;
mod record_import;
mod record_moves;
mod record_open;
mod reports;
mod segments;
mod tickets;

use arbitrary::{Arbitrary, Unstructured};

/// Takes one input, and panics if an assertion does not hold for it.
pub type Target = fn(&[u8]);

/// Each target by its name, which is also the name of its corpus in `fuzz/corpus` and of its program in
/// `fuzz/Cargo.toml`.
pub const TARGETS: [(&str, Target); 24] = [
    ("cache", cache::run),
    ("capture_files", capture_files::run),
    ("client_hello", |bytes| structured(bytes, client_hello::run)),
    ("continuation", continuation::run),
    ("files", |bytes| structured(bytes, files::run)),
    ("flow_answers", flow_answers::run),
    ("frame", frame::run),
    ("frames", |bytes| structured(bytes, frames::run)),
    ("handoff_events", handoff_events::run),
    ("handoff_schedule", handoff_schedule::run),
    ("http1_client", http1_client::run),
    ("http1_response", http1_response::run),
    ("http1_server", http1_server::run),
    ("http2_server", http2_server::run),
    ("lists", |bytes| structured(bytes, lists::run)),
    ("passed_name", passed_name::run),
    ("preface", |bytes| structured(bytes, preface::run)),
    ("proxy", proxy::run),
    ("record_import", record_import::run),
    ("record_moves", |bytes| structured(bytes, record_moves::run)),
    ("record_open", |bytes| structured(bytes, record_open::run)),
    ("reports", reports::run),
    ("segments", |bytes| structured(bytes, segments::run)),
    ("tickets", |bytes| structured(bytes, tickets::run)),
];

pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, run)| *run)
}

/// Runs a target on the value that `bytes` encode; bytes that encode none are ignored.
fn structured<'a, T: Arbitrary<'a>>(bytes: &'a [u8], run: impl FnOnce(T)) {
    if let Ok(input) = T::arbitrary_take_rest(Unstructured::new(bytes)) {
        run(input);
    }
}
