//! HTTP forwarded to origins.
//!
//! [`Proxy::respond`] answers one request by asking an origin of the pool that the request's host and path lead to, in HTTP/1.1
//! or HTTP/2, plainly or by TLS, over connections that are kept. Bodies stream both ways as fast as the slower side takes
//! them; nothing is kept of them.
//!
//! * A request goes to another origin while it is untouched: no connection could be had, or the one that was
//!   kept turned out closed before a byte was written. One that may have reached an origin is sent again only if
//!   it has no body and repeating it is harmless (RFC 9110, section 9.2.2). [`Balance`] says how often, and who is next.
//! * A response that an origin cuts short, or stops sending, ends with an error and never as if it were complete.
//! * What the client says about itself in fields that only a proxy may set (`Forwarded`, `Client-Cert`, ..) is replaced
//!   by what is true, but for what trusted proxies say of their clients.
//! * Responses are changed in this order: `Alt-Svc` of origins goes, error pages stand in, the rules of the route are
//!   applied, and what is left is compressed.
//! * An upgrade is asked for where the client asks, over HTTP/1.1 or by the extended `CONNECT` of HTTP/2. If the origin
//!   agrees, a [`Tunnel`] comes with the response: its taker joins it to the client's connection.
//! * A client that asks before it sends a body is told to continue when its origin is willing to take it; one that is not may
//!   say so before.
//!
//! Not forwarded: `CONNECT`, `TRACE`, and other informational responses.

mod access;
mod access_log;
mod address;
mod admission;
mod attended;
mod auth;
mod body;
mod check;
mod choice;
mod client;
mod clients;
mod compress;
mod connect;
mod connections;
mod error_pages;
mod failure;
mod fields;
mod forwarded;
mod metrics;
mod operate;
mod origin;
mod path;
mod policy;
mod pool;
mod progress;
mod redirect;
mod request;
mod resolve;
mod resources;
mod routes;
mod rules;
mod shape;
mod standing;
mod sticky;
mod template;
mod tls;
mod transfer;
mod transfers;
mod tunnel;
mod upgrade;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::EXPECT;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{Request, Response};
use ipnet::IpNet;

pub use watari_admission::{InvalidPattern, Limits as QueueLimits, Pattern, QueueSettings, RateLimit, Rule};
pub use watari_files::{Body, BoxError};

pub use watari_handover::governor::{Damping, Metric, Settings as Governor, Slow, Unequal};
pub use watari_handover::{Equality, Terms};

pub use crate::access::Access;
pub use crate::access_log::{AccessLog, LogFormat};
pub use crate::address::{InvalidOrigin, OriginAddress};
pub use crate::admission::QueueStatus;
pub use crate::auth::{AuthConfig, AuthUrl, InvalidAuthUrl};
pub use crate::check::{Check, HttpCheck};
pub use crate::client::Client;
pub use crate::clients::ClientLimits;
pub use crate::compress::Compression;
pub use crate::connect::{HttpVersion, InvalidTransport, Transport};
pub use crate::error_pages::{ErrorPage, ErrorPages, InvalidStatuses, Statuses};
pub use crate::metrics::Metrics;
pub use crate::operate::{Impossible, OriginStatus, PoolStatus, ResourceStatus, TransferStatus};
pub use crate::policy::{Balance, HashKey, InvalidHashKey, RetryOn};
pub use crate::pool::{Handover, OriginConfig, PoolConfig};
pub use crate::redirect::{InvalidRedirect, Redirect};
pub use crate::resolve::{Resolution, Resolver, Resolving};
pub use crate::routes::{Destination, HostPattern, InvalidHost, InvalidPath, PathPrefix, Refusal, Route};
pub use crate::rules::{HeaderRules, InvalidRule, Rules};
pub use crate::sticky::{InvalidSticky, Sticky};
pub use crate::template::{InvalidTemplate, Template};
pub use crate::tls::{InvalidTls, OriginTls, client_config};
pub use crate::tunnel::{Tunnel, TunnelBroken};

use crate::access_log::Journey;
use crate::attended::Kept;
use crate::auth::Auth;
use crate::body::RequestBody;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::pool::Pool;
use crate::routes::Routes;
use crate::shape::Shape;
use crate::template::Facts;

