//! The resources of this machine that a plan needs.

use std::collections::HashMap;
use std::net::IpAddr;

use crate::limits::{Limits, Load, Shortage, Way};
use crate::plan::{Plan, Work};
use crate::site::Site;
use crate::source::Sources;

/// Checks whether `limits` suffice for `connections` of a plan that `processes` processes of this machine share.
pub fn check(limits: &Limits, plan: &Plan, connections: u64, processes: u64) -> Result<(), Shortage> {
    limits.check(&Load { connections, processes, ways: &ways(plan)? })
}

/// The address pairs of the connections, each with its share.
fn ways(plan: &Plan) -> Result<HashMap<Way, u64>, Shortage> {
    let mut ways = HashMap::new();
    for ((site, source), count) in servers(&plan.work) {
        for (source, share) in sources(source, plan.sources.as_ref()) {
            match (site.address_for(source), source) {
                (Some(destination), _) => *ways.entry(Way { source, destination }).or_default() += count * share,
                (None, Some(address)) => return Err(Shortage::NoDestination { address }),
                // The resolver has rejected hosts without addresses.
                (None, None) => {}
            }
        }
    }
    Ok(ways)
}

/// The number of requests to each server from each source address, as far as lines contain one.
fn servers(work: &Work) -> HashMap<(&Site, Option<IpAddr>), u64> {
    match work {
        Work::Requests(requests) => {
            let mut counts = HashMap::new();
            for (request, source) in requests.round() {
                *counts.entry((&*request.site, source)).or_default() += 1;
            }
            counts
        }
        Work::Flow { site, .. } => HashMap::from([((&**site, None), 1)]),
    }
}

/// The source addresses of lines: the line's own, or each address of the plan in turn.
fn sources(of_lines: Option<IpAddr>, of_all: Option<&Sources>) -> Vec<(Option<IpAddr>, u64)> {
    let of_all = of_all.map_or(&[][..], Sources::addresses);
    if of_lines.is_some() || of_all.is_empty() {
        vec![(of_lines, of_all.len().max(1) as u64)]
    } else {
        of_all.iter().map(|address| (Some(*address), 1)).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use super::*;
    use crate::list::AccessList;
    use crate::plan::{Pace, Protocol, Stop, Timeouts};
    use crate::requests::{Requests, Sites};
    use crate::tls::TlsOptions;

    fn ways_of(list: &str, sources: Option<&str>) -> Result<Vec<(String, u64)>, String> {
        let list = AccessList::parse("list", list, |_| unreachable!("no line names a file")).unwrap();
        let mut sites = Sites::default();
        sites.add(Arc::new(Site::resolve("http://127.0.0.1:80/").unwrap().0));
        let plan = Plan {
            work: Requests::prepare(&list, &sites).unwrap().into(),
            sources: sources.map(|text| text.parse().unwrap()),
            pace: Pace::Closed { connections: 1 },
            stop: Stop::default(),
            protocol: Protocol::Http1 { requests_per_connection: None, pipeline: 1 },
            tls: TlsOptions::default(),
            timeouts: Timeouts::default(),
            threads: 1,
        };
        let ways = ways(&plan).map_err(|shortage| shortage.to_string())?;
        let source = |way: &Way| way.source.map_or("-".to_owned(), |ip| ip.to_string());
        let mut shares: Vec<_> =
            ways.iter().map(|(way, share)| (format!("{} {}", source(way), way.destination), *share)).collect();
        shares.sort();
        Ok(shares)
    }

    fn expected(ways: &[(&str, u64)]) -> Vec<(String, u64)> {
        ways.iter().map(|(way, share)| ((*way).to_owned(), *share)).collect()
    }

    #[test]
    fn lines_without_a_source_share_those_of_all() {
        let list = "127.0.0.9 /a 0\n- /b 0 weight=3\n";
        assert_eq!(ways_of(list, None).unwrap(), expected(&[("- 127.0.0.1:80", 3), ("127.0.0.9 127.0.0.1:80", 1)]));
        let all = ways_of(list, Some("127.0.0.2-127.0.0.3"));
        let [b, c] = ["127.0.0.2 127.0.0.1:80", "127.0.0.3 127.0.0.1:80"].map(|way| (way, 3));
        assert_eq!(all.unwrap(), expected(&[b, c, ("127.0.0.9 127.0.0.1:80", 2)]));
    }

    #[test]
    fn a_source_has_a_destination_of_its_family() {
        let list = "127.0.0.1 /a 0\n::1 http://[::1]:81/ 0\n";
        let [v4, v6] = [("127.0.0.1 127.0.0.1:80", 1), ("::1 [::1]:81", 1)];
        assert_eq!(ways_of(list, None).unwrap(), expected(&[v4, v6]));
        let none = "::1 cannot reach the server, which has no address of its family: remove it from --source, or use another server";
        assert_eq!(ways_of("- /a 0\n", Some("127.0.0.1,::1")).unwrap_err(), none);
    }
}
