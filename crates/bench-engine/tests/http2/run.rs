//! HTTP/2 loads on a server of the test.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::ending::Ending;
use watari_bench_engine::list::AccessList;
use watari_bench_engine::load::Load;
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts};
use watari_bench_engine::requests::{Requests, Sites};
use watari_bench_engine::sample::ConnectionSample;
use watari_bench_engine::site::Site;
use watari_bench_engine::tally::{Endings, Part};
use watari_bench_engine::tls::TlsOptions;

/// A closed loop on one thread.
pub(crate) fn plan(
    address: SocketAddr,
    tls: bool,
    line: &str,
    connections: usize,
    streams: usize,
    requests: u64,
) -> Plan {
    let scheme = if tls { "https" } else { "http" };
    let site = Arc::new(Site::resolve(&format!("{scheme}://{address}/")).unwrap().0);
    let sites = if tls { Sites { plain: None, tls: Some(site) } } else { Sites { plain: Some(site), tls: None } };
    let list = AccessList::parse("list", line, |name| std::fs::read(name).map(Into::into)).unwrap();
    Plan {
        work: Requests::prepare(&list, &sites).unwrap().into(),
        sources: None,
        pace: Pace::Closed { connections },
        stop: Stop { requests: Some(requests), after: None },
        protocol: Protocol::Http2 { streams, requests_per_connection: None },
        tls: TlsOptions::default(),
        timeouts: Timeouts { connect: Duration::from_mins(1), response: Duration::from_mins(1) },
        threads: 1,
    }
}

/// The results of a run.
pub(crate) struct Ran {
    pub(crate) total: Part,
    pub(crate) connections: Vec<ConnectionSample>,
}

pub(crate) fn run(plan: Plan) -> Ran {
    let log = Arc::new(Log::default());
    let finished = Load::start(plan, Some(Arc::clone(&log) as Arc<dyn ConnectionLog>)).unwrap().finish();
    assert_eq!(finished.tally.given_up(), 0);
    let connections = log.0.lock().unwrap().clone();
    Ran { total: finished.tally.total(), connections }
}

/// Endings as text, with their counts.
pub(crate) fn shown(endings: &Endings) -> Vec<(String, u64)> {
    endings.iter().map(|(ending, count)| (ending.to_string(), count)).collect()
}

pub(crate) fn all(ending: &str, count: u64) -> Vec<(String, u64)> {
    vec![(ending.to_owned(), count)]
}

/// The endings of connections, in order.
pub(crate) fn endings(connections: &[ConnectionSample]) -> Vec<String> {
    connections.iter().map(|sample| sample.ending).map(|ending: Ending| ending.to_string()).collect()
}

#[derive(Debug, Default)]
struct Log(Mutex<Vec<ConnectionSample>>);

impl ConnectionLog for Log {
    fn ended(&self, sample: &ConnectionSample) {
        self.0.lock().unwrap().push(sample.clone());
    }
}
