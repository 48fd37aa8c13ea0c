//! A drain of one of three agents that share their entries.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread::{scope, sleep};
use std::time::Duration;

use crate::Scale;
use crate::cache::catalogue::Catalogue;
use crate::cache::origin::Origin;
use crate::cache::popularity::request_popular;
use crate::cache::{AGENTS, SHARED, proxy};
use crate::clients::Clients;
use crate::connection::Opener;
use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::Watari;
use crate::site::Site;

/// Target: the largest share of hits that is lost.
const LOST_TARGET: f64 = 0.01;

const URLS: usize = 5_000;
/// Memory of each agent: more than all contents take.
const MEMORY_MIB: u64 = 512;
/// Time from the beginning of the load to the drain.
const BEGINNING: Duration = Duration::from_millis(200);

/// Compares the time during and after a drain with the time before.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let opener = Opener::coming_from(vec![IpAddr::from(Ipv4Addr::LOCALHOST)], site)?;
    eprintln!("drain of an agent with a cache ..");
    let outcomes = interleaved(scale.rounds, &[()], |()| one_round(site, &clients, &opener, scale.popular / 10))?;
    let of = |at: usize| Samples::of(&outcomes[0], |figures| figures[at]);
    let what = "requests missed during and after the drain of one of three agents".to_owned();
    report.add(Row::limited(what, Unit::Percent, of(1), "before", of(0), LOST_TARGET));
    Ok(())
}

/// The shares of requests that go to the origin, before the drain, and of a load during which it happens.
fn one_round(site: &Site, clients: &Clients, opener: &Opener, requests: u64) -> Result<Vec<f64>, Failure> {
    let catalogue = Arc::new(Catalogue::new(URLS));
    let of_origin = Arc::clone(&catalogue);
    let origin = Origin::start(site, move |number| of_origin.len(number))?;
    let watari = Watari::forwarding_in_turn(site, clients, proxy(origin.address, SHARED, MEMORY_MIB), AGENTS)?;
    let service = watari.server.service;
    let mut clients = (0..AGENTS).map(|_| opener.open(service)).collect::<Result<Vec<_>, _>>()?;
    for (number, len) in catalogue.all() {
        clients[number % AGENTS].download(&format!("/{number}"), len, |_, _| Ok(()))?;
    }
    let missed = |part: u64| {
        let before = origin.requests();
        request_popular(opener, service, &catalogue, part, requests)?;
        Ok::<_, Failure>((origin.requests() - before) as f64 / requests as f64)
    };
    let before = missed(0)?;
    let after = scope(|scope| {
        let load = scope.spawn(|| missed(1));
        sleep(BEGINNING);
        let _drain = watari.end_first_agent()?;
        load.join().expect("a client does not panic")
    })?;
    Ok(vec![before, after])
}
