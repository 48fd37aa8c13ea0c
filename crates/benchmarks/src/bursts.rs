//! Memory that a node keeps after a burst, in which thousands of connections arrive at once and then close.

use std::net::{IpAddr, Ipv4Addr};

use crate::Scale;
use crate::clients::Clients;
use crate::connection::Opener;
use crate::drains::connect;
use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::Watari;
use crate::site::Site;

/// Target: the largest share of the connections' memory that an agent may keep.
const KEPT_TARGET: f64 = 0.25;
/// Number of bursts in one round, all to the same processes, so that the memory kept of each burst adds up.
const BURSTS: usize = 3;
/// Number of client addresses. The dispatcher limits the connections of one address (`connections_per_client_max`).
const ADDRESSES: u8 = 64;

/// Measures the memory that an agent and its dispatcher keep.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let addresses = (1..=ADDRESSES).map(|last| IpAddr::from(Ipv4Addr::new(127, 203, 0, last)));
    let (clients, opener) = (Clients::new(site)?, Opener::coming_from(addresses.collect(), site)?);
    eprintln!("bursts ..");
    let outcomes = interleaved(scale.rounds, &[()], |()| one_round(site, &clients, &opener, scale.idle))?;
    for (what, process) in [("agent", 1), ("dispatcher", 0)] {
        let of = |at: usize| Samples::of(&outcomes[0], |figures| figures[2 * process + at]);
        let what = format!("memory kept by an idle {what} after bursts of {} connections", scale.idle);
        let target = (process == 1).then_some(KEPT_TARGET);
        report.add(Row::against(what, Unit::Mebibytes, of(0), "memory during the first burst", of(1), target));
    }
    Ok(())
}

/// For each process, in bytes: the memory that it keeps after the last burst, and the memory that it took in the first.
fn one_round(site: &Site, clients: &Clients, opener: &Opener, count: usize) -> Result<Vec<f64>, Failure> {
    let watari = Watari::single(site, clients)?;
    let before = watari.server.steady_memory()?;
    let mut most = before.clone();
    for burst in 0..BURSTS {
        let connections = connect(opener, &watari.server, count)?.0;
        if burst == 0 {
            most = watari.server.memory()?;
        }
        drop(connections);
        watari.server.steady_memory()?;
    }
    let left = watari.server.memory()?;
    let grown = |after: &[u64], process: usize| after[process].saturating_sub(before[process]) as f64;
    Ok((0..before.len()).flat_map(|process| [grown(&left, process), grown(&most, process)]).collect())
}
