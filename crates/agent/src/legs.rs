//! Taking legs from dispatchers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use watari_handoff::TargetEvent;
use watari_wire::leg::{Accepted, Kind, PREFACE_LEN_MAX, PrefaceError};

use crate::departure::Outcome;
use crate::live::Live;
use crate::{Shared, departure, handshake, serve, socket};

/// How long accepting pauses when the process or the system has no file left.
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);

/// Accepts on `listener` until `shutdown`.
pub(crate) fn start(
    shared: &Arc<Shared>,
    listener: std::net::TcpListener,
    shutdown: CancellationToken,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let shared = shared.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = accept(&shared, &listener) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(())
}

async fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let count = Arc::new(AtomicUsize::new(0));
    loop {
        match listener.accept().await {
            Ok((leg, _)) => {
                let Some(place) = Place::take(&count, shared.limits.connections_max) else {
                    shared.metrics.count_leg_refused("full");
                    socket::reset_on_close(&leg);
                    continue;
                };
                let shared = shared.clone();
                tokio::spawn(async move {
                    take(&shared, leg).await;
                    drop(place);
                });
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a leg");
                tokio::time::sleep(PAUSE_WITHOUT_FILES).await;
            }
        }
    }
}

/// One of the connections that may be here at the same time.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let place = Self(count.clone());
        (count.fetch_add(1, Ordering::Relaxed) < max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn take(shared: &Arc<Shared>, mut leg: TcpStream) {
    let opened = match tokio::time::timeout(shared.limits.preface_timeout, read_preface(shared, &mut leg)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(refusal)) => return refuse(shared, &leg, &refusal),
        Err(_) => return refuse(shared, &leg, &Refusal::Slow),
    };
    if let Some(live) = open(shared, leg, opened).await {
        serve::serve(shared, live).await;
    }
}

/// Gets the connection that the leg carries to where it is served; `None` if that is not here.
async fn open(shared: &Arc<Shared>, leg: TcpStream, opened: Opened) -> Option<Live> {
    let Opened { accepted: Accepted { preface, dispatcher, .. }, surplus } = opened;
    match preface.kind.clone() {
        Kind::New { bulk } => {
            let live = handshake::shake_hands(shared, leg, dispatcher, &preface, surplus).await?;
            let Some(target) = bulk.filter(|target| *target != shared.name) else { return Some(live) };
            match departure::depart(shared, live, target).await {
                Outcome::Stays(live) => Some(*live),
                Outcome::Left => None,
            }
        }
        Kind::Commit { rx_offset, tail_offset } => {
            let committed = TargetEvent::Committed { epoch: preface.epoch, rx_offset, tail_offset };
            shared.arrivals.activate(shared, leg, &surplus, &dispatcher, preface.connection, &committed)
        }
    }
}

/// A preface that was accepted, and what came behind it.
struct Opened {
    accepted: Accepted,
    surplus: Vec<u8>,
}

/// Why a leg is not taken.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Preface(#[from] PrefaceError),
    #[error("the leg ended before its preface was complete")]
    Ended,
    #[error("the preface took too long")]
    Slow,
    #[error("the leg failed: {0}")]
    Io(#[from] io::Error),
}

impl Refusal {
    fn label(&self) -> &'static str {
        match self {
            Self::Preface(error) => error.label(),
            Self::Ended => "ended",
            Self::Slow => "slow",
            Self::Io(_) => "io",
        }
    }
}

async fn read_preface(shared: &Shared, leg: &mut TcpStream) -> Result<Opened, Refusal> {
    socket::prepare(leg)?;
    let mut received = Vec::with_capacity(PREFACE_LEN_MAX);
    loop {
        let len = received.len();
        // What is behind the preface belongs to the connection: it is taken in the same read, up to this much.
        let room = (PREFACE_LEN_MAX - len) as u64;
        if (&mut *leg).take(room).read_buf(&mut received).await? == 0 {
            return Err(Refusal::Ended);
        }
        if let Some(accepted) = shared.keys.verify(&received)? {
            let surplus = received.split_off(accepted.len);
            return Ok(Opened { accepted, surplus });
        }
    }
}

fn refuse(shared: &Shared, leg: &TcpStream, refusal: &Refusal) {
    let from = leg.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    tracing::warn!(from, cause = %refusal, "leg refused");
    shared.metrics.count_leg_refused(refusal.label());
    socket::reset_on_close(leg);
}
