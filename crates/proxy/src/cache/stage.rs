//! The steps of one request through the cache.
//!
//! ```text
//!  look --> fresh ---------------------------------------------> hit
//!    |  '---> stale, may be used while it is validated --------> stale, and a task validates it
//!    |
//!    '-> none, or it has to be validated
//!          |  the first request leads: it asks the origin (asking.rs)
//!          |    |- 304: the entry is updated ------------------> revalidated
//!          |    |- no answer, or 5xx: stale-if-error ----------> stale
//!          |    |- a response for others, too: it is stored ---> miss (filling.rs)
//!          |    '- not for others ------------------------------> miss, and the followers are released
//!          '  the others follow it -----------------------------> collapsed
//! ```
//!
//! `answering.rs` makes the responses of all these ends.

use std::sync::Arc;
use std::time::SystemTime;

use http::header::{CACHE_CONTROL, IF_MATCH, IF_UNMODIFIED_SINCE, PRAGMA};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Response, StatusCode, request};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use watari_body::{Body, BoxedRequest, empty};
use watari_cache::{Entry, Forwarded, Key, Purge, RequestDirectives, Reuse};

use super::answering::{self, BeginsFill};
use super::asking::remove_unkeyed;
use super::metrics::CacheResult;
use super::questions::{Joined, Outcome};
use super::response_cache::{Found, ResponseCache};
use super::upstream::Upstream;
use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::observe::access_log::RequestTrace;
use crate::route::cache::RouteCache;
use crate::route::template::Facts;

/// How often a request looks for its entry. Each look but the first follows a question of another request, whose
/// response varied, or whose client left.
const LOOKS_MAX: usize = 8;

/// A request of a route with a cache, apart from its head.
#[derive(Clone)]
pub(crate) struct Stage {
    cache: Arc<ResponseCache>,
    route: Arc<RouteCache>,
    upstream: Upstream,
    /// The requested authority, in lower case, without the port of https.
    authority: String,
    trace: Arc<RequestTrace>,
}

/// The keys of a request: without and with what its response varies by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) primary: Key,
    pub(super) variant: Key,
}

impl Stage {
    pub(crate) fn new(
        cache: &Arc<ResponseCache>,
        route: &Arc<RouteCache>,
        upstream: Upstream,
        authority: &Authority,
        trace: &Arc<RequestTrace>,
    ) -> Self {
        let (cache, route, trace) = (Arc::clone(cache), Arc::clone(route), Arc::clone(trace));
        Self { cache, route, upstream, authority: host_text(authority).to_ascii_lowercase(), trace }
    }

    pub(super) fn cache(&self) -> &Arc<ResponseCache> {
        &self.cache
    }

