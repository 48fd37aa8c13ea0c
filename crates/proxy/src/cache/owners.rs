//! Requests to the agents that own keys.
//!
//! Each key has one owner among the linked agents. An agent that has no entry asks the owner before the origin. The owner
//! handles the request as that of a client, and asks no other agent. So the clients of all agents make one request to the
//! origin, and each agent has what its clients use.
//!
//! Agents speak HTTP/1.1 over mutual TLS. These fields are theirs alone:
//!
//! * [`ROUTE`]: the digest of the route's settings. An owner with other settings refuses: its entries have other keys.
//! * [`PURGES`]: the last purge of each process that the asking agent knows. An owner that lacks one refuses: it could
//!   answer with a purged entry.
//! * [`CLIENT`]: the addresses of the client and of its server.
//! * [`PURGES`] in a PUT: the entries of its content were checked against these (`handing_on.rs`).
//! * [`TIME`] in a PUT: the clock of the sender, in Unix milliseconds. That of the receiver may differ.
//! * [`REFUSED`]: in a response without an answer. The asking agent goes to the origin.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, Entry, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, request};
use tokio::time::{Instant, timeout};
use watari_body::{Body, BoxedRequest, empty, full};
use watari_cache::{CACHE_STATUS, Key, PurgeId};
use watari_values::NodeName;

use crate::exchange::client::Client;
use crate::exchange::fields;
use crate::exchange::limits::Limits;
use crate::observe::metrics::BodyCounters;
use crate::pool::response_body::ResponseBody;
use crate::transport::connections::{Connection, Connections, Lease};
use crate::transport::content::ResponseContent;
use crate::transport::http1::{ByteStream, Exchange, Http1};

pub(crate) static ROUTE: HeaderName = HeaderName::from_static("watari-cache-route");
pub(crate) static PURGES: HeaderName = HeaderName::from_static("watari-cache-purges");
pub(crate) static CLIENT: HeaderName = HeaderName::from_static("watari-cache-client");
pub(crate) static TIME: HeaderName = HeaderName::from_static("watari-cache-time");
pub(crate) static REFUSED: HeaderName = HeaderName::from_static("watari-cache-refused");

/// How long an agent asks an owner nothing that has refused a connection.
const AWAY: Duration = Duration::from_secs(2);
/// The most purges in a request. An agent that knows of more asks no owner.
const PURGES_MAX: usize = 64;
/// Idle connections may have been closed: the next one is tried, so many times.
const TRIES: usize = 3;

/// A stream of bytes to another agent.
pub type AgentStream = Box<dyn ByteStream>;

/// Returns the next owner of a key. `None`: another agent owns it already, or there is no other one.
pub type NextOwners = Box<dyn Fn(&Key) -> Option<NodeName> + Send>;

/// The agents of the cluster, as the cache needs them.
pub trait Owners: Send + Sync {
    /// The agent that owns a key, out of the linked ones without those for which `is_away` holds. `None`: this agent.
    fn owner(&self, key: &Key, is_away: &dyn Fn(&NodeName) -> bool) -> Option<NodeName>;

    /// The owners of this agent's keys when this agent has left.
    fn next_owners(&self) -> NextOwners;

    /// Connects to an agent.
    fn connect(&self, agent: &NodeName) -> Pin<Box<dyn Future<Output = io::Result<AgentStream>> + Send + '_>>;
}

/// The connections to owners, and the requests on them.
pub(super) struct OwnerRequests {
    owners: Box<dyn Owners>,
    limits: Limits,
    connections: Mutex<HashMap<NodeName, Arc<Connections>>>,
    away: Mutex<HashMap<NodeName, Instant>>,
    counters: BodyCounters,
    /// Whether the last request could be sent, see [`purges_value`].
    is_sharing: AtomicBool,
}

/// What an owner needs beside the request.
pub(super) struct Terms<'a> {
    pub(super) route: &'a str,
    pub(super) client: &'a Client,
    pub(super) purges: Vec<PurgeId>,
}

impl OwnerRequests {
    pub(super) fn new(owners: impl Owners + 'static) -> Self {
        let limits = Limits { connect_timeout: Duration::from_secs(1), ..Limits::default() };
        Self {
            owners: Box::new(owners),
            limits,
            connections: Mutex::default(),
            away: Mutex::default(),
            counters: BodyCounters::default(),
            is_sharing: AtomicBool::new(true),
        }
    }

