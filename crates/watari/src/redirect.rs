//! Redirects of plain HTTP requests to HTTPS.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, LOCATION};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// The limit from accepting a connection to the end of its response.
const CONNECTION_MAX: Duration = Duration::from_secs(10);
/// The timeout for the head of the request.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// The longest head, in bytes.
const HEAD_LEN_MAX: usize = 16 << 10;
const PAUSE_WITHOUT_FILES: Duration = Duration::from_millis(50);
const HTTPS: u16 = 443;

/// The listeners that redirect.
pub(crate) struct Redirects {
    shared: Arc<RedirectShared>,
    listening: Mutex<BTreeMap<SocketAddr, Listening>>,
    shutdown: CancellationToken,
}

struct RedirectShared {
    /// The port of the URLs that clients are redirected to.
    https_port: AtomicU16,
    places: Arc<Semaphore>,
    requests: Family<Status, Counter>,
    refused: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

struct Listening {
    end: CancellationToken,
    task: JoinHandle<Option<()>>,
}

impl Redirects {
    /// Listens nowhere yet. Connections beyond `connections_max` are reset. A connection lasts for one request, and at
    /// most 10 s. Metrics are registered as `watari_redirect_*`.
    pub(crate) fn new(connections_max: usize, registry: &mut Registry, shutdown: CancellationToken) -> Self {
        let (requests, refused) = (Family::default(), Counter::default());
        let registry = registry.sub_registry_with_prefix("watari_redirect");
        registry.register("requests", "Requests over plain HTTP, by status", Family::clone(&requests));
        registry.register("connections_refused", "Connections refused over the limit", Counter::clone(&refused));
        let places = Arc::new(Semaphore::new(connections_max));
        let shared = RedirectShared { https_port: AtomicU16::new(HTTPS), places, requests, refused };
        Self { shared: Arc::new(shared), listening: Mutex::default(), shutdown }
    }

    /// The addresses of `wanted` without a listener.
    pub(crate) async fn missing(&self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        let listening = self.listening.lock().await;
        wanted.iter().filter(|address| !listening.contains_key(address)).copied().collect()
    }

    /// Listens at `wanted` and nowhere else, and redirects clients to `https_port`. `added` has the listeners for the
    /// addresses that [`Self::missing`] returned. When this returns, all other listeners are closed.
    pub(crate) async fn set(&self, wanted: &[SocketAddr], added: Vec<(SocketAddr, TcpListener)>, https_port: u16) {
        self.shared.https_port.store(https_port, Ordering::Relaxed);
        let mut listening = self.listening.lock().await;
        let removed: Vec<_> = listening.keys().filter(|address| !wanted.contains(address)).copied().collect();
        for Listening { end, task } in removed.into_iter().filter_map(|address| listening.remove(&address)) {
            end.cancel();
            // A task that panicked does not listen any more either.
            let _ = task.await;
        }
        for (address, listener) in added {
            let end = self.shutdown.child_token();
            let accepting = end.clone().run_until_cancelled_owned(accept(self.shared.clone(), listener));
            listening.insert(address, Listening { end, task: tokio::spawn(accepting) });
        }
    }
}

async fn accept(shared: Arc<RedirectShared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(&shared, stream),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept a client to redirect");
                sleep(PAUSE_WITHOUT_FILES).await;
            }
        }
    }
}

fn admit(shared: &Arc<RedirectShared>, stream: TcpStream) {
    let Ok(place) = shared.places.clone().try_acquire_owned() else {
        shared.refused.inc();
        // Fails only if the socket is closed already.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        return;
    };
    let shared = shared.clone();
    tokio::spawn(async move {
        let _place = place;
        converse(&shared, stream).await;
    });
}

async fn converse(shared: &RedirectShared, stream: TcpStream) {
    let service = service_fn(|request: Request<Incoming>| {
        let response = respond(&request, shared.https_port.load(Ordering::Relaxed));
        shared.requests.get_or_create(&Status { status: response.status().as_u16() }).inc();
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_LEN_MAX).keep_alive(false);
    if let Ok(Err(error)) = timeout(CONNECTION_MAX, server.serve_connection(TokioIo::new(stream), service)).await {
        tracing::debug!(%error, "a connection to redirect ended");
    }
}

fn respond<B>(request: &Request<B>, https_port: u16) -> Response<Full<Bytes>> {
    let location = location(request, https_port).and_then(|location| HeaderValue::try_from(location).ok());
    let (status, sentence) = match location {
        Some(_) => (StatusCode::PERMANENT_REDIRECT, "The site is served over HTTPS.\n"),
        None => (StatusCode::BAD_REQUEST, "The request does not name one host and a path.\n"),
    };
    let mut response = Response::new(Full::from(sentence));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if let Some(location) = location {
        headers.insert(LOCATION, location);
    }
    response
}

/// The HTTPS URL of the same resource. `None`: the request does not name its host.
fn location<B>(request: &Request<B>, https_port: u16) -> Option<String> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let named = Authority::try_from(hosts.next()?.as_bytes()).ok()?;
    // A request has one Host (RFC 9112, section 3.2), and an absolute target overrides it (section 3.2.2).
    if hosts.next().is_some() {
        return None;
    }
    let host = plain_host(request.uri().authority().unwrap_or(&named))?;
    let path = request.uri().path_and_query().map(PathAndQuery::as_str).filter(|path| path.starts_with('/'))?;
    let port = if https_port == HTTPS { String::new() } else { format!(":{https_port}") };
    Some(format!("https://{host}{port}{path}"))
}

