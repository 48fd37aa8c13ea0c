//! How much memory a node keeps after a burst: thousands of connections arrive at once and leave.

use std::net::{IpAddr, Ipv4Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::Scale;
use crate::clients::Clients;
use crate::connection::Opener;
use crate::drains::connect;
use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::Watari;
use crate::site::Site;

/// Target: at most this share of the memory that the connections took is kept by an agent.
const KEPT_TARGET: f64 = 0.25;
/// Bursts in one round, all against the same processes: what each leaves behind adds up.
const BURSTS: usize = 3;
/// Number of client addresses: connections of one address are limited.
const ADDRESSES: u8 = 64;
/// How long the memory has to be stable, and how long the benchmark waits for that at most.
const STEADY: Duration = Duration::from_secs(5);
const STEADY_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(250);
/// Smaller changes of the memory are ignored, in bytes.
const NOISE: u64 = 64 << 10;

/// Measures what an agent and its dispatcher keep.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let addresses = (1..=ADDRESSES).map(|last| IpAddr::from(Ipv4Addr::new(127, 203, 0, last)));
    let (clients, opener) = (Clients::new(site)?, Opener::coming_from(addresses.collect(), site)?);
    eprintln!("bursts ..");
    let outcomes = interleaved(scale.rounds, &[()], |()| one_round(site, &clients, &opener, scale.idle))?;
    for (what, process) in [("agent", 1), ("dispatcher", 0)] {
        let of = |at: usize| Samples::of(&outcomes[0], |figures| figures[2 * process + at]);
        let what = format!("idle {what} after {} connections have left: memory kept", scale.idle);
        let target = (process == 1).then_some(KEPT_TARGET);
        report.add(Row::against(what, Unit::Mebibytes, of(0), "what they took", of(1), target));
    }
    Ok(())
}

/// What each process keeps after the last burst, and what it took in the first, in bytes.
fn one_round(site: &Site, clients: &Clients, opener: &Opener, count: usize) -> Result<Vec<f64>, Failure> {
    let watari = Watari::single(site, clients)?;
    let before = steady(&watari)?;
    let mut most = before.clone();
    for burst in 0..BURSTS {
        let connections = connect(opener, &watari.server, count)?.0;
        if burst == 0 {
            most = watari.server.memory()?;
        }
        drop(connections);
        steady(&watari)?;
    }
    let left = watari.server.memory()?;
    let grown = |after: &[u64], process: usize| after[process].saturating_sub(before[process]) as f64;
    Ok((0..before.len()).flat_map(|process| [grown(&left, process), grown(&most, process)]).collect())
}

/// Waits until the memory of every process is stable; returns it in bytes.
fn steady(watari: &Watari) -> Result<Vec<u64>, Failure> {
    let begun = Instant::now();
    let (mut last, mut since) = (watari.server.memory()?, Instant::now());
    while since.elapsed() < STEADY && begun.elapsed() < STEADY_MAX {
        sleep(POLL);
        let now = watari.server.memory()?;
        if last.iter().zip(&now).any(|(last, now)| last.abs_diff(*now) > NOISE) {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}
