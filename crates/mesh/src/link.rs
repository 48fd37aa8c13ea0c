//! Runs a link, from its first message to its last.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};
use watari_wire::frame::Frame;
use watari_wire::{LinkMessage, Message};

use crate::error::LinkError;
use crate::event::Event;
use crate::hello::Established;
use crate::inbox::Inbox;
use crate::metrics::DropReason;
use crate::outbox::{Batch, Outbox};
use crate::peer::{Link, PeerEntry};
use crate::rules;
use crate::shared::MeshShared;

/// How long this node waits at the end until the peer has closed its end.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// Carries messages until the link ends. Returns how long it was up.
///
/// An earlier link to the same peer ends first, so that its [`Event::Down`] precedes the [`Event::Up`] of this one.
pub(crate) async fn run(shared: &Arc<MeshShared>, peer: &PeerEntry, established: Established) -> Duration {
    let Established { stream, inbox, roles, incarnation } = established;
    let mut claim = peer.claim().await;
    let since = Instant::now();
    let remote = stream.get_ref().0.peer_addr().ok().map(|remote| remote.ip());
    let link = Arc::new(Link { remote, roles, incarnation, outbox: Outbox::new(&shared.limits), since });
    if !shared.open(peer, &link) {
        return Duration::ZERO;
    }
    up(shared, peer, &link).await;
    let (read_half, write_half) = split(stream);
    let reason = tokio::select! {
        reason = Reader { shared, peer, link: &link, inbox }.run(read_half) => reason,
        reason = write(shared, peer, &link.outbox, write_half) => reason,
        () = claim.replaced() => LinkError::Replaced,
    };
    down(shared, peer, why_ended(shared, peer, reason)).await;
    since.elapsed()
}

/// Prefers an order of this node over the error on the link as the reason.
pub(crate) fn why_ended(shared: &MeshShared, peer: &PeerEntry, seen: LinkError) -> LinkError {
    if shared.shutdown.is_cancelled() {
        LinkError::Shutdown
    } else if peer.is_expelled() {
        LinkError::Evicted(peer.name.clone())
    } else if peer.end.is_cancelled() {
        LinkError::Removed
    } else {
        seen
    }
}

async fn up(shared: &MeshShared, peer: &PeerEntry, link: &Arc<Link>) {
    shared.metrics.links_up.inc();
    info!(peer = %peer.name, incarnation = link.incarnation, "link up");
    let (peer, roles, incarnation) = (peer.name.clone(), link.roles.clone(), link.incarnation);
    shared.report(Event::Up { peer, roles, incarnation }).await;
}

async fn down(shared: &MeshShared, peer: &PeerEntry, reason: LinkError) {
    shared.close(peer);
    peer.set_error(&reason);
    shared.metrics.links_up.dec();
    shared.metrics.link_ended(&reason);
    if matches!(reason, LinkError::Shutdown | LinkError::Removed | LinkError::Evicted(_)) {
        info!(peer = %peer.name, reason = reason.label(), "link closed");
    } else {
        warn!(peer = %peer.name, reason = reason.label(), error = %reason, "link down");
    }
    shared.report(Event::Down { peer: peer.name.clone(), reason }).await;
}

/// Writes the messages in the outbox, all in one write each time. At the end of the peer, writes those queued until
/// then.
async fn write(
    shared: &MeshShared,
    peer: &PeerEntry,
    outbox: &Outbox,
    mut stream: impl AsyncWrite + Unpin,
) -> LinkError {
    let mut batch = Batch::default();
    loop {
        tokio::select! {
            () = outbox.wait_until_due() => {}
            () = peer.end.cancelled() => {}
        }
        let last = peer.end.is_cancelled();
        if outbox.take(&mut batch)
            && let Err(error) = write_batch(shared, &mut stream, batch.as_slice()).await
        {
            return error;
        }
        if last {
            // A socket that is closed with unread input resets the connection, and the peer loses bytes that it has not
            // read. So the reader continues until the peer has closed its end.
            let _ = timeout(LINGER_MAX, stream.shutdown()).await;
            sleep(LINGER_MAX).await;
            return LinkError::Shutdown;
        }
    }
}

