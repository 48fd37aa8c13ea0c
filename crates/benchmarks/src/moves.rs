//! Moves right after the handshake.
//!
//! One agent does all handshakes. It keeps the connections of clients whose addresses select it, and moves the others
//! to an agent without a private key. Processes and work are the same for both, so the difference is the cost of a
//! move.

use std::net::{IpAddr, Ipv4Addr};
use watari_balance::{Candidate, by_client_address};
use watari_values::NodeName;

use crate::Scale;
use crate::clients::Clients;
use crate::failure::{Failure, tls};
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{MOVED_FROM, MOVED_TO, Watari};
use crate::site::{Key, Site};

/// Target: the CPU time of a move, as a share of that of a whole connection.
const COST_TARGET: f64 = 0.15;
/// Target: the time to the first byte on a connection that moves, in seconds: the median, and the 99th percentile at
/// [`RATE_PER_S`].
const PAUSE_TARGET: f64 = 0.000_35;
const P99_TARGET: f64 = 0.001;
/// Connections per second where their rate is fixed.
const RATE_PER_S: f64 = 1_000.0;

/// Clients whose connections all stay, or all move.
struct Visitor {
    clients: Clients,
    moved: bool,
}

/// Measures the CPU time and the pause of a move.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let clients = Clients::new(site)?;
    let watari = Watari::moving(site, &clients)?;
    let visitor = |moved| -> Result<Visitor, Failure> {
        let sources = addresses_selecting(if moved { MOVED_TO } else { MOVED_FROM })?;
        Ok(Visitor { clients: Clients::coming_from(sources, site)?, moved })
    };
    let visitors = [visitor(false)?, visitor(true)?];
    cost(&watari, &visitors, scale, report)?;
    pause(&watari, &visitors, scale, report)?;
    pause_at_rate(&watari, &visitors, scale, report)
}

fn cost(watari: &Watari, visitors: &[Visitor; 2], scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("moves ..");
    let costs = interleaved(scale.rounds, visitors, |visitor| {
        checked(watari, visitor, scale.connections, || {
            load::visit(&visitor.clients, &watari.server, Key::Rsa2048, scale.connections)
        })
    })?;
    let total = |rounds: &[Vec<f64>]| -> Vec<f64> { rounds.iter().map(|costs| costs.iter().sum()).collect() };
    let (stayed, moved) = (total(&costs[0]), total(&costs[1]));
    let difference = stayed.iter().zip(&moved).map(|(stayed, moved)| moved - stayed).collect();
    let what = "one move: additional CPU of dispatcher and agents".to_owned();
    let whole = "a connection without a move, RSA-2048";
    report.add(Row::against(
        what,
        Unit::Microseconds,
        Samples::new(difference),
        whole,
        Samples::new(stayed),
        Some(COST_TARGET),
    ));
    Ok(())
}

/// Measures one connection after the other, so that the pause contains no other wait than the move.
fn pause(watari: &Watari, visitors: &[Visitor; 2], scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("pauses ..");
    let medians = interleaved(scale.rounds, visitors, |visitor| {
        checked(watari, visitor, scale.pauses, || {
            let pauses = load::visit_singly(&visitor.clients, watari.server.service, Key::P256, scale.pauses)?;
            Ok(vec![pauses.median()])
        })
    })?;
    let median = |rounds: &[Vec<f64>]| Samples::of(rounds, |medians| medians[0]);
    let (stayed, moved) = (median(&medians[0]), median(&medians[1]));
    report.add(Row::limited(
        "pause of a move: request to first byte".to_owned(),
        Unit::Microseconds,
        moved,
        "a connection without a move",
        stayed,
        PAUSE_TARGET,
    ));
    Ok(())
}

/// Measures connections that begin at a fixed rate, however long the earlier ones take.
fn pause_at_rate(watari: &Watari, visitors: &[Visitor; 2], scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    eprintln!("pauses at a rate ..");
    let figures = interleaved(scale.rounds, visitors, |visitor| {
        checked(watari, visitor, scale.connections, || {
            let service = watari.server.service;
            let (rate, pauses) = load::visit_at(&visitor.clients, service, Key::P256, RATE_PER_S, scale.connections)?;
            Ok(vec![rate, pauses.median(), pauses.quantile(0.99)])
        })
    })?;
    let of = |visitor: usize, figure: usize| Samples::of(&figures[visitor], |figures| figures[figure]);
    let what =
        |quantile| format!("pause at {:.0} moves a second ({RATE_PER_S:.0} scheduled): {quantile}", of(1, 0).median());
    let peer = "connections without a move, same rate";
    report.add(Row::limited(what("median"), Unit::Microseconds, of(1, 1), peer, of(0, 1), PAUSE_TARGET));
    report.add(Row::limited(what("99th percentile"), Unit::Microseconds, of(1, 2), peer, of(0, 2), P99_TARGET));
    Ok(())
}

/// Does `work`, and checks that all of its `connections` moved, or none.
fn checked(
    watari: &Watari,
    visitor: &Visitor,
    connections: u64,
    work: impl FnOnce() -> Result<Vec<f64>, Failure>,
) -> Result<Vec<f64>, Failure> {
    let before = watari.moves()?;
    let costs = work()?;
    let moved = watari.moves()? - before;
    let expected = if visitor.moved { connections } else { 0 };
    if moved == expected { Ok(costs) } else { Err(Failure::Moves { moved, expected }) }
}

/// Loopback addresses of clients that select `agent`.
pub(crate) fn addresses_selecting(agent: &str) -> Result<Vec<IpAddr>, Failure> {
    let name = |name| NodeName::new(name).map_err(tls("naming a node"));
    let agents = [name(MOVED_FROM)?, name(MOVED_TO)?].map(Candidate::new);
    let addresses = (1..=254).map(|last| IpAddr::from(Ipv4Addr::new(127, 201, 0, last)));
    let selects = |address: &IpAddr| by_client_address(*address, &agents).is_some_and(|by| by.name.as_str() == agent);
    Ok(addresses.filter(selects).collect())
}
