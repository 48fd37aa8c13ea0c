//! The proxy: the steps of a request, from the client's request to the client's response.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Weak};

use http::header::{EXPECT, HOST};
use http::request::Parts;
use http::uri::{self, PathAndQuery};
use http::{Method, Response, StatusCode};
use http_body::Body as _;
use watari_body::{Body, BoxedRequest, empty};

use crate::admit::clients::Clients;
use crate::admit::forwarded::TrustedProxies;
use crate::admit::request_guards::RequestGuards;
use crate::cache::answering::passed;
use crate::cache::handle::CacheHandle;
use crate::cache::owners::{self, AskedTerms, HandedOn};
use crate::cache::stage::{Stage, at_hand, goes_around, invalidated, unsafe_request};
use crate::cache::upstream::Upstream;
use crate::config::Config;
use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::observe::access_log::{AccessLog, ReopenError, RequestTrace};
use crate::observe::metrics::Metrics;
use crate::pool::PoolConfig;
use crate::pool::authority::Authority;
use crate::respond::shape::Shape;
use crate::route::cache::RouteCache;
use crate::route::path;
use crate::route::routes::{Destination, Route, Routes};
use crate::route::template::Facts;
use crate::transfer::transfers::Transfers;
use crate::transport::connect::InvalidTransport;
use crate::transport::request;
use crate::transport::upload::RequestBody;