async fn write_batch(
    shared: &MeshShared,
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
) -> Result<(), LinkError> {
    let stall_max = shared.limits.dead_after;
    shared.metrics.bytes_sent.inc_by(bytes.len() as u64);
    while !bytes.is_empty() {
        match timeout(stall_max, stream.write(bytes)).await.map_err(|_| LinkError::Stalled)?? {
            0 => return Err(LinkError::Closed),
            written => bytes = &bytes[written..],
        }
    }
    Ok(timeout(stall_max, stream.flush()).await.map_err(|_| LinkError::Stalled)??)
}

struct Reader<'a> {
    shared: &'a Arc<MeshShared>,
    peer: &'a PeerEntry,
    link: &'a Link,
    inbox: Inbox,
}

impl Reader<'_> {
    async fn run(mut self, mut stream: impl AsyncRead + Unpin) -> LinkError {
        loop {
            match self.handle_frames().await {
                Ok(()) => {}
                Err(reason) => return reason,
            }
            match self.read(&mut stream).await {
                Ok(0) => return LinkError::Closed,
                Ok(len) => {
                    self.shared.metrics.bytes_received.inc_by(len as u64);
                    self.inbox.filled(len);
                }
                Err(reason) => return reason,
            }
        }
    }

    /// Reads the next bytes. Pings a silent peer. The time in which this node did not read, because its event queue was
    /// full, does not count as silence.
    async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, LinkError> {
        let limits = &self.shared.limits;
        let mut silence = Duration::ZERO;
        while silence < limits.dead_after {
            match timeout(limits.ping_after, stream.read(self.inbox.room())).await {
                Ok(outcome) => return Ok(outcome?),
                Err(_) => self.link.outbox.push_link(&LinkMessage::Ping),
            }
            silence += limits.ping_after;
        }
        Err(LinkError::Silent)
    }

    async fn handle_frames(&mut self) -> Result<(), LinkError> {
        while let Some(frame) = self.inbox.next_frame()? {
            match frame {
                _ if self.peer.is_expelled() => {}
                Frame::Message(message) => self.handle_message(message).await,
                Frame::Link(message) => self.handle_link_message(message)?,
                Frame::Unknown { version, kind } => self.handle_unknown(version, kind),
            }
        }
        Ok(())
    }

    async fn handle_message(&self, message: Message) {
        let kind = message.kind();
        if !rules::allowed(&message, &self.link.roles, &self.shared.roles) {
            self.shared.metrics.dropped(DropReason::Forbidden);
            warn!(peer = %self.peer.name, kind = kind.as_str(), "message dropped: the roles do not allow it");
            return;
        }
        self.shared.metrics.received(kind);
        self.peer.counters.received();
        self.shared.report(Event::Message { peer: self.peer.name.clone(), message }).await;
    }

    fn handle_link_message(&self, message: LinkMessage) -> Result<(), LinkError> {
        match message {
            LinkMessage::Hello(_) => return Err(LinkError::SecondHello),
            LinkMessage::Ping => self.link.outbox.push_link(&LinkMessage::Pong),
            LinkMessage::Pong => {}
            LinkMessage::Members(told) => self.shared.learn(&self.peer.name, told),
            LinkMessage::Unsupported { version, kind } => {
                self.shared.metrics.dropped(DropReason::Unsupported);
                warn!(peer = %self.peer.name, version, kind, "the peer does not support a message of this node");
            }
        }
        Ok(())
    }

    fn handle_unknown(&self, version: u8, kind: u8) {
        self.shared.metrics.dropped(DropReason::Unknown);
        warn!(peer = %self.peer.name, version, kind, "message dropped: its version or kind is unknown");
        self.link.outbox.push_link(&LinkMessage::Unsupported { version, kind });
    }
}
