//! The direction that an end sends.

use std::collections::VecDeque;

use watari_values::SecretBytes;
use watari_wire::{ANCHORED_DATA_LEN_MAX, ANCHORED_WINDOW_LEN, AnchoredContent};

/// Bytes until the other end has consumed them. The end of the direction counts as one byte more.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// The offset of the first byte in `kept`.
    acknowledged: u64,
    kept: VecDeque<u8>,
    /// The offset up to which all was sent.
    sent: u64,
    /// The offset after all that was written.
    written: u64,
    is_ended: bool,
}

impl Outgoing {
    /// The other end may have received any part of `kept`. It may be more than the window: a piece that had no room moves
    /// with the end.
    pub(crate) fn import(acknowledged: u64, kept: &[u8], is_ended: bool) -> Self {
        let written = acknowledged + kept.len() as u64;
        let kept = kept.iter().copied().collect();
        let mut outgoing = Self { acknowledged, kept, sent: acknowledged, written, is_ended: false };
        if is_ended {
            outgoing.end();
        }
        outgoing
    }

    /// The arguments of [`Outgoing::import`] that continue this direction. An acknowledged end is sent again.
    pub(crate) fn export(&self) -> (u64, Vec<u8>, bool) {
        let bytes_end = self.written - u64::from(self.is_ended);
        (self.acknowledged.min(bytes_end), self.kept.iter().copied().collect(), self.is_ended)
    }

    /// The number of bytes that can be written now.
    pub(crate) fn room(&self) -> usize {
        if self.is_ended { 0 } else { ANCHORED_WINDOW_LEN.saturating_sub(self.kept.len()) }
    }

    /// Whether no more than the window is not acknowledged.
    pub(crate) fn is_within_window(&self) -> bool {
        self.kept.len() <= ANCHORED_WINDOW_LEN
    }

    /// Takes as many of the bytes as there is room for. Returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.room());
        self.kept.extend(&bytes[..len]);
        self.written += len as u64;
        len
    }

    pub(crate) fn end(&mut self) {
        self.written += u64::from(!self.is_ended);
        self.is_ended = true;
    }

    /// Whether the other end has consumed all of this direction, and its end.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_ended && self.acknowledged == self.written
    }

    /// Whether the end of this direction was sent.
    pub(crate) fn is_end_sent(&self) -> bool {
        self.is_ended && self.sent == self.written
    }

    /// The number of acknowledged bytes, if others are not acknowledged.
    pub(crate) fn outstanding_from(&self) -> Option<u64> {
        (self.acknowledged < self.written).then_some(self.acknowledged)
    }

    /// The other end has consumed this many bytes. Returns whether that is possible.
    pub(crate) fn acknowledge(&mut self, consumed: u64) -> bool {
        if consumed > self.written {
            return false;
        }
        if let Some(new) = consumed.checked_sub(self.acknowledged) {
            let bytes = usize::try_from(new).unwrap_or(usize::MAX).min(self.kept.len());
            self.kept.drain(..bytes);
            if self.kept.is_empty() {
                // An idle stream holds no buffer.
                self.kept = VecDeque::new();
            }
            self.acknowledged = consumed;
            self.sent = self.sent.max(consumed);
        }
        true
    }

    /// The other end has consumed all.
    pub(crate) fn acknowledge_all(&mut self) {
        self.acknowledge(self.written);
    }

    /// The other end has received all up to this offset, and nothing after it. Sends the rest again.
    pub(crate) fn rewind(&mut self, received: u64) {
        self.sent = received.clamp(self.acknowledged, self.written);
    }

    /// The next bytes to send, within the window.
    pub(crate) fn next_data(&mut self) -> Option<AnchoredContent> {
        if self.sent == self.written {
            return None;
        }
        let offset = self.sent;
        let start = usize::try_from(offset - self.acknowledged).unwrap_or(usize::MAX).min(self.kept.len());
        let window_end = self.kept.len().min(ANCHORED_WINDOW_LEN);
        if start >= window_end && start < self.kept.len() {
            return None;
        }
        let len = window_end.saturating_sub(start).min(ANCHORED_DATA_LEN_MAX);
        let bytes = SecretBytes::new(self.kept.range(start..start + len).copied().collect());
        let is_last = self.is_ended && start + len == self.kept.len();
        self.sent += len as u64 + u64::from(is_last);
        Some(AnchoredContent::Data { offset, bytes, is_last })
    }
}
