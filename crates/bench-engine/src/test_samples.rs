//! Samples for tests: of this crate, and (feature `test-samples`) of the crates above it.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::ending::{Ending, EndingKind, Phase, Side};
use crate::progress::{Look, Progress};
use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample, TlsSeen};
use crate::tally::{Series, Tally};

/// Two classes without samples.
pub fn tally() -> Tally {
    Tally::new(Arc::new(["page".to_owned(), "image".to_owned()]))
}

/// Started at 0.1 s, written at 0.2 s, response from 0.4 s to 0.5 s.
pub fn request(class: usize, family: Family, handshake: Option<HandshakeKind>, kind: EndingKind) -> RequestSample {
    RequestSample {
        class,
        family,
        handshake,
        due: ms(100),
        started: ms(100),
        written: Some(ms(200)),
        first_byte: Some(ms(400)),
        ended: ms(500),
        status: Some(200),
        error_status: false,
        body_bytes: 1_000,
        ending: Ending::new(kind, Phase::Response, Side::Server),
    }
}

/// Opened at 1 s. TCP connected 10 ms later, TLS established 30 ms later, written 35 ms later, closed 90 ms later.
pub fn connection(handshake: Option<HandshakeKind>, kind: EndingKind) -> ConnectionSample {
    let after = |later: u64| Some(ms(1_000 + later));
    ConnectionSample {
        class: 0,
        family: Family::Ipv4,
        local: None,
        remote: "127.0.0.1:443".parse().unwrap(),
        tls: handshake.map(|kind| Arc::new(seen(kind))),
        opened: ms(1_000),
        connected: after(10),
        secured: handshake.and(after(30)),
        written: after(35),
        first_byte: after(60),
        last_byte: after(70),
        closed: ms(1_090),
        requests: 1,
        bytes_read: 1_200,
        bytes_written: 100,
        ending: Ending::new(kind, Phase::Close, Side::Server),
    }
}

fn seen(kind: HandshakeKind) -> TlsSeen {
    TlsSeen {
        kind,
        version: "TLSv1.3",
        suite: "TLS_AES_128_GCM_SHA256".to_owned(),
        group: Some("X25519MLKEM768".to_owned()),
        key: Some("ECDSA P-256".to_owned()),
        alpn: None,
    }
}

/// Counts a request that takes `latency` and ends at `ended`.
pub fn end_at(tally: &mut Tally, ended: Duration, latency: Duration, kind: EndingKind) {
    let mut sample = request(0, Family::Ipv4, None, kind);
    (sample.due, sample.started, sample.ended) = (ended.saturating_sub(latency), ended, ended);
    tally.request(&sample);
}

/// Updates `progress` from `tallies`.
pub fn look(progress: &mut Progress, tallies: &[Tally], elapsed: Duration) {
    progress.update(Look { elapsed, ..Look::default() }, |from| {
        let mut course = Series::default();
        for tally in tallies {
            course.merge_since(tally.series(), from);
        }
        course
    });
}

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
