//! Taking legs from dispatchers.

use std::io;
use std::sync::Arc;

use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use watari_handoff::TargetEvent;
use watari_sys::{accept_until, tcp};
use watari_wire::NodeName;
use watari_wire::leg::{Accepted, Kind, PREFACE_LEN_MAX, PrefaceError};

use crate::departure::Outcome;
use crate::live::Live;
use crate::places::Place;
use crate::{Shared, departure, handshake, serve};

/// Accepts on `listener` until `shutdown`.
pub(crate) fn start(
    shared: &Arc<Shared>,
    listener: std::net::TcpListener,
    shutdown: &CancellationToken,
) -> io::Result<()> {
    // A dispatcher stops reading while its client does: no leg is given up for that.
    tcp::prepare_listener(&listener, None)?;
    let shared = shared.clone();
    accept_until(shutdown, listener, "a leg", move |leg, _| admit(&shared, leg)).map(drop)
}

fn admit(shared: &Arc<Shared>, leg: TcpStream) {
    let Some(stranger) = shared.strangers.take() else {
        return refuse(shared, &leg, &Refusal::Full);
    };
    let shared = shared.clone();
    tokio::spawn(async move { take(&shared, leg, stranger).await });
}

async fn take(shared: &Arc<Shared>, mut leg: TcpStream, stranger: Place) {
    let opened = match tokio::time::timeout(shared.limits().preface_timeout, read_preface(shared, &mut leg)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(refusal)) => return refuse(shared, &leg, &refusal),
        Err(_) => return refuse(shared, &leg, &Refusal::Slow),
    };
    drop(stranger);
    let Opened { accepted: Accepted { preface, dispatcher, .. }, surplus } = opened;
    match preface.kind.clone() {
        Kind::New { bulk } => {
            let Some(_place) = shared.places.take() else {
                return refuse(shared, &leg, &Refusal::Full);
            };
            let Some(live) = handshake::shake_hands(shared, leg, dispatcher, &preface, surplus).await else { return };
            live.about.announce(shared);
            own(shared, live, bulk).await;
        }
        Kind::Commit { rx_offset, tail_offset } => {
            let committed = TargetEvent::Committed { epoch: preface.epoch, rx_offset, tail_offset };
            let arrivals = &shared.arrivals;
            let live = arrivals.activate(shared, leg, &surplus, &dispatcher, preface.connection, &committed);
            // It has had its place since it was shipped: a decided move cannot fail for want of one.
            if let Some((live, _place)) = live {
                own(shared, live, None).await;
            }
        }
    }
}

/// What this node does with a connection that is its own: give it to `target`, or serve it.
async fn own(shared: &Arc<Shared>, live: Live, target: Option<NodeName>) {
    let (_entry, mut leaves) = shared.live.enter(&live.about);
    let Some(target) = target.filter(|target| *target != shared.name) else {
        return serve::serve(shared, live, &mut leaves).await;
    };
    match departure::depart(shared, live, target).await {
        Outcome::Stays(live) => serve::serve(shared, *live, &mut leaves).await,
        Outcome::Left => {}
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
    #[error("there is no place for another connection")]
    Full,
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
            Self::Full => "full",
            Self::Ended => "ended",
            Self::Slow => "slow",
            Self::Io(_) => "io",
        }
    }
}

async fn read_preface(shared: &Shared, leg: &mut TcpStream) -> Result<Opened, Refusal> {
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
    tcp::reset_on_close(leg);
}
