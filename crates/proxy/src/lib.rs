//! Forwards HTTP requests to origins.
//!
//! [`Proxy::respond`] sends one request to an origin, and returns the response. The host and path of the request select
//! the pool. Connections to origins use HTTP/1.1 or HTTP/2, with or without TLS, and are reused. Bodies stream in both
//! directions at the speed of the slower side, and are not stored.
//!
//! * A request goes to another origin if no origin has seen it: no connection could be made, or an idle one was closed
//!   before a byte was written. A request that may have reached an origin is repeated only if it has no body and is
//!   safe to repeat (RFC 9110, section 9.2.2). [`Balance`] limits the retries and selects the next origin.
//! * If an origin cuts a response short, or stops sending, the response to the client ends with an error. It never
//!   appears complete.
//! * Fields that only a proxy may set (`Forwarded`, `Client-Cert`, ..) are replaced by the true values. Trusted proxies
//!   may set fields about their clients.
//! * Responses are changed in this order: remove the origin's `Alt-Svc`, insert error pages, apply the route's rules,
//!   compress.
//! * The proxy requests an upgrade from the origin if the client does, over HTTP/1.1 or by the extended `CONNECT` of
//!   HTTP/2. If the origin accepts, a [`Tunnel`] comes with the response. The caller joins it to the client's
//!   connection.
//! * If a client sends `Expect: 100-continue`, it gets 100 (Continue) when its origin is ready to take the body. An
//!   origin can refuse before that.
//!
//! Not forwarded: `CONNECT`, `TRACE`, and other informational responses.

mod access;
mod access_log;
mod address;
mod admission;
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
mod origin_health;
mod path;
mod policy;
mod pool;
mod progress;
mod redirect;
mod request;
mod request_guards;
mod resolve;
mod resources;
mod routes;
mod rules;
mod shape;
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
pub use watari_body::{Body, BoxError};

pub use watari_handover::governor::{Damping, Metric, Settings as Governor, Slow, Unequal};
pub use watari_handover::{Equality, TransferConditions};

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

use crate::access_log::RequestTrace;
use crate::auth::Auth;
use crate::body::RequestBody;
use crate::clients::Clients;
use crate::failure::Failure;
use crate::pool::Pool;
use crate::request_guards::RequestGuards;
use crate::routes::Routes;
use crate::shape::Shape;
use crate::template::Facts;

/// Limits on the proxy's work. Every wait has a timeout, and every pool has a maximum size.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The timeout of connecting to an origin: all its addresses, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// The timeout from the end of a request to the head of its response. While a body is sent, the maximum time in
    /// which the origin takes no piece.
    pub response_timeout: Duration,
    /// The maximum pause of an origin within a response body.
    pub body_timeout: Duration,
    /// The minimum rate of a body of known length, in bytes per second, measured while the proxy waits for it: of a
    /// response on average over `body_timeout`, of a request over `response_timeout`. 0: no limit. Streams of unknown
    /// length (server-sent events, gRPC) may pause after each byte.
    pub body_rate_min: u32,
    /// The maximum number of origins that are tried for one request.
    pub attempts_max: usize,
    /// The maximum number of requests in flight to one origin. With [`Limits::idle_max`], this limits its connections.
    pub in_flight_max: usize,
    /// The maximum number of idle connections to one origin.
    pub idle_max: usize,
    /// The idle timeout of these connections.
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

/// The configuration of a proxy.
#[derive(Debug, Clone)]
pub struct Config {
    pub pools: Vec<PoolConfig>,
    /// The routes, which select a pool for a request.
    pub routes: Vec<Route>,
    /// The authorities that decide whether requests may proceed.
    pub auths: Vec<AuthConfig>,
    /// The limits of each client.
    pub clients: ClientLimits,
    pub access_log: Option<AccessLog>,
    /// The networks of trusted proxies, which may identify their clients in `Forwarded` and similar fields. The proxy
    /// forwards these fields, and appends its own values for the trusted proxy. It removes such fields of other
    /// clients.
    pub trusted_proxies: Vec<IpNet>,
    /// The pages that clients see after failures.
    pub error_pages: ErrorPages,
    /// Which responses are compressed. `None`: none are.
    pub compression: Option<Compression>,
}

impl Config {
    /// A configuration in which all requests go to one pool.
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
    /// Pools that get no more requests, for as long as they have requests in progress.
    retired: Vec<Weak<Pool>>,
    routes: Routes,
    auths: Vec<Auth>,
    clients: Arc<Clients>,
    access_log: Option<AccessLog>,
    shape: Shape,
    metrics: Metrics,
    /// The source of transfer ids.
    begun: Arc<AtomicU64>,
}

impl Proxy {
    /// Makes a proxy without connections. The caller must refuse a [`Config`] whose routes refer to missing pools or
    /// authorities.
    pub fn new(mut config: Config, metrics: Metrics) -> Result<Self, InvalidTransport> {
        let begun = Arc::default();
        let mut pools = Vec::new();
        for pool in std::mem::take(&mut config.pools) {
            pools.push(Arc::new(Pool::new(pool, &begun, &metrics)?));
        }
        Self::with(pools, Arc::new(Clients::new(config.clients.clone())), config, metrics, begun)
    }

