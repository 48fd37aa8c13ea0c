//! HTTPS forwarded to an origin. All proxies have the same nginx as origin.
//!
//! The cost is the CPU time of the proxy's own process. An agent has a dispatcher in front of it, whose CPU time
//! `https` measures. The second figure is the time in which a client gets files of the paper's sizes (Doi and Goto,
//! 2008), through a proxy and directly.

use crate::Scale;
use crate::agents::{Peer, Work};
use crate::clients::Clients;
use crate::congestion::Bbr;
use crate::failure::Failure;
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy_proxy, nginx_as_origin, nginx_proxy};
use crate::site::{EMPTY, Item, Key, Site};

/// Measures every kind of work with every proxy.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let (direct, origin) = nginx_as_origin(site, &clients)?;
    let watari =
        Watari::forwarding(site, &clients, format!("[agent.proxy]\norigins = [\"http://{origin}\"]\n"))?.server;
    let [nginx, haproxy] = [nginx_proxy(site, &clients, origin)?, haproxy_proxy(site, &clients, origin)?];
    let over_http2 = Clients::of_http2(site)?;
    let peers = |of_nginx, of_haproxy| {
        let nginx = Peer { name: "nginx", server: &nginx, target: Some(of_nginx) };
        [nginx, Peer { name: "HAProxy", server: &haproxy, target: of_haproxy }]
    };
    let only_nginx = |target| [Peer { name: "nginx", server: &nginx, target: Some(target) }];
    let download = |clients: &Clients, server: &Server| load::download(clients, server, scale.bulk_bytes);
    let works = [
        Work {
            what: "GiB forwarded",
            unit: Unit::SecondsPerGib,
            peers: &peers(0.45, Some(0.6)),
            cost: &|server| download(&clients, server),
        },
        Work {
            what: "connection, P-256, forwarded",
            unit: Unit::Microseconds,
            peers: &peers(0.95, None),
            cost: &|server| load::visit(&clients, server, Key::P256, scale.connections),
        },
        Work {
            what: "keep-alive request forwarded",
            unit: Unit::Microseconds,
            peers: &peers(1.0, Some(0.9)),
            cost: &|server| load::request(&clients, server, scale.requests),
        },
        Work {
            what: "GiB forwarded over HTTP/2",
            unit: Unit::SecondsPerGib,
            peers: &only_nginx(0.6),
            cost: &|server| download(&over_http2, server),
        },
        Work {
            what: "keep-alive request forwarded over HTTP/2",
            unit: Unit::Microseconds,
            peers: &only_nginx(0.9),
            cost: &|server| load::request(&over_http2, server, scale.requests),
        },
    ];
    works.iter().try_for_each(|work| work.compare(&watari, scale.rounds, report))?;
    let under_bbr = Work {
        what: "GiB forwarded, system with bbr",
        unit: Unit::SecondsPerGib,
        peers: &peers(0.45, None),
        cost: &|server| download(&clients, server),
    };
    {
        let _bbr = Bbr::begin()?;
        under_bbr.compare(&watari, scale.rounds, report)?;
    }
    let items = EMPTY.into_iter().filter(|item| item.len <= scale.bulk_bytes * 2);
    items.into_iter().try_for_each(|item| wait(&clients, item, [&watari, &direct], scale.rounds, report))
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
