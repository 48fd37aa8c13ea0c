//! Connections that are idle or shared.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::client::conn::http2;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use watari_body::Body;

use crate::exchange::limits::Limits;
use crate::transport::connect::Connected;
use crate::transport::http1::Http1;

/// The reusable connections to one origin, and the limit on its requests in flight.
#[derive(Debug)]
pub(crate) struct Connections {
    kept: Mutex<ReusableConnections>,
    in_flight: Arc<Semaphore>,
    in_flight_max: usize,
    idle_max: usize,
    idle_timeout: Duration,
}

#[derive(Debug, Default)]
struct ReusableConnections {
    /// HTTP/1.1 connections without a request. The one used last is at the back.
    idle: VecDeque<Idle>,
    /// HTTP/2 connections, with or without requests.
    shared: Vec<Arc<SharedConnection>>,
    /// The current addresses of the origin, if they may change. Connections to other addresses are not used again.
    addresses: Option<Arc<[SocketAddr]>>,
}

#[derive(Debug)]
struct Idle {
    connection: Http1,
    since: Instant,
}

/// An HTTP/2 connection.
#[derive(Debug)]
struct SharedConnection {
    sender: http2::SendRequest<Body>,
    peer: SocketAddr,
    streams: AtomicUsize,
    /// When its last request ended.
    used: Mutex<Instant>,
}

/// The maximum number of requests on one HTTP/2 connection. Most servers allow about as many (RFC 9113, section 6.5.2,
/// recommends at least 100).
pub(crate) const STREAMS_MAX: usize = 100;

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        let in_flight_max = limits.in_flight_max.min(Semaphore::MAX_PERMITS);
        Self {
            kept: Mutex::default(),
            in_flight: Arc::new(Semaphore::new(in_flight_max)),
            in_flight_max,
            idle_max: limits.idle_max,
            idle_timeout: limits.idle_timeout,
        }
    }

    /// A permit for one more request. `None` if `in_flight_max` requests are in flight.
    pub(crate) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.in_flight).try_acquire_owned().ok()
    }

    /// The number of requests in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight_max - self.in_flight.available_permits()
    }

    /// Takes an existing connection. Of HTTP/2, it is the first that has a free stream. Of HTTP/1.1, it is the one that
    /// was used last, so that surplus connections reach their idle timeout. Connections of this thread come first: no
    /// other thread has to wake this one for each response.
    pub(crate) fn take(&self, now: Instant) -> Option<Connection> {
        let mut kept = self.lock();
        self.remove_old(&mut kept, now);
        if let Some(shared) = kept.shared.iter().find(|shared| shared.has_room()) {
            return Some(Connection::Http2(Stream::on(shared)));
        }
        let mut idle = std::iter::from_fn(|| kept.take_last());
        idle.find_map(|mut idle| idle.connection.is_open().then_some(idle.connection)).map(Connection::Http1)
    }

    /// Whether there is a connection for the next request.
    pub(crate) fn has_spare(&self, now: Instant) -> bool {
        self.tidy(now);
        let kept = self.lock();
        !kept.idle.is_empty() || kept.shared.iter().any(|shared| shared.has_room())
    }

    /// Closes idle connections that are too old, or that the origin has closed.
    pub(crate) fn tidy(&self, now: Instant) {
        let mut kept = self.lock();
        self.remove_old(&mut kept, now);
        kept.idle.retain_mut(|idle| idle.connection.is_open());
    }

    /// Stores a new connection for the next request.
    pub(crate) fn keep(&self, connected: Connected, now: Instant) {
        if let Connection::Http1(connection) = self.add(connected, true, now) {
            self.put(connection, now);
        }
    }

    /// Registers a new connection. If it can be shared, and is `for_all` clients, other requests use it from now on.
    pub(crate) fn add(&self, connected: Connected, for_all: bool, now: Instant) -> Connection {
        match connected {
            Connected::Http1(connection) => Connection::Http1(connection),
            Connected::Http2(sender, peer) => {
                let shared =
                    Arc::new(SharedConnection { sender, peer, streams: AtomicUsize::new(0), used: Mutex::new(now) });
                let stream = Stream::on(&shared);
                if for_all {
                    self.lock().shared.push(shared);
                }
                Connection::Http2(stream)
            }
        }
    }

    /// Sets the addresses of the origin. Drops connections to other addresses; they end with the requests on them.
    pub(crate) fn keep_only(&self, addresses: Arc<[SocketAddr]>) {
        let mut kept = self.lock();
        kept.idle.retain(|idle| addresses.contains(&idle.connection.peer()));
        kept.shared.retain(|shared| addresses.contains(&shared.peer));
        kept.addresses = Some(addresses);
    }

    /// Stores an idle connection. Removes the oldest one if there are more than `idle_max`.
    fn put(&self, connection: Http1, now: Instant) {
        let mut kept = self.lock();
        self.remove_old(&mut kept, now);
        if kept.addresses.as_ref().is_some_and(|addresses| !addresses.contains(&connection.peer())) {
            return;
        }
        kept.idle.push_back(Idle { connection, since: now });
        if kept.idle.len() > self.idle_max {
            kept.idle.pop_front();
        }
    }

    fn remove_old(&self, kept: &mut ReusableConnections, now: Instant) {
        let is_old = |since: Instant| now.duration_since(since) >= self.idle_timeout;
        while kept.idle.front().is_some_and(|idle| is_old(idle.since)) {
            kept.idle.pop_front();
        }
        kept.shared.retain(|shared| !shared.sender.is_closed() && (shared.is_in_use() || !is_old(shared.last_used())));
    }

    fn lock(&self) -> MutexGuard<'_, ReusableConnections> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReusableConnections {
    /// The idle connection that was used last: of this thread, otherwise of any.
    fn take_last(&mut self) -> Option<Idle> {
        let of_this_thread = self.idle.iter().rposition(|idle| idle.connection.is_of_this_thread());
        self.idle.remove(of_this_thread.or(self.idle.len().checked_sub(1))?)
    }
}

