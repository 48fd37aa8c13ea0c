//! Accepts legs from dispatchers.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use watari_handoff::TargetEvent;
use watari_sys::{Acceptor, CrowdedOut, Unidentified, UnidentifiedPlace, accept_until, tcp};
use watari_values::{ConnectionId, DispatcherChange, Epoch, NodeName};
use watari_wire::leg::{Accepted, Kind, LEG_FREE, PREFACE_LEN_MAX, PrefaceError};

use super::leg_keys::LegKeys;
use super::serving_threads::ServingThreads;
use crate::connection::driver::Connections;
use crate::connection::preparations::Continuation;
use crate::handoff::passing::Passed;
use crate::handoff::target::{Activated, Arrivals};
use crate::leg::{ContinueRefusal, Continued, LegsForPredecessor};
use crate::node::metrics::{Counted, Metrics};
use crate::node::peers::Peers;
use crate::node::slots::{Slot, Slots};
use crate::settings::current::CurrentSettings;

/// Accepts legs, and gives each connection on them to the part that drives it.
pub(crate) struct Legs {
    pub(crate) peers: Peers,
    pub(crate) settings: Arc<CurrentSettings>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keys: Arc<LegKeys>,
    /// A slot for each connection.
    pub(crate) slots: Arc<Slots>,
    /// A slot for each idle leg.
    pub(crate) idle: Arc<Slots>,
    /// Legs that wait for their preface.
    pub(crate) unidentified: Arc<Unidentified>,
    pub(crate) arrivals: Arc<Arrivals<Box<Continuation>>>,
    pub(crate) connections: Connections,
    /// Legs that continue connections of the predecessor of this process.
    pub(crate) for_predecessor: Arc<LegsForPredecessor>,
    /// Legs of the predecessor of this process are assigned to the same threads.
    pub(crate) threads: ServingThreads,
    /// Legs that members have opened, and that have no preface yet.
    pub(crate) without_preface: Arc<AtomicUsize>,
}

impl Legs {
    /// Starts accepting legs until `shutdown`. Requires a tokio runtime.
    pub(crate) fn accept(
        self: &Arc<Self>,
        listener: std::net::TcpListener,
        shutdown: &CancellationToken,
    ) -> io::Result<Acceptor> {
        // No user timeout: a dispatcher stops reading while its client does, and that must not end the leg.
        tcp::prepare_listener(&listener, None)?;
        let legs = self.clone();
        accept_until(shutdown, listener, "a leg", move |leg, from| legs.admit(leg, from))
    }

    /// Goes on with a connection of the predecessor of this process, and then with its leg.
    pub(crate) fn go_on(
        self: &Arc<Self>,
        leg: std::net::TcpStream,
        passed: Box<Passed>,
        response: Option<Box<Continuation>>,
    ) {
        let (legs, slot) = (self.clone(), self.slots.take_beyond());
        self.threads.assign(leg, move |leg| async move {
            let passed = passed.on(leg, &legs.connections.leg_table);
            let free = legs.connections.run_moved(passed, response).await;
            drop(slot);
            legs.attend_free(free).await;
        });
    }

    /// The number of legs that members have opened, and that have no preface yet. Those in the backlog do not count.
    pub(crate) fn without_preface(&self) -> usize {
        self.without_preface.load(Ordering::Relaxed)
    }

    fn admit(self: &Arc<Self>, leg: TcpStream, from: SocketAddr) {
        let is_member = self.peers.is_address_of_member(from.ip());
        let (place, crowded_out) = self.unidentified.enter(from.ip(), is_member);
        let counted = is_member.then(|| WithoutPreface::count(&self.without_preface));
        let (legs, waiting) = (self.clone(), Waiting::Unidentified(place, crowded_out, counted));
        match leg.into_std() {
            Ok(leg) => self.threads.assign(leg, move |leg| async move { legs.attend(leg, waiting).await }),
            Err(error) => tracing::warn!(%error, "cannot accept a leg"),
        }
    }

    /// Takes connections from a leg, one after the other, for as long as it becomes free again.
    async fn attend(&self, leg: TcpStream, waiting: Waiting) {
        let free = self.take(leg, Vec::with_capacity(PREFACE_LEN_MAX), waiting).await;
        self.attend_free(free).await;
    }

