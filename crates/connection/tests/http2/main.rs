//! An HTTP/2 connection, driven by h2 as its client.

#![allow(clippy::unwrap_used)]

mod harness;

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use watari_connection::Http2End;

use harness::{HINTS, HINTS_MAX, Scene, pattern};

/// A request, and what the client does with its response.
#[derive(Debug, Clone)]
struct Visit {
    /// Bytes of the request's content, in pieces of up to `piece` bytes.
    upload: Option<usize>,
    download: usize,
    piece: usize,
    trailers: bool,
    /// The client resets the stream after this many bytes of the response.
    cancel_after: Option<usize>,
}

fn request(visit: &Visit) -> Request<()> {
    let method = if visit.upload.is_some() { Method::POST } else { Method::GET };
    let uri = format!("https://site.test/{}?{}", visit.download, visit.piece);
    Request::builder().method(method).uri(uri).body(()).unwrap()
}

/// Sends the content in pieces, as the server's window permits.
async fn send_content(mut sending: h2::SendStream<Bytes>, visit: &Visit) {
    let content = pattern(visit.upload.unwrap());
    for piece in content.chunks(visit.piece) {
        let mut rest = Bytes::copy_from_slice(piece);
        while !rest.is_empty() {
            sending.reserve_capacity(rest.len());
            let Some(Ok(capacity)) = std::future::poll_fn(|cx| sending.poll_capacity(cx)).await else { return };
            let len = capacity.min(rest.len());
            sending.send_data(rest.split_to(len), false).unwrap();
        }
    }
    if visit.trailers {
        let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("x"))]);
        let _ = sending.send_trailers(trailers);
    } else {
        let _ = sending.send_data(Bytes::new(), true);
    }
}

async fn receive(response: ResponseFuture, visit: &Visit) {
    let (head, mut body) = response.await.unwrap().into_parts();
    assert_eq!((head.status, head.headers.contains_key("date")), (StatusCode::OK, true));
    let mut received = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        received.extend(data);
        if visit.cancel_after.is_some_and(|len| received.len() >= len) {
            return;
        }
    }
    let sent = visit.upload.map_or_else(String::new, |len| format!("{len} {}", visit.trailers));
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["received"], sent.as_str());
    assert!(received == pattern(visit.download), "other bytes");
}

async fn make(client: &mut SendRequest<Bytes>, visit: &Visit) {
    let mut ready = client.clone().ready().await.unwrap();
    let (response, sending) = ready.send_request(request(visit), visit.upload.is_none()).unwrap();
    let upload = async {
        if visit.upload.is_some() {
            send_content(sending, visit).await;
        }
    };
    tokio::join!(upload, receive(response, visit));
}

/// A client whose connection has a task of its own.
async fn connect(stream: DuplexStream) -> SendRequest<Bytes> {
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client
}

fn visit() -> impl Strategy<Value = Visit> {
    let len = || prop_oneof![0_usize..100, 0_usize..200_000];
    (prop::option::of(len()), len(), 1_usize..40_000, any::<bool>(), prop::option::weighted(0.1, 0_usize..50_000))
        .prop_map(|(upload, download, piece, trailers, cancel_after)| {
            // Short content in tiny pieces, long content in long ones.
            let piece = piece.max(upload.unwrap_or(0).max(download) / 100);
            Visit { upload, download, piece, trailers, cancel_after }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Requests at the same time, with any windows of the client and any pipe: each gets its response, byte for byte.
    #[test]
    fn each_request_gets_its_response(
        visits in prop::collection::vec(visit(), 1..20),
        window in prop_oneof![1_u32..100, 60_000_u32..2_000_000],
        connection_window in 65_535_u32..2_000_000,
        pipe in prop_oneof![1_usize..100, 1_000_usize..100_000],
    ) {
        let window = if visits.iter().any(|visit| visit.download > 10_000) { window.max(1_000) } else { window };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(window).initial_connection_window_size(connection_window);
            let scene = Scene::begin(pipe);
            let (client, connection) = builder.handshake(scene.client).await.unwrap();
            let connection = tokio::spawn(connection);
            let all = visits.iter().map(|visit| {
                let mut client = client.clone();
                async move { make(&mut client, visit).await }
            });
            futures_util::future::join_all(all).await;
            drop(client);
            connection.await.unwrap().unwrap();
            let end = scene.server.await.unwrap();
            // A client that cancels may leave before the rest of its response was written.
            let may_be_cut = visits.iter().any(|visit| visit.cancel_after.is_some());
            assert!(may_be_cut || matches!(end, Http2End::Complete), "{end:?}");
        });
    }
}

