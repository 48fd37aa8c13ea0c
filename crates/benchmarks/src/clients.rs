//! Those who ask: loads of `watari_bench`, each of an exact amount of work, which is checked.

mod work;

use std::mem;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use watari_bench::ConnectionLog;
use watari_bench::load::{Finished, Load};
use watari_bench::plan::{self, Plan, Protocol, Stop, Timeouts};
use watari_bench::sample::ConnectionSample;
use watari_bench::source::Sources;
use watari_bench::tls::{Resume, TlsOptions};
use watari_record::CipherSuite;

use crate::failure::{Failure, planning};
use crate::measure::Samples;
use crate::offer;
use crate::site::Site;
pub(crate) use work::Work;

/// Clients who check certificate, status, length and, of what is small, content.
pub(crate) struct Clients {
    tls: TlsOptions,
    /// The addresses they come from in turn, if that matters: one would run out of ports.
    sources: Option<Sources>,
}

impl Clients {
    /// Clients who come from wherever the system chooses.
    pub(crate) fn new(site: &Site) -> Result<Self, Failure> {
        Self::coming_from(Vec::new(), site)
    }

    /// Clients who offer this suite alone, and resume all but their first connection.
    pub(crate) fn returning(site: &Site, offered: CipherSuite) -> Result<Self, Failure> {
        let tls = TlsOptions { resume: Resume::Reuse, ..offer::options(site, offered)? };
        Ok(Self { tls, sources: None })
    }

    /// Clients who come from each of `sources` in turn.
    pub(crate) fn coming_from(sources: Vec<IpAddr>, site: &Site) -> Result<Self, Failure> {
        let tls = offer::options(site, CipherSuite::TLS_AES_128_GCM_SHA256)?;
        Ok(Self { tls, sources: Sources::of(sources) })
    }

    /// Has `service` do `work`. Half of it is none: anything but all of it is a failure.
    pub(crate) fn ask(&self, service: SocketAddr, work: &Work) -> Result<Finished, Failure> {
        self.ask_logged(service, work, None)
    }

    /// The same, of visitors; also tells how long each waited for the first byte of the answer, in seconds.
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
        Ok(Plan {
            work: plan::Work::from(work.requests_to(service)?),
            sources: self.sources.clone(),
            pace: work.pace.clone(),
            stop: Stop { requests: Some(work.requests), after: None },
            protocol: Protocol::Http1 { requests_per_connection: work.requests_per_connection, pipeline: 1 },
            tls: self.tls.clone(),
            timeouts: Timeouts { connect: PATIENCE, response: PATIENCE },
            // All that there are: nothing should wait for clients.
            threads: thread::available_parallelism().map_or(1, NonZero::get),
        })
    }
}

/// How long each visitor waited, in seconds, from the end of the handshake, when the request is about to be written. When it was written
/// is known too late where the system lets the server go on before the client.
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

/// Nothing here takes so long; without an end a mistake would.
const PATIENCE: Duration = Duration::from_secs(20);
