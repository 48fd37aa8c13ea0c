//! The cost of a handover for the client: a download continues from another origin, by order or because its origin
//! closes the connection.
//!
//! Two origins send at a steady pace, so that a download cannot make up for lost time. They are on the same machine, or
//! a round trip away. The lost time includes connecting and TCP's slow start.

mod delay;
mod download;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use watari_test_origins::{Content, Fault, Manners, Moment, Origin, Pace, Resource};

use crate::Scale;
use crate::clients::Clients;
use crate::connection::Opener;
use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::{Watari, nginx_as_origin};
use crate::site::Site;
use delay::{FAR_END, NEAR_END};
use download::{Download, PATH};

/// Target: the most time by which a handover makes a download longer, in seconds, besides the round trip of the request
/// for the rest.
const EXTRA_TARGET: f64 = 0.005;
/// Target: the largest share of the average rate that is missing in the worst second.
const DIP_TARGET: f64 = 0.05;

/// Round trip to the far origins.
const ROUND_TRIP: Duration = Duration::from_millis(30);

/// The event in the middle of a download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Nothing,
    Order,
    Cut,
}

impl Event {
    const ALL: [Self; 3] = [Self::Nothing, Self::Order, Self::Cut];
}

/// The place of the origins, and their rate.
struct Distance {
    name: &'static str,
    round_trip: Duration,
    bytes_per_s: u64,
    /// The address at which the origins listen, and the address to which the agent connects. `None`: loopback.
    ends: Option<[Ipv4Addr; 2]>,
}

/// Measures downloads from near and from far origins.
pub(crate) fn measure(site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let near = Distance { name: "loopback", round_trip: Duration::ZERO, bytes_per_s: 100_000_000, ends: None };
    compare(&near, site, scale, report)?;
    delay::lay(ROUND_TRIP)?;
    let ends = Some([NEAR_END, FAR_END]);
    let far = Distance { name: "30 ms away", round_trip: ROUND_TRIP, bytes_per_s: 10_000_000, ends };
    compare(&far, site, scale, report)
}

fn compare(distance: &Distance, site: &Site, scale: &Scale, report: &mut Report) -> Result<(), Failure> {
    let len = distance.bytes_per_s * scale.download_s;
    let resource = Resource::new(Content::generated(1, len));
    let manners = Manners {
        pace: Some(Pace::capped(distance.bytes_per_s)),
        ip: distance.ends.map(|[listening, _]| listening),
        ..Manners::default()
    };
    let origins = [(); 2].map(|()| Origin::start_with(resource.clone(), manners.clone()));
    let clients = Clients::new(site)?;
    let (_nginx, files) = nginx_as_origin(site, &clients)?;
    let asked = origins.each_ref().map(|origin| {
        let mut address = origin.address();
        address.set_ip(distance.ends.map_or(address.ip(), |[_, asked]| asked.into()));
        format!("\"http://{address}\"")
    });
    let proxy = format!(
        "[[agent.proxy.pool]]\nname = \"files\"\norigins = [\"http://{files}\"]\n\
         [[agent.proxy.pool]]\nname = \"downloads\"\norigins = [{}]\n\
         [[agent.proxy.route]]\npool = \"files\"\n[[agent.proxy.route]]\npath = \"{PATH}\"\npool = \"downloads\"\n",
        asked.join(", ")
    );
    let watari = Watari::forwarding(site, &clients, proxy)?;
    let opener = Opener::coming_from(vec![IpAddr::from(Ipv4Addr::LOCALHOST)], site)?;
    eprintln!("downloads, origins {} ..", distance.name);
    let costs = interleaved(scale.rounds, &Event::ALL, |event| {
        let faults: &[_] = if *event == Event::Cut { &[(Moment::Whole, Fault::Fin { after: len / 2 })] } else { &[] };
        for origin in &origins {
            origin.misbehave(faults);
        }
        let seen = asked_for_rest(&origins);
        let download = Download::run(&opener, &watari, &resource.content, *event == Event::Order)?;
        let (moved, expected) = (asked_for_rest(&origins) - seen, u64::from(*event != Event::Nothing));
        if moved != expected {
            return Err(Failure::Moves { moved, expected });
        }
        Ok(vec![download.took(), download.longest_pause(), download.worst_dip()])
    })?;
    add(distance, &costs, report);
    Ok(())
}

/// Number of requests to the origins for the rest of a download.
fn asked_for_rest(origins: &[Origin]) -> u64 {
    let requests = origins.iter().flat_map(Origin::requests);
    requests.filter(|asked| asked.method == "GET" && asked.range().is_some() && !asked.is_probe()).count() as u64
}

fn add(distance: &Distance, costs: &[Vec<Vec<f64>>], report: &mut Report) {
    let [nothing, moved @ ..] = costs else { unreachable!("a result for each event") };
    let limit = distance.round_trip.as_secs_f64() + EXTRA_TARGET;
    for (rounds, event) in moved.iter().zip(["ordered", "cut by the origin"]) {
        let name = |what: &str| format!("handover, {event}, {}: {what}", distance.name);
        let of = |rounds: &[Vec<f64>], at: usize| Samples::of(rounds, |figures| figures[at]);
        let beside = "no handover";
        let extra = rounds.iter().zip(nothing).map(|(moved, stayed)| moved[0] - stayed[0]).collect();
        let none = Samples::new(vec![0.0]);
        report.add(Row::limited(name("extra time"), Unit::Microseconds, Samples::new(extra), beside, none, limit));
        let pause = (of(rounds, 1), of(nothing, 1));
        report.add(Row::against(name("longest pause"), Unit::Microseconds, pause.0, beside, pause.1, None));
        let dip = (of(rounds, 2), of(nothing, 2));
        report.add(Row::limited(
            name("rate drop in the worst second"),
            Unit::Percent,
            dip.0,
            beside,
            dip.1,
            DIP_TARGET,
        ));
    }
}
