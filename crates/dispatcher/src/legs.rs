//! Legs to agents: new ones, and idle ones that a move or an ended connection has left.
//!
//! ```text
//!              a move was committed            the agent: LEG_FREE            the next connection
//!   in use ────────────────────────▶ released ─────────────────▶ free ──────────────────────▶ in use
//!                                       │                          │
//!                                       └── closed: the pool is full, the leg is too old, it ended or carried any
//!                                           other byte, the agent is drained, or its link is lost
//! ```
//!
//! The end of a connection frees its leg in the same way:
//!
//! 1. The agent announces the length of the stream to the client.
//! 2. The dispatcher reads all of that stream, and reports how much of the client's stream it has written.
//! 3. The agent reads and drops the client's stream up to there.
//!
//! At a commit both ends have the position of the leg. The dispatcher has written the client's stream up to `rx_offset`
//! and no further. It has read what the source wrote up to `tail_offset`, where the source stopped. The agent keeps the
//! leg only if it has read exactly as much, and sends [`LEG_FREE`] on the leg itself. Until then the dispatcher writes
//! nothing on it. So a lost decision costs a leg, and no connection waits for it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watari_sys::tcp;
use watari_values::NodeName;
use watari_wire::leg::LEG_FREE;

/// How long an unused leg is kept. It is much shorter than agents keep a leg, so that an agent does not close a leg
/// while it is taken.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The most released legs that are read when a leg is taken.
const SETTLED_MAX: usize = 16;

/// The interval between searches for legs that were kept too long, while any legs are kept.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A TCP connection to an agent.
pub(crate) struct Leg {
    pub(crate) stream: TcpStream,
    /// The leg has carried another connection. Only an answer shows that its agent still runs.
    pub(crate) reused: bool,
}

/// The idle legs. A leg stays on the thread of its runtime.
pub(crate) struct IdleLegs {
    agents: Mutex<HashMap<LegPoolKey, Idle>>,
    filled: Notify,
    idle: Gauge,
    reused: Counter,
}

type LegPoolKey = (ThreadId, NodeName);

/// The idle legs of one thread to one agent.
#[derive(Default)]
struct Idle {
    released: VecDeque<IdleLeg>,
    free: VecDeque<IdleLeg>,
}

struct IdleLeg {
    leg: TcpStream,
    until: Instant,
}

/// The result of a read on an idle leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LegInput {
    Nothing,
    Free,
    /// The leg ended, or the agent sent any other byte.
    Other,
}

/// Which legs the caller accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LegChoice {
    /// An idle leg that is free, otherwise a new one.
    Any,
    /// Only a new leg: its connect shows that the agent runs.
    New,
}

impl IdleLegs {
    pub(crate) fn new(idle: Gauge, reused: Counter) -> Self {
        Self { agents: Mutex::default(), filled: Notify::new(), idle, reused }
    }

    /// Keeps a leg. The dispatcher has sent the agent `LegKept`, and the agent has not yet confirmed that the leg is
    /// free.
    pub(crate) fn keep(&self, agent: &NodeName, leg: TcpStream, now: Instant) {
        let mut agents = self.agents();
        agents.entry(here(agent)).or_default().released.push_back(IdleLeg { leg, until: now + IDLE_TIMEOUT });
        self.filled.notify_one();
        self.count(&agents);
    }

    /// Takes a free leg to `agent`, if there is one.
    pub(crate) fn take(&self, agent: &NodeName, now: Instant) -> Option<TcpStream> {
        let mut agents = self.agents();
        let leg = agents.get_mut(&here(agent))?.take(now);
        self.count(&agents);
        if leg.is_some() {
            self.reused.inc();
        }
        leg
    }

    /// Closes all legs to `agent`.
    pub(crate) fn forget(&self, agent: &NodeName) {
        let mut agents = self.agents();
        agents.retain(|(_, of), _| of != agent);
        self.count(&agents);
    }