/// Forwards requests to pools of origins.
#[derive(Debug)]
pub struct Proxy {
    /// The pools, each with its transfers.
    pub(crate) pools: Vec<Arc<Transfers>>,
    /// Pools that get no more requests, for as long as they have requests in progress.
    pub(crate) retired: Vec<Weak<Transfers>>,
    routes: Routes,
    authorities: Vec<Authority>,
    trusted: TrustedProxies,
    clients: Arc<Clients>,
    access_log: Option<AccessLog>,
    shape: Shape,
    /// For routes that have a cache.
    cache: CacheHandle,
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
            pools.push(Arc::new(Transfers::new(pool, &begun, &metrics)?));
        }
        Self::with(pools, Arc::new(Clients::new(config.clients.clone())), config, metrics, begun)
    }

    /// Like [`Proxy::new`], but replaces `old`. If `is_same` returns true for the name of a pool, its configuration is
    /// unchanged, and the pool continues with its connections, the state of its origins, and its transfers.
    pub fn succeed(mut config: Config, old: &Self, is_same: impl Fn(&str) -> bool) -> Result<Self, InvalidTransport> {
        let Self { metrics, begun, .. } = old;
        let pool =
            |pool: PoolConfig| match old.pools.iter().find(|old| old.pool().name() == pool.name && is_same(&pool.name))
            {
                Some(same) => Ok(Arc::clone(same)),
                None => Transfers::new(pool, begun, metrics).map(|pool| Arc::new(pool.after(&old.pools))),
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
        pools: Vec<Arc<Transfers>>,
        clients: Arc<Clients>,
        config: Config,
        metrics: Metrics,
        begun: Arc<AtomicU64>,
    ) -> Result<Self, InvalidTransport> {
        let authorities = config.auths.into_iter().map(|auth| Authority::new(auth, &metrics));
        Ok(Self {
            pools,
            retired: Vec::new(),
            routes: Routes::new(config.routes),
            authorities: authorities.collect::<Result<_, _>>()?,
            trusted: TrustedProxies::new(config.trusted_proxies),
            clients,
            access_log: config.access_log,
            shape: Shape::new(config.error_pages, config.compression),
            cache: config.cache,
            metrics,
            begun,
        })
    }

    /// Starts the health checks, and applies the settings of queues. Further calls have no effect.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(&self) {
        self.pools.iter().for_each(|transfers| transfers.pool().start());
    }

    /// The metrics that this proxy updates.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Whether any route has a cache.
    pub fn has_cache(&self) -> bool {
        self.routes.has_cache()
    }

    /// The cache of routes that have one.
    pub fn cache(&self) -> &CacheHandle {
        &self.cache
    }

    /// Opens the access log again. New lines go to the new file. Blocks until the file is open.
    pub fn reopen_log(&self) -> Result<(), ReopenError> {
        self.access_log.as_ref().map_or(Ok(()), AccessLog::reopen)
    }

    /// All pools, the retired ones last.
    pub(crate) fn pools(&self) -> impl Iterator<Item = Arc<Transfers>> {
        self.pools.iter().cloned().chain(self.retired.iter().filter_map(Weak::upgrade))
    }

    /// The pools of this proxy that are not among `pools`.
    fn retired_beside(&self, pools: &[Arc<Transfers>]) -> Vec<Weak<Transfers>> {
        let mut retired: Vec<_> = self.pools().collect();
        retired.retain(|pool| !pools.iter().any(|other| Arc::ptr_eq(pool, other)));
        retired.iter().map(Arc::downgrade).collect()
    }

    /// Forwards a request of `client`, and returns the origin's response. If there is none, returns a short text with
    /// the reason.
    ///
    /// Dropping the future, or the response's body, cancels the exchange and closes its connection.
    pub fn respond(
        &self,
        request: impl Into<BoxedRequest>,
        client: &Client,
    ) -> impl Future<Output = Response<Body>> + Send {
        self.respond_to(request.into(), client)
    }

    async fn respond_to(&self, request: BoxedRequest, client: &Client) -> Response<Body> {
        let head = &request.head;
        let (accepted, is_head) = (self.shape.accepted(head), head.method == Method::HEAD);
        let uri = head.uri.clone();
        let trace = Arc::default();
        let record = self.access_log.as_ref().map(|log| log.begin(head, client, &trace));
        let mut kept = RequestGuards { record, ..RequestGuards::default() };
        let context = RequestContext { client, path: uri.path(), trace: &trace };
        let response = self.forward(request, context, &mut kept).await;
        let response = response.unwrap_or_else(|failure| self.failed(&failure, context));
        let response = self.shape.finish(response, accepted);
        // Here and not only in the agent, so that the record sees the end of the response.
        kept.until_end_of(if is_head { watari_body::without_content(response) } else { response })
    }

    fn failed(&self, failure: &Failure, context: RequestContext<'_>) -> Response<Body> {
        self.metrics.count_failure(failure);
        failure.log(context.path, context.client);
        self.shape.failure(failure)
    }

    /// The response of the route that matches the request. Values that must live until the request has ended are put
    /// into `kept`.
    async fn forward(
        &self,
        mut request: BoxedRequest,
        context: RequestContext<'_>,
        kept: &mut RequestGuards,
    ) -> Result<Response<Body>, Failure> {
        let head = &mut *request.head;
        let client = context.client;
        let claims = self.trusted.claims(&head.headers, client);
        let host = request::rewrite(head, !request.body.is_end_stream(), client)?;
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
        let response = self.ask(matched, request, context.trace, kept).await;
        let mut response = response.unwrap_or_else(|failure| self.failed(&failure, context));
        route.rules.response.apply(response.headers_mut(), facts);
        Ok(response)
    }

    async fn ask(
        &self,
        Matched { route, host, path, facts }: Matched<'_>,
        mut request: BoxedRequest,
        trace: &Arc<RequestTrace>,
        kept: &mut RequestGuards,
    ) -> Result<Response<Body>, Failure> {
        let client = facts.client;
        if !route.access.admits(client.address().ip()) {
            return Err(Failure::NotAllowed);
        }
        let transfers = match &route.to {
            Destination::Pool(pool) => self.pools.get(*pool).ok_or(Failure::NoOrigin)?,
            Destination::Refused(refusal) => return Err(Failure::Refused(*refusal)),
            Destination::Redirect(redirect) => return Ok(redirect.response(facts)),
        };
        let (body, upload) =
            RequestBody::wrap(self.clients.bound(request.body)?, request.head.headers.contains_key(EXPECT));
        request.body = body;
        if let Some(answer) = self.ask_authority(route, &mut request.head, client).await? {
            return Ok(self.shape.answer(answer));
        }
        let network = self.clients.network(client);
        let cached = route.cache.as_ref().zip(self.cache.get());
        let mut around = None;
        if let Some((settings, cache)) = cached {
            around = goes_around(settings, client, self.identifies(route, settings), &request);
            if around.is_none() {
                if let Some(response) = at_hand(cache, settings, facts, &request.head, trace) {
                    return Ok(self.shape.answer(response));
                }
                let upstream = Upstream {
                    transfers: Arc::clone(transfers),
                    client: client.clone(),
                    host: host.to_owned(),
                    path: path.to_owned(),
                    network,
                    asks_owners: true,
                };
                let stage = Stage::new(cache, settings, upstream, facts.host, trace);
                // Boxed: this large future would enlarge the future of every request.
                return Ok(self.shape.answer(Box::pin(stage.respond(*request.head)).await?));
            }
        }
        let unsafe_request = route.cache.as_ref().and_then(|_| unsafe_request(&request.head));
        kept.place = transfers.pool().enter(host, path, network).await?;
        let mut response = transfers.forward(request, upload.as_deref(), client, trace).await?;
        if let Some(((_, cache), why)) = cached.zip(around) {
            response = passed(cache, trace, response, why);
        }
        // Also while the cache is not open yet.
        if let Some((settings, request)) = route.cache.as_ref().zip(unsafe_request) {
            for purge in invalidated(settings, facts.host, &request, &response) {
                self.cache.invalidate(purge);
            }
        }
        Ok(self.shape.answer(response))
    }

    /// Whether origins of the route get a field from its authority that is not in the key of the cache.
    fn identifies(&self, route: &Route, settings: &RouteCache) -> bool {
        let authority = route.auth.and_then(|authority| self.authorities.get(authority));
        authority.is_some_and(|authority| authority.copies_beyond(&settings.rules.key.headers))
    }

    /// The response to a request of another agent: for a key that this agent owns, or with entries that it hands on.
    pub async fn respond_to_agent(&self, request: BoxedRequest) -> Response<Body> {
        let mut head = *request.head;
        if head.method == Method::PUT {
            return self.take_entries(head, request.body).await.unwrap_or_else(owners::refusal);
        }
        let answered = match self.answer_agent(&mut head) {
            Some(stage) => stage.respond(head).await.ok(),
            None => None,
        };
        // After a failure, too: the asking agent may reach an origin that this one does not.
        answered.unwrap_or_else(owners::refusal)
    }

    /// `None`: this agent does not take them.
    async fn take_entries(&self, mut head: Parts, content: Body) -> Option<Response<Body>> {
        let handed_on = HandedOn::take(&mut head.headers)?;
        let routes: Vec<_> = self.routes.caches().filter_map(RouteCache::shared_route).collect();
        let mut response = Response::new(empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        self.cache.get()?.take(&handed_on, &routes, content).await.then_some(response)
    }

    /// The request of another agent at the cache of its route. `None`: this agent does not answer.
    fn answer_agent(&self, head: &mut Parts) -> Option<Stage> {
        let AskedTerms { route: fingerprint, client, purges } = AskedTerms::take(&mut head.headers)?;
        let host = uri::Authority::try_from(head.headers.get(HOST)?.as_bytes()).ok()?;
        let path = path::plain(head.uri.path()).ok()?;
        let route = self.routes.find(host.host(), &path).ok()?;
        let Destination::Pool(pool) = &route.to else { return None };
        let (settings, cache) = (route.cache.as_ref()?, self.cache.get()?);
        if !settings.is_shared || settings.fingerprint() != fingerprint || !cache.knows_all(&purges) {
            return None;
        }
        let upstream = Upstream {
            transfers: Arc::clone(self.pools.get(*pool)?),
            network: self.clients.network(&client),
            client,
            host: host.host().to_owned(),
            path: path.into_owned(),
            asks_owners: false,
        };
        Some(Stage::new(cache, settings, upstream, &host, &Arc::default()))
    }

    /// The response of the route's authority, if it is for the client.
    async fn ask_authority(
        &self,
        route: &Route,
        head: &mut Parts,
        client: &Client,
    ) -> Result<Option<Response<Body>>, Failure> {
        match route.auth.map(|authority| self.authorities.get(authority)) {
            None => Ok(None),
            // No authority can allow the request.
            Some(None) => Err(Failure::NoOrigin),
            // Boxed: this large future would enlarge the future of every request.
            Some(Some(authority)) => Box::pin(authority.ask(head, client)).await,
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
