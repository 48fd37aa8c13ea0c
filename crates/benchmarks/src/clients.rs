//! Clients: loads of `watari_bench_engine`, each of an exact amount of work. They check every response.

mod work;

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use watari_bench_engine::connection_log::ConnectionLog;
use watari_bench_engine::load::{Finished, Load};
use watari_bench_engine::plan::{self, Pace, Plan, Protocol, Stop, Timeouts};
use watari_bench_engine::sample::ConnectionSample;
use watari_bench_engine::source::Sources;
use watari_bench_engine::tls::{Resume, TlsOptions};
use watari_bench_engine::users::Settings;
use watari_record::CipherSuite;

use crate::failure::{Failure, planning};
use crate::measure::Samples;
use crate::offer;
use crate::site::{Key, Site};
pub(crate) use work::Work;

/// Clients that check the certificate, the status and the length of responses, and the content of small responses.
pub(crate) struct Clients {
    tls: TlsOptions,
    /// Source addresses, in turn, for loads that would use up the ports of one address. `None`: the system chooses.
    sources: Option<Sources>,
    http: Http,
}

/// The version of HTTP that clients offer.
#[derive(Clone, Copy)]
enum Http {
    One,
    /// One request at a time on each connection, as with [`Http::One`].
    Two,
}

impl Clients {
    /// Clients whose source address the system chooses.
    pub(crate) fn new(site: &Site) -> Result<Self, Failure> {
        Self::coming_from(Vec::new(), site)
    }

    /// Clients that offer only the suite `offered`, and resume all connections but their first.
    pub(crate) fn returning(site: &Site, offered: CipherSuite) -> Result<Self, Failure> {
        let tls = TlsOptions { resume: Resume::Reuse, ..offer::options(site, offered)? };
        Ok(Self { tls, sources: None, http: Http::One })
    }

    /// Clients of HTTP/2.
    pub(crate) fn of_http2(site: &Site) -> Result<Self, Failure> {
        Ok(Self { http: Http::Two, ..Self::new(site)? })
    }

    /// Clients that use each of `sources` in turn.
    pub(crate) fn coming_from(sources: Vec<IpAddr>, site: &Site) -> Result<Self, Failure> {
        let tls = offer::options(site, CipherSuite::TLS_AES_128_GCM_SHA256)?;
        Ok(Self { tls, sources: Sources::of(sources), http: Http::One })
    }

    /// Begins a load of users who come back.
    pub(crate) fn begin_users(&self, service: SocketAddr, key: Key, settings: Settings) -> Result<Load, Failure> {
        let pace = Pace::Users { settings, connections_max: USERS_MAX };
        let plan = Plan { stop: Stop::default(), ..self.plan(service, &Work::of_visitors(key, pace, 0))? };
        Load::start(plan, None).map_err(planning)
    }

    /// Sends `work` to `service`. Returns an error unless all of the work succeeds.
    pub(crate) fn ask(&self, service: SocketAddr, work: &Work) -> Result<Finished, Failure> {
        self.ask_logged(service, work, None)
    }

    /// Like [`Self::ask`], for visitors. Also returns each visitor's time to the first byte, in seconds.
    pub(crate) fn ask_timed(&self, service: SocketAddr, work: &Work) -> Result<(Finished, Samples), Failure> {
        let waits = Arc::new(Waits::default());
        let finished = self.ask_logged(service, work, Some(Arc::clone(&waits) as Arc<dyn ConnectionLog>))?;
        Ok((finished, Samples::new(mem::take(&mut waits.lock()))))
    }

    fn ask_logged(
        &self,
        service: SocketAddr,
        work: &Work,
        log: Option<Arc<dyn ConnectionLog>>,
    ) -> Result<Finished, Failure> {
        let load = Load::start(self.plan(service, work)?, log).map_err(planning)?;
        let finished = load.finish();
        let failed = |what: String| {
            let causes = finished.causes.iter().map(|(cause, count)| format!("{count} x {cause}"));
            Failure::Load { service, what: [what].into_iter().chain(causes).collect::<Vec<_>>().join("; ") }
        };
        work.check(&finished.tally.total(), self.tls.resume).map_err(failed)?;
        Ok(finished)
    }

    fn plan(&self, service: SocketAddr, work: &Work) -> Result<Plan, Failure> {
        let requests_per_connection = work.requests_per_connection;
        let protocol = match self.http {
            Http::One => Protocol::Http1 { requests_per_connection, pipeline: 1 },
            Http::Two => Protocol::Http2 { streams: 1, requests_per_connection },
        };
        Ok(Plan {
            work: plan::Work::from(work.requests_to(service)?),
            sources: self.sources.clone(),
            pace: work.pace.clone(),
            stop: Stop { requests: Some(work.requests), after: None },
            protocol,
            tls: self.tls.clone(),
            timeouts: Timeouts { connect: WAIT_MAX, response: WAIT_MAX },
            // One for each processor, so that servers do not wait for clients.
            threads: thread::available_parallelism().map_or(1, NonZero::get),
        })
    }
}

/// Each visitor's time to the first byte, in seconds, from the end of the handshake, when the client is about to write
/// the request. The time after the write would be too late if the system lets the server run before the client.
#[derive(Debug, Default)]
struct Waits(Mutex<Vec<f64>>);

impl Waits {
    fn lock(&self) -> MutexGuard<'_, Vec<f64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionLog for Waits {
    fn ended(&self, connection: &ConnectionSample) {
        if let (Some(asked), Some(first_byte)) = (connection.secured, connection.first_byte) {
            self.lock().push(first_byte.saturating_sub(asked).as_secs_f64());
        }
    }
}

/// The most connections of users at a time.
const USERS_MAX: usize = 4000;

/// Timeout for connecting and for responses. Only a defect reaches it.
const WAIT_MAX: Duration = Duration::from_secs(20);
