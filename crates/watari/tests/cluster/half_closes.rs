//! Clients that end their direction, by `close_notify` or by a FIN alone. They get the responses to complete requests.
//! Incomplete data never count as complete (RFC 8446, section 6.1; RFC 9112, section 9.8).

use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use crate::clients::h2::{Answer, Frame, H2, STATUS_200};
use crate::clients::http::{Http, get_bytes, put};
use crate::clients::tls::{TLS12, TLS13, Taste, Tls};
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::{Cluster, Plan, SharedCluster};

static SHARED: SharedCluster = SharedCluster::new();

fn cluster() -> Arc<Cluster> {
    SHARED.get(&Plan::default())
}

/// How a client ends its direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    CloseNotify,
    Fin,
    Both,
}

impl End {
    const ALL: [Self; 3] = [Self::CloseNotify, Self::Fin, Self::Both];

    fn send(self, stream: &mut Tls) {
        if self != Self::Fin {
            stream.session().send_close_notify();
            stream.send().unwrap();
        }
        if self != Self::CloseNotify {
            stream.tcp().shutdown(Shutdown::Write).unwrap();
        }
    }
}

/// Has a client of each agent, over each version, send `bytes` and end: right behind its Finished, and again on a
/// connection that has reached its agent. Half of them have moved.
fn each_that_says(bytes: &[u8], check: impl Fn(&mut Http<Tls>, &str)) {
    let cluster = cluster();
    let mut moved = 0;
    for end in End::ALL {
        for version in [&TLS12, &TLS13] {
            for (at, source) in cluster.clients.two_of_each_agent().into_iter().enumerate() {
                let taste = Taste { version, ..Taste::default() };
                let mut client = Http::new(Tls::to_site(source, cluster.service, &taste).unwrap());
                if at % 2 == 0 {
                    client.download(1000, 1).unwrap();
                    moved += usize::from(cluster.connection_of(source).has_moved());
                }
                client.send(bytes).unwrap();
                end.send(&mut client.stream);
                check(&mut client, &format!("{end:?} {version:?}"));
            }
        }
    }
    assert!(moved > 0, "no connection has moved");
}

#[test]
fn a_complete_request_is_answered_however_its_client_ends() {
    each_that_says(&get_bytes(300_000, 7), |client, case| {
        client.take_download(300_000, 7).unwrap_or_else(|fault| panic!("{case}: {fault:?}"));
        assert!(client.ends_cleanly(), "{case}");
    });
}

#[test]
fn a_complete_upload_is_answered_however_its_client_ends() {
    let body = pattern(3, 0..200_000);
    each_that_says(&put(&body), |client, case| {
        client.take_receipt(&body).unwrap_or_else(|fault| panic!("{case}: {fault:?}"));
        assert!(client.ends_cleanly(), "{case}");
    });
}

#[test]
fn pipelined_requests_are_answered_and_half_a_one_behind_them_is_not() {
    let bytes = [get_bytes(5000, 1), get_bytes(6000, 2), b"GET /bytes/10?3 HTTP/1.1\r\nhost: ".to_vec()].concat();
    each_that_says(&bytes, |client, case| {
        client.take_download(5000, 1).unwrap_or_else(|fault| panic!("{case}: {fault:?}"));
        client.take_download(6000, 2).unwrap_or_else(|fault| panic!("{case}: {fault:?}"));
        assert!(client.read_head().is_err(), "{case}");
    });
}

/// The server has made no error, and sends no error code.
#[test]
fn half_a_request_ends_without_blame() {
    each_that_says(format!("GET /bytes/10?3 HTTP/1.1\r\nhost: {SITE}\r\n").as_bytes(), |client, case| {
        assert!(client.ends_cleanly(), "{case}");
    });
}

#[test]
fn half_an_upload_is_never_complete() {
    let body = pattern(3, 0..200_000);
    let whole = put(&body);
    each_that_says(&whole[..whole.len() - 1], |client, case| {
        let head = client.read_head();
        assert!(head.as_ref().map_or(true, |head| head.status >= 400), "{case}: {head:?}");
        assert!(client.ends_cleanly(), "{case}");
    });
    let chunked = format!("PUT /upload HTTP/1.1\r\nhost: {SITE}\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    each_that_says(chunked.as_bytes(), |client, case| {
        let head = client.read_head();
        assert!(head.as_ref().map_or(true, |head| head.status >= 400), "{case}: {head:?}");
    });
}

/// Connects, and waits for a response. Then the server's settings are acknowledged, and the client need not send
/// anything any more.
fn settled(cluster: &Cluster, source: IpAddr) -> H2 {
    let mut h2 = H2::connect(source, cluster.service);
    h2.get(1, "/bytes/10?1");
    while !matches!(h2.next_frame(), Some(Frame::Data { is_end: true, .. })) {}
    h2
}

#[test]
fn complete_requests_of_http2_are_answered_and_others_are_not() {
    let cluster = cluster();
    for end in End::ALL {
        for cut in [false, true] {
            for source in cluster.clients.two_of_each_agent() {
                let mut h2 = settled(&cluster, source);
                for stream in [3, 5, 7] {
                    h2.get(stream, "/read/40000?5");
                }
                let upload = [(":method", "PUT"), (":scheme", "https"), (":authority", SITE), (":path", "/upload")];
                if cut {
                    h2.begin(9, &upload, false);
                    h2.data(9, b"half", false);
                }
                end.send(h2.stream());
                let mut bodies = [0; 3];
                let mut ended = 0;
                while let Some(frame) = h2.next_frame() {
                    match frame {
                        Frame::Data { stream, bytes, is_end } if stream < 9 => {
                            bodies[stream as usize / 2 - 1] += bytes.len();
                            ended += usize::from(is_end);
                        }
                        Frame::Reset { stream: ..9, error } => panic!("{end:?}: reset by {error}"),
                        _ => {}
                    }
                }
                assert_eq!((bodies, ended), ([40_000; 3], 3), "{end:?}, {cut}");
            }
        }
    }
}

#[test]
fn half_an_upload_over_http2_is_never_complete() {
    let cluster = cluster();
    for end in End::ALL {
        let mut h2 = settled(&cluster, cluster.clients.any());
        let upload = [(":method", "PUT"), (":scheme", "https"), (":authority", SITE), (":path", "/upload")];
        h2.begin(3, &upload, false);
        h2.data(3, b"half", false);
        end.send(h2.stream());
        assert_ne!(h2.read_status(3), Answer::Head(STATUS_200), "{end:?}");
    }
}
