//! Pools: origins that serve the same routes. A pool selects an origin for each request, makes the exchange with it,
//! and tries others if the retry rules allow it.
//!
//! Imports from `route` (policies, cookies), `admit` (the queue, authorities), `transport`, `observe` and `exchange`.

pub(crate) mod authority;
pub(crate) mod check;
mod choice;
mod health;
pub(crate) mod origin;
pub(crate) mod resolve;
pub(crate) mod response_body;

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use http::request::Parts;
use http::{HeaderMap, Response};
use tokio::task::JoinSet;
use tokio::time::Instant;
use watari_admission::QueueSettings;
use watari_balance::Outliers;
use watari_body::BoxedRequest;
use watari_handover::TransferConditions;
use watari_handover::governor::{OriginId, OriginView, Settings};

use crate::admit::queue::{Admission, Place};
use crate::exchange::address::OriginAddress;
use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::exchange::limits::Limits;
use crate::observe::access_log::RequestTrace;
use crate::observe::metrics::Metrics;
use crate::pool::check::Check;
use crate::pool::choice::{AfterAttempt, Choice};
use crate::pool::health::{Name, OriginHealth};
use crate::pool::origin::{Origin, OriginConfig};
use crate::pool::resolve::Resolution;
use crate::pool::response_body::ResponseBody;
use crate::route::policy::Balance;
use crate::route::sticky::{Stickiness, Sticky};
use crate::transport::connect::{InvalidTransport, Transport};
use crate::transport::request;
use crate::transport::upload::Upload;

/// The configuration of a pool.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The name in metrics and in operators' commands.
    pub name: String,
    /// The origins. A pool without any responds with 503.
    pub origins: Vec<OriginConfig>,
    pub transport: Transport,
    /// How the names of origins are resolved.
    pub resolution: Resolution,
    /// How the origin of a request is selected.
    pub balance: Balance,
    /// The health checks. `None`: only requests show the health of origins.
    pub check: Option<Check>,
    pub limits: Limits,
    /// How transfers continue at another origin. `None`: they do not.
    pub handover: Option<Handover>,
    /// The limits of requests in progress, and of those that wait. `None`: no limits, and no request waits.
    pub queue: Option<QueueSettings>,
    /// The cookie that binds clients to an origin. `None`: clients are not bound.
    pub sticky: Option<Sticky>,
}

/// How transfers of a pool continue at another origin.
#[derive(Debug, Clone)]
pub struct Handover {
    /// The evidence that origins have the same bytes.
    pub conditions: TransferConditions,
    /// The minimum length of a response that can move, in bytes. A shorter one is requested again just as fast.
    pub length_min: u64,
    /// When transfers move although their origin has not failed, and the limits on moves.
    pub governor: Settings,
}

impl Default for Handover {
    fn default() -> Self {
        Self { conditions: TransferConditions::default(), length_min: 64 * 1024, governor: Settings::default() }
    }
}

impl PoolConfig {
    /// A pool with default settings.
    pub fn plain(name: &str, origins: impl IntoIterator<Item = OriginAddress>) -> Self {
        let origins = origins.into_iter().map(OriginConfig::from).collect();
        Self {
            name: name.to_owned(),
            origins,
            transport: Transport::default(),
            resolution: Resolution::default(),
            balance: Balance::default(),
            check: None,
            limits: Limits::default(),
            handover: Some(Handover::default()),
            queue: None,
            sticky: None,
        }
    }
}

/// A running pool.
#[derive(Debug)]
pub(crate) struct Pool {
    origins: Vec<Arc<Origin>>,
    choice: Choice,
    check: Option<Check>,
    /// The tasks end with the pool.
    tasks: OnceLock<JoinSet<()>>,
    admission: Option<Arc<Admission>>,
    /// The settings of the queue until [`Pool::start`] applies them.
    queue: Mutex<Option<QueueSettings>>,
    stickiness: Option<Stickiness>,
    name: String,
}

/// The response of an origin.
pub(crate) struct Answer {
    pub(crate) response: Response<ResponseBody>,
    pub(crate) origin: OriginId,
    /// The head of the request, if it can be repeated.
    pub(crate) again: Option<Box<Parts>>,
}

impl Pool {
    /// Makes a pool without connections.
    pub(crate) fn new(config: PoolConfig, metrics: &Metrics) -> Result<Self, InvalidTransport> {
        let origins = origins(&config, metrics)?;
        let stickiness =
            |sticky| Stickiness::new(sticky, &config.name, origins.iter().map(|origin: &Arc<Origin>| &origin.address));
        let stickiness = config.sticky.map(stickiness);
        let retries = metrics.retries(&config.name);
        let choice = Choice::new(config.balance, config.limits.attempts_max, retries, Instant::now());
        Ok(Self {
            stickiness,
            origins,
            choice,
            check: config.check,
            tasks: OnceLock::new(),
            admission: config.queue.clone().map(|queue| Admission::new(queue, metrics.of_queue(&config.name))),
            queue: Mutex::new(config.queue),
            name: config.name,
        })
    }

    /// Waits for a slot at the origins, for a request of `client` for `path` at `host`.
    pub(crate) async fn enter(&self, host: &str, path: &str, client: IpAddr) -> Result<Option<Place>, Failure> {
        let Some(admission) = &self.admission else { return Ok(None) };
        admission.enter(host, path, client).await.map(Some).map_err(Failure::QueueFull)
    }

