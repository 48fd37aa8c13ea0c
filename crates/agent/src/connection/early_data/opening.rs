//! The driver of the handshake below HTTP.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::time::{Sleep, sleep_until, timeout};
use watari_handshake::{HandshakeError, Info};
use watari_stream::TlsStream;
use watari_values::{Epoch, NodeName};

use super::gate::Gate;
use super::pending::{PendingHandshake, Pipe};
use super::stream::{EarlyStream, StreamState, lock};
use crate::connection::handshake::{AcceptedEarlyData, Failure, Handshakes};
use crate::handoff::ending::Ending;
use crate::handoff::live::About;
use crate::handoff::registry::Registry;
use crate::leg::Leg;

/// A handshake with accepted early data, after the server has sent its flight.
pub(crate) struct EarlyConnection {
    accepted: AcceptedEarlyData,
    /// The agent to which the connection then moves.
    bulk: Option<NodeName>,
    handshakes: Arc<Handshakes>,
    registry: Arc<Registry>,
}

/// Drives the handshake to its end, below HTTP.
pub(crate) struct Opening {
    handshakes: Arc<Handshakes>,
    registry: Arc<Registry>,
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

impl EarlyConnection {
    /// `handshakes` stores the sessions of the tickets and counts the handshake. `registry` announces the connection.
    pub(crate) fn new(
        accepted: AcceptedEarlyData,
        bulk: Option<NodeName>,
        handshakes: Arc<Handshakes>,
        registry: Arc<Registry>,
    ) -> Self {
        Self { accepted, bulk, handshakes, registry }
    }

    pub(crate) fn about(&self) -> &About {
        &self.accepted.about
    }

    /// The bytes received and sent so far.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.accepted.received, self.accepted.sent)
    }

    /// Returns the connection's properties, the stream for HTTP, and the driver of the handshake.
    pub(crate) fn begin(self) -> (About, EarlyStream, Opening) {
        let Self { accepted, bulk, handshakes, registry } = self;
        let AcceptedEarlyData { about, info, handshake, leg, input, received, sent, deadline } = accepted;
        let pipe = Pipe { leg, input, received, early: Vec::new(), unsent: Vec::new(), sent, is_alerted: false };
        let pending = PendingHandshake::new(handshake, pipe);
        let state = Arc::new(Mutex::new(StreamState::PendingHandshake(Box::new(pending))));
        let opening = Opening {
            handshakes,
            registry,
            about: about.clone(),
            info,
            bulk,
            state: state.clone(),
            deadline: Box::pin(sleep_until(deadline)),
            is_open: watch::Sender::new(false),
            failure: None,
        };
        (about, EarlyStream::new(state), opening)
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
    pub(crate) async fn finish(mut self) -> Result<Box<TlsStream<Leg>>, Box<Unfinished>> {
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
        let opened = ready!(pending.poll(&self.handshakes, cx))?;
        if let StreamState::PendingHandshake(pending) = std::mem::replace(&mut *state, StreamState::Taken) {
            *state = StreamState::Open(Box::new(pending.open(opened)));
        }
        Poll::Ready(Ok(()))
    }

    /// Announces the connection. From now on it is like any other.
    fn opened(&mut self) {
        self.handshakes.count(&self.about, &self.info);
        self.registry.establish(&self.about, self.bulk.take());
        self.is_open.send_replace(true);
    }
}

impl Unfinished {
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Sends the alert, within `end_timeout`. Returns the leg and the end to announce. If there is no alert or the
    /// client does not take it, resets the leg, so that the client can detect that its response may be incomplete.
    pub(crate) async fn flush(self, end_timeout: Duration, about: &About) -> Option<(Leg, Ending)> {
        let Self { pipe: Pipe { mut leg, unsent, sent, received, is_alerted, .. }, .. } = self;
        let flush = timeout(end_timeout, leg.write_all(&unsent));
        let is_sent = is_alerted && matches!(flush.await, Ok(Ok(())));
        if !is_sent {
            leg.reset_on_close();
            return None;
        }
        let (connection, dispatcher) = (about.id, about.dispatcher.clone());
        let ending = Ending { connection, dispatcher, tenure: Epoch(0), sent: sent + unsent.len() as u64, received };
        Some((leg, ending))
    }
}
