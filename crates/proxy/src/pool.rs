//! Connections that are kept for later requests.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http1::SendRequest;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use crate::{Body, Limits};

/// The idle connections to one origin, and how many requests it may be given at once.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The one used last is at the back.
    idle: Mutex<VecDeque<Idle>>,
    in_flight: Arc<Semaphore>,
    idle_max: usize,
    idle_timeout: Duration,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<Body>,
    since: Instant,
}

impl Pool {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            idle: Mutex::default(),
            in_flight: Arc::new(Semaphore::new(limits.in_flight_max.min(Semaphore::MAX_PERMITS))),
            idle_max: limits.idle_max,
            idle_timeout: limits.idle_timeout,
        }
    }

    /// Leave to send one more request, unless too many are in flight.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.in_flight).try_acquire_owned().ok()
    }

    /// The connection that was used last, so that those which are not needed grow old.
    pub(crate) fn take(&self, now: Instant) -> Option<SendRequest<Body>> {
        let mut idle = self.lock();
        self.remove_old(&mut idle, now);
        std::iter::from_fn(|| idle.pop_back()).map(|idle| idle.sender).find(SendRequest::is_ready)
    }

    /// Keeps a connection, instead of the oldest one where there are too many.
    fn put(&self, sender: SendRequest<Body>, now: Instant) {
        let mut idle = self.lock();
        self.remove_old(&mut idle, now);
        idle.push_back(Idle { sender, since: now });
        if idle.len() > self.idle_max {
            idle.pop_front();
        }
    }

    fn remove_old(&self, idle: &mut VecDeque<Idle>, now: Instant) {
        while idle.front().is_some_and(|idle| now.duration_since(idle.since) >= self.idle_timeout) {
            idle.pop_front();
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use. Dropped, it is closed.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    sender: SendRequest<Body>,
    permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(crate) fn new(pool: &Arc<Pool>, sender: SendRequest<Body>, permit: OwnedSemaphorePermit) -> Self {
        Self { pool: Arc::clone(pool), sender, permit }
    }

    /// Gives the connection back after a response that was read to its end; one that does not become ready again
    /// within `patience` (the rest of a request's body may still be on its way) is closed.
    pub(crate) fn release(mut self, patience: Duration) {
        if self.sender.is_ready() {
            self.pool.put(self.sender, Instant::now());
        } else if !self.sender.is_closed() {
            tokio::spawn(async move {
                if let Ok(Ok(())) = timeout(patience, self.sender.ready()).await {
                    self.pool.put(self.sender, Instant::now());
                }
                drop(self.permit);
            });
        }
    }
}
