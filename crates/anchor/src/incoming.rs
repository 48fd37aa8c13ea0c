//! The direction that an end receives.

use std::collections::VecDeque;

use watari_wire::ANCHORED_WINDOW_LEN;

/// The number of consumed bytes that are acknowledged at once. Fewer are acknowledged at the next tick.
const ACKNOWLEDGED_AT_ONCE: u64 = ANCHORED_WINDOW_LEN as u64 / 4;

/// Bytes until they are read. The end of the direction counts as one byte more.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    ready: VecDeque<u8>,
    /// The offset up to which all was received.
    received: u64,
    /// The offset up to which all was read.
    consumed: u64,
    /// The other end knows that this many bytes were consumed, unless the message was lost.
    announced: u64,
    is_ended: bool,
}

/// How received data relates to what came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// New, at least a part of it.
    New,
    /// Known. The other end may not know what this end has.
    Known,
    /// It does not follow what was received: something was lost.
    AfterGap,
    /// More than was permitted.
    TooMuch,
}

impl Incoming {
    pub(crate) fn import(consumed: u64) -> Self {
        Self { received: consumed, consumed, announced: consumed, ..Self::default() }
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    pub(crate) fn receive(&mut self, offset: u64, bytes: &[u8], is_last: bool) -> Received {
        let Some(known) = self.received.checked_sub(offset) else { return Received::AfterGap };
        let new = usize::try_from(known).ok().and_then(|known| bytes.get(known..));
        let Some(new) = new.filter(|new| !self.is_ended && (is_last || !new.is_empty())) else {
            return Received::Known;
        };
        if self.ready.len() + new.len() > ANCHORED_WINDOW_LEN {
            return Received::TooMuch;
        }
        self.ready.extend(new);
        self.received += new.len() as u64 + u64::from(is_last);
        self.is_ended = is_last;
        Received::New
    }

    /// Takes bytes into `into`, as many as there are and fit. Returns their number: 0 at the end. `None`: there are no
    /// bytes yet.
    pub(crate) fn read(&mut self, into: &mut [u8]) -> Option<usize> {
        if self.ready.is_empty() {
            self.consumed = if self.is_ended { self.received } else { return None };
            return Some(0);
        }
        let len = self.ready.len().min(into.len());
        let (first, second) = self.ready.as_slices();
        let of_first = first.len().min(len);
        into[..of_first].copy_from_slice(&first[..of_first]);
        into[of_first..len].copy_from_slice(&second[..len - of_first]);
        self.ready.drain(..len);
        if self.ready.is_empty() {
            // An idle stream holds no buffer.
            self.ready = VecDeque::new();
        }
        self.consumed += len as u64;
        Some(len)
    }

    /// Whether there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        !self.ready.is_empty() || self.is_ended
    }

    /// Whether all was read, and the end.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_ended && self.consumed == self.received
    }

    /// Whether the end was received.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whether the other end lacks an acknowledgement.
    pub(crate) fn is_unannounced(&self) -> bool {
        self.announced < self.consumed
    }

    /// Whether an acknowledgement is due now.
    pub(crate) fn is_announcement_due(&self) -> bool {
        self.consumed - self.announced >= ACKNOWLEDGED_AT_ONCE || (self.is_complete() && self.is_unannounced())
    }

    pub(crate) fn announce(&mut self) {
        self.announced = self.consumed;
    }
}