    /// Like [`Proxy::new`], but replaces `old`. If `is_same` returns true for the name of a pool, its configuration is
    /// unchanged, and the pool continues with its connections, the state of its origins, and its transfers.
    pub fn succeed(mut config: Config, old: &Self, is_same: impl Fn(&str) -> bool) -> Result<Self, InvalidTransport> {
        let Self { metrics, begun, .. } = old;
        let pool = |pool: PoolConfig| match old.pools.iter().find(|old| old.name() == pool.name && is_same(&pool.name))
        {
            Some(same) => Ok(Arc::clone(same)),
            None => Pool::new(pool, begun, metrics).map(|pool| Arc::new(pool.after(&old.pools))),
        };
        let pools = std::mem::take(&mut config.pools).into_iter().map(pool).collect::<Result<_, _>>()?;
        // If the limits are unchanged, the counts of clients continue.
        let clients = if *old.clients.limits() == config.clients {
            Arc::clone(&old.clients)
        } else {
            Arc::new(Clients::new(config.clients.clone()))
        };
        let next = Self::with(pools, clients, config, metrics.clone(), Arc::clone(begun))?;
        Ok(Self { retired: old.retired_beside(&next.pools), ..next })
    }

    /// Makes a proxy with these pools, in place of those in `config`.
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

    /// Starts the health checks, and applies the settings of queues. Further calls have no effect.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.pools.iter().for_each(|pool| pool.start());
    }

    /// The metrics that this proxy updates.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Opens the access log again. New lines go to the new file.
    pub fn reopen_log(&self) {
        self.access_log.iter().for_each(AccessLog::reopen);
    }

    /// All pools, the retired ones last.
    fn pools(&self) -> impl Iterator<Item = Arc<Pool>> {
        self.pools.iter().cloned().chain(self.retired.iter().filter_map(Weak::upgrade))
    }

    /// The pools of this proxy that are not among `pools`.
    fn retired_beside(&self, pools: &[Arc<Pool>]) -> Vec<Weak<Pool>> {
        let mut retired: Vec<_> = self.pools().collect();
        retired.retain(|pool| !pools.iter().any(|other| Arc::ptr_eq(pool, other)));
        retired.iter().map(Arc::downgrade).collect()
    }

    /// Forwards a request of `client`, and returns the origin's response. If there is none, returns a short text with
    /// the reason.
    ///
    /// Dropping the future, or the response's body, cancels the exchange and closes its connection.
    pub async fn respond<B>(&self, request: Request<B>, client: &Client) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let accepted = self.shape.accepted(&request);
        let uri = request.uri().clone();
        let trace = Arc::default();
        let record = self.access_log.as_ref().map(|log| log.begin(&request, client, &trace));
        let mut kept = RequestGuards { record, ..RequestGuards::default() };
        let context = RequestContext { client, path: uri.path(), trace: &trace };
        let response = self.forward(request, context, &mut kept).await;
        let response = response.unwrap_or_else(|failure| self.failed(&failure, context));
        kept.until_end_of(self.shape.finish(response, accepted))
    }

    fn failed(&self, failure: &Failure, context: RequestContext<'_>) -> Response<Body> {
        self.metrics.count_failure(failure);
        failure.log(context.path, context.client);
        self.shape.failure(failure)
    }

    /// The response of the route that matches the request. Values that must live until the request has ended are put
    /// into `kept`.
    async fn forward<B>(
        &self,
        request: Request<B>,
        context: RequestContext<'_>,
        kept: &mut RequestGuards,
    ) -> Result<Response<Body>, Failure>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (mut head, body) = request.into_parts();
        let client = context.client;
        let claims = self.shape.claims(&head.headers, client);
        let host = request::rewrite(&mut head, !body.is_end_stream(), client)?;
        if let Some(claims) = claims {
            claims.precede(&mut head.headers);
        }
        kept.in_progress = self.clients.admit(client)?;
        let target = head.uri.path_and_query().cloned();
        let facts = Facts { client, host: &host, path: target.as_ref() };
        let path = path::plain(target.as_ref().map_or("/", PathAndQuery::path));
        let path = path.map_err(|_| Failure::BadRequest("ambiguous path"))?;
        let name = host.host();
        let route = self.routes.find(name, &path).map_err(Failure::NoRoute)?;
        route.rules.apply_to_request(&mut head.headers, facts);
        let matched = Matched { route, host: name, path: &path, facts };
        let response = self.ask(matched, head, body, context.trace, kept).await;
        let mut response = response.unwrap_or_else(|failure| self.failed(&failure, context));
        route.rules.response.apply(response.headers_mut(), facts);
        Ok(response)
    }

    async fn ask<B>(
        &self,
        Matched { route, host, path, facts }: Matched<'_>,
        mut head: Parts,
        body: B,
        trace: &Arc<RequestTrace>,
        kept: &mut RequestGuards,
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
        let response = pool.forward(request, upload.as_deref(), client, trace).await?;
        Ok(self.shape.answer(response))
    }

    /// The response of the route's authority, if it is for the client.
    async fn ask_authority(
        &self,
        route: &Route,
        head: &mut Parts,
        client: &Client,
    ) -> Result<Option<Response<Body>>, Failure> {
        match route.auth.map(|auth| self.auths.get(auth)) {
            None => Ok(None),
            // No authority can allow the request.
            Some(None) => Err(Failure::NoOrigin),
            // Boxed: this large future would enlarge the future of every request.
            Some(Some(auth)) => Box::pin(auth.ask(head, client)).await,
        }
    }
}

/// A request with its route.
struct Matched<'a> {
    route: &'a Route,
    /// Without a port.
    host: &'a str,
    /// In plain form, see [`path::plain`].
    path: &'a str,
    facts: Facts<'a>,
}

/// The client, and the path of its request.
#[derive(Clone, Copy)]
struct RequestContext<'a> {
    client: &'a Client,
    path: &'a str,
    trace: &'a Arc<RequestTrace>,
}
