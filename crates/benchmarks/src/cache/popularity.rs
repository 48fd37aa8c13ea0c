//! Hit ratios with 100,000 URLs by a Zipf law, and memory for a tenth of their content.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::scope;

use crate::Scale;
use crate::cache::catalogue::Catalogue;
use crate::cache::origin::Origin;
use crate::cache::proxy;
use crate::clients::Clients;
use crate::connection::Opener;
use crate::failure::Failure;
use crate::measure::Samples;
use crate::report::{Report, Row, Unit};
use crate::servers::{Server, Watari, haproxy_varnish};
use crate::site::Site;

const URLS: usize = 100_000;
/// The share of all content that fits into memory.
const FITTING: u64 = 10;
/// Connections of the clients, each on its own thread.
const CONNECTIONS: u64 = 4;
/// The position of a cache among the processes of its server: behind a dispatcher, or behind `HAProxy`.
const CACHE: usize = 1;

/// Compares an agent with Varnish.
pub(super) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let opener = Opener::coming_from(vec![IpAddr::from(Ipv4Addr::LOCALHOST)], site)?;
    let catalogue = Arc::new(Catalogue::new(URLS));
    let memory_mib = (catalogue.bytes() / FITTING) >> 20;
    let run = |name: &str, start: &dyn Fn(SocketAddr) -> Result<Server, Failure>| {
        eprintln!("{URLS} URLs: {name} ..");
        let of_origin = Arc::clone(&catalogue);
        let origin = Origin::start(site, move |number| of_origin.len(number))?;
        let server = start(origin.address)?;
        missed(&opener, &server, &origin, &catalogue, scale.popular)
    };
    let ours =
        run("agent", &|origin| Ok(Watari::forwarding(site, &clients, proxy(origin, "true", memory_mib))?.server))?;
    let theirs = run("Varnish", &|origin| haproxy_varnish(site, &clients, origin, memory_mib))?;
    let figures = [
        ("bytes missed", Unit::Percent, Some(1.0)),
        ("requests missed", Unit::Percent, None),
        ("memory of the process", Unit::Mebibytes, None),
    ];
    for ((what, unit, target), (ours, theirs)) in figures.into_iter().zip(ours.into_iter().zip(theirs)) {
        let what = format!("{URLS} URLs, {memory_mib} MiB of memory, {what}: agent");
        report.add(Row::against(what, unit, Samples::new(vec![ours]), "Varnish", Samples::new(vec![theirs]), target));
    }
    Ok(())
}

/// The shares of bytes and of requests that go to the origin in the second half of `requests`, and the memory of the
/// cache at the end, in bytes.
fn missed(
    opener: &Opener,
    server: &Server,
    origin: &Origin,
    catalogue: &Catalogue,
    requests: u64,
) -> Result<[f64; 3], Failure> {
    request_popular(opener, server.service, catalogue, 0, requests / 2)?;
    let (requests_before, bytes_before) = (origin.requests(), origin.bytes());
    let bytes = request_popular(opener, server.service, catalogue, 1, requests / 2)?;
    let missed_bytes = (origin.bytes() - bytes_before) as f64 / bytes as f64;
    let missed_requests = (origin.requests() - requests_before) as f64 / (requests / 2) as f64;
    Ok([missed_bytes, missed_requests, server.memory()?[CACHE] as f64])
}

/// Requests contents by their popularity. Equal parts are equal sequences of requests. Returns the bytes of all
/// contents.
pub(super) fn request_popular(
    opener: &Opener,
    service: SocketAddr,
    catalogue: &Catalogue,
    part: u64,
    requests: u64,
) -> Result<u64, Failure> {
    let request = |connection: u64| {
        let contents = catalogue.requests(part * CONNECTIONS + connection);
        let mut client = opener.open(service)?;
        let mut bytes = 0;
        for (number, len) in contents.take((requests / CONNECTIONS) as usize) {
            client.download(&format!("/{number}"), len, |_, _| Ok(()))?;
            bytes += len;
        }
        Ok(bytes)
    };
    let request = &request;
    scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS).map(|connection| scope.spawn(move || request(connection))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a client does not panic")).sum()
    })
}
