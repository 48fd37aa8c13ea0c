//! Resolves the name of an origin, and refreshes its addresses.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use crate::exchange::address::OriginAddress;

/// How names of origins are resolved.
#[derive(Debug, Clone)]
pub struct Resolution {
    pub resolver: Arc<dyn Resolver>,
    /// How long a result is used before the name is resolved again.
    pub interval: Duration,
}

impl Default for Resolution {
    fn default() -> Self {
        Self { resolver: Arc::new(SystemResolver), interval: Duration::from_secs(10) }
    }
}

/// Resolves names to addresses.
pub trait Resolver: fmt::Debug + Send + Sync {
    /// The addresses of `host`, in any order.
    fn resolve(&self, host: &str) -> Resolving;
}

/// The result of [`Resolver::resolve`].
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Uses the configuration of the system (`getaddrinfo`).
#[derive(Debug)]
struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> Resolving {
        let host = host.to_owned();
        Box::pin(async move { Ok(lookup_host((host, 0)).await?.map(|address| address.ip()).collect()) })
    }
}

/// All addresses of one origin.
#[derive(Debug)]
pub(super) struct Addresses {
    host: String,
    port: u16,
    resolution: Resolution,
    known: Mutex<Known>,
    turn: AtomicUsize,
}

#[derive(Debug)]
struct Known {
    addresses: Arc<[SocketAddr]>,
    /// When the name is resolved again. `None`: never, because the address is configured.
    due: Option<Instant>,
}

impl Addresses {
    /// Resolves nothing yet.
    pub(crate) fn new(address: &OriginAddress, resolution: Resolution, now: Instant) -> Self {
        let given = address.ip().map(|ip| SocketAddr::new(ip, address.port()));
        let due = given.is_none().then_some(now);
        let known = Mutex::new(Known { addresses: given.into_iter().collect(), due });
        let (host, port) = (address.host().to_owned(), address.port());
        Self { host, port, resolution, known, turn: AtomicUsize::new(0) }
    }

    /// Connects to one address after the other, beginning with the next in turn. Each attempt gets an equal part of the
    /// time that is left of `limit`.
    pub(crate) async fn connect(&self, limit: Duration) -> io::Result<TcpStream> {
        let end = Instant::now() + limit;
        let addresses = self.in_turn().await?;
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for (index, address) in addresses.iter().enumerate() {
            let left = end.saturating_duration_since(Instant::now()) / (addresses.len() - index) as u32;
            failed = match timeout(left, TcpStream::connect(address)).await {
                Ok(Ok(socket)) => return Ok(socket),
                Ok(Err(error)) => error,
                Err(_) => io::ErrorKind::TimedOut.into(),
            };
        }
        Err(failed)
    }

    /// Whether the addresses are older than the interval. Returns true once; the caller then resolves the name again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut known = self.lock();
        let due = !known.addresses.is_empty() && known.due.is_some_and(|due| due <= now);
        if due {
            known.due = Some(now + self.resolution.interval);
        }
        due
    }

    /// Resolves the name again and returns its addresses. If that fails or finds none, returns the previous ones.
    pub(super) async fn refresh(&self) -> Arc<[SocketAddr]> {
        if let Err(error) = self.look_up().await {
            tracing::warn!(host = self.host, %error, "cannot resolve an origin's name; keeping its previous addresses");
        }
        Arc::clone(&self.lock().addresses)
    }

    /// All addresses, beginning with the next in turn.
    async fn in_turn(&self) -> io::Result<Vec<SocketAddr>> {
        let mut known = Arc::clone(&self.lock().addresses);
        if known.is_empty() {
            known = self.look_up().await?;
        }
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        Ok((0..known.len()).map(|step| known[first.wrapping_add(step) % known.len()]).collect())
    }

    async fn look_up(&self) -> io::Result<Arc<[SocketAddr]>> {
        let mut found = self.resolution.resolver.resolve(&self.host).await?;
        found.sort_unstable();
        found.dedup();
        found.truncate(ADDRESSES_MAX);
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its name has no address"));
        }
        let mut known = self.lock();
        known.addresses = found.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect();
        known.due = Some(Instant::now() + self.resolution.interval);
        Ok(Arc::clone(&known.addresses))
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The maximum number of addresses that are used for one name.
const ADDRESSES_MAX: usize = 64;
