//! Relays connections and HTTP/2 streams that have become tunnels to an origin.
//!
//! A connection that is a tunnel never moves, not even in a drain, because its other end is this node's connection to
//! an origin. An end without an announcement, such as an idle timeout, is not a clean end for the client either. On
//! HTTP/2, the library ends the stream cleanly all the same, but `WebSocket` has its own end.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use watari_proxy::TunnelBroken;
use watari_stream::TlsStream;
use watari_values::StayReason;

use super::streams::{GuardedBody, OpenStream};
use crate::handoff::live::About;
use crate::handoff::registry::Orders;
use crate::node::metrics::Counted;
use crate::node::peers::Peers;
use crate::node::slots::Slot;

/// A tunnel that an origin has accepted.
pub(crate) struct Tunnel {
    origin: watari_proxy::Tunnel,
    silence_max: Duration,
    /// The tunnel's request slot.
    _slot: Slot,
    _counted: Counted,
}

impl Tunnel {
    /// `silence_max`: the time without a byte in either direction after which the tunnel ends. `slot`: the slot of the
    /// request, which the tunnel keeps. `counted` counts the tunnel.
    pub(crate) fn new(origin: watari_proxy::Tunnel, silence_max: Duration, slot: Slot, counted: Counted) -> Self {
        Self { origin, silence_max, _slot: slot, _counted: counted }
    }

    /// Serves a connection as a tunnel until it ends. Requests to leave are answered with [`StayReason::Tunnel`].
    pub(crate) async fn on_connection(
        self,
        peers: &Peers,
        about: &About,
        stream: &mut TlsStream<TcpStream>,
        orders: &mut Orders,
    ) -> Result<(), TunnelBroken> {
        let mut joined = pin!(self.join(stream));
        loop {
            about.report_stay(peers, StayReason::Tunnel);
            tokio::select! {
                result = &mut joined => return result,
                Some(_) = orders.recv() => {}
            }
        }
    }

    /// Serves an HTTP/2 stream as a tunnel, once the response with `body` is sent. The stream stays open until the
    /// tunnel ends.
    pub(crate) fn follow<B>(
        self,
        body: B,
        mut open: OpenStream,
        upgrading: OnUpgrade,
    ) -> GuardedBody<B, Option<OpenStream>> {
        open.becomes_tunnel();
        tokio::spawn(self.on_stream(upgrading, open));
        GuardedBody::new(body, None)
    }

    async fn on_stream(self, upgrading: OnUpgrade, _open: OpenStream) {
        // If the connection has ended in the meantime, so has the stream.
        let Ok(stream) = upgrading.await else { return };
        if let Err(error) = self.join(TokioIo::new(stream)).await {
            tracing::debug!(%error, cause = std::error::Error::source(&error), "tunnel ended");
        }
    }

    async fn join(self, client: impl AsyncRead + AsyncWrite + Send) -> Result<(), TunnelBroken> {
        self.origin.join(client, self.silence_max).await
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