const SHORT: Visit = Visit { upload: None, download: 5, piece: 4_000, trailers: false, cancel_after: None };

#[tokio::test]
async fn more_requests_than_slots_wait() {
    let scene = Scene::begin(10_000);
    let client = connect(scene.client).await;
    let all = (0..500).map(|number| {
        let (mut client, visit) = (client.clone(), Visit { download: number * 100, ..SHORT });
        async move { make(&mut client, &visit).await }
    });
    futures_util::future::join_all(all).await;
}

/// A connection that closes answers the requests in progress, and ends.
#[tokio::test]
async fn a_closed_connection_ends_after_its_requests() {
    let scene = Scene::begin(1_000);
    let (mut client, connection) = h2::client::handshake(scene.client).await.unwrap();
    let connection = tokio::spawn(connection);
    make(&mut client, &SHORT).await;
    let long = Visit { download: 300_000, ..SHORT };
    let (response, _) = client.send_request(request(&long), true).unwrap();
    let response = response.await.unwrap();
    scene.close.notify_one();
    let mut body = response.into_body();
    let mut len = 0;
    while let Some(data) = body.data().await {
        let data = data.unwrap();
        body.flow_control().release_capacity(data.len()).unwrap();
        len += data.len();
    }
    assert_eq!(len, 300_000);
    drop((client, body));
    assert!(matches!(scene.server.await.unwrap(), Http2End::Complete));
    connection.await.unwrap().unwrap();
}

/// The client ends its direction: complete requests are answered, and others fail.
#[tokio::test]
async fn a_client_that_ends_its_direction_gets_its_responses() {
    let mut scene = Scene::begin(1_000_000);
    let head = |stream: u8, path: &str, flags: u8| {
        let block = [&[0x82, 0x87, 0x01, 1, b'a', 0x04, path.len() as u8][..], path.as_bytes()].concat();
        [&[0, 0, block.len() as u8, 1, flags, 0, 0, 0, stream][..], &block].concat()
    };
    let input = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0, 0, 0, 4, 0, 0, 0, 0, 0][..]].concat();
    scene.client.write_all(&[input, head(1, "/7?1", 5), head(3, "/9?1", 4)].concat()).await.unwrap();
    scene.client.shutdown().await.unwrap();
    let mut output = Vec::new();
    scene.client.read_to_end(&mut output).await.unwrap();
    assert!(matches!(scene.server.await.unwrap(), Http2End::Complete));
    let data: Vec<u8> =
        frames(&output).filter(|frame| frame.0 == 0 && frame.1 == 1).flat_map(|frame| frame.2.to_vec()).collect();
    assert_eq!(data, pattern(7));
    // The service answers the other request with an error of its content.
    assert!(frames(&output).any(|frame| frame.0 == 3 && frame.1 == 3), "the stream of the other is reset");
}

/// While a client reads nothing, a service does not go on with informational responses.
#[tokio::test]
async fn informational_responses_wait_for_the_client() {
    let mut scene = Scene::begin(1_000);
    scene.client.write_all(&request_of("/hints")).await.unwrap();
    for _ in 0..10_000 {
        tokio::task::yield_now().await;
    }
    let begun = HINTS.load(Ordering::Relaxed);
    assert!(begun < 2_000, "{begun} were sent");
    let mut reader = BufReader::new(scene.client);
    let mut heads = 0;
    while heads < HINTS_MAX + 1 {
        let mut header = [0; 9];
        reader.read_exact(&mut header).await.unwrap();
        let len = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        reader.read_exact(&mut vec![0; len as usize]).await.unwrap();
        heads += usize::from(header[3] == 1);
    }
    assert_eq!(HINTS.load(Ordering::Relaxed), HINTS_MAX);
}

/// The preface, and a GET of this path.
fn request_of(path: &str) -> Vec<u8> {
    let block = [&[0x82, 0x87, 0x01, 1, b'a', 0x04, path.len() as u8][..], path.as_bytes()].concat();
    let head = [&[0, 0, block.len() as u8, 1, 5, 0, 0, 0, 1][..], &block].concat();
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"[..], &head].concat()
}

/// Such a client answers no ping, and is not cut for that.
#[tokio::test]
async fn a_client_that_has_ended_its_direction_is_not_silent() {
    let mut scene = Scene::begin(1_000_000);
    scene.client.write_all(&request_of("/slow")).await.unwrap();
    scene.client.shutdown().await.unwrap();
    while !scene.server.is_finished() {
        scene.look.notify_one();
        tokio::task::yield_now().await;
    }
    assert!(matches!(scene.server.await.unwrap(), Http2End::Complete));
    let mut output = Vec::new();
    scene.client.read_to_end(&mut output).await.unwrap();
    assert!(frames(&output).any(|frame| frame.0 == 1 && frame.1 == 1), "no response");
}