    /// The response of the owner of a key. `None`: this agent is the owner, or the owner does not answer.
    pub(super) async fn ask(&self, key: &Key, head: &request::Parts, terms: Terms<'_>) -> Option<Response<Body>> {
        let now = Instant::now();
        let owner = {
            let away = lock(&self.away);
            self.owners.owner(key, &|agent| away.get(agent).is_some_and(|until| *until > now))?
        };
        let mut head = head.clone();
        let purges = purges_value(&terms.purges);
        self.note_sharing(purges.is_some());
        terms.set(purges?, &mut head.headers)?;
        self.exchange(&owner, || BoxedRequest::without_content(head.clone())).await
    }

    pub(super) fn next_owners(&self) -> NextOwners {
        self.owners.next_owners()
    }

    /// Sends entries, which were checked against these purges, to an agent. Returns whether it has taken them.
    pub(super) async fn hand_on(&self, to: &NodeName, purges: &[PurgeId], entries: Bytes) -> bool {
        let Some(purges) = purges_value(purges) else { return false };
        let now_ms = watari_cache::unix_ms(SystemTime::now());
        let request = || {
            let (mut head, content) =
                Request::put("/").body(full(entries.clone())).expect("a path is valid").into_parts();
            head.headers.insert(HOST, HeaderValue::from_static("entries.invalid"));
            head.headers.insert(CONTENT_LENGTH, entries.len().into());
            head.headers.insert(&PURGES, purges.clone());
            head.headers.insert(&TIME, now_ms.into());
            BoxedRequest::from(Request::from_parts(head, content))
        };
        self.exchange(to, request).await.is_some_and(|response| response.status() == StatusCode::NO_CONTENT)
    }

    /// The response of an agent to a request. `None`: it does not answer, or refuses.
    async fn exchange(&self, owner: &NodeName, request: impl Fn() -> BoxedRequest) -> Option<Response<Body>> {
        let connections = self.connections_to(owner);
        for _ in 0..TRIES {
            let permit = connections.permit()?;
            let (connection, is_new) = match connections.take(Instant::now()) {
                Some(Connection::Http1(connection)) => (connection, false),
                Some(Connection::Http2(_)) | None => (self.connect(owner).await?, true),
            };
            let mut exchange = Exchange::new(connection, &mut request(), None).ok()?;
            match timeout(self.limits.response_timeout, exchange.response()).await {
                Ok(Ok(head)) => return self.answered(head, exchange, Lease::new(&connections, true, permit)),
                Ok(Err(_)) if !is_new => {}
                Ok(Err(error)) => {
                    tracing::debug!(%owner, %error, "the owner of a stored response does not answer");
                    self.leaves(owner.clone());
                    return None;
                }
                Err(_) => {
                    self.leaves(owner.clone());
                    return None;
                }
            }
        }
        None
    }

    fn answered(
        &self,
        mut head: http::response::Parts,
        exchange: Box<Exchange>,
        lease: Lease,
    ) -> Option<Response<Body>> {
        fields::remove_hop_by_hop(&mut head.headers);
        remove_own_status(&mut head.headers);
        let body = ResponseBody::new(ResponseContent::Http1(exchange), lease, &self.limits, self.counters.clone());
        if head.headers.contains_key(&REFUSED) {
            return None;
        }
        Some(Response::from_parts(head, body.boxed()))
    }

    async fn connect(&self, owner: &NodeName) -> Option<Http1> {
        match timeout(self.limits.connect_timeout, self.owners.connect(owner)).await {
            // The address is of no use: names identify agents.
            Ok(Ok(stream)) => Some(Http1::new(stream, ([0, 0, 0, 0], 0).into())),
            Ok(Err(error)) => {
                tracing::debug!(%owner, %error, "cannot connect to the owner of a stored response");
                self.leaves(owner.clone());
                None
            }
            Err(_) => {
                self.leaves(owner.clone());
                None
            }
        }
    }

    /// Logs when there are too many purges to ask owners, and when there no longer are.
    fn note_sharing(&self, is_sharing: bool) {
        match (self.is_sharing.swap(is_sharing, Ordering::Relaxed), is_sharing) {
            (true, false) => {
                tracing::warn!("more than {PURGES_MAX} processes have ordered purges: agents share no responses now");
            }
            (false, true) => tracing::info!("agents share responses again"),
            _ => {}
        }
    }

