//! Origins with HTTP/2, with TLS, or with the PROXY protocol.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use watari_proxy::{HttpVersion, OriginAddress, PoolConfig, Transport};

use crate::common::pki::Pki;
use crate::common::{Fixture, get, get_path, ok, read, upload};

/// Responds with the properties of the request, its body and its trailers.
async fn describe(
    request: Request<Incoming>,
) -> Result<Response<impl http_body::Body<Data = Bytes, Error = Infallible>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned().map(Ok);
    let field = |name| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default();
    let host = head.uri.authority().map_or_else(|| field("host"), ToString::to_string);
    let scheme = head.uri.scheme_str().unwrap_or_default();
    let text = format!("{:?} {scheme} {host} {} te={}", head.version, head.uri.path(), field("te"));
    let text = [text.into_bytes(), body.to_bytes().to_vec()].concat();
    Ok(Response::new(Full::<Bytes>::from(text).with_trailers(async { trailers })))
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, http2: bool) {
    let stream = TokioIo::new(stream);
    if http2 {
        http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service_fn(describe)).await.ok();
    } else {
        http1::Builder::new().serve_connection(stream, service_fn(describe)).await.ok();
    }
}

/// An origin, and the number of connections it has had.
struct Origin {
    address: OriginAddress,
    connections: Arc<AtomicUsize>,
}

impl Origin {
    /// Without `tls`, `http2` is the version of the origin. With it, ALPN decides.
    async fn start(tls: Option<ServerConfig>, http2: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://localhost:{}", listener.local_addr().unwrap().port()).parse().unwrap();
        let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
        let connections = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let Some(acceptor) = acceptor.clone() else {
                    tokio::spawn(serve(stream, http2));
                    continue;
                };
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    serve(stream, http2).await;
                });
            }
        });
        Self { address, connections }
    }
}

fn fixture(origin: &Origin, transport: Transport) -> Fixture {
    Fixture::of(PoolConfig { transport, ..PoolConfig::plain("pool", [origin.address.clone()]) })
}

#[tokio::test]
async fn http2_without_tls_is_spoken_where_it_is_known() {
    let origin = Origin::start(None, true).await;
    let fixture = fixture(&origin, Transport { version: HttpVersion::Http2, ..Transport::default() });
    let (pieces, mut request) = upload();
    request.headers_mut().insert("te", HeaderValue::from_static("trailers"));
    pieces.send(Ok(Frame::data(" body".into()))).unwrap();
    let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), HeaderValue::from_static("7"))]);
    pieces.send(Ok(Frame::trailers(trailers))).unwrap();
    drop(pieces);
    let body = fixture.respond(request).await.into_body().collect().await.unwrap();
    assert_eq!(body.trailers().unwrap()["x-sum"], "7");
    assert_eq!(body.to_bytes(), "HTTP/2.0 http example.org / te=trailers body");
}

/// Clients that do not read fill the windows of their streams, and not that of the connection.
#[tokio::test]
async fn unread_responses_do_not_delay_others_on_a_connection_of_http2() {
    const UNREAD: usize = 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&connections);
    tokio::spawn(async move {
        let answer = |request: Request<Incoming>| async move {
            let len = if request.uri().path() == "/long" { 4 << 20 } else { 5 };
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(vec![b'x'; len])))
        };
        while let Ok((stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            let stream = TokioIo::new(stream);
            tokio::spawn(http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service_fn(answer)));
        }
    });
    let origin = Origin { address, connections };
    let fixture = fixture(&origin, Transport { version: HttpVersion::Http2, ..Transport::default() });
    let mut unread = Vec::new();
    for _ in 0..UNREAD {
        let mut response = fixture.respond(get_path("/long")).await;
        // The first piece shows that the origin sends.
        response.body_mut().frame().await.unwrap().unwrap();
        unread.push(response);
    }
    assert_eq!(read(fixture.respond(get_path("/short")).await).await, (200, Ok("xxxxx".to_owned())));
    assert_eq!(origin.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn requests_share_a_connection_of_http2() {
    let origin = Origin::start(None, true).await;
    let fixture = fixture(&origin, Transport { version: HttpVersion::Http2, ..Transport::default() });
    assert_eq!(fixture.get().await.0, 200);
    let (pieces, upload) = upload();
    let upload = async {
        let response = fixture.respond(upload).await;
        read(response).await
    };
    let get = async {
        assert_eq!(fixture.get().await.0, 200);
        drop(pieces);
    };
    assert_eq!(tokio::join!(upload, get).0.0, 200);
    assert_eq!(origin.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_version_is_what_tls_agrees_on() {
    use HttpVersion::{Http1, Http2, Negotiated};
    let pki = Pki::new();
    let both: &[&[u8]] = &[b"h2", b"http/1.1"];
    for (version, alpn, expected) in [
        (Http1, both, Some("HTTP/1.1  example.org / te=")),
        (Http2, both, Some("HTTP/2.0 https example.org / te=")),
        (Negotiated, both, Some("HTTP/2.0 https example.org / te=")),
        (Negotiated, &[b"http/1.1".as_slice()], Some("HTTP/1.1  example.org / te=")),
        (Negotiated, &[], Some("HTTP/1.1  example.org / te=")),
        (Http2, &[], None),
    ] {
        let origin = Origin::start(Some(pki.server(None, alpn)), false).await;
        let fixture = fixture(&origin, pki.transport(version, None));
        for _ in 0..2 {
            let (status, text) = fixture.get().await;
            let expected = expected.map_or((502, "Bad Gateway\n"), |text| (200, text));
            assert_eq!((status, text.unwrap().as_str()), expected, "{version:?} {alpn:?}");
        }
        if expected.is_some() {
            assert_eq!(origin.connections.load(Ordering::Relaxed), 1, "{version:?} {alpn:?}");
        }
    }
}

#[tokio::test]
async fn origins_prove_who_they_are_and_so_do_we() {
    let (pki, stranger) = (Pki::new(), Pki::new());
    for (clients, transport, status) in [
        (None, pki.transport(HttpVersion::Http1, None), 200),
        (None, stranger.transport(HttpVersion::Http1, None), 502),
        (Some(&pki), pki.transport(HttpVersion::Http1, Some(&pki)), 200),
        (Some(&pki), pki.transport(HttpVersion::Http1, Some(&stranger)), 502),
        (Some(&pki), pki.transport(HttpVersion::Http1, None), 502),
    ] {
        let origin = Origin::start(Some(pki.server(clients, &[])), false).await;
        assert_eq!(fixture(&origin, transport).get().await.0, status);
    }
    let origin = Origin::start(Some(pki.server(None, &[])), false).await;
    let mut transport = pki.transport(HttpVersion::Http1, None);
    transport.tls.as_mut().unwrap().server_name = Some("other.example".try_into().unwrap());
    assert_eq!(fixture(&origin, transport).get().await.0, 502);
}

#[tokio::test]
async fn an_origin_learns_the_client_by_the_proxy_protocol() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let transport = Transport { proxy_protocol: true, ..Transport::default() };
    let fixture = Fixture::of(PoolConfig { transport, ..PoolConfig::plain("pool", [address]) });
    let answer = async {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 28];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(&head[..13], b"\r\n\r\n\0\r\nQUIT\n\x21");
            assert_eq!(&head[16..24], [192, 0, 2, 7, 192, 0, 2, 1]);
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            let crate::common::Act::Answer(text) = ok("hello") else { unreachable!() };
            stream.write_all(&text).await.unwrap();
            // The connection of one client is not used for another.
            assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
        }
    };
    let ask = async {
        for _ in 0..2 {
            assert_eq!(read(fixture.respond(get()).await).await, (200, Ok("hello".to_owned())));
        }
    };
    tokio::join!(answer, ask);
}

