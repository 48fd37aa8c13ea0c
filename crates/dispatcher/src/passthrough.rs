//! Relays connections to a backend without opening TLS.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use watari_sys::tcp;
use watari_wire::proxy::Header;

use crate::clients::Client;
use crate::config::{Limits, PassthroughRule};
use crate::direction::{Broken, Direction, Written};
use crate::metrics::Metrics;

/// The most backends to try for one client.
const BACKENDS_TRIED_MAX: usize = 3;

/// The server names that are relayed to backends, and their routes.
#[derive(Default)]
pub(crate) struct Passthrough {
    exact: HashMap<String, Arc<Route>>,
    /// By the part of the name after `*.`.
    wildcards: HashMap<String, Arc<Route>>,
}

/// The backends of a rule.
pub(crate) struct Route {
    backends: Vec<SocketAddr>,
    proxy_protocol: bool,
    next: AtomicUsize,
}

impl Passthrough {
    pub(crate) fn new(rules: &[PassthroughRule]) -> Self {
        let mut passthrough = Self::default();
        for rule in rules {
            let (backends, proxy_protocol) = (rule.backends.clone(), rule.proxy_protocol);
            let route = Arc::new(Route { backends, proxy_protocol, next: AtomicUsize::new(0) });
            for name in &rule.names {
                let (names, name) = match name.as_str().strip_prefix("*.") {
                    Some(parent) => (&mut passthrough.wildcards, parent),
                    None => (&mut passthrough.exact, name.as_str()),
                };
                names.insert(name.to_owned(), route.clone());
            }
        }
        passthrough
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcards.is_empty()
    }

    /// The route for a host name in lower case: an exact match, otherwise the wildcard of its parent domain, as in
    /// certificates.
    pub(crate) fn route(&self, name: &str) -> Option<&Arc<Route>> {
        let wildcard = || name.split_once('.').and_then(|(_, parent)| self.wildcards.get(parent));
        self.exact.get(name).or_else(wildcard)
    }
}

impl Route {
    /// The backends to try. Each call begins with the next one.
    fn in_turn(&self) -> impl Iterator<Item = SocketAddr> {
        let first = self.next.fetch_add(1, Ordering::Relaxed) % self.backends.len().max(1);
        self.backends.iter().cycle().skip(first).take(self.backends.len().min(BACKENDS_TRIED_MAX)).copied()
    }

    /// Relays between the client and a backend until both streams have ended, or one fails.
    pub(crate) async fn serve(&self, client: Client, backend: TcpStream, limits: &Limits, metrics: &Metrics) {
        metrics.passed_through.inc();
        let mut up = Direction::holding(client.read_ahead);
        if self.proxy_protocol {
            let header = Header::Tcp { client: client.address, server: client.server, tlvs: Vec::new() };
            let mut head = Vec::new();
            header.encode(&mut head).expect("a header without TLVs always fits");
            up.put_in_front(head);
        }
        match timeout(limits.lifetime_max, relay(&client.stream, &backend, up, limits, metrics)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => tracing::debug!(client = %client.address, %error, "passthrough connection cut"),
            Err(_) => metrics.count_given_up("lifetime"),
        }
        // A reset shows both ends that the stream is incomplete.
        tcp::reset_on_close(&client.stream);
        tcp::reset_on_close(&backend);
    }

    /// Connects to a backend. `None`: none can be reached.
    pub(crate) async fn connect(&self, limits: &Limits) -> Option<TcpStream> {
        for backend in self.in_turn() {
            let connected = timeout(limits.leg_timeout, TcpStream::connect(backend)).await;
            match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(stream) if tcp::prepare(&stream).is_ok() => {
                    tcp::reset_on_close(&stream);
                    return Some(stream);
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%backend, %error, "cannot connect to a backend"),
            }
        }
        None
    }
}

/// Relays both directions until both streams have ended, or until neither side has taken a byte for the idle timeout.
/// `up` holds bytes that wait for the backend from the start.
async fn relay(
    client: &TcpStream,
    backend: &TcpStream,
    up: Direction,
    limits: &Limits,
    metrics: &Metrics,
) -> io::Result<()> {
    let last = LastByte(Mutex::new(Instant::now()));
    let count = |written: Written, total: &Counter| {
        *last.at() = Instant::now();
        total.inc_by(written.bytes as u64);
        metrics.bytes_spliced.inc_by(written.spliced as u64);
    };
    let up = one_way(client, backend, up, |written| count(written, &metrics.bytes_to_backends));
    let down = one_way(backend, client, Direction::default(), |written| count(written, &metrics.bytes_to_clients));
    tokio::select! {
        relayed = async { tokio::try_join!(up, down) } => relayed.map(|_| ()),
        () = idle(&last, limits.idle_timeout) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// When a byte was last written, in either direction.
struct LastByte(Mutex<Instant>);

impl LastByte {
    fn at(&self) -> MutexGuard<'_, Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns when no byte has been written for `limit`.
async fn idle(last: &LastByte, limit: Duration) {
    loop {
        let end = *last.at() + limit;
        sleep_until(end).await;
        if *last.at() + limit <= Instant::now() {
            return;
        }
    }
}

/// Relays one stream to its end, and calls `count` for each write. `direction` holds bytes that wait from the start.
async fn one_way(
    from: &TcpStream,
    to: &TcpStream,
    mut direction: Direction,
    count: impl Fn(Written),
) -> io::Result<()> {
    loop {
        if direction.is_empty() {
            from.readable().await?;
            match direction.pass(from, to) {
                Ok((0, _)) => {
                    tcp::finish(to);
                    return Ok(());
                }
                Ok((_, written)) => count(written),
                Err(Broken::Reading(error) | Broken::Writing { error, .. })
                    if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(Broken::Reading(error) | Broken::Writing { error, .. }) => return Err(error),
            }
        } else {
            to.writable().await?;
            count(direction.write_to(to)?);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn rule(names: &[&str], ports: &[u16]) -> PassthroughRule {
        PassthroughRule {
            names: names.iter().map(|name| name.parse().unwrap()).collect(),
            backends: ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect(),
            proxy_protocol: false,
        }
    }

    #[test]
    fn a_name_of_its_own_comes_before_a_wildcard() {
        let passthrough =
            Passthrough::new(&[rule(&["db.example.com"], &[1]), rule(&["*.example.com", "raw.test"], &[2])]);
        let port = |name| passthrough.route(name).map(|route| route.backends[0].port());
        assert_eq!(port("db.example.com"), Some(1));
        assert_eq!(port("other.example.com"), Some(2));
        assert_eq!(port("raw.test"), Some(2));
        for name in ["example.com", "a.b.example.com", "com", "", "*.example.com.x"] {
            assert_eq!(port(name), None, "{name}");
        }
    }

    #[test]
    fn backends_take_turns() {
        let passthrough = Passthrough::new(&[rule(&["a.test"], &[1, 2, 3, 4])]);
        let route = passthrough.route("a.test").unwrap();
        let turn = || route.in_turn().map(|backend| backend.port()).collect::<Vec<_>>();
        assert_eq!([turn(), turn(), turn()], [[1, 2, 3], [2, 3, 4], [3, 4, 1]]);
    }
}
