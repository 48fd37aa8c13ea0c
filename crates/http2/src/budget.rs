//! Limits the frames that a peer may send.

use std::time::{Duration, Instant};

use crate::frames::{Frame, flags, kind};

/// Counts the frames of a connection in both directions, in tokens.
///
/// Frames that carry requests, responses or content add tokens, which pay for the frames that accompany them:
///
/// | frame | received | sent |
/// | --- | --- | --- |
/// | HEADERS | + 4 | + 20 |
/// | DATA with content | + 1 for each KiB | + 2, + 1 for each 256 bytes |
/// | DATA without content, unless it ends a stream | - 1 | |
/// | `RST_STREAM` | - 20 | |
/// | any that makes us reset its stream | - 20 as well | |
/// | SETTINGS, PING, without ACK | - 4 | |
/// | any other, also of unknown types | - 1 | |
/// | on a stream that our GOAWAY does not admit | - 10, - 1 for each 128 bytes | |
///
/// Time adds 1,000 tokens per second, up to 10,000. A connection begins with 10,000. Payments add up to 1,000,000. A
/// peer without tokens floods the connection.
///
/// So a client of a download may send a `WINDOW_UPDATE` for the stream and one for the connection after each DATA
/// frame, or for each 512 bytes. The clients of curl, nghttp2, Go and Java, and browsers, send one for several KiB at
/// least; most send it when half of a window is used. A client may reset each stream whose response has begun, and in a
/// burst 500 whose response has not.
#[derive(Debug)]
pub(crate) struct Budget {
    tokens: i64,
    refilled: Instant,
}

/// The tokens of a new connection, and the most that time adds up to. A flood of cheap frames ends after about 130 kB.
const BURST_MAX: i64 = 10_000;
/// Tokens that time adds, so that an idle client with a few pings never runs out.
const TOKENS_PER_S: i64 = 1_000;
/// The most tokens. More frames than this may be in transit after a download of small DATA frames that a client reads
/// at once.
const EARNED_MAX: i64 = 1_000_000;

/// A peer has sent more frames than the connection's requests and content pay for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer floods the connection with frames that carry no content")]
pub struct Flood;

impl Budget {
    pub(crate) fn new(now: Instant) -> Self {
        Self { tokens: BURST_MAX, refilled: now }
    }

    /// Counts a received frame. `is_admitted`: no GOAWAY of ours excludes its stream.
    pub(crate) fn received(&mut self, frame: &Frame, is_admitted: bool) {
        self.add(price(frame, is_admitted));
    }

    /// Counts a stream that is reset because of a received frame. A peer could otherwise begin streams and have them reset
    /// without end.
    pub(crate) fn made_reset(&mut self) {
        self.add(RESET_PRICE);
    }

    /// Counts a sent frame with a payload of `len` bytes.
    pub(crate) fn sent(&mut self, kind: u8, len: u32) {
        self.add(payment(kind, len));
    }

    /// Calls `now` only when the tokens seem to be used up.
    pub(crate) fn check(&mut self, now: impl FnOnce() -> Instant) -> Result<(), Flood> {
        if self.tokens < 0 {
            self.refill(now());
        }
        if self.tokens < 0 { Err(Flood) } else { Ok(()) }
    }

    fn add(&mut self, tokens: i64) {
        self.tokens = (self.tokens + tokens).min(EARNED_MAX);
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled).min(REFILL_TIME);
        let added = TOKENS_PER_S * elapsed.as_micros() as i64 / 1_000_000;
        self.tokens = (self.tokens + added).min(BURST_MAX);
        self.refilled = now;
    }
}

/// The time without frames in which the tokens reach [`BURST_MAX`].
const REFILL_TIME: Duration = Duration::from_secs((BURST_MAX / TOKENS_PER_S) as u64);

/// The tokens that the reset of a stream takes.
const RESET_PRICE: i64 = -20;

/// The tokens that a received frame adds. Negative: takes.
fn price(frame: &Frame, is_admitted: bool) -> i64 {
    let len = i64::from(frame.len);
    if !is_admitted {
        return -10 - len / 128;
    }
    match frame.kind {
        kind::HEADERS => 4,
        kind::DATA if len == 0 && frame.flags & flags::END_STREAM == 0 => -1,
        kind::DATA => len / 1024,
        kind::RST_STREAM => RESET_PRICE,
        // Their ACK flag has the same value as END_STREAM (RFC 9113, sections 6.5 and 6.7).
        kind::SETTINGS | kind::PING if frame.flags & flags::END_STREAM == 0 => -4,
        _ => -1,
    }
}

