//! Users with several requests over HTTP/2.

use std::time::Duration;

use bytes::Bytes;
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop};
use watari_bench_engine::sample::HandshakeKind;
use watari_bench_engine::shares::Shares;
use watari_bench_engine::tls::{Resume, TlsOptions};
use watari_bench_engine::users::{Count, Settings};

use crate::run::{all, endings, plan, run, shown};
use crate::server::{Reply, Server};

#[test]
fn each_visit_has_a_connection_of_its_own_and_the_sessions_of_its_user() {
    let server = Server::tls(&["h2"], |_, _, _| Reply::With(200, Bytes::from_static(b"hello")));
    let waits = Shares::new(vec![Duration::from_millis(20), Duration::from_millis(60)], 1).unwrap();
    let settings = Settings::new(100.0, Count::Users, Duration::from_millis(400), 3, waits).unwrap();
    let plan = Plan {
        pace: Pace::Users { settings, connections_max: 100 },
        stop: Stop::default(),
        protocol: Protocol::Http2 { streams: 1, requests_per_connection: Some(1) },
        tls: TlsOptions { resume: Resume::Reuse, ..TlsOptions::default() },
        ..plan(server.address, true, "- / 1\n", 1, 1, 1)
    };
    let ran = run(plan);
    assert_eq!(server.asked(), [1; 120]);
    assert_eq!(shown(&ran.total.endings), all("NORMAL (response, server)", 120));
    assert_eq!(
        [HandshakeKind::Full, HandshakeKind::Resumed].map(|kind| ran.total.connections.handshakes(kind)),
        [40, 80]
    );
    assert_eq!(endings(&ran.connections), ["NORMAL (close, client)"; 120]);
    assert!(ran.connections.iter().all(|sample| sample.requests == 1));
}