    pub(super) fn route(&self) -> &Arc<RouteCache> {
        &self.route
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn trace(&self) -> &Arc<RequestTrace> {
        &self.trace
    }

    /// The response to a request that does not go around the cache.
    pub(crate) async fn respond(&self, mut head: request::Parts) -> Result<Response<Body>, Failure> {
        let target = head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        // First of all: requests for parts and heads change entries, too.
        remove_unkeyed(&mut head.headers, &self.route.rules.key.headers);
        let policy = self.route.policy_for(&self.upstream.client);
        let primary = Key::of(&self.route.rules.key, &policy, &self.authority, &target, &head.headers);
        let asked = RequestDirectives::of(&head.headers);
        for _ in 0..LOOKS_MAX {
            let (keys, found) = self.look(primary, &head.headers).await;
            let stale = match found {
                None => None,
                Some(found) => match self.usable(&found, &asked, keys, &head).await {
                    Some(response) => return Ok(response),
                    None => Some(found).filter(|found| is_stale(found, &asked)),
                },
            };
            if asked.only_if_cached {
                return Ok(not_cached());
            }
            if head.method == Method::HEAD {
                return self.ask_for_head(keys, head, stale).await;
            }
            if stale.is_none() && self.cache.lets_pass(&keys.variant) {
                return self.pass(head).await;
            }
            match self.cache.questions.join(keys.variant) {
                Joined::Leads(leader) => {
                    // A response may have been stored since.
                    if stale.is_none() && self.cache.store().get_now(&keys.variant).is_some() {
                        let (keys, found) = self.look(primary, &head.headers).await;
                        if let Some(found) = found
                            && let Some(response) = self.usable(&found, &asked, keys, &head).await
                        {
                            return Ok(response);
                        }
                    }
                    return self.lead(leader, keys, head, stale).await;
                }
                Joined::Follows(follower) => match follower.outcome().await {
                    Some(Outcome::Available(available)) => {
                        if let Some(response) = self.collapsed(&available, primary, &head).await {
                            return Ok(response);
                        }
                    }
                    Some(Outcome::Released) => return self.pass(head).await,
                    Some(Outcome::Failed(status)) => {
                        return self.failed(Failure::Collapsed(status), stale, &head).await;
                    }
                    None => {}
                },
            }
        }
        self.pass(head).await
    }

    /// The stored response, and its keys.
    async fn look(&self, primary: Key, headers: &HeaderMap) -> (Keys, Option<Found>) {
        let same = Keys { primary, variant: primary };
        let Some(entry) = self.cache.find(&primary).await else { return (same, None) };
        let Entry::Varies(vary) = &*entry else { return (same, Found::of(same, entry)) };
        let variant = primary.variant(vary, headers);
        let keys = Keys { primary, variant };
        let found = self.cache.find(&variant).await.and_then(|entry| Found::of(keys, entry));
        (keys, found)
    }

    /// The response from a stored one, if it may be used as it is, and if its content is still there.
    async fn usable(
        &self,
        found: &Found,
        asked: &RequestDirectives,
        keys: Keys,
        head: &request::Parts,
    ) -> Option<Response<Body>> {
        let (age, result) = match watari_cache::reuse(&found.response().terms, asked, SystemTime::now()) {
            Reuse::Fresh { age } => (age, CacheResult::Hit),
            Reuse::AcceptedStale { age } => (age, CacheResult::Stale),
            Reuse::StaleWhileRevalidate { age } => {
                self.validate_in_background(keys, head, found);
                (age, CacheResult::Stale)
            }
            Reuse::Validate => return None,
        };
        self.hit(found, head, age, result).await
    }

    /// Validates an entry without a client that waits.
    fn validate_in_background(&self, keys: Keys, head: &request::Parts, found: &Found) {
        let Joined::Leads(leader) = self.cache.questions.join(keys.variant) else { return };
        let (stage, found) = (Self { trace: Arc::default(), ..self.clone() }, found.clone());
        let mut head = head.clone();
        head.method = Method::GET;
        tokio::spawn(async move {
            let Ok(response) = stage.lead(leader, keys, head, Some(found)).await else { return };
            // A fill goes on as long as it has a reader. Nothing else needs the content.
            if response.extensions().get::<BeginsFill>().is_some() {
                let mut body = response.into_body();
                while let Some(Ok(_)) = body.frame().await {}
            }
        });
    }
}

/// What the response to an unsafe request invalidates (RFC 9111, section 4.4; RFC 9875, section 3).
pub(crate) fn invalidated(
    route: &RouteCache,
    authority: &Authority,
    request: &request::Parts,
    response: &Response<Body>,
) -> Vec<Purge> {
    let authority = host_text(authority).to_ascii_lowercase();
    let (mut head, ()) = Response::new(()).into_parts();
    (head.status, head.headers) = (response.status(), response.headers().clone());
    let urls = watari_cache::invalidated(&authority, request, &head);
    let urls = urls.iter().map(|target| Purge::Url(format!("{authority}{}", route.rules.key.target(target)).into()));
    let groups = watari_cache::invalidated_groups(&head.headers);
    let groups = groups.iter().map(|group| Purge::HostGroup(format!("{authority} {group}").into()));
    urls.chain(groups).collect()
}

/// Why the cache does not answer a request. `None`: it may answer.
/// `is_identified`: the origin gets a field about the user that is in no key.
pub(crate) fn goes_around(
    route: &RouteCache,
    client: &Client,
    is_identified: bool,
    request: &BoxedRequest,
) -> Option<Forwarded> {
    let head = &request.head;
    if head.method != Method::GET && head.method != Method::HEAD {
        return Some(Forwarded::Method);
    }
    // A request for an upgrade has an extension.
    let is_plain = request.body.is_end_stream() && head.extensions.is_empty();
    // Conditions for origins (RFC 9111, section 4.3.2).
    let is_conditional = head.headers.contains_key(IF_MATCH) || head.headers.contains_key(IF_UNMODIFIED_SINCE);
    // The origin gets the certificate, and may answer by it.
    let is_identified = is_identified || client.certificate_field.is_some();
    let is_bypassed = is_identified || route.is_bypassed(&head.headers);
    if !is_plain || is_conditional || is_bypassed || head.uri.path_and_query().is_none() {
        return Some(Forwarded::Bypass);
    }
    RequestDirectives::of(&head.headers).no_store.then_some(Forwarded::Request)
}

/// The response from a fresh entry that is in memory with all its content. Most hits need no more than this. The request
/// does not go around the cache.
pub(crate) fn at_hand(
    cache: &ResponseCache,
    route: &RouteCache,
    Facts { client, host, .. }: Facts<'_>,
    head: &request::Parts,
    trace: &RequestTrace,
) -> Option<Response<Body>> {
    if head.headers.contains_key(CACHE_CONTROL) || head.headers.contains_key(PRAGMA) {
        return None;
    }
    let target = head.uri.path_and_query()?;
    let key = Key::of(&route.rules.key, &route.policy_for(client), host_text(host), target, &head.headers);
    let mut entry = cache.store().get_now(&key)?;
    if let Entry::Varies(vary) = &*entry {
        entry = cache.store().get_now(&key.variant(vary, &head.headers))?;
    }
    let Entry::Response(stored) = &*entry else { return None };
    let now = SystemTime::now();
    let Reuse::Fresh { age } = watari_cache::reuse(&stored.terms, &RequestDirectives::default(), now) else {
        return None;
    };
    if cache.is_purged(stored) {
        return None;
    }
    let response = answering::from_inline(stored, head, age, now)?;
    answering::count(cache, trace, CacheResult::Hit);
    Some(response)
}

/// The requested authority without the port of https.
fn host_text(authority: &Authority) -> &str {
    authority.as_str().strip_suffix(":443").unwrap_or(authority.as_str())
}

/// The method and the target of an unsafe request, whose response may invalidate entries.
pub(crate) fn unsafe_request(head: &request::Parts) -> Option<request::Parts> {
    if head.method.is_safe() {
        return None;
    }
    let (mut target, ()) = http::Request::new(()).into_parts();
    (target.method, target.uri) = (head.method.clone(), head.uri.clone());
    Some(target)
}

/// Whether a stored response has to be validated. Otherwise, it was not used because its content is gone.
fn is_stale(found: &Found, asked: &RequestDirectives) -> bool {
    watari_cache::reuse(&found.response().terms, asked, SystemTime::now()) == Reuse::Validate
}

/// The response to `only-if-cached` without an entry (RFC 9111, section 5.2.1.7).
fn not_cached() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::GATEWAY_TIMEOUT;
    response
}