    /// Whether this thread keeps fewer than `max` legs to `agent`.
    pub(crate) fn has_room(&self, agent: &NodeName, max: usize) -> bool {
        self.agents().get(&here(agent)).map_or(0, Idle::len) < max
    }

    /// Closes legs that have ended or are too old. Returns whether any are left.
    fn tidy(&self, now: Instant) -> bool {
        let mut agents = self.agents();
        agents.retain(|_, idle| {
            idle.tidy(now);
            idle.len() > 0
        });
        self.count(&agents);
        !agents.is_empty()
    }

    fn count(&self, agents: &HashMap<LegPoolKey, Idle>) {
        let idle = agents.values().map(Idle::len).sum::<usize>();
        self.idle.set(i64::try_from(idle).unwrap_or(i64::MAX));
    }

    fn agents(&self) -> MutexGuard<'_, HashMap<LegPoolKey, Idle>> {
        self.agents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Idle {
    fn len(&self) -> usize {
        self.released.len() + self.free.len()
    }

    /// Takes the leg that became free last, so that surplus legs grow old.
    fn take(&mut self, now: Instant) -> Option<TcpStream> {
        self.settle(SETTLED_MAX);
        while let Some(kept) = self.free.pop_back() {
            if kept.is_good(now) {
                return Some(kept.leg);
            }
        }
        None
    }

    /// Reads from at most `max` released legs, the oldest first. A leg without a byte moves behind the others, so that
    /// a silent agent does not delay legs that are free.
    fn settle(&mut self, max: usize) {
        for _ in 0..self.released.len().min(max) {
            let Some(kept) = self.released.pop_front() else { return };
            match leg_input(&kept.leg) {
                LegInput::Free => self.free.push_back(kept),
                LegInput::Nothing => self.released.push_back(kept),
                LegInput::Other => {}
            }
        }
    }

    fn tidy(&mut self, now: Instant) {
        self.settle(usize::MAX);
        self.free.retain(|kept| kept.is_good(now));
        self.released.retain(|kept| kept.until > now);
    }
}

impl IdleLeg {
    fn is_good(&self, now: Instant) -> bool {
        self.until > now && leg_input(&self.leg) == LegInput::Nothing
    }
}

fn here(agent: &NodeName) -> LegPoolKey {
    (thread::current().id(), agent.clone())
}

fn leg_input(leg: &TcpStream) -> LegInput {
    let mut bytes = [0; 2];
    match tcp::try_read(leg, &mut bytes) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => LegInput::Nothing,
        Ok(1) if bytes[0] == LEG_FREE => LegInput::Free,
        _ => LegInput::Other,
    }
}

