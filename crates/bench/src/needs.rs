//! What a plan needs of the machine that follows it.

use std::net::{IpAddr, SocketAddr};

use crate::limits::{Limits, Load, Shortage};
use crate::plan::{Plan, Work};
use crate::site::Site;

/// Whether `limits` are enough for `connections` of a plan that so many processes of this machine share.
pub fn check(limits: &Limits, plan: &Plan, connections: u64, processes: u64) -> Result<(), Shortage> {
    let sources = sources(plan);
    let destinations = destinations(plan, !sources.is_empty());
    limits.check(&Load { connections, processes, sources: &sources, destinations: &destinations })
}

/// Those of lines come before those of the whole: lines that name none are few where others do.
fn sources(plan: &Plan) -> Vec<IpAddr> {
    let of_lines: Vec<_> = match &plan.work {
        Work::Requests(requests) => requests.sources().collect(),
        Work::Flow { .. } => Vec::new(),
    };
    match &plan.sources {
        Some(sources) if of_lines.is_empty() => sources.addresses().to_vec(),
        _ => of_lines,
    }
}

fn destinations(plan: &Plan, sources_decide: bool) -> Vec<SocketAddr> {
    let of = |site: &Site| match (sources_decide, site.address_for(None)) {
        (true, _) => [site.ipv4, site.ipv6].into_iter().flatten().collect::<Vec<_>>(),
        (false, address) => address.into_iter().collect(),
    };
    match &plan.work {
        Work::Requests(requests) => requests.sites().flat_map(of).collect(),
        Work::Flow { site, .. } => of(site),
    }
}
