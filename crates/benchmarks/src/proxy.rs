//! HTTPS forwarded to an origin. All proxies have the same nginx as origin.
//!
//! The cost is the CPU time of the proxy's own process. An agent has a dispatcher in front of it, whose CPU time
//! `https` measures. The second figure is the time in which a client gets files of the paper's sizes (Doi and Goto,
//! 2008), through a proxy and directly.

use crate::Scale;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy_proxy, nginx_as_origin, nginx_proxy};
use crate::site::{EMPTY, Item, Key, Site};

/// In the order of [`Work::targets`].
const PEERS: [&str; 2] = ["nginx", "HAProxy"];

/// A kind of work, with its targets: the largest ratio of our CPU time to that of each peer.
struct Work<'a> {
    what: &'static str,
    unit: Unit,
    targets: [Option<f64>; 2],
    cost: &'a dyn Fn(&Server) -> Result<Vec<f64>, Failure>,
}

/// Measures every kind of work with every proxy.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let (direct, origin) = nginx_as_origin(site, &clients)?;
    let watari =
        Watari::forwarding(site, &clients, format!("[agent.proxy]\norigins = [\"http://{origin}\"]\n"))?.server;
    let peers = [nginx_proxy(site, &clients, origin)?, haproxy_proxy(site, &clients, origin)?];
    let [nginx, haproxy] = &peers;
    let works = [
        Work {
            what: "GiB forwarded: agent",
            unit: Unit::SecondsPerGib,
            targets: [Some(0.6); 2],
            cost: &|server| load::download(&clients, server, scale.bulk_bytes),
        },
        Work {
            what: "connection, P-256, forwarded: agent",
            unit: Unit::Microseconds,
            targets: [Some(0.95), None],
            cost: &|server| load::visit(&clients, server, Key::P256, scale.connections),
        },
        Work {
            what: "keep-alive request forwarded: agent",
            unit: Unit::Microseconds,
            targets: [Some(1.3), None],
            cost: &|server| load::request(&clients, server, scale.requests),
        },
    ];
    works.iter().try_for_each(|work| compare(work, &[&watari, nginx, haproxy], scale.rounds, report))?;
    let items = EMPTY.into_iter().filter(|item| item.len <= scale.bulk_bytes * 2);
    items.into_iter().try_for_each(|item| wait(&clients, item, [&watari, &direct], scale.rounds, report))
}

fn compare(work: &Work<'_>, servers: &[&Server; 3], rounds: usize, report: &mut Report) -> Result<(), Failure> {
    eprintln!("{} ..", work.what);
    let costs = interleaved(rounds, servers, |server| (work.cost)(server))?;
    let [watari, peers @ ..] = &costs[..] else { unreachable!("a result for each server") };
    for ((peer, name), target) in peers.iter().zip(PEERS).zip(work.targets) {
        let agent = Samples::of(watari, |costs| costs[1]);
        let theirs = Samples::of(peer, |costs| costs[0]);
        report.add(Row::against(work.what.to_owned(), work.unit, agent, name, theirs, target));
    }
    Ok(())
}

/// Measures the time in which one client gets a file.
fn wait(
    clients: &Clients,
    item: Item,
    servers: [&Server; 2],
    rounds: usize,
    report: &mut Report,
) -> Result<(), Failure> {
    let what = format!("time to download {} MiB", item.len >> 20);
    eprintln!("{what} ..");
    let waits = interleaved(rounds, &servers, |server| Ok(vec![load::fetch(clients, server.service, item)?]))?;
    let [through, direct] = [0, 1].map(|server: usize| Samples::of(&waits[server], |waits| waits[0]));
    report.add(Row::against(what, Unit::Microseconds, through, "nginx without a proxy", direct, None));
    Ok(())
}