/// Closes legs that are not used in time, until `shutdown`.
pub(crate) async fn keep_tidy(idle_legs: Arc<IdleLegs>, shutdown: CancellationToken) {
    let tidy = async {
        loop {
            idle_legs.filled.notified().await;
            while idle_legs.tidy(Instant::now()) {
                tokio::time::sleep(SWEEP_INTERVAL).await;
            }
        }
    };
    tokio::select! {
        () = tidy => {}
        () = shutdown.cancelled() => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    fn idle_legs() -> IdleLegs {
        IdleLegs::new(Gauge::default(), Counter::default())
    }

    /// Returns a leg, and the agent's end of it.
    async fn leg() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (leg, accepted) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (leg.unwrap(), accepted.unwrap().0)
    }

    /// Waits until the bytes or ends that the agent sent have arrived on all released legs of `agent`.
    async fn arrived(pool: &IdleLegs, agent: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.agents().get(&here(&name(agent))).is_some_and(|idle| !idle.released.is_empty()) {
            assert!(Instant::now() < deadline, "nothing arrives");
            tokio::task::yield_now().await;
            pool.agents().get_mut(&here(&name(agent))).unwrap().settle(usize::MAX);
        }
    }

    #[tokio::test]
    async fn a_leg_is_taken_only_when_its_agent_has_said_that_it_is_free() {
        let (pool, now) = (idle_legs(), Instant::now());
        let (leg, mut end) = leg().await;
        pool.keep(&name("a1"), leg, now);
        assert!(pool.take(&name("a1"), now).is_none());
        end.write_all(&[LEG_FREE]).await.unwrap();
        arrived(&pool, "a1").await;
        assert!(pool.take(&name("a2"), now).is_none());
        let mut leg = pool.take(&name("a1"), now).unwrap();
        assert!(pool.take(&name("a1"), now).is_none());
        assert_eq!((pool.reused.get(), pool.idle.get()), (1, 0));
        leg.write_all(b"preface").await.unwrap();
        let mut read = [0; 7];
        end.read_exact(&mut read).await.unwrap();
        assert_eq!(&read, b"preface");
    }

    #[tokio::test]
    async fn a_silent_leg_does_not_keep_back_those_behind_it() {
        let (pool, now) = (idle_legs(), Instant::now());
        let mut silent = Vec::new();
        for _ in 0..=SETTLED_MAX {
            let (leg, end) = leg().await;
            pool.keep(&name("a1"), leg, now);
            silent.push(end);
        }
        let (leg, mut end) = leg().await;
        pool.keep(&name("a1"), leg, now);
        end.write_all(&[LEG_FREE]).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.take(&name("a1"), now).is_none() {
            assert!(Instant::now() < deadline, "the free leg is not taken");
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_leg_with_any_other_byte_is_closed() {
        for written in [&b""[..], b"x", &[LEG_FREE, LEG_FREE]] {
            let (pool, now) = (idle_legs(), Instant::now());
            let (leg, mut end) = leg().await;
            pool.keep(&name("a1"), leg, now);
            end.write_all(written).await.unwrap();
            end.shutdown().await.unwrap();
            arrived(&pool, "a1").await;
            assert!(pool.take(&name("a1"), now).is_none(), "{written:?}");
            assert!(!matches!(end.read(&mut [0]).await, Ok(1..)), "{written:?}");
        }
    }

    #[tokio::test]
    async fn a_free_leg_that_ends_is_not_taken() {
        let (pool, now) = (idle_legs(), Instant::now());
        let (leg, mut end) = leg().await;
        pool.keep(&name("a1"), leg, now);
        end.write_all(&[LEG_FREE]).await.unwrap();
        arrived(&pool, "a1").await;
        drop(end);
        let deadline = Instant::now() + Duration::from_secs(20);
        while pool.tidy(now) {
            assert!(Instant::now() < deadline, "the end does not arrive");
            tokio::task::yield_now().await;
        }
        assert!(pool.take(&name("a1"), now).is_none());
        assert_eq!(pool.idle.get(), 0);
    }

    #[tokio::test]
    async fn what_is_old_or_forgotten_is_closed() {
        let (pool, now) = (idle_legs(), Instant::now());
        let mut ends = Vec::new();
        for later in 0..2 {
            let (leg, mut end) = leg().await;
            end.write_all(&[LEG_FREE]).await.unwrap();
            assert!(pool.has_room(&name("a1"), 2));
            pool.keep(&name("a1"), leg, now + Duration::from_secs(later));
            ends.push(end);
        }
        arrived(&pool, "a1").await;
        assert_eq!(pool.idle.get(), 2);
        assert!(!pool.has_room(&name("a1"), 2));
        assert!(pool.tidy(now + IDLE_TIMEOUT));
        assert_eq!(pool.idle.get(), 1);
        assert!(pool.take(&name("a1"), now + IDLE_TIMEOUT + Duration::from_secs(1)).is_none());
        let (leg, mut end) = leg().await;
        pool.keep(&name("a1"), leg, now);
        pool.forget(&name("a1"));
        assert!(!matches!(end.read(&mut [0]).await, Ok(1..)), "it was closed");
        assert_eq!(pool.idle.get(), 0);
    }
}
