//! Serves a connection before its client has sent Finished (early data: RFC 8446, section 2.3; RFC 8470).
//!
//! ```text
//!                     Finished                    its tickets are kept
//!  ExpectsFinished -------------> KeepsTickets ------------------------> Open
//!        |  rustls opens and seals    no sealing        the record layer opens and seals
//!        |                                 |
//!        '--- the handshake times out -----'---> Unfinished: the agent sends the client the alert, if there is one,
//!             or fails                           or resets the connection
//! ```
//!
//! Until `Open`, HTTP runs over an [`EarlyStream`], which reads and writes as the state requires. In state `Open`, the
//! final stream is taken out of it, and the connection is like any other. An [`Opening`] drives the states.
//!
//! 1. A task that polls HTTP polls the `Opening` first. So the `EarlyStream` wakes no task: it waits for the same
//!    events as the `Opening`, or for room on the leg.
//! 2. Nothing is sealed between Finished and `Open`: the record layer continues where rustls stopped, after the
//!    tickets.
//! 3. Before `Open`, the agent does not announce the connection and does not move it. It answers only requests that are
//!    safe to repeat ([`Gate`]). This holds although early data is accepted only under an approval, which permits a
//!    single use.
//! 4. The handshake timeout runs until `Open`.

mod gate;
mod pending;
mod stream;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use watari_handshake::{Handshake, HandshakeError, Info};
use watari_stream::TlsStream;
use watari_sys::tcp;
use watari_values::{Epoch, NodeName};

use crate::AgentShared;
use crate::ending::{Ending, announce_end};
use crate::handshake::{Failure, count};
use crate::live::About;

pub(crate) use gate::Gate;
use pending::PendingHandshake;
pub(crate) use pending::Pipe;
pub(crate) use stream::EarlyStream;

/// A handshake with accepted early data, after the server has sent its flight.
pub(crate) struct EarlyConnection {
    pub(crate) about: About,
    pub(crate) info: Info,
    pub(crate) handshake: Handshake,
    pub(crate) pipe: Pipe,
    /// The time by which the connection has to be open.
    pub(crate) deadline: Instant,
    /// The agent to which the connection then moves.
    pub(crate) bulk: Option<NodeName>,
}

/// Drives the handshake to its end, below HTTP.
pub(crate) struct Opening {
    shared: Arc<AgentShared>,
    about: About,
    info: Info,
    bulk: Option<NodeName>,
    state: Arc<Mutex<StreamState>>,
    deadline: Pin<Box<Sleep>>,
    /// Whether the connection is open.
    is_open: watch::Sender<bool>,
    failure: Option<Failure>,
}

/// A failed handshake. Requests may already have been answered.
pub(crate) struct Unfinished {
    failure: Failure,
    pipe: Pipe,
}

/// The stream of an early connection.
enum StreamState {
    PendingHandshake(Box<PendingHandshake>),
    Open(Box<TlsStream<TcpStream>>),
    Taken,
}

impl EarlyConnection {
    /// Returns the stream for HTTP, and the driver of the handshake.
    pub(crate) fn begin(self, shared: &Arc<AgentShared>) -> (EarlyStream, Opening) {
        let pending = PendingHandshake::new(self.handshake, self.pipe);
        let state = Arc::new(Mutex::new(StreamState::PendingHandshake(Box::new(pending))));
        let opening = Opening {
            shared: shared.clone(),
            about: self.about,
            info: self.info,
            bulk: self.bulk,
            state: state.clone(),
            deadline: Box::pin(sleep_until(self.deadline)),
            is_open: watch::Sender::new(false),
            failure: None,
        };
        (EarlyStream::new(state), opening)
    }
}

impl Opening {
    /// The gate for requests on this connection.
    pub(crate) fn gate(&self) -> Gate {
        Gate::new(self.is_open.subscribe())
    }

    /// Continues the handshake. Ready with `true` when the connection is open, with `false` when the handshake has
    /// failed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if *self.is_open.borrow() {
            return Poll::Ready(true);
        }
        if self.failure.is_some() {
            return Poll::Ready(false);
        }
        match ready!(self.poll_open(cx)) {
            Ok(()) => self.opened(),
            Err(failure) => self.failure = Some(failure),
        }
        Poll::Ready(self.failure.is_none())
    }

    /// Waits until the connection is open, after HTTP has ended or has left the stream here.
    pub(crate) async fn finish(mut self) -> Result<Box<TlsStream<TcpStream>>, Box<Unfinished>> {
        poll_fn(|cx| self.poll(cx)).await;
        let state = std::mem::replace(&mut *lock(&self.state), StreamState::Taken);
        match (state, self.failure) {
            (StreamState::Open(stream), _) => Ok(stream),
            (StreamState::PendingHandshake(pending), Some(failure)) => {
                Err(Box::new(Unfinished { failure, pipe: pending.into_pipe() }))
            }
            _ => unreachable!("a stream that was taken from here returns in another way"),
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut state = lock(&self.state);
        let StreamState::PendingHandshake(pending) = &mut *state else { return Poll::Ready(Ok(())) };
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(HandshakeError::TimedOut(pending.stage()).into()));
        }
        let opened = ready!(pending.poll(&self.shared, cx))?;
        if let StreamState::PendingHandshake(pending) = std::mem::replace(&mut *state, StreamState::Taken) {
            *state = StreamState::Open(Box::new(pending.open(opened)));
        }
        Poll::Ready(Ok(()))
    }

    /// Announces the connection. From now on it is like any other.
    fn opened(&mut self) {
        count(&self.shared, &self.about, &self.info);
        self.shared.live.establish(&self.shared, &self.about, self.bulk.take());
        self.is_open.send_replace(true);
    }
}

impl Unfinished {
    /// Ends the connection so that the client can detect that its response may be incomplete.
    pub(crate) async fn end(self, shared: &AgentShared, about: &About) {
        let Self { failure, pipe: Pipe { mut leg, unsent, sent, received, is_alerted, .. } } = self;
        let cause = &failure;
        tracing::info!(connection = %about.id, client = %about.client, %cause, "handshake failed after early data");
        shared.metrics.count_handshake_failed(failure.label());
        let flush = timeout(shared.limits().end_timeout, leg.write_all(&unsent));
        let is_sent = is_alerted && matches!(flush.await, Ok(Ok(())));
        if !is_sent {
            return tcp::reset_on_close(&leg);
        }
        let (connection, dispatcher) = (about.id, about.dispatcher.clone());
        let ending = Ending { connection, dispatcher, tenure: Epoch(0), sent: sent + unsent.len() as u64, received };
        // The leg is closed, as after any failed handshake.
        announce_end(shared, leg, &ending).await;
    }
}

fn lock(state: &Mutex<StreamState>) -> MutexGuard<'_, StreamState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
