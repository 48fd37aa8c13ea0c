//! The cost of sharing sessions as a cluster grows, simulated with the code that nodes run.

use std::fmt::Write as _;

use watari_lab::scale::{SharingCost, bytes_of_keys};
use watari_session::Placement;

use crate::failure::{Failure, tls};

/// The heading of the table.
pub(super) const TITLE: &str =
    "Cost of sharing sessions, by the number of agents (simulated with the code that agents run)";

/// A table of the cost of each mode, by the number of nodes.
pub(super) fn table() -> Result<String, Failure> {
    let mut table = String::from(HEAD);
    for nodes in SIZES {
        let cost = |placement| SharingCost::simulate(nodes, placement).map_err(tls("simulating a cluster"));
        let (push, owner) = (cells(&cost(Placement::Push)?), cells(&cost(Placement::Owner)?));
        let _ = writeln!(table, "| {nodes} | {push} | {owner} | {} |", bytes_of_keys(nodes));
    }
    Ok(table)
}

fn cells(cost: &SharingCost) -> String {
    let (messages, bytes) = (cost.messages_per_handshake, cost.bytes_per_handshake);
    // One node sends each message, and another receives it.
    let (sent_and_received, share) = (2.0 * messages / cost.nodes as f64, 2.0 * bytes / cost.nodes as f64);
    format!("{messages:.1}, {bytes:.0} | {sent_and_received:.2}, {share:.0} | {:.1}", cost.copies)
}

const SIZES: [usize; 9] = [2, 3, 5, 10, 20, 50, 100, 300, 1000];

const HEAD: &str = "\
| agents | push: messages, bytes per handshake | push: per agent, sent + received | push: copies of a session \
| owner: messages, bytes per handshake | owner: per agent, sent + received | owner: copies of a session \
| tickets: bytes that an agent receives per day |
| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
";