/// What bounds the proxy's work; every wait has an end and every pool a size.
#[derive(Debug, Clone)]
pub struct Limits {
    /// How long connecting to an origin may take, at all its addresses, its name's resolution and TLS included.
    pub connect_timeout: Duration,
    /// How long an origin may take from the end of a request to the head of its response. While a body is being sent,
    /// how long it may go without taking a piece.
    pub response_timeout: Duration,
    /// How long an origin may pause in the middle of a response body.
    pub body_timeout: Duration,
    /// Bytes per second that have to come of a body whose length is known, while it is waited for: of a response on average over
    /// `body_timeout`, of a request over `response_timeout`. 0: any. Streams of unknown length (server-sent events, gRPC) may pause
    /// after each byte.
    pub body_rate_min: u32,
    /// How many origins are tried for one request.
    pub attempts_max: usize,
    /// Requests that one origin is given at the same time; with [`Limits::idle_max`] this bounds its connections.
    pub in_flight_max: usize,
    /// Connections to one origin that are kept for later requests.
    pub idle_max: usize,
    /// How long they are kept.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_mins(1),
            body_rate_min: 240,
            attempts_max: 3,
            in_flight_max: 1024,
            idle_max: 128,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// What a proxy does: which requests go where.
#[derive(Debug, Clone)]
pub struct Config {
    /// Origins.
    pub pools: Vec<PoolConfig>,
    /// Who gets which requests.
    pub routes: Vec<Route>,
    /// Who says whether requests may go on.
    pub auths: Vec<AuthConfig>,
    /// What each client may ask for.
    pub clients: ClientLimits,
    /// Where requests are logged.
    pub access_log: Option<AccessLog>,
    /// Where proxies are that may say, by `Forwarded` and its relatives, who their clients are. What they say is passed on, with
    /// what is true of them themselves behind it; what others say is removed.
    pub trusted_proxies: Vec<IpNet>,
    /// What clients see of failures.
    pub error_pages: ErrorPages,
    /// Which responses are compressed. `None`: none are.
    pub compression: Option<Compression>,
}

impl Config {
    /// All requests go to one pool.
    pub fn one_pool(pool: PoolConfig) -> Self {
        Self {
            pools: vec![pool],
            routes: vec![Route::to_pool(None, PathPrefix::all(), 0)],
            auths: Vec::new(),
            clients: ClientLimits::default(),
            access_log: None,
            trusted_proxies: Vec::new(),
            error_pages: ErrorPages::default(),
            compression: None,
        }
    }
}

/// Forwards requests to pools of origins.
#[derive(Debug)]
pub struct Proxy {
    pools: Vec<Arc<Pool>>,
    /// Those that have no more requests to come, for as long as they have some.
    retired: Vec<Weak<Pool>>,
    routes: Routes,
    auths: Vec<Auth>,
    clients: Arc<Clients>,
    access_log: Option<AccessLog>,
    shape: Shape,
    metrics: Metrics,
    /// Numbers transfers.
    begun: Arc<AtomicU64>,
}

impl Proxy {
    /// Nothing is connected yet. Routes to what is not there are refused as such by whoever makes a [`Config`].
    pub fn new(mut config: Config, metrics: Metrics) -> Result<Self, InvalidTransport> {
        let begun = Arc::default();
        let mut pools = Vec::new();
        for pool in std::mem::take(&mut config.pools) {
            pools.push(Arc::new(Pool::new(pool, &begun, &metrics)?));
        }
        Self::with(pools, Arc::new(Clients::new(config.clients.clone())), config, metrics, begun)
    }

    /// As [`Proxy::new`], in place of `old`. Pools that are configured as before, as `is_same` says of their names, go
    /// on with their connections, what is known of their origins, and their transfers.
    pub fn succeed(mut config: Config, old: &Self, is_same: impl Fn(&str) -> bool) -> Result<Self, InvalidTransport> {
        let Self { metrics, begun, .. } = old;
        let pool = |pool: PoolConfig| match old.pools.iter().find(|old| old.name() == pool.name && is_same(&pool.name))
        {
            Some(same) => Ok(Arc::clone(same)),
            None => Pool::new(pool, begun, metrics).map(|pool| Arc::new(pool.after(&old.pools))),
        };
        let pools = std::mem::take(&mut config.pools).into_iter().map(pool).collect::<Result<_, _>>()?;
        // What clients have asked for still counts, unless it is counted otherwise now.
        let clients = if *old.clients.limits() == config.clients {
            Arc::clone(&old.clients)
        } else {
            Arc::new(Clients::new(config.clients.clone()))
        };
        let next = Self::with(pools, clients, config, metrics.clone(), Arc::clone(begun))?;
        Ok(Self { retired: old.retired_beside(&next.pools), ..next })
    }

    /// With these pools in place of those that are configured.
    fn with(
        pools: Vec<Arc<Pool>>,
        clients: Arc<Clients>,
        config: Config,
        metrics: Metrics,
        begun: Arc<AtomicU64>,
    ) -> Result<Self, InvalidTransport> {
        let auths = config.auths.into_iter().map(|auth| Auth::new(auth, &metrics)).collect::<Result<_, _>>()?;
        Ok(Self {
            pools,
            retired: Vec::new(),
            routes: Routes::new(config.routes),
            auths,
            clients,
            access_log: config.access_log,
            shape: Shape::new(config.trusted_proxies, config.error_pages, config.compression),
            metrics,
            begun,
        })
    }

    /// Takes effect: from now on origins are checked, where that is wanted, and the settings of queues hold; once is enough.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.pools.iter().for_each(|pool| pool.start());
    }

    /// Where it counts.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Has what is logged from now on written to a file that is opened anew.
    pub fn reopen_log(&self) {
        self.access_log.iter().for_each(AccessLog::reopen);
    }

