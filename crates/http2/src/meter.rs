//! Limits the frames that a peer may send.

use std::time::{Duration, Instant};

use crate::frames::{
    DATA, END_STREAM, ENHANCE_YOUR_CALM, Frame, Frames, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, goaway,
};

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
pub struct Meter {
    received: Frames,
    sent: Frames,
    tokens: i64,
    refilled: Instant,
    /// Whether the peer is a client, which begins the streams with odd numbers (RFC 9113, section 5.1.1).
    peer_is_client: bool,
    /// The highest stream that the peer has begun.
    last_stream: u32,
    /// The last stream that the latest sent GOAWAY admits.
    admitted: u32,
}

/// The tokens of a new connection, and the most that time adds up to. A flood of cheap frames ends after about 130 kB.
const BURST_MAX: i64 = 10_000;
/// Tokens that time adds, so that an idle client with a few pings never runs out.
const TOKENS_PER_S: i64 = 1_000;
/// The most tokens. More frames than this may be in transit after a download of small DATA frames that a client reads
/// at once.
const EARNED_MAX: i64 = 1_000_000;

/// RFC 9113, section 5.1.1.
const STREAM_MAX: u32 = (1 << 31) - 1;

/// A peer has sent more frames than the connection's requests and content pay for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the peer floods the connection with frames that carry no content")]
pub struct Flood;

impl Meter {
    /// A meter for a client, whose bytes begin with the connection preface.
    pub fn of_client(now: Instant) -> Self {
        Self::new(Frames::behind_preface(), Frames::new(), true, now)
    }

    /// A meter for a server.
    pub fn of_server(now: Instant) -> Self {
        Self::new(Frames::new(), Frames::behind_preface(), false, now)
    }

    fn new(received: Frames, sent: Frames, peer_is_client: bool, now: Instant) -> Self {
        let (tokens, last_stream, admitted) = (BURST_MAX, 0, STREAM_MAX);
        Self { received, sent, tokens, refilled: now, peer_is_client, last_stream, admitted }
    }

    /// Counts bytes received from the peer. Calls `now` only when the tokens seem to be used up.
    ///
    /// # Errors
    /// [`Flood`] when the peer has no tokens left.
    pub fn received(&mut self, bytes: &[u8], now: impl FnOnce() -> Instant) -> Result<(), Flood> {
        let Self { received, tokens, peer_is_client, last_stream, admitted, .. } = self;
        received.read(bytes, |frame| {
            let is_of_peer = (frame.stream % 2 == 1) == *peer_is_client;
            if frame.kind == HEADERS && is_of_peer {
                *last_stream = frame.stream.max(*last_stream);
            }
            let is_admitted = !is_of_peer || frame.stream <= *admitted;
            *tokens = (*tokens + price(frame, is_admitted)).min(EARNED_MAX);
        });
        if self.tokens < 0 {
            self.refill(now());
        }
        if self.tokens < 0 { Err(Flood) } else { Ok(()) }
    }

    /// Counts bytes sent to the peer.
    pub fn sent(&mut self, bytes: &[u8]) {
        let Self { sent, tokens, admitted, .. } = self;
        sent.read(bytes, |frame| {
            if frame.kind == GOAWAY {
                *admitted = frame.last_stream.min(*admitted);
            }
            *tokens = (*tokens + payment(frame)).min(EARNED_MAX);
        });
    }