/// Type, stream and payload of each frame.
fn frames(mut bytes: &[u8]) -> impl Iterator<Item = (u8, u8, &[u8])> {
    std::iter::from_fn(move || {
        let ([a, b, c, kind, _, _, _, _, stream], rest) = bytes.split_first_chunk::<9>()?;
        let (payload, rest) = rest.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
        bytes = rest;
        Some((*kind, *stream, payload))
    })
}

/// While a service waits for content, nothing is polled.
#[tokio::test]
async fn a_wait_for_content_costs_nothing() {
    let scene = Scene::begin(10_000);
    let mut client = connect(scene.client).await;
    let request = Request::post("https://site.test/5?100").body(()).unwrap();
    let (response, mut sending) = client.send_request(request, false).unwrap();
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let polls = scene.polls.load(Ordering::Relaxed);
    assert!(polls < 20, "{polls} polls");
    sending.send_data(pattern(10).into(), true).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
}

/// Content that a service does not read is skipped, and the stream is reset without an error after the response.
#[tokio::test]
async fn content_that_is_not_wanted_is_skipped() {
    let scene = Scene::begin(10_000);
    let mut client = connect(scene.client).await;
    let request = Request::post("https://site.test/ignore").body(()).unwrap();
    let (response, mut sending) = client.send_request(request, false).unwrap();
    assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    let reset = std::future::poll_fn(|cx| sending.poll_reset(cx)).await.unwrap();
    assert_eq!(reset, h2::Reason::NO_ERROR);
    make(&mut client, &SHORT).await;
    // Their windows return, also if the request is complete.
    for _ in 0..3_000 {
        let request = Request::post("https://site.test/ignore").body(()).unwrap();
        let (response, mut sending) = client.send_request(request, false).unwrap();
        sending.send_data(pattern(1_000).into(), true).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::OK);
    }
    make(&mut client, &Visit { upload: Some(100_000), ..SHORT }).await;
}

/// The end of a response needs no window: the client's is used up when the trailers come.
#[tokio::test]
async fn the_end_of_a_response_needs_no_window() {
    let scene = Scene::begin(10_000);
    let mut builder = h2::client::Builder::new();
    let (mut client, connection) = builder.initial_window_size(5).handshake::<_, Bytes>(scene.client).await.unwrap();
    tokio::spawn(connection);
    let (response, _) = client.send_request(request(&SHORT), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), pattern(5));
    assert_eq!(body.trailers().await.unwrap().unwrap()["received"], "");
}

/// The client gets the GOAWAY behind what it has not read yet.
#[tokio::test]
async fn a_fault_is_told_behind_the_responses() {
    let mut scene = Scene::begin(1_000);
    scene.client.write_all(&request_of("/60000?30000")).await.unwrap();
    let mut output = vec![0; 500];
    scene.client.read_exact(&mut output).await.unwrap();
    // An RST_STREAM on no stream.
    scene.client.write_all(&[0, 0, 4, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await.unwrap();
    scene.client.read_to_end(&mut output).await.unwrap();
    let Http2End::Fault(fault) = scene.server.await.unwrap() else { panic!("a fault") };
    assert_eq!(fault.code, watari_http2::Code::ProtocolError);
    assert_eq!(frames(&output).last().map(|frame| frame.0), Some(7));
}

/// A response whose source fails is reset.
#[tokio::test]
async fn a_response_that_is_cut_is_reset() {
    let scene = Scene::begin(10_000);
    let mut client = connect(scene.client).await;
    let request = Request::get("https://site.test/cut").body(()).unwrap();
    let (response, _) = client.send_request(request, true).unwrap();
    let mut body = response.await.unwrap().into_body();
    assert_eq!(body.data().await.unwrap().unwrap(), "begun");
    assert_eq!(body.data().await.unwrap().unwrap_err().reason(), Some(h2::Reason::INTERNAL_ERROR));
    make(&mut client, &SHORT).await;
}

/// A client that sends nothing is pinged, and found silent if it does not answer.
#[tokio::test]
async fn a_silent_client_is_found() {
    let mut scene = Scene::begin(10_000);
    scene.client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let looking = async {
        while !scene.server.is_finished() {
            scene.look.notify_one();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), looking).await.unwrap();
    scene.server.await.unwrap_err();
}