    /// All that there are, the ones that others have taken the place of last.
    fn pools(&self) -> impl Iterator<Item = Arc<Pool>> {
        self.pools.iter().cloned().chain(self.retired.iter().filter_map(Weak::upgrade))
    }

    /// Those of this proxy that are not among `pools`.
    fn retired_beside(&self, pools: &[Arc<Pool>]) -> Vec<Weak<Pool>> {
        let mut retired: Vec<_> = self.pools().collect();
        retired.retain(|pool| !pools.iter().any(|other| Arc::ptr_eq(pool, other)));
        retired.iter().map(Arc::downgrade).collect()
    }

    /// Forwards a request of `client` and returns the origin's response, or a short text that says why there is none.
    ///
    /// Dropping the future, or the response's body, gives up the exchange and closes its connection.
    pub async fn respond<B>(&self, request: Request<B>, client: &Client) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let accepted = self.shape.accepted(&request);
        let uri = request.uri().clone();
        let journey = Arc::default();
        let record = self.access_log.as_ref().map(|log| log.begin(&request, client, &journey));
        let mut kept = Kept { record, ..Kept::default() };
        let asker = Asker { client, path: uri.path(), journey: &journey };
        let response = self.forward(request, asker, &mut kept).await;
        let response = response.unwrap_or_else(|failure| self.failed(&failure, asker));
        kept.until_end_of(self.shape.finish(response, accepted))
    }

    fn failed(&self, failure: &Failure, asker: Asker<'_>) -> Response<Body> {
        self.metrics.count_failure(failure);
        failure.log(asker.path, asker.client);
        self.shape.failure(failure)
    }

    /// What the client is told by the route of its request, if there is one. What has to last as long as the request is in
    /// progress comes to be `kept`.
    async fn forward<B>(
        &self,
        request: Request<B>,
        asker: Asker<'_>,
        kept: &mut Kept,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let client = asker.client;
        let claims = self.shape.claims(&head.headers, client);
        let host = request::rewrite(&mut head, !body.is_end_stream(), client)?;
        if let Some(claims) = claims {
            claims.precede(&mut head.headers);
        }
        kept.in_progress = self.clients.admit(client)?;
        let target = head.uri.path_and_query().cloned();
        let facts = Facts { client, host: &host, path: target.as_ref() };
        let path = path::plain(target.as_ref().map_or("/", PathAndQuery::path));
        let path = path.map_err(|_| Failure::BadRequest("a path that may lead elsewhere"))?;
        let name = host.host();
        let route = self.routes.find(name, &path).map_err(Failure::NoRoute)?;
        route.rules.apply_to_request(&mut head.headers, facts);
        let matched = Matched { route, host: name, path: &path, facts };
        let response = self.ask(matched, head, body, asker.journey, kept).await;
        let mut response = response.unwrap_or_else(|failure| self.failed(&failure, asker));
        route.rules.response.apply(response.headers_mut(), facts);
        Ok(response)
    }

    async fn ask<B>(
        &self,
        Matched { route, host, path, facts }: Matched<'_>,
        mut head: Parts,
        body: B,
        journey: &Arc<Journey>,
        kept: &mut Kept,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let client = facts.client;
        if !route.access.admits(client.address().ip()) {
            return Err(Failure::NotAllowed);
        }
        let pool = match &route.to {
            Destination::Pool(pool) => self.pools.get(*pool).ok_or(Failure::NoOrigin)?,
            Destination::Refused(refusal) => return Err(Failure::Refused(*refusal)),
            Destination::Redirect(redirect) => return Ok(redirect.response(facts)),
        };
        let (body, upload) = RequestBody::wrap(self.clients.bound(body)?, head.headers.contains_key(EXPECT));
        if let Some(answer) = self.ask_authority(route, &mut head, client).await? {
            return Ok(self.shape.answer(answer));
        }
        kept.place = pool.enter(host, path, self.clients.network(client)).await?;
        let request = Box::new(Request::from_parts(head, body));
        let response = pool.forward(request, upload.as_deref(), client, journey).await?;
        Ok(self.shape.answer(response))
    }

    /// The answer of whom the route names, if it is for the client.
    async fn ask_authority(
        &self,
        route: &Route,
        head: &mut Parts,
        client: &Client,
    ) -> Result<Option<Response<Body>>, Failure> {
        match route.auth.map(|auth| self.auths.get(auth)) {
            None => Ok(None),
            // Nobody can say that it may go on.
            Some(None) => Err(Failure::NoOrigin),
            // Long: it would make room for itself in every request.
            Some(Some(auth)) => Box::pin(auth.ask(head, client)).await,
        }
    }
}

/// What is asked for, and what is to be done about that.
struct Matched<'a> {
    route: &'a Route,
    /// Without a port.
    host: &'a str,
    /// In its plain form.
    path: &'a str,
    facts: Facts<'a>,
}

/// Who asks, and what for.
#[derive(Clone, Copy)]
struct Asker<'a> {
    client: &'a Client,
    path: &'a str,
    journey: &'a Arc<Journey>,
}
