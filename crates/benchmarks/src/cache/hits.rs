//! The cost of hits: an agent with a cache against its peers, and against an agent with the files.

use std::net::{IpAddr, Ipv4Addr};

use crate::Scale;
use crate::cache::{is_hit_of_agent, proxy, wait_for_hit};
use crate::clients::Clients;
use crate::congestion::Bbr;
use crate::connection::Opener;
use crate::failure::Failure;
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy_varnish, nginx_as_cacheable_origin, nginx_cache};
use crate::site::{LARGE, SMALL, Site};

/// More than all files take.
const MEMORY_MIB: u64 = 512;

/// The peers, in the order of [`Work::targets`].
const PEERS: [&str; 3] = ["nginx", "HAProxy + Varnish", "an agent with the files"];

/// A kind of work, with its targets: the largest ratio of the agent's CPU time to that of each peer.
struct Work<'a> {
    what: &'static str,
    unit: Unit,
    targets: [f64; 3],
    cost: &'a dyn Fn(&Server) -> Result<Vec<f64>, Failure>,
}

/// The caches, and an agent with the files. Each cache has all files in its store, and no origin.
struct Servers {
    agent: Server,
    nginx: Server,
    varnish: Server,
    files: Server,
}

/// Measures every kind of work with every server.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let [clients, over_http2] = [Clients::new(site)?, Clients::of_http2(site)?];
    let servers = Servers::start(site, &clients)?;
    let request = |clients: &Clients, server: &Server| load::request(clients, server, scale.requests);
    let download = |clients: &Clients, server: &Server| load::download(clients, server, scale.bulk_bytes);
    let works = [
        Work {
            what: "keep-alive hit",
            unit: Unit::Microseconds,
            targets: [0.8, 0.8, 1.15],
            cost: &|server| request(&clients, server),
        },
        Work {
            what: "keep-alive hit over HTTP/2",
            unit: Unit::Microseconds,
            targets: [0.8, 0.8, 1.15],
            cost: &|server| request(&over_http2, server),
        },
        Work {
            what: "GiB of hits",
            unit: Unit::SecondsPerGib,
            targets: [0.5, 0.5, 1.15],
            cost: &|server| download(&clients, server),
        },
    ];
    works.iter().try_for_each(|work| work.compare(&servers, scale.rounds, report))?;
    let under_bbr = Work {
        what: "GiB of hits, system with bbr",
        unit: Unit::SecondsPerGib,
        targets: [0.5, 0.5, 1.15],
        cost: &|server| download(&clients, server),
    };
    let _bbr = Bbr::begin()?;
    under_bbr.compare(&servers, scale.rounds, report)
}

impl Work<'_> {
    fn compare(&self, servers: &Servers, rounds: usize, report: &mut Report) -> Result<(), Failure> {
        eprintln!("{} ..", self.what);
        let Servers { agent, nginx, varnish, files } = servers;
        let costs = interleaved(rounds, &[agent, nginx, varnish, files], |server| (self.cost)(server))?;
        let [agent, nginx, varnish, files] = &costs[..] else { unreachable!("a result for each server") };
        // A dispatcher is the first process of a cluster.
        let of_agent = |rounds: &[Vec<f64>]| Samples::of(rounds, |costs| costs[1]);
        let of_all = |rounds: &[Vec<f64>]| Samples::of(rounds, |costs| costs.iter().sum());
        let theirs = [of_all(nginx), of_all(varnish), of_agent(files)];
        for ((peer, theirs), target) in PEERS.into_iter().zip(theirs).zip(self.targets) {
            let what = format!("{}: agent", self.what);
            report.add(Row::against(what, self.unit, of_agent(agent), peer, theirs, Some(target)));
        }
        Ok(())
    }
}

impl Servers {
    fn start(site: &Site, clients: &Clients) -> Result<Self, Failure> {
        let (origin, address) = nginx_as_cacheable_origin(site, clients)?;
        let proxy = proxy(address, "true", MEMORY_MIB);
        let servers = Self {
            agent: Watari::forwarding(site, clients, proxy)?.server,
            nginx: nginx_cache(site, clients, address)?,
            varnish: haproxy_varnish(site, clients, address, MEMORY_MIB)?,
            files: Watari::single(site, clients)?.server,
        };
        let opener = Opener::coming_from(vec![IpAddr::from(Ipv4Addr::LOCALHOST)], site)?;
        for item in [SMALL, LARGE] {
            wait_for_hit(&opener, &servers.agent, item, is_hit_of_agent)?;
            wait_for_hit(&opener, &servers.nginx, item, |head| head.contains("x-cache: hit"))?;
            wait_for_hit(&opener, &servers.varnish, item, has_two_transactions)?;
        }
        // From now on, a miss is a failure.
        drop(origin);
        Ok(servers)
    }
}

/// Varnish adds the transaction that has stored a response to that of the request.
fn has_two_transactions(head: &str) -> bool {
    let mut fields = head.lines().filter_map(|line| line.strip_prefix("x-varnish:"));
    fields.next().is_some_and(|transactions| transactions.split_whitespace().count() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_of_varnish_has_two_transactions() {
        assert!(has_two_transactions("http/1.1 200 ok\r\nx-varnish: 32770 3\r\nage: 1\r\n"));
        assert!(!has_two_transactions("http/1.1 200 ok\r\nx-varnish: 32770\r\nage: 0\r\n"));
        assert!(!has_two_transactions("http/1.1 200 ok\r\nage: 1\r\n"));
    }
}
