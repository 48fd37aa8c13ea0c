//! Accepts legs from dispatchers.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use watari_handoff::TargetEvent;
use watari_sys::{CrowdedOut, UnidentifiedPlace, accept_until, tcp};
use watari_values::NodeName;
use watari_wire::leg::{Accepted, Kind, LEG_FREE, PREFACE_LEN_MAX, PrefaceError};

use crate::departure::Outcome;
use crate::early_data::EarlyConnection;
use crate::handshake::HandshakeOutcome;
use crate::live::Live;
use crate::metrics::Counted;
use crate::places::Place;
use crate::serve_http::HttpStart;
use crate::{AgentShared, departure, handshake, serve};

pub(crate) fn start(
    shared: &Arc<AgentShared>,
    listener: std::net::TcpListener,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    // No user timeout: a dispatcher stops reading while its client does, and that must not end the leg.
    tcp::prepare_listener(&listener, None)?;
    let shared = shared.clone();
    accept_until(shutdown, listener, "a leg", move |leg, from| admit(&shared, leg, from)).map(drop)
}

fn admit(shared: &Arc<AgentShared>, leg: TcpStream, from: SocketAddr) {
    let place = shared.unidentified.enter(from.ip(), shared.mesh.is_address_of_member(from.ip()));
    let shared = shared.clone();
    tokio::spawn(async move { attend(&shared, leg, place).await });
}

/// Takes connections from a leg, one after the other, for as long as it becomes free again.
async fn attend(shared: &Arc<AgentShared>, leg: TcpStream, place: (UnidentifiedPlace, CrowdedOut)) {
    let mut free =
        take(shared, leg, Vec::with_capacity(PREFACE_LEN_MAX), Waiting::Unidentified(place.0, place.1)).await;
    while let Some(leg) = free {
        let Some((leg, received, idle)) = wait_idle(shared, leg).await else { return };
        free = take(shared, leg, received, Waiting::Idle(idle)).await;
    }
}

/// The limit that a leg counts under until its preface is complete.
enum Waiting {
    /// A leg that was just accepted. It may have to make room for another.
    Unidentified(UnidentifiedPlace, CrowdedOut),
    /// A leg on which an earlier preface was authenticated.
    Idle(Place),
}

impl Waiting {
    fn spoke(&self) {
        if let Self::Unidentified(place, _) = self {
            place.spoke();
        }
    }

    /// Waits until the leg has to make room for another.
    async fn crowded_out(&mut self) {
        match self {
            Self::Unidentified(_, crowded_out) => crowded_out.await,
            Self::Idle(_) => pending().await,
        }
    }

    fn identified(self) {
        match self {
            Self::Unidentified(place, _) => place.identified(),
            Self::Idle(place) => drop(place),
        }
    }
}

/// Waits on an idle leg for the next connection, and returns the first bytes of its preface. Otherwise closes the leg,
/// by FIN: it carries no stream that a FIN could make look complete.
async fn wait_idle(shared: &AgentShared, mut leg: TcpStream) -> Option<(TcpStream, Vec<u8>, Place)> {
    let idle = shared.idle_legs.take()?;
    let _counted = Counted::one_more(&shared.metrics.legs_idle);
    // The dispatcher has read everything written before, so the send buffer has room.
    leg.try_write(&[LEG_FREE]).ok().filter(|written| *written == 1)?;
    let mut received = Vec::with_capacity(PREFACE_LEN_MAX);
    let mut limited = (&mut leg).take(PREFACE_LEN_MAX as u64);
    let first = tokio::time::timeout(shared.limits().idle_leg_timeout, limited.read_buf(&mut received));
    first.await.ok()?.ok().filter(|read| *read > 0)?;
    tcp::reset_on_close(&leg);
    Some((leg, received, idle))
}