    /// Replaces a pool of the same name. Origins that are being drained still are, and new origins start slowly. The
    /// requests of both pools are in one queue. The results of health checks stay valid.
    pub(crate) fn after(mut self, old: &[&Self]) -> Self {
        let former = old.iter().find(|pool| pool.name == self.name);
        if let (Some(queue), Some(former)) = (&mut self.admission, former.and_then(|pool| pool.admission.as_ref())) {
            *queue = Arc::clone(former);
        }
        for origin in &self.origins {
            let same = |pool: &&Self| pool.origins.iter().find(|other| other.address == origin.address).cloned();
            match former.map(same) {
                Some(None) => origin.health_of.appeared(Instant::now().into_std()),
                // Without checks, nothing would show that the origin has recovered.
                Some(Some(same)) if self.check.is_some() => origin.health_of.follows(&same.health_of),
                Some(Some(_)) | None => {}
            }
            let known = old.iter().flat_map(|pool| &pool.origins).filter(|other| other.address == origin.address);
            origin.set_draining(known.into_iter().any(|other| other.is_draining()));
        }
        self
    }

    /// Starts the checks and the closing of idle connections, and applies the settings of the queue. Further calls have
    /// no effect.
    pub(crate) fn start(&self) {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(admission), Some(queue)) = (&self.admission, queue) {
            admission.reconfigure(queue);
        }
        self.tasks.get_or_init(|| {
            let mut tasks = self.check.as_ref().map_or_else(JoinSet::new, |check| check::start(&self.origins, check));
            for origin in &self.origins {
                tasks.spawn(Arc::clone(origin).keep_tidy());
            }
            tasks
        });
    }

    /// Sends `request` to an origin, and to others if the retry rules allow it.
    pub(crate) async fn forward(
        &self,
        mut request: BoxedRequest,
        upload: Option<&Upload>,
        client: &Client,
        trace: &RequestTrace,
    ) -> Result<Answer, Failure> {
        let is_repeatable = request::is_repeatable(&request.head, upload);
        let wanted = self.wanted(&request.head.headers);
        let mut now = Instant::now();
        let mut tries = self.choice.tries(&self.origins, wanted, &request.head, client, now);
        let mut failure = Failure::NoOrigin;
        while let Some(index) = tries.next(now) {
            trace.tries(&self.origins[index].address);
            let outcome = self.origins[index].exchange(&mut request, upload, client).await;
            match tries.judge(outcome, is_repeatable) {
                AfterAttempt::Again(why) => (failure, now) = (why, Instant::now()),
                AfterAttempt::End(ended) => {
                    let mut response = ended?;
                    if wanted != Some(index) {
                        self.set_cookie(response.headers_mut(), index);
                    }
                    let again = is_repeatable.then_some(request.head);
                    return Ok(Answer { response, origin: origin_id(index), again });
                }
            }
        }
        Err(failure)
    }

    /// The index of the origin that a client is bound to.
    fn wanted(&self, headers: &HeaderMap) -> Option<usize> {
        self.stickiness.as_ref()?.wanted(headers)
    }

    /// Binds a client to an origin.
    fn set_cookie(&self, headers: &mut HeaderMap, origin: usize) {
        if let Some(stickiness) = &self.stickiness {
            stickiness.set_cookie(headers, origin);
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn origins(&self) -> &[Arc<Origin>] {
        &self.origins
    }

    pub(crate) fn admission(&self) -> Option<&Arc<Admission>> {
        self.admission.as_ref()
    }

    /// The origin with this id.
    pub(crate) fn origin(&self, id: OriginId) -> &Arc<Origin> {
        &self.origins[id.0 as usize]
    }

    /// The id of the origin with this address.
    pub(crate) fn find(&self, address: &OriginAddress) -> Option<OriginId> {
        self.origins.iter().position(|origin| origin.address == *address).map(origin_id)
    }

    /// The state of all origins.
    pub(crate) fn views(&self) -> Vec<OriginView> {
        let now = Instant::now();
        self.origins.iter().enumerate().map(|(index, origin)| origin.view(origin_id(index), now)).collect()
    }
}

fn origins(config: &PoolConfig, metrics: &Metrics) -> Result<Vec<Arc<Origin>>, InvalidTransport> {
    let limits = Arc::new(config.limits.clone());
    let outliers = Arc::new(Mutex::new(Outliers::new(config.balance.outliers)));
    let health_of = |(index, origin): (usize, &OriginConfig)| {
        let name = Name { address: origin.address.to_string().into(), index };
        let metrics = metrics.of_standing(&config.name, &origin.address);
        OriginHealth::new(name, Arc::clone(&outliers), config.balance.slow_start, metrics)
    };
    let standings: Vec<_> = config.origins.iter().enumerate().map(health_of).collect();
    let names = standings.iter().map(|health_of| health_of.name.clone());
    outliers.lock().unwrap_or_else(PoisonError::into_inner).configure(names, Instant::now().into_std());
    let origin = |(origin, health_of): (&OriginConfig, _)| {
        let (transport, resolution) = (&config.transport, config.resolution.clone());
        Origin::new(origin.clone(), health_of, transport, resolution, &limits, metrics).map(Arc::new)
    };
    config.origins.iter().zip(standings).map(origin).collect()
}

fn origin_id(index: usize) -> OriginId {
    OriginId(u32::try_from(index).expect("a pool has fewer than 2^32 origins"))
}