    fn leaves(&self, owner: NodeName) {
        lock(&self.away).insert(owner, Instant::now() + AWAY);
    }

    fn connections_to(&self, owner: &NodeName) -> Arc<Connections> {
        let mut all = lock(&self.connections);
        let new = || Arc::new(Connections::new(&self.limits));
        Arc::clone(all.entry(owner.clone()).or_insert_with(new))
    }
}

impl Terms<'_> {
    /// Adds the fields for the owner. `None`: a value is not allowed in a field.
    fn set(&self, purges: HeaderValue, headers: &mut HeaderMap) -> Option<()> {
        let client = format!("{} {}", self.client.address(), self.client.server());
        headers.insert(&PURGES, purges);
        for (name, value) in [(&ROUTE, self.route), (&CLIENT, &client)] {
            headers.insert(name, HeaderValue::from_str(value).ok()?);
        }
        Some(())
    }
}

/// Removes what the owner says of its cache: the last `Cache-Status`. To clients, the agents are one cache.
fn remove_own_status(headers: &mut HeaderMap) {
    if let Entry::Occupied(entry) = headers.entry(CACHE_STATUS) {
        let (name, values) = entry.remove_entry_mult();
        let mut values: Vec<_> = values.collect();
        values.pop();
        for value in values {
            headers.append(&name, value);
        }
    }
}

/// The value of [`PURGES`]. `None`: there are too many purges.
fn purges_value(purges: &[PurgeId]) -> Option<HeaderValue> {
    if purges.len() > PURGES_MAX {
        return None;
    }
    let ids = purges.iter().map(|id| format!("{:x}-{:x}", id.incarnation, id.number));
    HeaderValue::from_str(&ids.collect::<Vec<_>>().join(",")).ok()
}

/// Takes [`PURGES`] out of a request. `None`: it is missing or malformed.
fn take_purges(headers: &mut HeaderMap) -> Option<Vec<PurgeId>> {
    let value = headers.remove(&PURGES)?;
    let ids = value.to_str().ok()?.split(',').filter(|id| !id.is_empty()).map(|id| {
        let (incarnation, number) = id.split_once('-')?;
        let [incarnation, number] = [incarnation, number].map(|text| u64::from_str_radix(text, 16).ok());
        Some(PurgeId { incarnation: incarnation?, number: number? })
    });
    let ids: Vec<_> = ids.collect::<Option<_>>()?;
    (ids.len() <= PURGES_MAX).then_some(ids)
}

/// What a PUT has beside its entries.
#[derive(Debug)]
pub(crate) struct HandedOn {
    /// The purges that the entries were checked against.
    pub(crate) purges: Vec<PurgeId>,
    /// The sender's clock when it began to send, in Unix milliseconds.
    pub(crate) time_ms: u64,
}

impl HandedOn {
    /// Takes the fields out of a request. `None`: one is missing or malformed.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let purges = take_purges(headers)?;
        Some(Self { purges, time_ms: headers.remove(&TIME)?.to_str().ok()?.parse().ok()? })
    }
}

/// What an asking agent has sent beside the request.
pub(crate) struct AskedTerms {
    pub(crate) route: String,
    pub(crate) client: Client,
    pub(crate) purges: Vec<PurgeId>,
}

impl AskedTerms {
    /// Takes the fields out of a request. `None`: one is missing or malformed.
    pub(crate) fn take(headers: &mut HeaderMap) -> Option<Self> {
        let purges = take_purges(headers)?;
        let [route, client] = [&ROUTE, &CLIENT].map(|name| headers.remove(name));
        let (route, client) = (route?, client?);
        let (address, server) = client.to_str().ok()?.split_once(' ')?;
        Some(Self {
            route: route.to_str().ok()?.to_owned(),
            client: Client::new(address.parse().ok()?, server.parse().ok()?, None),
            purges,
        })
    }
}

/// The response of an owner that does not answer.
pub fn refusal() -> Response<Body> {
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::MISDIRECTED_REQUEST;
    response.headers_mut().insert(REFUSED.clone(), HeaderValue::from_static("1"));
    response.headers_mut().insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
