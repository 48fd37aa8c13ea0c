//! Relays connections and HTTP/2 streams that have become tunnels to an origin.
//!
//! The connection to an origin stays at the agent that made it. A client's connection that is a tunnel can move: the
//! agent that has the origin's side is then its anchor, and exchanges the bytes with the owner (`handoff::anchors`).
//! An end without an announcement, such as an idle timeout, is not a clean end for the client. On HTTP/2, the
//! stream ends cleanly all the same, but `WebSocket` has its own end.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use http_body::{Body, Frame};
use http_body_util::{BodyDataStream, StreamBody};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{ReaderStream, StreamReader};
use watari_body::BoxError;
use watari_connection::leaving::{InResponse, Situation};
use watari_connection::{Content, Departure};
use watari_proxy::{TunnelBroken, TunnelRelay};
use watari_stream::TlsStream;
use watari_values::{NodeName, StayReason};

use super::departing::{Departing, Departs};
use crate::handoff::anchored_stream::AnchoredStream;
use crate::handoff::live::About;
use crate::handoff::registry::{Order, Orders};
use crate::leg::Leg;
use crate::node::metrics::Counted;
use crate::node::peers::Peers;
use crate::node::slots::Slot;

/// The most bytes that wait between a tunnel and its HTTP/2 stream, on the way to the client.
const PIECE_LEN: usize = 16 * 1024;

/// A tunnel that an origin has accepted.
pub(crate) struct Tunnel {
    origin: OriginSide,
    silence_max: Duration,
    /// The tunnel's request slot.
    _slot: Slot,
    _counted: Counted,
}

/// The side of a tunnel away from the client.
enum OriginSide {
    /// A connection of this agent.
    Here(watari_proxy::Tunnel),
    /// The connection of another agent.
    Anchored { stream: AnchoredStream, relay: TunnelRelay },
}

/// Why a tunnel is no longer served.
pub(super) enum TunnelStop {
    Ended(Result<(), TunnelBroken>),
    /// The connection has to move to the agent, and can do so now.
    Parks(NodeName, InResponse),
}

impl Tunnel {
    /// `silence_max`: the time without a byte in either direction after which the tunnel ends. `slot`: the slot of the
    /// request, which the tunnel keeps. `counted` counts the tunnel.
    pub(crate) fn new(origin: watari_proxy::Tunnel, silence_max: Duration, slot: Slot, counted: Counted) -> Self {
        Self { origin: OriginSide::Here(origin), silence_max, _slot: slot, _counted: counted }
    }

    /// A tunnel whose origin is at the other end of `stream`. `to_client` precedes the bytes of the stream.
    pub(super) fn anchored(
        stream: AnchoredStream,
        to_client: Bytes,
        silence_max: Duration,
        slot: Slot,
        counted: Counted,
    ) -> Self {
        let relay = TunnelRelay::with_unwritten(to_client);
        Self { origin: OriginSide::Anchored { stream, relay }, silence_max, _slot: slot, _counted: counted }
    }

    /// The stream to the anchor, and the bytes on their way to the origin and to the client. `None`: this agent has the
    /// connection to the origin.
    pub(super) fn anchor(&self) -> Option<(&AnchoredStream, [&[u8]; 2])> {
        match &self.origin {
            OriginSide::Here(_) => None,
            OriginSide::Anchored { stream, relay } => Some((stream, relay.unwritten())),
        }
    }

    /// Relays until both sides have ended. If the future is dropped before, the tunnel can go on with another stream
    /// that continues the client's.
    pub(crate) async fn join(
        &mut self,
        client: &mut (impl AsyncRead + AsyncWrite + Send + Unpin),
    ) -> Result<(), TunnelBroken> {
        match &mut self.origin {
            OriginSide::Here(tunnel) => tunnel.join(client, self.silence_max).await,
            OriginSide::Anchored { stream, relay } => relay.join(client, stream, self.silence_max, |_| {}).await,
        }
    }

    /// Serves a connection as a tunnel until it ends, or can leave as `orders` ask.
    pub(super) async fn on_connection(
        &mut self,
        peers: &Peers,
        about: &About,
        stream: &mut TlsStream<Leg>,
        orders: &mut Orders,
    ) -> TunnelStop {
        let mut departing = Departing::new();
        // The number of times that the connection was asked to leave. Each time its target may be asked again.
        let mut asked = 0;
        loop {
            tokio::select! {
                result = self.join(stream) => return TunnelStop::Ended(result),
                Some(order) = orders.recv() => match *order {
                    // Its connection to the origin stays in this process, and so does the tunnel.
                    Order::PassOn(_) | Order::Stay => {}
                    order => if let Some(leave) = departing.follow(order, peers.name()) {
                        asked += 1;
                        if leave.target.is_none() {
                            about.report_stay(peers, StayReason::Tunnel);
                        }
                    },
                },
                () = poll_fn(|cx| departing.poll_timeout(cx)) => {}
            }
            while departing.is_wanted() {
                let departure = if self.can_leave() { Departure::Events } else { Departure::Response };
                let situation = Situation { departure, is_idle: false, is_flushed: true, request: asked };
                let anchor = self.anchor().map(|(stream, _)| stream.anchor());
                match departing.depart(situation, anchor, StayReason::Tunnel, peers, about) {
                    Departs::Now(target, Some(how)) => return TunnelStop::Parks(target, how),
                    Departs::Again => {}
                    Departs::Now(_, None) | Departs::Later => break,
                }
            }
        }
    }

    /// Serves an HTTP/2 stream as a tunnel. `content` is what the client sends. Returns what it gets.
    pub(crate) fn on_stream(mut self, content: Content) -> impl Body<Data = Bytes, Error = BoxError> + Send {
        let (ours, theirs) = tokio::io::duplex(PIECE_LEN);
        let content = BodyDataStream::new(content).map_err(io::Error::other);
        let mut client = tokio::io::join(StreamReader::new(content), theirs);
        tokio::spawn(async move { self.join_to_end(&mut client).await });
        StreamBody::new(ReaderStream::with_capacity(ours, PIECE_LEN).map_ok(Frame::data).map_err(BoxError::from))
    }

    /// Relays until the tunnel has ended.
    pub(crate) async fn join_to_end(&mut self, client: &mut (impl AsyncRead + AsyncWrite + Send + Unpin)) {
        if let Err(error) = self.join(client).await {
            tracing::debug!(%error, cause = std::error::Error::source(&error), "tunnel ended");
        }
    }

    /// Whether the client's connection can move: neither direction has ended, and the stream to the anchor has no piece
    /// left that came with the last move and had no room.
    fn can_leave(&self) -> bool {
        match &self.origin {
            OriginSide::Here(tunnel) => tunnel.is_open(),
            OriginSide::Anchored { stream, relay } => relay.is_open() && stream.is_within_window(),
        }
    }
}

/// Holds a tunnel until the response that announces it has been sent.
#[derive(Clone, Default)]
pub(crate) struct Agreed(Arc<Mutex<Option<Box<Tunnel>>>>);

impl Agreed {
    pub(crate) fn set(&self, tunnel: Option<Box<Tunnel>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tunnel;
    }

    pub(crate) fn take(&self) -> Option<Box<Tunnel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
