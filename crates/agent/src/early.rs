//! A connection that is served before its client has said Finished (early data: RFC 8446, section 2.3; RFC 8470).
//!
//! ```text
//!                     Finished                    its tickets are kept
//!  ExpectsFinished -------------> KeepsTickets ------------------------> Open
//!        |  rustls opens and seals    nobody seals      the record layer opens and seals
//!        |                                 |
//!        '--------- time is up ------------'---> Unfinished: the client gets the alert that there is, or its
//!           what comes is wrong                  connection is reset
//! ```
//!
//! HTTP runs over an [`EarlyStream`] meanwhile, which reads and writes by what the state is. The stream that goes on when it
//! is `Open` is taken out of it, and everything is as after any handshake. An [`Opening`] drives the states.
//!
//! 1. Whoever polls HTTP polls the `Opening` before, in the same task. So the `EarlyStream` wakes nobody: what it waits for
//!    is what the `Opening` waits for, or room on the leg.
//! 2. Nothing is sealed between Finished and `Open`: the record layer goes on where rustls stopped, behind the tickets.
//! 3. Before `Open` the connection is not announced and does not move, and only such requests are answered whose repetition
//!    does no harm ([`Gate`]); although early data is taken only where somebody has made sure that nobody repeats it.
//! 4. The time for the handshake is the time until `Open`.

mod gate;
mod shaking;
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
use watari_wire::{Epoch, NodeName};

use crate::Shared;
use crate::ending::{Ending, announce_end};
use crate::handshake::{Failure, count};
use crate::live::About;

pub(crate) use gate::Gate;
pub(crate) use shaking::Pipe;
use shaking::Shaking;
pub(crate) use stream::EarlyStream;

/// A handshake whose client's early data was accepted, when the server's flight has been sent.
pub(crate) struct Early {
    pub(crate) about: About,
    pub(crate) info: Info,
    pub(crate) handshake: Handshake,
    pub(crate) pipe: Pipe,
    /// When the connection must be open.
    pub(crate) deadline: Instant,
    /// To whom it goes then.
    pub(crate) bulk: Option<NodeName>,
}

/// Drives the handshake to its end, below HTTP.
pub(crate) struct Opening {
    shared: Arc<Shared>,
    about: About,
    info: Info,
    bulk: Option<NodeName>,
    state: Arc<Mutex<State>>,
    deadline: Pin<Box<Sleep>>,
    /// Whether the connection is open.
    is_open: watch::Sender<bool>,
    failure: Option<Failure>,
}

/// A handshake that came to nothing, although requests may have been answered.
pub(crate) struct Unfinished {
    failure: Failure,
    pipe: Pipe,
}

/// Where the stream is at the moment.
enum State {
    Shaking(Box<Shaking>),
    Open(Box<TlsStream<TcpStream>>),
    Taken,
}

impl Early {
    /// What HTTP runs over, and what drives the handshake meanwhile.
    pub(crate) fn begin(self, shared: &Arc<Shared>) -> (EarlyStream, Opening) {
        let shaking = Shaking::new(self.handshake, self.pipe);
        let state = Arc::new(Mutex::new(State::Shaking(Box::new(shaking))));
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
    /// What requests have to pass.
    pub(crate) fn gate(&self) -> Gate {
        Gate::new(self.is_open.subscribe())
    }

    /// Goes on with the handshake; ready when the connection is open, or (`false`) will not be.
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

    /// Waits until the connection is open, when HTTP is over, or has left the stream here.
    pub(crate) async fn finish(mut self) -> Result<Box<TlsStream<TcpStream>>, Box<Unfinished>> {
        poll_fn(|cx| self.poll(cx)).await;
        let state = std::mem::replace(&mut *lock(&self.state), State::Taken);
        match (state, self.failure) {
            (State::Open(stream), _) => Ok(stream),
            (State::Shaking(shaking), Some(failure)) => {
                Err(Box::new(Unfinished { failure, pipe: shaking.into_pipe() }))
            }
            _ => unreachable!("a stream that was taken from here is given back otherwise"),
        }
    }

    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut state = lock(&self.state);
        let State::Shaking(shaking) = &mut *state else { return Poll::Ready(Ok(())) };
        if self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(HandshakeError::TimedOut(shaking.stage()).into()));
        }
        let opened = ready!(shaking.poll(&self.shared, cx))?;
        if let State::Shaking(shaking) = std::mem::replace(&mut *state, State::Taken) {
            *state = State::Open(Box::new(shaking.open(opened)));
        }
        Poll::Ready(Ok(()))
    }

    /// From now on the connection is one like the others.
    fn opened(&mut self) {
        count(&self.shared, &self.about, &self.info);
        self.shared.live.establish(&self.shared, &self.about, self.bulk.take());
        self.is_open.send_replace(true);
    }
}

impl Unfinished {
    /// Ends the connection so that the client can tell that what it has may not be all.
    pub(crate) async fn end(self, shared: &Shared, about: &About) {
        let Self { failure, pipe: Pipe { mut leg, unsent, sent, received, is_alerted, .. } } = self;
        let cause = &failure;
        tracing::info!(connection = %about.id, client = %about.client, %cause, "handshake failed after early data");
        shared.metrics.count_handshake_failed(failure.label());
        let flush = timeout(shared.limits().end_timeout, leg.write_all(&unsent));
        let is_told = is_alerted && matches!(flush.await, Ok(Ok(())));
        if !is_told {
            return tcp::reset_on_close(&leg);
        }
        let (connection, dispatcher) = (about.id, about.dispatcher.clone());
        let ending = Ending { connection, dispatcher, tenure: Epoch(0), sent: sent + unsent.len() as u64, received };
        // Closed, as after any handshake that fails.
        announce_end(shared, leg, &ending).await;
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
