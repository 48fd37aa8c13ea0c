//! A worker that listens for controllers.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{info, warn};
use watari_bench_engine::source::Sources;
use watari_pki::{Identity, peer_identity};
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedLimits, UnidentifiedPlace};
use watari_values::{NodeName, Role};

use super::serve::{refuse, serve};
use super::wire::TalkError;

/// A listening worker. It serves one controller at a time.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    shared: Arc<ListenShared>,
}

/// A worker cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The certificate does not allow the role of a load generator.
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Bench)]
    Role(NodeName),
    /// The address cannot be used.
    #[error("cannot listen on {0}: {1}")]
    Address(SocketAddr, io::Error),
}

struct ListenShared {
    identity: Identity,
    own: Option<Sources>,
    /// One permit, because the worker runs one job at a time.
    free: Semaphore,
    /// Connections of peers that have not been identified as controllers and admitted.
    unidentified: Arc<Unidentified>,
}

impl std::fmt::Debug for ListenShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenShared").field("node", self.identity.node()).finish_non_exhaustive()
    }
}

impl Listening {
    /// Listens on `address`. `own` are source addresses of this machine, which replace those of jobs.
    pub async fn on(address: SocketAddr, identity: Identity, own: Option<Sources>) -> Result<Self, ListenError> {
        if !identity.roles().contains(&Role::Bench) {
            return Err(ListenError::Role(identity.node().clone()));
        }
        let listener = TcpListener::bind(address).await.map_err(|error| ListenError::Address(address, error))?;
        let shared =
            ListenShared { identity, own, free: Semaphore::new(1), unidentified: Unidentified::new(UNIDENTIFIED) };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// The local address of the listener.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves controllers until this future is dropped, which ends running loads.
    pub async fn run(self) {
        let mut served = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((tcp, address)) => {
                        let place = self.shared.unidentified.enter(address.ip(), false);
                        served.spawn(Arc::clone(&self.shared).admit(tcp, address, place));
                        // Lets the task process the first bytes of the peer before newer connections need its place.
                        yield_now().await;
                    }
                    Err(error) => {
                        warn!(%error, "cannot accept a controller");
                        sleep(PAUSE_AFTER_ERROR).await;
                    }
                },
                Some(_) = served.join_next() => {}
            }
        }
    }
}

/// A peer with a certificate of the cluster.
struct Met {
    stream: TlsStream<TcpStream>,
    node: NodeName,
    may: bool,
}

/// A peer cannot be identified.
#[derive(Debug, thiserror::Error)]
enum IdentifyError {
    #[error("TLS: {0}")]
    Tls(io::Error),
    #[error("it sent no certificate of a node")]
    Certificate,
    #[error("it did not finish its handshake in time")]
    Slow,
}

impl ListenShared {
    /// Serves a connection. Closes it if another one needs its place before the controller is admitted.
    async fn admit(self: Arc<Self>, tcp: TcpStream, address: SocketAddr, place: (UnidentifiedPlace, CrowdedOut)) {
        let (place, crowded_out) = place;
        tokio::select! {
            biased;
            () = self.serve(tcp, address, place) => {}
            () = crowded_out => warn!(%address, "connection closed: it has not identified itself, and another needs its place"),
        }
    }

    async fn meet(&self, tcp: TcpStream, place: &UnidentifiedPlace) -> Result<Met, IdentifyError> {
        let acceptor = TlsAcceptor::from(Arc::clone(self.identity.server_config()));
        let accepted = async {
            tcp.readable().await?;
            place.spoke();
            acceptor.accept(tcp).await
        };
        let accepted = timeout(HANDSHAKE_MAX, accepted).await.map_err(|_| IdentifyError::Slow)?;
        let stream = accepted.map_err(IdentifyError::Tls)?;
        let _ = stream.get_ref().0.set_nodelay(true);
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.and_then(|certificate| peer_identity(certificate).ok());
        let (node, roles) = certificate.ok_or(IdentifyError::Certificate)?;
        Ok(Met { stream, node, may: roles.contains(&Role::Bench) })
    }

    async fn serve(&self, tcp: TcpStream, address: SocketAddr, place: UnidentifiedPlace) {
        match self.meet(tcp, &place).await {
            Ok(met) => {
                let node = met.node.clone();
                match self.talk(met, place).await {
                    Ok(()) => info!(%address, %node, "served"),
                    Err(error) => warn!(%address, %node, %error, "controller left"),
                }
            }
            Err(error) => warn!(%address, %error, "connection refused"),
        }
    }

    async fn talk(&self, met: Met, place: UnidentifiedPlace) -> Result<(), TalkError> {
        let Met { stream, node, may } = met;
        let (from, to) = tokio::io::split(stream);
        if !may {
            let why = format!("the certificate of {node} does not allow the role {}", Role::Bench);
            return refuse(from, to, why).await;
        }
        let Ok(busy) = self.free.try_acquire() else {
            return refuse(from, to, "it is busy with the load of another controller".to_owned()).await;
        };
        place.identified();
        info!(%node, "serving");
        serve(from, to, self.own.as_ref(), busy).await
    }
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Addresses of controllers are not configured. Addresses from which a controller was served count as known.
const UNIDENTIFIED: UnidentifiedLimits = UnidentifiedLimits { known_max: 16, max: 16, per_address_max: 16 };
/// If the system has no file descriptor left, it will not have one a moment later.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);
