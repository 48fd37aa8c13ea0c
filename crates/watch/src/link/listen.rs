//! The judge's listener for sensors.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpStream};
use tracing::{info, warn};
use watari_link::{Peer, accept_all, identify};
use watari_pki::Identity;
use watari_sys::{CrowdedOut, Unidentified, UnidentifiedLimits, UnidentifiedPlace};
use watari_values::{NodeName, Role};

use super::judge::Judge;
use super::serve::{Ended, dismiss, serve};

/// The listener of a judge.
#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    shared: Arc<ListenShared>,
}

/// A judge cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The certificate does not allow the role of a judge.
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Judge)]
    Role(NodeName),
    /// The listener cannot be used.
    #[error("cannot listen: {0}")]
    Listener(#[from] io::Error),
}

struct ListenShared {
    identity: Identity,
    judge: Judge,
    /// Connections without a hello of a sensor, and those that are being refused.
    unidentified: Arc<Unidentified>,
    refusal_log: Mutex<RefusalLog>,
}

impl std::fmt::Debug for ListenShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ListenShared").field("node", self.identity.node()).finish_non_exhaustive()
    }
}

impl Listening {
    /// Listens for sensors of `judge`. Must be called in a tokio runtime.
    pub fn on(listener: StdTcpListener, identity: Identity, judge: Judge) -> Result<Self, ListenError> {
        if !identity.roles().contains(&Role::Judge) {
            return Err(ListenError::Role(identity.node().clone()));
        }
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let unidentified = Unidentified::new(UNIDENTIFIED);
        let refusal_log = Mutex::new(RefusalLog::new(Instant::now()));
        let shared = ListenShared { identity, judge, unidentified, refusal_log };
        Ok(Self { listener, shared: Arc::new(shared) })
    }

    /// The address of the listener.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves sensors until it is dropped, which ends their connections.
    pub async fn run(self) {
        let serve = |tcp, address, place| Arc::clone(&self.shared).admit(tcp, address, place);
        accept_all(self.listener, &self.shared.unidentified, "a sensor", serve).await;
    }
}

impl ListenShared {
    /// Serves a connection, unless another one needs its slot before a sensor's hello.
    async fn admit(self: Arc<Self>, tcp: TcpStream, address: SocketAddr, place: (UnidentifiedPlace, CrowdedOut)) {
        let (place, crowded_out) = place;
        tokio::select! {
            biased;
            () = self.serve(tcp, address, place) => {}
            () = crowded_out => {
                self.log(address, None, "it did not identify itself before another connection needed its slot");
                self.judge.crowded();
            }
        }
    }

    async fn serve(&self, tcp: TcpStream, address: SocketAddr, place: UnidentifiedPlace) {
        let Peer { stream, node, roles } = match identify(tcp, &self.identity, &place).await {
            Ok(peer) => peer,
            Err(error) => return self.count_and_log(address, None, error.to_string()),
        };
        let (mut from, mut to) = tokio::io::split(stream);
        match serve(&mut from, &mut to, &self.judge, &node, roles.contains(&Role::Sensor), place).await {
            Ended::Left => info!(%address, %node, "sensor closed its connection"),
            Ended::Lost(error) => warn!(%address, %node, %error, "connection to sensor lost"),
            Ended::Refused(why) => {
                self.count_and_log(address, Some(&node), why.clone());
                // The peer does not get the reason if another connection needs the slot.
                let (_place, crowded_out) = self.unidentified.enter(address.ip(), false);
                tokio::select! {
                    () = dismiss(&mut from, &mut to, why) => {}
                    () = crowded_out => self.judge.crowded(),
                }
            }
        }
    }

    fn count_and_log(&self, address: SocketAddr, node: Option<&NodeName>, why: String) {
        self.log(address, node, &why);
        self.judge.refused(why);
    }

    fn log(&self, address: SocketAddr, node: Option<&NodeName>, why: &str) {
        let suppressed = self.refusal_log.lock().unwrap_or_else(PoisonError::into_inner).may(Instant::now());
        if let Some(suppressed) = suppressed {
            let node = node.map(tracing::field::display);
            warn!(%address, node, error = why, suppressed, "connection refused");
        }
    }
}

/// Limits log lines of refusals, because a refused peer can come again at once. Those left out are counted.
#[derive(Debug)]
struct RefusalLog {
    since: Instant,
    logged: u32,
    suppressed: u64,
}

const REFUSALS_LOGGED_MAX: u32 = 10;
const REFUSALS_LOGGED_SPAN: Duration = Duration::from_mins(1);

impl RefusalLog {
    const fn new(now: Instant) -> Self {
        Self { since: now, logged: 0, suppressed: 0 }
    }

    /// Whether to log a refusal now: `Some` with the number left out since the last one.
    fn may(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= REFUSALS_LOGGED_SPAN {
            (self.since, self.logged) = (now, 0);
        }
        if self.logged >= REFUSALS_LOGGED_MAX {
            self.suppressed += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// Addresses of sensors are not configured. After a sensor has identified itself, its address counts as known.
const UNIDENTIFIED: UnidentifiedLimits = UnidentifiedLimits { known_max: 64, max: 64, per_address_max: 16 };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_the_log_are_bounded_and_the_rest_is_counted() {
        let begin = Instant::now();
        let mut refusal_log = RefusalLog::new(begin);
        let logged: Vec<_> = (0..REFUSALS_LOGGED_MAX + 3).map(|_| refusal_log.may(begin)).collect();
        assert_eq!(logged.iter().flatten().count(), REFUSALS_LOGGED_MAX as usize);
        assert_eq!(refusal_log.may(begin + REFUSALS_LOGGED_SPAN), Some(3));
        assert_eq!(refusal_log.may(begin + REFUSALS_LOGGED_SPAN), Some(0));
    }
}
