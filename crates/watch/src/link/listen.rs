//! A judge that listens for sensors.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};
use watari_pki::{Identity, peer_identity};
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedLimits, UnidentifiedPlace};
use watari_wire::{NodeName, Role};

use super::judge::Judge;
use super::serve::{Ended, dismiss, serve};

/// A judge that listens.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    shared: Arc<Shared>,
}

/// A judge cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The certificate is not that of a judge.
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Judge)]
    Role(NodeName),
    /// The listener cannot be used.
    #[error("cannot listen: {0}")]
    Listener(#[from] io::Error),
}

struct Shared {
    identity: Identity,
    judge: Judge,
    /// Connections on which no sensor has said hello yet, and those that are being dismissed.
    unidentified: Arc<Unidentified>,
    complaints: Mutex<Complaints>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("node", self.identity.node()).finish_non_exhaustive()
    }
}

impl Listening {
    /// Listens; what sensors tell goes to `judge`. Must be called in a tokio runtime.
    pub fn on(listener: StdTcpListener, identity: Identity, judge: Judge) -> Result<Self, ListenError> {
        if !identity.roles().contains(&Role::Judge) {
            return Err(ListenError::Role(identity.node().clone()));
        }
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let unidentified = Unidentified::new(UNIDENTIFIED);
        let complaints = Mutex::new(Complaints::new(Instant::now()));
        let shared = Shared { identity, judge, unidentified, complaints };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves sensors, until it is dropped; their connections end with it.
    pub async fn run(self) {
        let mut served = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((tcp, address)) => {
                        let place = self.shared.unidentified.enter(address.ip(), false);
                        served.spawn(Arc::clone(&self.shared).admit(tcp, address, place));
                        // Lets the task see the first bytes of the peer before newer connections need its place.
                        yield_now().await;
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept a sensor");
                        sleep(PAUSE_AFTER_ERROR).await;
                    }
                },
                Some(_) = served.join_next() => {}
            }
        }
    }
}

/// A peer is nobody to talk to.
#[derive(Debug, thiserror::Error)]
enum Stranger {
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("it shows no certificate of a node")]
    Certificate,
    #[error("it did not finish its handshake in time")]
    Slow,
}

/// A peer with a certificate of the cluster.
struct Met {
    stream: TlsStream<TcpStream>,
    node: NodeName,
    is_sensor: bool,
}

impl Shared {
    /// Serves a connection, unless another needs its place before a sensor has said hello on it.
    async fn admit(self: Arc<Self>, tcp: TcpStream, address: SocketAddr, place: (UnidentifiedPlace, CrowdedOut)) {
        let (place, crowded_out) = place;
        tokio::select! {
            biased;
            () = self.serve(tcp, address, place) => {}
            () = crowded_out => {
                self.say(address, None, "it has not identified itself, and another connection needs its place");
                self.judge.crowded();
            }
        }
    }

    async fn serve(&self, tcp: TcpStream, address: SocketAddr, place: UnidentifiedPlace) {
        let Met { stream, node, is_sensor } = match self.meet(tcp, &place).await {
            Ok(met) => met,
            Err(error) => return self.complain(address, None, error.to_string()),
        };
        let (mut from, mut to) = tokio::io::split(stream);
        match serve(&mut from, &mut to, &self.judge, &node, is_sensor, place).await {
            Ended::Left => info!(%address, %node, "sensor left"),
            Ended::Lost(error) => warn!(%address, %node, %error, "sensor lost"),
            Ended::Refused(why) => {
                self.complain(address, Some(&node), why.clone());
                // Without the reason if another connection needs the place.
                let (_place, crowded_out) = self.unidentified.enter(address.ip(), false);
                tokio::select! {
                    () = dismiss(&mut from, &mut to, why) => {}
                    () = crowded_out => self.judge.crowded(),
                }
            }
        }
    }

    async fn meet(&self, tcp: TcpStream, place: &UnidentifiedPlace) -> Result<Met, Stranger> {
        let acceptor = TlsAcceptor::from(Arc::clone(self.identity.server_config()));
        let accepted = async {
            tcp.readable().await?;
            place.spoke();
            acceptor.accept(tcp).await
        };
        let accepted = timeout(HANDSHAKE_MAX, accepted).await.map_err(|_| Stranger::Slow)?;
        let stream = accepted.map_err(Stranger::Tls)?;
        let _ = stream.get_ref().0.set_nodelay(true);
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.and_then(|certificate| peer_identity(certificate).ok());
        let (node, roles) = certificate.ok_or(Stranger::Certificate)?;
        Ok(Met { stream, node, is_sensor: roles.contains(&Role::Sensor) })
    }

    fn complain(&self, address: SocketAddr, node: Option<&NodeName>, why: String) {
        self.say(address, node, &why);
        self.judge.refused(why);
    }

    fn say(&self, address: SocketAddr, node: Option<&NodeName>, why: &str) {
        let unsaid = self.complaints.lock().unwrap_or_else(PoisonError::into_inner).may(Instant::now());
        if let Some(unsaid) = unsaid {
            let node = node.map(tracing::field::display);
            warn!(%address, node, error = why, unsaid, "connection refused");
        }
    }
}

/// Whoever is refused can come again at once: the log takes so many of them in a while, and then how many there were.
#[derive(Debug)]
struct Complaints {
    since: Instant,
    said: u32,
    unsaid: u64,
}

const COMPLAINTS_MAX: u32 = 10;
const COMPLAINTS_SPAN: Duration = Duration::from_mins(1);

impl Complaints {
    const fn new(now: Instant) -> Self {
        Self { since: now, said: 0, unsaid: 0 }
    }

    /// Whether something may be said, and how much was not since the last time.
    fn may(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= COMPLAINTS_SPAN {
            (self.since, self.said) = (now, 0);
        }
        if self.said >= COMPLAINTS_MAX {
            self.unsaid += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Addresses of sensors are not configured. An address that a sensor has identified itself from counts as known.
const UNIDENTIFIED: UnidentifiedLimits = UnidentifiedLimits { known_max: 64, max: 64, per_address_max: 16 };
/// Where the system has no descriptor left, it has none a moment later either.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_bounded_and_those_unsaid_are_told() {
        let begin = Instant::now();
        let mut complaints = Complaints::new(begin);
        let said: Vec<_> = (0..COMPLAINTS_MAX + 3).map(|_| complaints.may(begin)).collect();
        assert_eq!(said.iter().flatten().count(), COMPLAINTS_MAX as usize);
        assert_eq!(complaints.may(begin + COMPLAINTS_SPAN), Some(3));
        assert_eq!(complaints.may(begin + COMPLAINTS_SPAN), Some(0));
    }
}
