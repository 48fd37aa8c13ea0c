//! Moves right after the handshake.
//!
//! One agent does all handshakes. The connections of clients whose addresses select it stay there, those of others are moved to
//! an agent without a private key: the same processes, the same work, and the move is the difference.

use std::net::{IpAddr, Ipv4Addr};
use watari_balance::{Candidate, by_client_address};
use watari_wire::NodeName;

use crate::Scale;
use crate::clients::Clients;
use crate::failure::{Failure, tls};
use crate::load;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{MOVED_FROM, MOVED_TO, Watari};
use crate::site::{Key, Site};

/// The most of a whole connection's CPU that a move should take.
const COST_TARGET: f64 = 0.2;
/// The most that the first answer on a moved connection should take, in seconds.
const PAUSE_TARGET: f64 = 0.000_6;
/// How many connections come in a second where their rate is fixed.
const RATE_PER_S: f64 = 1_000.0;

/// Clients whose connections all stay, or are all moved.
struct Visitor {
    clients: Clients,
    moved: bool,
}

/// Measures what a move costs, and how long it takes.
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
    let what = "one move: dispatcher and agents, moved less stayed".to_owned();
    let whole = "a connection that stays, RSA-2048, all in";
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

/// One connection after the other, so that nothing waits for anything but the move.
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
        "the same on a connection that stays",
        stayed,
        PAUSE_TARGET,
    ));
    Ok(())
}

/// Connections that come at a fixed rate, whatever becomes of those before them.
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
    let what = |quantile| {
        format!("pause at {:.0} moves a second (of {RATE_PER_S:.0} asked for): {quantile}", of(1, 0).median())
    };
    let peer = "the same rate of connections that stay";
    report.add(Row::limited(what("median"), Unit::Microseconds, of(1, 1), peer, of(0, 1), PAUSE_TARGET));
    report.add(Row::against(what("99th percentile"), Unit::Microseconds, of(1, 2), peer, of(0, 2), None));
    Ok(())
}

/// Does `work`, and checks that its `connections` were moved, or were not, as they should.
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

/// Loopback addresses of clients whose data `agent` gets.
fn addresses_selecting(agent: &str) -> Result<Vec<IpAddr>, Failure> {
    let name = |name| NodeName::new(name).map_err(tls("naming a node"));
    let agents = [name(MOVED_FROM)?, name(MOVED_TO)?].map(Candidate::new);
    let addresses = (1..=254).map(|last| IpAddr::from(Ipv4Addr::new(127, 201, 0, last)));
    let selects = |address: &IpAddr| by_client_address(*address, &agents).is_some_and(|by| by.name.as_str() == agent);
    Ok(addresses.filter(selects).collect())
}