    async fn attend_free(&self, mut free: Option<TcpStream>) {
        while let Some(leg) = free {
            let Some((leg, received, idle)) = self.wait_idle(leg).await else { return };
            free = self.take(leg, received, Waiting::Idle(idle)).await;
        }
    }

    /// Waits on an idle leg for the next connection, and returns the first bytes of its preface. Otherwise closes the
    /// leg, by FIN: it carries no stream that a FIN could make look complete.
    async fn wait_idle(&self, mut leg: TcpStream) -> Option<(TcpStream, Vec<u8>, Slot)> {
        if self.connections.to_successor.is_set() {
            // New connections are the successor's.
            return None;
        }
        let idle = self.idle.take()?;
        let _counted = Counted::one_more(&self.metrics.legs_idle);
        // The dispatcher has read everything written before, so the send buffer has room.
        leg.try_write(&[LEG_FREE]).ok().filter(|written| *written == 1)?;
        let mut received = Vec::with_capacity(PREFACE_LEN_MAX);
        let mut limited = (&mut leg).take(PREFACE_LEN_MAX as u64);
        let first = tokio::time::timeout(self.settings.limits().idle_leg_timeout, limited.read_buf(&mut received));
        first.await.ok()?.ok().filter(|read| *read > 0)?;
        tcp::reset_on_close(&leg);
        Some((leg, received, idle))
    }

    /// Takes one connection from a leg and handles it. `received` has the first bytes of its preface. The leg counts
    /// under `waiting` until the preface is complete. Returns the leg if it is free afterwards.
    async fn take(&self, mut leg: TcpStream, received: Vec<u8>, waiting: Waiting) -> Option<TcpStream> {
        let opened = self.open(&mut leg, received, waiting).await;
        let opened = opened.inspect_err(|refusal| self.refuse(&leg, refusal)).ok()?;
        let Opened { accepted: Accepted { preface, dispatcher, .. }, surplus } = opened;
        match preface.kind.clone() {
            Kind::New { bulk } => {
                let Some(_slot) = self.slots.take() else {
                    self.refuse(&leg, &Refusal::Full);
                    return None;
                };
                self.connections.run_new(leg, dispatcher, &preface, surplus, bulk).await
            }
            Kind::Commit { rx_offset, tail_offset } => {
                let committed = TargetEvent::Committed { epoch: preface.epoch, rx_offset, tail_offset };
                let activated = self.arrivals.activate(leg, &surplus, &dispatcher, preface.connection, &committed);
                // The connection has had its slot since it was shipped: a decided move cannot fail because slots are
                // short.
                let Activated { live, slot: _slot, response } = activated?;
                self.connections.run_moved(Box::new(live), response).await
            }
            Kind::Continue { change, rx_offset, tx_offset } => {
                let change = DispatcherChange { connection: preface.connection, number: change };
                let offsets = (rx_offset, tx_offset);
                self.replace(leg, surplus, &dispatcher, change, preface.epoch, offsets);
                None
            }
            // To read the preface is the answer. A check takes no slot, so it keeps no connection out.
            Kind::Check => {
                if self.slots.is_one_free() {
                    tcp::finish(&leg);
                } else {
                    self.refuse(&leg, &Refusal::Full);
                }
                None
            }
        }
    }

    /// Continues a connection whose dispatcher has changed on this leg. `offsets`: of the first byte in both streams,
    /// from the client and to it.
    fn replace(
        &self,
        leg: TcpStream,
        surplus: Vec<u8>,
        dispatcher: &NodeName,
        change: DispatcherChange,
        tenure: Epoch,
        (rx_offset, tx_offset): (u64, u64),
    ) {
        let from = leg.peer_addr();
        match leg.into_std() {
            Ok(stream) => {
                self.go_on_at(dispatcher, Continued { stream, change, tenure, rx_offset, tx_offset, surplus });
            }
            Err(error) => self.note_refused(change.connection, from, &error.into()),
        }
    }