/// The host, if it is only a name or an address, with or without a port. Browsers parse `Location` leniently, so
/// nothing else may go into it.
fn plain_host(authority: &Authority) -> Option<&str> {
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host)?;
    let port_is_plain = port.is_empty() || port.strip_prefix(':').is_some_and(|digits| digits.parse::<u16>().is_ok());
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_address = inside.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    let name_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = (1..=253).contains(&host.len()) && !host.starts_with(['.', '-']) && host.bytes().all(name_byte);
    (port_is_plain && (is_address || is_name)).then_some(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PLACES: usize = 3;

    /// Starts a listener, and returns its address.
    async fn start(https_port: u16) -> (Redirects, SocketAddr) {
        let redirects = Redirects::new(PLACES, &mut Registry::default(), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        redirects.set(&[address], vec![(address, listener)], https_port).await;
        (redirects, address)
    }

    async fn say(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn field<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
        answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[tokio::test]
    async fn a_request_is_sent_to_the_same_over_https() {
        let (_standard, standard) = start(443).await;
        let (_other, other) = start(8443).await;
        let cases = [
            (standard, "GET / HTTP/1.1\r\nhost: a.test\r\n", "https://a.test/"),
            (
                standard,
                "POST /x?y=%20z HTTP/1.1\r\nhost: a.test:80\r\ncontent-length: 5\r\n",
                "https://a.test/x?y=%20z",
            ),
            (other, "GET //b.test/%2e HTTP/1.1\r\nHost: A.test\r\n", "https://A.test:8443//b.test/%2e"),
            (other, "GET /a HTTP/1.0\r\nhost: [2001:db8::1]:80\r\n", "https://[2001:db8::1]:8443/a"),
            (other, "GET http://b.test/a HTTP/1.1\r\nhost: a.test\r\n", "https://b.test:8443/a"),
        ];
        for (address, head, expected) in cases {
            let answer = say(address, &format!("{head}\r\n")).await;
            assert!(answer.lines().next().unwrap().ends_with(" 308 Permanent Redirect"), "{answer}");
            assert_eq!(field(&answer, "location"), Some(expected));
        }
    }

    #[tokio::test]
    async fn a_request_that_does_not_say_where_is_refused() {
        let (_redirects, address) = start(443).await;
        let hosts = [
            "",
            "host:\r\n",
            "host: a.test\r\nhost: a.test\r\n",
            "host: a.test@b.test\r\n",
            "host: a.test/b\r\n",
            "host: a.test\\b\r\n",
            "host: a test\r\n",
            "host: .test\r\n",
            "host: a.test:http\r\n",
            "host: a.test:99999\r\n",
            "host: [::1\r\n",
            "host: [v1.x]\r\n",
            "host: a.test?\r\n",
            "host: a%2etest\r\n",
            "host: \u{e4}.test\r\n",
            "host: \"a\"\r\n",
            "host: a.test,b.test\r\n",
        ];
        let heads = hosts.map(|host| format!("GET / HTTP/1.1\r\n{host}\r\n"));
        let others =
            ["OPTIONS * HTTP/1.1\r\nhost: a.test\r\n\r\n", "CONNECT a.test:443 HTTP/1.1\r\nhost: a.test\r\n\r\n"];
        for head in heads.iter().map(String::as_str).chain(others) {
            let answer = say(address, head).await;
            assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head:?}: {answer}");
            assert_eq!(field(&answer, "location"), None);
        }
        let long = format!("GET /{} HTTP/1.1\r\nhost: a.test\r\n\r\n", "x".repeat(HEAD_LEN_MAX));
        let answer = say(address, &long).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }

    #[tokio::test]
    async fn connections_are_bounded() {
        let (redirects, address) = start(443).await;
        let all = redirects.shared.places.clone().acquire_many_owned(PLACES as u32).await.unwrap();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let error = stream.read_u8().await.unwrap_err();
        assert!([io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof].contains(&error.kind()), "{error}");
        assert_eq!(redirects.shared.refused.get(), 1);
        drop(all);
        assert!(say(address, "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.contains(" 308 "));
    }

    #[tokio::test]
    async fn listeners_come_and_go() {
        let (redirects, address) = start(443).await;
        assert!(redirects.missing(&[address]).await.is_empty());
        let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = second.local_addr().unwrap();
        assert_eq!(redirects.missing(&[address, other]).await, [other]);
        redirects.set(&[other], vec![(other, second)], 8443).await;
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let answer = say(other, "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
        assert_eq!(field(&answer, "location"), Some("https://a.test:8443/"));
    }
}