impl SharedConnection {
    fn has_room(&self) -> bool {
        self.streams.load(Ordering::Relaxed) < STREAMS_MAX && !self.sender.is_closed()
    }

    fn is_in_use(&self) -> bool {
        self.streams.load(Ordering::Relaxed) > 0
    }

    fn last_used(&self) -> Instant {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection for one request.
pub(crate) enum Connection {
    /// A complete connection.
    Http1(Http1),
    Http2(Stream),
}

/// A stream of an HTTP/2 connection.
pub(crate) struct Stream {
    pub(crate) sender: http2::SendRequest<Body>,
    shared: Arc<SharedConnection>,
}

impl Stream {
    fn on(shared: &Arc<SharedConnection>) -> Self {
        shared.streams.fetch_add(1, Ordering::Relaxed);
        Self { sender: shared.sender.clone(), shared: Arc::clone(shared) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        *self.shared.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.shared.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request in flight holds, and where its connection returns.
pub(crate) struct Lease {
    connections: Arc<Connections>,
    for_all: bool,
    permit: OwnedSemaphorePermit,
}

impl Lease {
    pub(crate) fn new(connections: &Arc<Connections>, for_all: bool, permit: OwnedSemaphorePermit) -> Self {
        Self { connections: Arc::clone(connections), for_all, permit }
    }

    /// Returns only the permit, because the connection is now used for another protocol.
    pub(crate) fn into_permit(self) -> OwnedSemaphorePermit {
        self.permit
    }

    /// Ends the exchange. Stores its connection, if another one can use it.
    pub(crate) fn release(self, connection: Option<Http1>) {
        if let Some(connection) = connection.filter(|_| self.for_all) {
            self.connections.put(connection, Instant::now());
        }
    }
}
