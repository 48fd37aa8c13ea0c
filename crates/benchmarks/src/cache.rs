//! The response cache.
//!
//! * `hits`: the CPU time of hits.
//! * `popularity`: hit ratios with little memory.
//! * `crowd`: many clients that request the same content at once.
//! * `disk`: many entries in a directory.
//! * `drain`: an agent that leaves the others.

mod catalogue;
mod crowd;
mod disk;
mod drain;
mod hits;
mod origin;
mod popularity;

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::connection::Opener;
use crate::failure::Failure;
use crate::report::Report;
use crate::servers::Server;
use crate::site::{Item, Site};

/// The value of `cache` with which agents share their entries.
const SHARED: &str = "{ shared = true }";
/// The agents of a cluster that share their entries.
const AGENTS: usize = 3;
/// The longest time until a cache has a file that it has sent.
const STORED_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// Measures all of it.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    hits::measure(site, scale, report)?;
    popularity::measure(site, scale, report)?;
    crowd::measure(site, scale, report)?;
    disk::measure(site, scale, report)?;
    drain::measure(site, scale, report)
}

/// Requests `item` until the head of the response shows a hit. The head is in lower case.
fn wait_for_hit(opener: &Opener, server: &Server, item: Item, is_hit: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let deadline = Instant::now() + STORED_MAX;
    loop {
        let head = opener.open(server.service)?.get_with_head(item)?;
        if is_hit(&head.to_ascii_lowercase()) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure::Answer { service: server.service, what: format!("no hit: {head}") });
        }
        sleep(POLL);
    }
}

/// The head is in lower case.
fn is_hit_of_agent(head: &str) -> bool {
    head.contains("\r\ncache-status: watari; hit")
}

/// The text of `[agent.proxy]` and its tables, for one origin. `cache` is that of the only route.
fn proxy(origin: SocketAddr, cache: &str, memory_mib: u64) -> String {
    format!(
        "[[agent.proxy.pool]]\nname = \"origin\"\norigins = [\"http://{origin}\"]\n\
         [[agent.proxy.route]]\npool = \"origin\"\ncache = {cache}\n[agent.proxy.cache]\nmemory_mib = {memory_mib}\n"
    )
}
