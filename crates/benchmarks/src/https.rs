//! Files over HTTPS, and the relays in front of the servers.
//!
//! A dispatcher and an agent do the work together. nginx does it alone, and behind each of the other relays. The cost
//! of a relay is that of its own process. The server behind it is measured alone.

use crate::Scale;
use crate::agents::{self, Peer};
use crate::clients::Clients;
use crate::congestion::Bbr;
use crate::failure::Failure;
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy, nginx, nginx_stream};
use crate::site::{Key, Site};

/// The relays that the dispatcher is compared with, in the order of [`Work::relay_targets`].
const RELAYS: [&str; 3] = ["HAProxy", "HAProxy, splice", "nginx stream"];

/// A kind of work, with its targets: the largest ratio of our CPU time to that of each peer.
struct Work<'a> {
    what: &'static str,
    unit: Unit,
    agent_target: f64,
    relay_targets: [Option<f64>; 3],
    cost: &'a dyn Fn(&Server) -> Result<Vec<f64>, Failure>,
}

/// Measures every kind of work with every server.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let nginx = nginx(site, &clients)?;
    let watari = Watari::single(site, &clients)?.server;
    let relays = [
        haproxy(site, &clients, nginx.service, false)?,
        haproxy(site, &clients, nginx.service, true)?,
        nginx_stream(site, &clients, nginx.service)?,
    ];
    let [haproxy, haproxy_splice, nginx_stream] = &relays;
    let servers = [&nginx, &watari, haproxy, haproxy_splice, nginx_stream];
    let works = [
        Work {
            what: "GiB of files",
            unit: Unit::SecondsPerGib,
            agent_target: 0.45,
            relay_targets: [Some(0.55), Some(0.9), None],
            cost: &|server| load::download(&clients, server, scale.bulk_bytes),
        },
        Work {
            what: "connection, RSA-2048",
            unit: Unit::Microseconds,
            agent_target: 0.95,
            relay_targets: [Some(0.95), None, None],
            cost: &|server| load::visit(&clients, server, Key::Rsa2048, scale.connections),
        },
        Work {
            what: "connection, P-256",
            unit: Unit::Microseconds,
            agent_target: 0.55,
            relay_targets: [Some(0.9), None, None],
            cost: &|server| load::visit(&clients, server, Key::P256, scale.connections),
        },
        Work {
            what: "keep-alive request",
            unit: Unit::Microseconds,
            agent_target: 0.8,
            relay_targets: [None; 3],
            cost: &|server| load::request(&clients, server, scale.requests),
        },
    ];
    works.iter().try_for_each(|work| compare(work, &servers, scale.rounds, report))?;
    let over_http2 = Clients::of_http2(site)?;
    let peer = |target| [Peer { name: "nginx", server: &nginx, target: Some(target) }];
    let of_http2 = [
        agents::Work {
            what: "GiB of files over HTTP/2",
            unit: Unit::SecondsPerGib,
            peers: &peer(0.6),
            cost: &|server| load::download(&over_http2, server, scale.bulk_bytes),
        },
        agents::Work {
            what: "keep-alive request over HTTP/2",
            unit: Unit::Microseconds,
            peers: &peer(0.9),
            cost: &|server| load::request(&over_http2, server, scale.requests),
        },
    ];
    of_http2.iter().try_for_each(|work| work.compare(&watari, scale.rounds, report))?;
    let under_bbr = agents::Work {
        what: "GiB of files, system with bbr",
        unit: Unit::SecondsPerGib,
        peers: &peer(0.45),
        cost: &|server| load::download(&clients, server, scale.bulk_bytes),
    };
    let _bbr = Bbr::begin()?;
    under_bbr.compare(&watari, scale.rounds, report)
}

fn compare(work: &Work<'_>, servers: &[&Server; 5], rounds: usize, report: &mut Report) -> Result<(), Failure> {
    eprintln!("{} ..", work.what);
    let costs = interleaved(rounds, servers, |server| (work.cost)(server))?;
    let [nginx, watari, relays @ ..] = &costs[..] else { unreachable!("a result for each server") };
    let (what, unit) = (work.what, work.unit);
    let alone = |rounds: &[Vec<f64>]| Samples::of(rounds, |costs| costs[0]);
    let agent = Samples::of(watari, |costs| costs[1]);
    report.add(Row::against(format!("{what}: agent"), unit, agent, "nginx", alone(nginx), Some(work.agent_target)));
    for ((relay, name), target) in relays.iter().zip(RELAYS).zip(work.relay_targets) {
        report.add(Row::against(format!("{what}: dispatcher"), unit, alone(watari), name, alone(relay), target));
    }
    let chain: Vec<Vec<f64>> = nginx.iter().zip(&relays[0]).map(|(nginx, relay)| vec![nginx[0] + relay[0]]).collect();
    let both = Samples::of(watari, |costs| costs.iter().sum());
    report.add(Row::against(format!("{what}: agent + dispatcher"), unit, both, "nginx + HAProxy", alone(&chain), None));
    Ok(())
}