/// The tokens that a sent frame adds.
fn payment(kind: u8, len: u32) -> i64 {
    match kind {
        kind::HEADERS => 20,
        kind::DATA if len > 0 => 2 + i64::from(len) / 256,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const PRIORITY_UPDATE: u8 = 0x10;

    /// A budget, and its clock.
    struct Scene {
        budget: Budget,
        now: Instant,
    }

    impl Scene {
        fn set() -> Self {
            let now = Instant::now();
            Self { budget: Budget::new(now), now }
        }

        fn receive(&mut self, kind: u8, flags: u8, len: u32) -> Result<(), Flood> {
            self.receive_on(kind, flags, len, true)
        }

        fn receive_on(&mut self, kind: u8, flags: u8, len: u32, is_admitted: bool) -> Result<(), Flood> {
            self.budget.received(&Frame { kind, flags, stream: 1, len }, is_admitted);
            self.budget.check(|| self.now)
        }

        /// The number of these that the peer may send at once.
        fn count(&mut self, kind: u8, flags: u8, len: u32) -> usize {
            (0..3_000_000).position(|_| self.receive(kind, flags, len).is_err()).unwrap()
        }
    }

    #[test]
    fn floods_end() {
        for (kind, flags, len, most) in [
            (kind::WINDOW_UPDATE, 0, 4, 10_000),
            (kind::PRIORITY, 0, 5, 10_000),
            (PRIORITY_UPDATE, 0, 4, 10_000),
            (0xff, 0, 0, 10_000),
            (kind::DATA, 0, 0, 10_000),
            (kind::CONTINUATION, 0, 0, 10_000),
            (kind::SETTINGS, flags::ACK, 0, 10_000),
            (kind::PING, flags::ACK, 8, 10_000),
            (kind::SETTINGS, 0, 0, 2_500),
            (kind::PING, 0, 8, 2_500),
            (kind::RST_STREAM, 0, 4, 500),
        ] {
            assert_eq!(Scene::set().count(kind, flags, len), most, "type {kind}, flags {flags}");
        }
    }

    #[test]
    fn time_allows_more() {
        let mut scene = Scene::set();
        assert_eq!(scene.count(kind::WINDOW_UPDATE, 0, 4), 10_000);
        scene.now += Duration::from_secs(2);
        assert_eq!(scene.count(kind::WINDOW_UPDATE, 0, 4), 1_999);
        scene.now += Duration::from_hours(1);
        assert_eq!(scene.count(kind::WINDOW_UPDATE, 0, 4), 9_999);
    }

    /// 1 GiB in DATA frames of 16 KiB, and 1,000,000 frames of 100 bytes: two updates after each frame.
    #[test]
    fn a_download_pays_for_the_updates_of_its_windows() {
        for (len, count) in [(16 << 10, 65_536), (100, 1_000_000)] {
            let mut scene = Scene::set();
            for _ in 0..count {
                scene.budget.sent(kind::DATA, len);
                (0..2).for_each(|_| scene.receive(kind::WINDOW_UPDATE, 0, 4).unwrap());
            }
            // Also if the client is far behind.
            (0..count.min(300_000)).for_each(|_| scene.budget.sent(kind::DATA, len));
            (0..2 * count.min(300_000)).for_each(|_| scene.receive(kind::WINDOW_UPDATE, 0, 4).unwrap());
        }
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut scene = Scene::set();
        (0..1_000_000).for_each(|_| scene.budget.sent(kind::DATA, 16 << 10));
        assert_eq!(scene.count(kind::WINDOW_UPDATE, 0, 4), EARNED_MAX as usize);
    }

    /// Each request comes with a PRIORITY, a `WINDOW_UPDATE` and a `PRIORITY_UPDATE`. The client resets each response
    /// when it has begun.
    #[test]
    fn streams_that_are_answered_may_be_reset() {
        let mut scene = Scene::set();
        for _ in 0..200_000 {
            scene.receive(kind::HEADERS, 5, 1).unwrap();
            scene.receive(kind::PRIORITY, 0, 5).unwrap();
            scene.receive(kind::WINDOW_UPDATE, 0, 4).unwrap();
            scene.receive(PRIORITY_UPDATE, 0, 4).unwrap();
            scene.budget.sent(kind::HEADERS, 1);
            scene.receive(kind::RST_STREAM, 0, 4).unwrap();
        }
    }

    #[test]
    fn streams_that_are_reset_at_once_are_counted() {
        let mut scene = Scene::set();
        let mut at_once = || scene.receive(kind::HEADERS, 5, 1).and_then(|()| scene.receive(kind::RST_STREAM, 0, 4));
        assert_eq!((0..10_000).position(|_| at_once().is_err()), Some(625));
    }

    #[test]
    fn an_upload_costs_nothing() {
        let mut scene = Scene::set();
        for len in [1, 100, 16 << 10] {
            (0..100_000).for_each(|_| scene.receive(kind::DATA, 0, len).unwrap());
        }
    }

    #[test]
    fn content_behind_a_goaway_is_bounded() {
        let mut scene = Scene::set();
        (0..100_000).for_each(|_| scene.receive(kind::DATA, 0, 16 << 10).unwrap());
        let saved = scene.budget.tokens;
        let count = (0..1_000_000).position(|_| scene.receive_on(kind::DATA, 0, 16 << 10, false).is_err()).unwrap();
        assert_eq!(count, usize::try_from(saved / 138).unwrap());
    }
}
