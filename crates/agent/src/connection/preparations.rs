//! Responses in progress that this agent has prepared to continue for other agents.
//!
//! ```text
//!   Prepare --> answered --> Prepared, waits --> taken by the shipped connection
//!                  |                     |
//!                  '-- refused           '-- dropped: expired, or prepared again
//! ```
//!
//! A preparation holds a request slot, and an open file or an exchange with an origin, for [`LIFETIME`] at most.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use tokio::time::{Instant, timeout};
use watari_connection::leaving::PreparedRest;
use watari_connection::{Part, Responding, Resume};
use watari_http1::{ImportError, Server};
use watari_proxy::Client;
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes};
use watari_wire::{
    AgentToAgent, AnchoredState, Prepare, PrepareRefusal, PrepareRest, Prepared, ResponsePart, ResponseRest,
    ShipInResponse,
};

use super::early_data::gate::Gate;
use super::requests::{GuardedResponse, Requests};
use super::site_service::{OpenResponse, OpenRest, SiteService};
use crate::handoff::anchors::Anchors;
use crate::handoff::live::About;
use crate::node::metrics::Metrics;
use crate::node::peers::Peers;
use crate::node::slots::Slot;
use crate::settings::current::CurrentSettings;

/// How long a preparation waits for its connection. The source ships it as soon as it has the answer.
const LIFETIME: Duration = Duration::from_secs(10);

/// How long the site may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct Preparations {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
    requests: Arc<Requests>,
    anchors: Arc<Anchors>,
    /// Whether this node prepares nothing for other agents, because a successor of this process takes over.
    is_paused: AtomicBool,
    entries: Mutex<HashMap<ConnectionId, Entry>>,
}

/// A question of another agent.
struct Question {
    from: NodeName,
    connection: ConnectionId,
    number: u32,
    client: Arc<Client>,
}

struct Entry {
    question: Arc<Question>,
    expires: Instant,
    /// `None`: the site has not answered.
    ready: Option<Rest>,
}

/// The rest of a response that this agent can continue.
enum Rest {
    /// Its bytes come with the connection.
    Shipped,
    /// A part of a resource, and the response of this agent's site.
    Part(Resume, Box<GuardedResponse>),
    /// Its bytes come from this anchor. The slot is that of the request.
    Anchored(NodeName, Slot),
}

/// A response that a shipped connection continues here.
pub(crate) struct Continuation {
    client: Arc<Client>,
    requests: Arc<Requests>,
    http: Server,
    unwritten: Vec<u8>,
    pending: Bytes,
    rest: ContinuedRest,
}

/// What follows the bytes that were shipped.
enum ContinuedRest {
    End,
    Part { resume: Resume, body: Box<GuardedResponse>, skip: u64 },
    Anchored { anchors: Arc<Anchors>, state: AnchoredState, slot: Slot },
}

/// Why a shipped response does not continue here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CannotContinue {
    #[error("this agent has not prepared the response")]
    NotPrepared,
    #[error("the state of HTTP cannot be used: {0}")]
    Import(#[from] ImportError),
    #[error("the state of HTTP does not fit the rest of the response")]
    Mismatch,
}

impl Preparations {
    pub(crate) fn new(
        peers: Peers,
        settings: Arc<CurrentSettings>,
        metrics: Arc<Metrics>,
        requests: Arc<Requests>,
        anchors: Arc<Anchors>,
    ) -> Self {
        Self {
            peers,
            settings,
            metrics,
            requests,
            anchors,
            is_paused: AtomicBool::new(false),
            entries: Mutex::default(),
        }
    }