/// Takes one connection from a leg and handles it. `received` has the first bytes of its preface. The leg counts under
/// `waiting` until the preface is complete. Returns the leg if it is free afterwards.
async fn take(shared: &Arc<AgentShared>, mut leg: TcpStream, received: Vec<u8>, waiting: Waiting) -> Option<TcpStream> {
    let opened = open(shared, &mut leg, received, waiting).await;
    let opened = opened.inspect_err(|refusal| refuse(shared, &leg, refusal)).ok()?;
    let Opened { accepted: Accepted { preface, dispatcher, .. }, surplus } = opened;
    match preface.kind.clone() {
        Kind::New { bulk } => {
            let Some(_place) = shared.places.take() else {
                refuse(shared, &leg, &Refusal::Full);
                return None;
            };
            // Boxed in several places, because a future keeps room for its largest state for as long as the connection
            // lasts.
            match handshake::run_handshake(shared, leg, dispatcher, &preface, surplus).await? {
                HandshakeOutcome::Done(live) => {
                    live.about.announce(shared);
                    own(shared, live, bulk).await
                }
                HandshakeOutcome::EarlyConnection(early) => own_early_connection(shared, early, bulk).await,
            }
        }
        Kind::Commit { rx_offset, tail_offset } => {
            let committed = TargetEvent::Committed { epoch: preface.epoch, rx_offset, tail_offset };
            let arrivals = &shared.arrivals;
            let live = arrivals.activate(shared, leg, &surplus, &dispatcher, preface.connection, &committed);
            // The connection has had its slot since it was shipped: a decided move cannot fail because slots are short.
            let (live, _place) = live?;
            own(shared, Box::new(live), None).await
        }
        // To read the preface is the answer. A check takes no slot, so it keeps no connection out.
        Kind::Check => {
            if shared.places.is_one_free() {
                tcp::finish(&leg);
            } else {
                refuse(shared, &leg, &Refusal::Full);
            }
            None
        }
    }
}

/// Handles a connection that this node owns: gives it to `target`, or serves it. Returns the leg if it is free
/// afterwards.
async fn own(shared: &Arc<AgentShared>, live: Box<Live>, target: Option<NodeName>) -> Option<TcpStream> {
    let (_entry, mut leaves) = shared.live.enter(&live.about, true);
    let Some(target) = target.filter(|target| *target != shared.name) else {
        return serve::serve(shared, HttpStart::Live(live), &mut leaves).await;
    };
    match departure::depart(shared, live, target).await {
        Outcome::Stays(live) => serve::serve(shared, HttpStart::Live(live), &mut leaves).await,
        Outcome::Left(leg) => leg,
    }
}

/// The same before the handshake is done: serves the connection, which moves to `target` when it can.
async fn own_early_connection(
    shared: &Arc<AgentShared>,
    mut early: Box<EarlyConnection>,
    target: Option<NodeName>,
) -> Option<TcpStream> {
    let (_entry, mut leaves) = shared.live.enter(&early.about, false);
    early.bulk = target.filter(|target| *target != shared.name);
    serve::serve(shared, HttpStart::EarlyConnection(early), &mut leaves).await
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
        }
    }
}

/// Reads the preface. `received` has the bytes that have already arrived.
async fn open(
    shared: &AgentShared,
    leg: &mut TcpStream,
    mut received: Vec<u8>,
    mut waiting: Waiting,
) -> Result<Opened, Refusal> {
    let read = async {
        loop {
            if let Some(accepted) = shared.keys.verify(&received)? {
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
    tokio::time::timeout(shared.limits().preface_timeout, read).await.unwrap_or(Err(Refusal::Slow))
}

fn refuse(shared: &AgentShared, leg: &TcpStream, refusal: &Refusal) {
    let from = leg.peer_addr().map(|address| address.to_string()).unwrap_or_default();
    tracing::warn!(from, cause = %refusal, "leg refused");
    shared.metrics.count_leg_refused(refusal.label());
    tcp::reset_on_close(leg);
}