    /// The GOAWAY with the reason for the end of the connection. `None` while another frame is only partly written.
    pub fn goaway(&self) -> Option<[u8; 17]> {
        self.sent.is_between_frames().then(|| goaway(self.last_stream, ENHANCE_YOUR_CALM))
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

/// The tokens that a received frame adds. Negative: takes.
fn price(frame: Frame, is_admitted: bool) -> i64 {
    let len = i64::from(frame.len);
    if !is_admitted {
        return -10 - len / 128;
    }
    match frame.kind {
        HEADERS => 4,
        DATA if len == 0 && frame.flags & END_STREAM == 0 => -1,
        DATA => len / 1024,
        RST_STREAM => -20,
        // Their ACK flag has the same value as END_STREAM (RFC 9113, sections 6.5 and 6.7).
        SETTINGS | PING if frame.flags & END_STREAM == 0 => -4,
        _ => -1,
    }
}

/// The tokens that a sent frame adds.
fn payment(frame: Frame) -> i64 {
    match frame.kind {
        HEADERS => 20,
        DATA if frame.len > 0 => 2 + i64::from(frame.len) / 256,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::frames::CONTINUATION;
    use crate::frames::tests::frame;

    const PRIORITY: u8 = 2;
    const WINDOW_UPDATE: u8 = 8;
    const PRIORITY_UPDATE: u8 = 0x10;
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

    /// A meter, and its clock.
    struct Scene {
        meter: Meter,
        now: Instant,
    }

    impl Scene {
        fn set() -> Self {
            let now = Instant::now();
            let mut scene = Self { meter: Meter::of_client(now), now };
            scene.read(PREFACE).unwrap();
            scene
        }

        fn read(&mut self, bytes: &[u8]) -> Result<(), Flood> {
            self.meter.received(bytes, || self.now)
        }

        /// The number of these that the peer may send at once.
        fn count(&mut self, piece: &[u8]) -> usize {
            (0..3_000_000).position(|_| self.read(piece).is_err()).unwrap()
        }
    }

    #[test]
    fn floods_end() {
        for (kind, flags, stream, payload, most) in [
            (WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1][..], 10_000),
            (WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1], 10_000),
            (PRIORITY, 0, 1, &[0; 5], 10_000),
            (PRIORITY_UPDATE, 0, 0, &[0; 4], 10_000),
            (0xff, 0, 0, &[], 10_000),
            (DATA, 0, 1, &[], 10_000),
            (CONTINUATION, 0, 1, &[], 10_000),
            (SETTINGS, 1, 0, &[], 10_000),
            (PING, 1, 0, &[0; 8], 10_000),
            (SETTINGS, 0, 0, &[], 2_500),
            (PING, 0, 0, &[0; 8], 2_500),
            (RST_STREAM, 0, 1, &[0; 4], 500),
        ] {
            let mut scene = Scene::set();
            assert_eq!(scene.count(&frame(kind, flags, stream, payload)), most, "type {kind}, flags {flags}");
            assert_eq!(scene.meter.goaway().unwrap(), goaway(0, ENHANCE_YOUR_CALM));
        }
    }

    #[test]
    fn time_allows_more() {
        let mut scene = Scene::set();
        let update = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        assert_eq!(scene.count(&update), 10_000);
        scene.now += Duration::from_secs(2);
        assert_eq!(scene.count(&update), 1_999);
        scene.now += Duration::from_hours(1);
        assert_eq!(scene.count(&update), 9_999);
    }

    /// 1 GiB in DATA frames of 16 KiB, and 1,000,000 frames of 100 bytes: two updates after each frame.
    #[test]
    fn a_download_pays_for_the_updates_of_its_windows() {
        let updates = [frame(WINDOW_UPDATE, 0, 0, &[0, 0, 64, 0]), frame(WINDOW_UPDATE, 0, 1, &[0, 0, 64, 0])].concat();
        for (len, count) in [(16 << 10, 65_536), (100, 1_000_000)] {
            let (mut scene, data) = (Scene::set(), frame(DATA, 0, 1, &vec![0; len]));
            for _ in 0..count {
                scene.meter.sent(&data);
                scene.read(&updates).unwrap();
            }
            // Also if the client is far behind.
            (0..count.min(300_000)).for_each(|_| scene.meter.sent(&data));
            (0..count.min(300_000)).for_each(|_| scene.read(&updates).unwrap());
        }
    }

    #[test]
    fn what_is_saved_up_is_bounded() {
        let mut scene = Scene::set();
        let (data, update) = (frame(DATA, 0, 1, &[0; 16 << 10]), frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
        (0..1_000_000).for_each(|_| scene.meter.sent(&data));
        assert_eq!(scene.count(&update), EARNED_MAX as usize);
    }

    /// Each request comes with a PRIORITY, a `WINDOW_UPDATE` and a `PRIORITY_UPDATE`. The client resets each response
    /// when it has begun.
    #[test]
    fn streams_that_are_answered_may_be_reset() {
        let mut scene = Scene::set();
        for stream in (1..400_000).step_by(2) {
            let request = [
                frame(HEADERS, 5, stream, &[0x82]),
                frame(PRIORITY, 0, stream, &[0; 5]),
                frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]),
                frame(PRIORITY_UPDATE, 0, 0, &[0; 4]),
            ];
            scene.read(&request.concat()).unwrap();
            scene.meter.sent(&frame(HEADERS, 4, stream, &[0x88]));
            scene.read(&frame(RST_STREAM, 0, stream, &[0; 4])).unwrap();
        }
    }

    #[test]
    fn streams_that_are_reset_at_once_are_counted() {
        let mut scene = Scene::set();
        let at_once = |stream| [frame(HEADERS, 5, stream, &[0x82]), frame(RST_STREAM, 0, stream, &[0; 4])].concat();
        let served = (0..10_000).position(|number| scene.read(&at_once(1 + 2 * number)).is_err());
        assert_eq!(served, Some(625));
        assert_eq!(scene.meter.goaway().unwrap(), goaway(1 + 2 * 625, ENHANCE_YOUR_CALM));
    }

    #[test]
    fn an_upload_costs_nothing() {
        let mut scene = Scene::set();
        for len in [1, 100, 16 << 10] {
            let data = frame(DATA, 0, 1, &vec![0; len]);
            (0..100_000).for_each(|_| scene.read(&data).unwrap());
        }
    }

    #[test]
    fn content_behind_a_goaway_is_bounded() {
        let mut scene = Scene::set();
        let data = |stream| frame(DATA, 0, stream, &[0; 16 << 10]);
        // The first GOAWAY of a drain admits all streams. The second admits those that have begun.
        scene.meter.sent(&goaway(STREAM_MAX, 0));
        assert_eq!(scene.read(&data(5)), Ok(()));
        scene.meter.sent(&goaway(3, 0));
        for _ in 0..100_000 {
            scene.read(&data(3)).unwrap();
        }
        let saved = scene.meter.tokens;
        assert_eq!(scene.count(&data(5)), usize::try_from(saved / 138).unwrap());
    }

    /// A client's GOAWAY is about streams of the server.
    #[test]
    fn responses_behind_a_goaway_are_admitted() {
        let mut meter = Meter::of_server(Instant::now());
        meter.sent(&[PREFACE, &goaway(0, 0)].concat());
        let response = [frame(HEADERS, 4, 1, &[0x88]), frame(DATA, 0, 1, &[0; 16 << 10])].concat();
        for _ in 0..10_000 {
            meter.received(&response, Instant::now).unwrap();
        }
        assert_eq!(meter.goaway().unwrap(), goaway(0, ENHANCE_YOUR_CALM));
    }

    #[test]
    fn a_goaway_does_not_stand_within_a_frame() {
        let mut scene = Scene::set();
        let data = frame(DATA, 0, 1, b"content");
        scene.meter.sent(&data[..12]);
        assert!(scene.meter.goaway().is_none());
        scene.meter.sent(&data[12..]);
        assert!(scene.meter.goaway().is_some());
    }
}