    /// Refuses all questions of other agents from now on, or answers them again.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Relaxed);
    }

    /// Handles a question of another agent. Requires a tokio runtime.
    pub(crate) fn on_prepare(self: &Arc<Self>, from: &NodeName, prepare: &Prepare) {
        let question = Arc::new(Question {
            from: from.clone(),
            connection: prepare.connection,
            number: prepare.number,
            client: Arc::new(Client::new(prepare.client, prepare.server, prepare.client_certificate.as_deref())),
        });
        let is_refused = self.is_paused.load(Ordering::Relaxed) && from != self.peers.name();
        if is_refused || !self.enter(&question) {
            return self.answer(&question, Some(PrepareRefusal::Full));
        }
        let part = match &prepare.rest {
            PrepareRest::Bytes => return self.finish(&question, Ok(Rest::Shipped)),
            PrepareRest::Anchored { anchor } => return self.finish(&question, self.reach(anchor)),
            PrepareRest::Part(part) => part,
        };
        let Some(resume) = resume(part) else {
            return self.finish(&question, Err(PrepareRefusal::Response));
        };
        let this = self.clone();
        tokio::spawn(async move {
            let rest = this.provide(&question.client, resume).await;
            this.finish(&question, rest);
        });
    }

    /// Takes the preparation for a shipped connection.
    pub(crate) fn take(&self, from: &NodeName, shipped: &ShipInResponse) -> Result<Continuation, CannotContinue> {
        let (id, number) = (shipped.ship.connection, shipped.number);
        let entry = {
            let mut entries = self.entries();
            let question = entries.get(&id).map(|entry| &entry.question);
            let fits = question.is_some_and(|question| question.from == *from && question.number == number);
            fits.then(|| entries.remove(&id)).flatten()
        };
        let Some(Entry { question, ready: Some(ready), .. }) = entry else { return Err(CannotContinue::NotPrepared) };
        let http = Server::import(&shipped.http, self.settings.limits().http1())?;
        if shipped.ship.tls.is_http2() || http.awaits_content() {
            return Err(CannotContinue::Mismatch);
        }
        let pending = Bytes::copy_from_slice(shipped.pending.as_slice());
        let (rest, rest_len) = match (&shipped.rest, ready) {
            (ResponseRest::End, _) => (ContinuedRest::End, Some(0)),
            (ResponseRest::Prepared { skip }, Rest::Part(resume, body)) => {
                let rest_len = resume.part.content_len().checked_sub(*skip).ok_or(CannotContinue::Mismatch)?;
                (ContinuedRest::Part { resume, body, skip: *skip }, Some(rest_len))
            }
            (ResponseRest::Anchored(state), Rest::Anchored(anchor, slot)) if state.anchor == anchor => {
                (ContinuedRest::Anchored { anchors: self.anchors.clone(), state: state.clone(), slot }, None)
            }
            _ => return Err(CannotContinue::Mismatch),
        };
        let len = rest_len.map(|rest_len| pending.len() as u64 + rest_len);
        let fits = if http.is_tunnel() { len.is_none() } else { len == http.content_left() };
        if !fits {
            return Err(CannotContinue::Mismatch);
        }
        let unwritten = shipped.unwritten.as_slice().to_vec();
        let client = question.client.clone();
        Ok(Continuation { client, requests: self.requests.clone(), http, unwritten, pending, rest })
    }

    /// Checks that this agent can exchange messages with the anchor, and takes a slot for the request.
    fn reach(&self, anchor: &NodeName) -> Result<Rest, PrepareRefusal> {
        if !self.peers.is_up(anchor) {
            return Err(PrepareRefusal::NoLink);
        }
        self.requests.slot().map(|slot| Rest::Anchored(anchor.clone(), slot)).ok_or(PrepareRefusal::Full)
    }

    /// Drops preparations whose connection has not come in time.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.entries().retain(|_, entry| entry.expires > now);
    }

    /// Makes room for a preparation. It replaces an earlier one for the same connection.
    fn enter(&self, question: &Arc<Question>) -> bool {
        let (id, mut entries) = (question.connection, self.entries());
        if entries.len() >= self.settings.limits().held_max && !entries.contains_key(&id) {
            return false;
        }
        let expires = Instant::now() + LIFETIME;
        entries.insert(id, Entry { question: question.clone(), expires, ready: None });
        true
    }

    /// Asks the site for the part.
    async fn provide(&self, client: &Client, resume: Resume) -> Result<Rest, PrepareRefusal> {
        let answered = timeout(ANSWER_TIMEOUT, self.requests.continue_response(&resume, client)).await;
        let body = answered.unwrap_or(Err(PrepareRefusal::Response))?;
        Ok(Rest::Part(resume, Box::new(body)))
    }

    fn finish(&self, question: &Arc<Question>, rest: Result<Rest, PrepareRefusal>) {
        let refused = {
            let (id, mut entries) = (question.connection, self.entries());
            // Another question may have the same number.
            let is_of = |entry: &&mut Entry| Arc::ptr_eq(&entry.question, question);
            match (entries.get_mut(&id).filter(is_of), rest) {
                (Some(entry), Ok(rest)) => {
                    entry.ready = Some(rest);
                    None
                }
                (Some(_), Err(refusal)) => {
                    entries.remove(&id);
                    Some(refusal)
                }
                // The source has asked again meanwhile.
                (None, _) => return,
            }
        };
        self.answer(question, refused);
    }

    fn answer(&self, question: &Question, refused: Option<PrepareRefusal>) {
        let Question { connection, number, .. } = *question;
        self.metrics.count_prepared(refused);
        self.peers.send(&question.from, AgentToAgent::Prepared(Prepared { connection, number, refused }));
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Continuation {
    /// The bytes that came with the connection.
    pub(crate) fn len(&self) -> usize {
        self.unwritten.len() + self.pending.len()
    }

    /// The response, to be served on since the commit of `epoch`. From now on the client is expected to take it.
    pub(super) fn open(self, epoch: Epoch) -> OpenResponse {
        let Self { client, requests, http, unwritten, pending, rest } = self;
        let service = SiteService::new(requests, client, Gate::default());
        let is_events = matches!(rest, ContinuedRest::Anchored { .. });
        let (body, skip, resume) = match rest {
            ContinuedRest::End => (GuardedResponse::empty(), 0, None),
            ContinuedRest::Part { resume, body, skip } => (*body, skip, Some(resume)),
            ContinuedRest::Anchored { anchors, state, slot } => {
                let stream = anchors.attach(epoch, &state);
                if http.is_tunnel() {
                    let tunnel = Box::new(service.requests.continue_tunnel(stream, slot, pending));
                    return OpenResponse { service, http, unwritten, rest: OpenRest::Tunnel(tunnel) };
                }
                (GuardedResponse::anchored(stream, slot), 0, None)
            }
        };
        let body = service.requests.attend(body, &service.stalls);
        let responding = Responding { body, position: 0, pending, skip, resume, is_events };
        OpenResponse { service, http, unwritten, rest: OpenRest::Response(Some(Box::new(responding))) }
    }
}

/// The question whether another agent can continue the response in progress, or the tunnel.
pub(super) fn question(about: &About, number: u32, rest: PreparedRest, anchor: &NodeName) -> AgentToAgent {
    let rest = match rest {
        PreparedRest::Bytes => PrepareRest::Bytes,
        PreparedRest::Part(Resume { request, etag, part }) => PrepareRest::Part(ResponsePart {
            request: SecretBytes::new(request.to_vec()),
            etag: etag.as_bytes().to_vec(),
            first: part.first,
            last: part.last,
            complete_len: part.complete_len,
        }),
        PreparedRest::Anchored => PrepareRest::Anchored { anchor: anchor.clone() },
    };
    AgentToAgent::Prepare(Box::new(Prepare {
        connection: about.id,
        number,
        client: about.client,
        server: about.server,
        client_certificate: about.client_certificate.clone(),
        rest,
    }))
}

/// Reads the part that another agent asks for.
fn resume(part: &ResponsePart) -> Option<Resume> {
    let ResponsePart { request, etag, first, last, complete_len } = part;
    let is_part = first <= last && last < complete_len;
    let etag = HeaderValue::from_bytes(etag).ok().filter(|_| is_part)?;
    let part = Part { first: *first, last: *last, complete_len: *complete_len };
    Some(Resume { request: Bytes::copy_from_slice(request.as_slice()), etag, part })
}

#[cfg(test)]
mod tests;
