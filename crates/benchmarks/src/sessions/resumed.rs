//! Handshakes that resume.
//!
//! Clients connect again and again, with one request on each connection, and resume all connections but their first.
//!
//! * One server: an agent beside nginx whose workers share ticket keys. Both send one ticket for each handshake.
//! * A cluster of three agents that get connections in turn: the modes of sharing beside each other.

use watari_record::CipherSuite;

use crate::Scale;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, nginx_with_tickets};
use crate::site::{Key, Site};

/// The suites that clients offer, one of each version. Each has its target: the largest ratio of the agent's CPU time
/// to that of nginx.
const SUITES: [(CipherSuite, f64); 2] =
    [(CipherSuite::TLS_AES_128_GCM_SHA256, 0.8), (CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, 0.95)];
/// Target: the largest ratio of the CPU time with another mode to that with `tickets`.
const MODE_TARGET: f64 = 1.25;

/// Measures one server, and the cluster.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let nginx = nginx_with_tickets(site, &clients)?;
    let agent = Watari::resuming(site, &clients, "tickets", 1)?.server;
    let modes = ["tickets", "push", "owner"];
    let clusters = modes.map(|mode| Watari::resuming(site, &clients, mode, 3).map(|watari| watari.server));
    let [tickets, push, owner] = clusters;
    let clusters = [tickets?, push?, owner?];
    for (suite, target) in SUITES {
        let returning = Clients::returning(site, suite)?;
        let what = |where_| format!("resumed connection, {}{where_}", suite.version());
        eprintln!("{} ..", what(""));
        let cost = |server: &&Server| load::visit(&returning, server, Key::Rsa2048, scale.connections);
        let costs = interleaved(scale.rounds, &[&nginx, &agent], cost)?;
        let nginx = Samples::of(&costs[0], |costs| costs[0]);
        let agent = Samples::of(&costs[1], |costs| costs[1]);
        report.add(Row::against(what(": agent"), Unit::Microseconds, agent, "nginx", nginx, Some(target)));
        let costs = interleaved(scale.rounds, &clusters.each_ref(), cost)?;
        let agents = |mode: usize| Samples::of(&costs[mode], |costs| costs[1..].iter().sum());
        for (mode, name) in [(1, ": push, three agents"), (2, ": owner, three agents")] {
            let peer = "tickets, three agents";
            report.add(Row::against(what(name), Unit::Microseconds, agents(mode), peer, agents(0), Some(MODE_TARGET)));
        }
    }
    Ok(())
}
