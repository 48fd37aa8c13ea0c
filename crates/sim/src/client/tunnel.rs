//! The client's end of a tunnel.

use std::time::Duration;

use crate::network::{Network, NodeId};
use crate::resource::{Resource, difference};

/// The longest piece, in bytes.
const PIECE_LEN_MAX: u64 = 8 * 1024;

/// Gets the bytes of a resource, and sends those that the client has for it.
pub(super) struct Tunnel {
    resource: Resource,
    /// The next byte to send, and the next to get.
    sent: u64,
    received: u64,
    /// The origin has ended its direction.
    pub(super) has_origin_ended: bool,
    /// When the next piece is there.
    next: Duration,
    pause_ms_max: u64,
}

impl Tunnel {
    pub(super) fn new(resource: Resource, network: &Network) -> Self {
        let pause_ms_max = network.random(|random| [0, 5, 40][random.below(3) as usize]);
        Self { resource, sent: 0, received: 0, has_origin_ended: false, next: Duration::ZERO, pause_ms_max }
    }

    /// The next piece to send. `None`: all is sent, or it is there later. Then the client is woken.
    pub(super) fn next_piece(&mut self, network: &Network, node: NodeId) -> Option<Vec<u8>> {
        let upload = self.resource.upload();
        if self.sent == upload.len || network.now() < self.next {
            return None;
        }
        let pause = Duration::from_millis(network.random(|random| random.below(self.pause_ms_max + 1)));
        let len = network.random(|random| random.within(1..PIECE_LEN_MAX)).min(upload.len - self.sent);
        let piece = upload.bytes(0, self.sent..self.sent + len);
        self.sent += len;
        if !pause.is_zero() {
            self.next = network.now() + pause;
            network.wake_in(node, pause);
        }
        Some(piece)
    }

    /// Whether all was given away.
    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.resource.upload().len
    }

    /// Checks what has come. Returns whether it is right.
    pub(super) fn take(&mut self, plaintext: &[u8]) -> bool {
        let end = self.received + plaintext.len() as u64;
        let is_right =
            end <= self.resource.len && difference(plaintext, &self.resource.bytes(0, self.received..end)).is_none();
        self.received = end;
        is_right
    }

    /// Whether all bytes have come.
    pub(super) fn has_all(&self) -> bool {
        self.received == self.resource.len
    }
}
