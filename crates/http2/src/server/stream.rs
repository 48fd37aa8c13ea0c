//! The streams of a connection.

use super::{StreamId, WINDOW};

/// A stream of which at least one side has not ended.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    /// Bytes that may be sent. Negative after the client has reduced its windows.
    pub(super) window: i64,
    /// Bytes that the client may send.
    pub(super) receivable: i64,
    /// Bytes that were received and not released.
    pub(super) unread: u32,
    /// Bytes that were released, and that the client does not know of.
    pub(super) released: u32,
    /// Bytes of content that are still to come. `None`: unknown.
    content_left: Option<u64>,
    pub(super) is_request_complete: bool,
    pub(super) is_response_complete: bool,
}

/// How a stream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    /// It was reset here.
    Here,
    /// The client has reset it.
    There,
    /// Both sides have ended.
    Ended,
}

impl Stream {
    pub(super) fn new(id: StreamId, window: i64, is_request_complete: bool, content_left: Option<u64>) -> Self {
        Self {
            id,
            window,
            receivable: WINDOW.into(),
            unread: 0,
            released: 0,
            content_left,
            is_request_complete,
            is_response_complete: false,
        }
    }

    /// Counts content. Returns whether it agrees with the declared length (RFC 9113, section 8.1.1).
    pub(super) fn counts_content(&mut self, len: u64, ends: bool) -> bool {
        let Some(left) = self.content_left else { return true };
        let Some(left) = left.checked_sub(len) else { return false };
        self.content_left = Some(left);
        !ends || left == 0
    }

    /// Whether no more content is declared.
    pub(super) fn is_content_complete(&self) -> bool {
        self.content_left.is_none_or(|left| left == 0)
    }
}