/// RFC 9113, sections 6 and 7.
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ENHANCE_YOUR_CALM: u8 = 11;
/// `END_STREAM` and `END_HEADERS`.
const WHOLE: u8 = 5;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let len = u8::try_from(payload.len()).unwrap();
    [&[0, 0, len, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// An HTTP/2 origin that responds to the first request with these bytes. Returns the status, and the bytes that the
/// proxy sent until it closed the connection.
async fn answer_with(bytes: Vec<u8>, request: Request<http_body_util::Empty<Bytes>>) -> (u16, Vec<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: OriginAddress = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let transport = Transport { version: HttpVersion::Http2, ..Transport::default() };
    let fixture = Fixture::of(PoolConfig { transport, ..PoolConfig::plain("pool", [address]) });
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        let mut came = Vec::new();
        // After the preface.
        let is_asked = |came: &[u8]| {
            let mut rest = came.get(24..).unwrap_or_default();
            std::iter::from_fn(|| {
                let (head, behind) = rest.split_first_chunk::<9>()?;
                rest = behind.get(usize::from(u16::from_be_bytes([head[1], head[2]]))..)?;
                Some(head[3])
            })
            .any(|kind| kind == HEADERS)
        };
        while !is_asked(&came) {
            assert!(socket.read_buf(&mut came).await.unwrap() > 0);
        }
        let (mut reader, mut writer) = socket.into_split();
        // The proxy does not read it to its end.
        let answering = tokio::spawn(async move { writer.write_all(&bytes).await.map(|()| writer) });
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = reader.read(&mut buffer).await {
            came.extend_from_slice(&buffer[..len]);
        }
        answering.abort();
        came
    });
    let status = fixture.respond(request).await.status().as_u16();
    drop(fixture);
    (status, served.await.unwrap())
}

#[tokio::test]
async fn an_origin_that_floods_is_left() {
    let flood = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]).repeat(20_000);
    let (status, came) = answer_with(flood, get()).await;
    assert_eq!(status, 502);
    let goaway = frame(GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, ENHANCE_YOUR_CALM]);
    assert!(came.ends_with(&goaway), "{:?}", &came[came.len().saturating_sub(40)..]);
}

/// Also if no content is to follow (RFC 9113, section 8.1.1).
#[tokio::test]
async fn a_length_that_is_none_is_refused_in_http2() {
    for (status, lengths) in [(0x88, &["-5"][..]), (0x88, &["abc"]), (0x88, &[""]), (0x88, &["5", "6"]), (0x8b, &["x"])]
    {
        let fields = lengths.iter().map(|length| {
            // `content-length` in the static table, not indexed (RFC 7541, section 6.2.2).
            [&[0x0f, 28 - 15, u8::try_from(length.len()).unwrap()], length.as_bytes()].concat()
        });
        let block = [vec![status], fields.flatten().collect()].concat();
        let mut head = get();
        *head.method_mut() = http::Method::HEAD;
        let (status, _) = answer_with(frame(HEADERS, WHOLE, 1, &block), head).await;
        assert_eq!(status, 502, "{lengths:?}");
    }
}
