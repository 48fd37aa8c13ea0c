//! Relays connections to a backend without opening TLS.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};
use watari_sys::tcp;
use watari_wire::proxy::Header;

use crate::alarm::Alarm;
use crate::clients::Client;
use crate::config::{Limits, PassthroughRule};
use crate::direction::{Broken, Direction, Written};
use crate::shared::DispatcherShared;
use crate::unrelayed::UnrelayedClient;
use crate::upgrade::{Passed, PassthroughSnapshot, Successors, ToSuccessor, pass_on};

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

    /// The relay between the client and a backend.
    pub(crate) fn relay(&self, client: Client, backend: TcpStream, limits: &Limits) -> PassthroughRelay {
        let mut up = Direction::holding(client.read_ahead);
        if self.proxy_protocol {
            let header = Header::Tcp { client: client.address, server: client.server, tlvs: Vec::new() };
            let mut head = Vec::new();
            header.encode(&mut head).expect("a header without TLVs always fits");
            up.put_in_front(head);
        }
        let now = Instant::now();
        PassthroughRelay {
            address: client.address,
            client: client.stream,
            backend,
            up: OneWay { direction: up, has_ended: false },
            down: OneWay { direction: Direction::default(), has_ended: false },
            last_byte: now,
            idle_timeout: limits.idle_timeout,
            end: now + limits.lifetime_max,
        }
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

/// A connection that is relayed without a look at its bytes.
pub(crate) struct PassthroughRelay {
    address: SocketAddr,
    client: TcpStream,
    backend: TcpStream,
    up: OneWay,
    down: OneWay,
    /// When a byte was last written, in either direction.
    last_byte: Instant,
    idle_timeout: Duration,
    /// The end of its lifetime.
    end: Instant,
}

/// One stream of such a connection.
struct OneWay {
    direction: Direction,
    /// Whether the end of the stream was passed on.
    has_ended: bool,
}

/// Why a relay stops.
enum Stop {
    Complete,
    Failed(io::Error),
    Lifetime,
    /// The address of the client leaves this node.
    Left,
    /// A successor of this process has the connection.
    Passed,
}

impl PassthroughRelay {
    /// Goes on with a connection of this process's predecessor.
    pub(crate) fn restore(passed: PassthroughSnapshot, client: TcpStream, backend: TcpStream) -> Self {
        let PassthroughSnapshot { address, up, down, have_ended: [up_ended, down_ended], idle_timeout, left } = passed;
        let one_way = |bytes, has_ended| OneWay { direction: Direction::restore(bytes), has_ended };
        let now = Instant::now();
        Self {
            address,
            client,
            backend,
            up: one_way(up, up_ended),
            down: one_way(down, down_ended),
            last_byte: now,
            idle_timeout,
            end: now + left,
        }
    }

    /// Relays both directions until both streams have ended, one fails, neither side has taken a byte for the idle
    /// timeout, the client's address leaves this node, or a successor of this process has the connection.
    pub(crate) async fn run(mut self, shared: &DispatcherShared, unrelayed: UnrelayedClient) {
        match self.relay(shared, &unrelayed).await {
            Stop::Complete | Stop::Passed => return,
            Stop::Failed(error) => tracing::debug!(client = %self.address, %error, "passthrough connection cut"),
            Stop::Lifetime => shared.metrics.count_given_up("lifetime"),
            Stop::Left => {
                tracing::info!(client = %self.address, "passthrough connection reset: its address leaves this node");
            }
        }
        // A reset shows both ends that the stream is incomplete.
        tcp::reset_on_close(&self.client);
        tcp::reset_on_close(&self.backend);
        drop(self);
        // Only now: the gate closes when no client is left.
        drop(unrelayed);
    }

    async fn relay(&mut self, shared: &DispatcherShared, unrelayed: &UnrelayedClient) -> Stop {
        let metrics = &shared.metrics;
        let mut successors = Successors::of(shared);
        let (mut idle, mut lifetime) = (Alarm::at(self.last_byte + self.idle_timeout), pin!(sleep_until(self.end)));
        let mut leaves = pin!(unrelayed.leaves());
        while !(self.up.has_ended && self.down.has_ended) {
            let (written, total) = tokio::select! {
                written = self.up.step(&self.client, &self.backend), if !self.up.has_ended => {
                    (written, &metrics.bytes_to_backends)
                }
                written = self.down.step(&self.backend, &self.client), if !self.down.has_ended => {
                    (written, &metrics.bytes_to_clients)
                }
                () = idle.ring(self.last_byte + self.idle_timeout) => {
                    return Stop::Failed(io::ErrorKind::TimedOut.into());
                }
                () = lifetime.as_mut() => return Stop::Lifetime,
                () = &mut leaves => return Stop::Left,
                to = successors.next() => {
                    if self.pass_on(to).await {
                        return Stop::Passed;
                    }
                    continue;
                }
            };
            match written {
                Ok(written) if written == Written::default() => {}
                Ok(written) => {
                    self.last_byte = Instant::now();
                    total.inc_by(written.bytes as u64);
                    metrics.bytes_spliced.inc_by(written.spliced as u64);
                }
                Err(error) => return Stop::Failed(error),
            }
        }
        Stop::Complete
    }

    /// Passes the connection to a successor of this process. Returns whether the successor has it.
    async fn pass_on(&mut self, to: ToSuccessor) -> bool {
        let (Ok(up), Ok(down)) = (self.up.direction.snapshot(), self.down.direction.snapshot()) else { return false };
        let passed = PassthroughSnapshot {
            address: self.address,
            up,
            down,
            have_ended: [self.up.has_ended, self.down.has_ended],
            idle_timeout: self.idle_timeout,
            left: self.end.saturating_duration_since(Instant::now()),
        };
        pass_on(to, &Passed::Passthrough(Box::new(passed)), &[&self.client, &self.backend]).await
    }
}

impl OneWay {
    /// Waits until a byte can pass, and passes what can. May be dropped and called again.
    async fn step(&mut self, from: &TcpStream, to: &TcpStream) -> io::Result<Written> {
        if !self.direction.is_empty() {
            to.writable().await?;
            return self.direction.write_to(to);
        }
        from.readable().await?;
        match self.direction.pass(from, to) {
            Ok((0, written)) => {
                tcp::finish(to);
                self.has_ended = true;
                Ok(written)
            }
            Ok((_, written)) => Ok(written),
            Err(Broken::Reading(error) | Broken::Writing { error, .. })
                if error.kind() == io::ErrorKind::WouldBlock =>
            {
                Ok(Written::default())
            }
            Err(Broken::Reading(error) | Broken::Writing { error, .. }) => Err(error),
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