    /// Gives the leg of `dispatcher` to the task of the connection that it continues, or to the predecessor of this
    /// process, which may have the connection.
    pub(crate) fn go_on_at(&self, dispatcher: &NodeName, leg: Continued) {
        let connection = leg.change.connection;
        let (refusal, leg) = match self.connections.leg_table.on_continue(dispatcher, leg) {
            Ok(()) => {
                tracing::debug!(%connection, %dispatcher, "connection continues at another dispatcher");
                return self.connections.registry.announce(connection);
            }
            Err((refusal @ ContinueRefusal::NotHere, leg)) => match self.for_predecessor.put(dispatcher, leg) {
                Ok(()) => return tracing::debug!(%connection, %dispatcher, "leg forwarded to the previous process"),
                Err(leg) => (refusal, leg),
            },
            Err(refused) => refused,
        };
        // The drop of the leg resets it.
        self.note_refused(connection, leg.stream.peer_addr(), &refusal.into());
    }

    fn note_refused(&self, connection: ConnectionId, from: io::Result<SocketAddr>, refusal: &Refusal) {
        let from = from.map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(%connection, from, cause = %refusal, "leg refused");
        self.metrics.count_leg_refused(refusal.label());
    }

    /// Reads the preface. `received` has the bytes that have already arrived.
    async fn open(&self, leg: &mut TcpStream, mut received: Vec<u8>, mut waiting: Waiting) -> Result<Opened, Refusal> {
        let read = async {
            loop {
                if let Some(accepted) = self.keys.verify(&received)? {
                    waiting.identified();
                    let surplus = received.split_off(accepted.len);
                    return Ok(Opened { accepted, surplus });
                }
                if !received.is_empty() {
                    waiting.spoke();
                }
                // Bytes after the preface belong to the connection. One read takes up to this many of them as well.
                let room = (PREFACE_LEN_MAX - received.len()) as u64;
                let mut limited = (&mut *leg).take(room);
                let read = tokio::select! {
                    biased;
                    read = limited.read_buf(&mut received) => read?,
                    () = waiting.crowded_out() => return Err(Refusal::CrowdedOut),
                };
                if read == 0 {
                    return Err(Refusal::Ended);
                }
            }
        };
        tokio::time::timeout(self.settings.limits().preface_timeout, read).await.unwrap_or(Err(Refusal::Slow))
    }

    fn refuse(&self, leg: &TcpStream, refusal: &Refusal) {
        let from = leg.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        tracing::warn!(from, cause = %refusal, "leg refused");
        self.metrics.count_leg_refused(refusal.label());
        tcp::reset_on_close(leg);
    }
}

/// The limit that a leg counts under until its preface is complete.
enum Waiting {
    /// A leg that was just accepted. It may have to make room for another.
    Unidentified(UnidentifiedPlace, CrowdedOut, Option<WithoutPreface>),
    /// A leg on which an earlier preface was authenticated.
    Idle(Slot),
}

impl Waiting {
    fn spoke(&self) {
        if let Self::Unidentified(place, ..) = self {
            place.spoke();
        }
    }

    /// Waits until the leg has to make room for another.
    async fn crowded_out(&mut self) {
        match self {
            Self::Unidentified(_, crowded_out, _) => crowded_out.await,
            Self::Idle(_) => pending().await,
        }
    }

    fn identified(self) {
        match self {
            Self::Unidentified(place, _, counted) => {
                drop(counted);
                place.identified();
            }
            Self::Idle(place) => drop(place),
        }
    }
}

/// Counts a leg until its preface is complete.
struct WithoutPreface(Arc<AtomicUsize>);

impl WithoutPreface {
    fn count(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for WithoutPreface {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// An accepted preface, and the bytes that followed it.
struct Opened {
    accepted: Accepted,
    surplus: Vec<u8>,
}

/// The reason that a leg is refused.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Preface(#[from] PrefaceError),
    #[error("connections_max is reached")]
    Full,
    #[error("the leg ended before its preface was complete")]
    Ended,
    #[error("the preface was not complete in time")]
    Slow,
    #[error("too many legs without a preface: the agent closed this one to accept a newer one")]
    CrowdedOut,
    #[error("the leg failed: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Continue(#[from] ContinueRefusal),
}

impl Refusal {
    fn label(&self) -> &'static str {
        match self {
            Self::Preface(error) => error.label(),
            Self::Full => "full",
            Self::Ended => "ended",
            Self::Slow => "slow",
            Self::CrowdedOut => "crowded_out",
            Self::Io(_) => "io",
            Self::Continue(refusal) => refusal.label(),
        }
    }
}
