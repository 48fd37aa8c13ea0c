//! Redirects of plain HTTP requests to HTTPS.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_TYPE, HOST, LOCATION};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use watari_http_endpoint::{Endpoint, Handler, Limits, Listener};

const HTTPS: u16 = 443;

/// The listeners that redirect.
pub(crate) struct Redirects {
    endpoint: Endpoint<Redirector>,
    listeners: Mutex<BTreeMap<SocketAddr, Listener>>,
}

struct Redirector {
    /// The port of the URLs that clients are redirected to.
    https_port: AtomicU16,
    requests: Family<Status, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Status {
    status: u16,
}

impl Redirects {
    /// Listens nowhere yet. Metrics are registered as `watari_redirect_*`.
    pub(crate) fn new(connections_max: usize, registry: &mut Registry, shutdown: CancellationToken) -> Self {
        let redirector = Redirector { https_port: AtomicU16::new(HTTPS), requests: Family::default() };
        let requests = redirector.requests.clone();
        let endpoint = Endpoint::new("clients to redirect", limits(connections_max), redirector, shutdown);
        let registry = registry.sub_registry_with_prefix("watari_redirect");
        registry.register("requests", "Requests over plain HTTP, by status", requests);
        registry.register("connections_refused", "Connections refused over the limit", endpoint.refused().clone());
        Self { endpoint, listeners: Mutex::default() }
    }

    /// The addresses of `wanted` without a listener.
    pub(crate) async fn missing(&self, wanted: &[SocketAddr]) -> Vec<SocketAddr> {
        let listeners = self.listeners.lock().await;
        wanted.iter().filter(|address| !listeners.contains_key(address)).copied().collect()
    }

    /// Further handles of all listeners.
    pub(crate) async fn listeners(&self) -> io::Result<Vec<std::net::TcpListener>> {
        self.listeners.lock().await.values().filter_map(Listener::handle).collect()
    }

    /// Listens at `wanted` and nowhere else, and redirects clients to `https_port`. `added` has the listeners for the
    /// addresses that [`Self::missing`] returned. When this returns, all other listeners are closed.
    pub(crate) async fn set(&self, wanted: &[SocketAddr], added: Vec<(SocketAddr, TcpListener)>, https_port: u16) {
        self.endpoint.handler().https_port.store(https_port, Ordering::Relaxed);
        let mut listeners = self.listeners.lock().await;
        let removed: Vec<_> = listeners.keys().filter(|address| !wanted.contains(address)).copied().collect();
        for listener in removed.into_iter().filter_map(|address| listeners.remove(&address)) {
            listener.close().await;
        }
        for (address, listener) in added {
            listeners.insert(address, self.endpoint.listen(listener));
        }
    }
}

impl Handler for Redirector {
    type Body = Full<Bytes>;

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let response = respond(request, self.https_port.load(Ordering::Relaxed));
        self.requests.get_or_create(&Status { status: response.status().as_u16() }).inc();
        response
    }
}

/// A connection lasts for one request.
const fn limits(connections_max: usize) -> Limits {
    Limits {
        connections_max,
        head_timeout: Duration::from_secs(5),
        buffer_max: 16 << 10,
        keep_alive: false,
        connection_timeout: Some(Duration::from_secs(10)),
        write_timeout: None,
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

    use std::io::ErrorKind;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Starts a listener, and returns its address.
    async fn start(https_port: u16) -> (Redirects, SocketAddr) {
        let redirects = Redirects::new(3, &mut Registry::default(), CancellationToken::new());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        redirects.set(&[address], vec![(address, listener)], https_port).await;
        (redirects, address)
    }

    async fn request(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    fn field<'a>(response: &'a str, name: &str) -> Option<&'a str> {
        response.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    #[tokio::test]
    async fn a_request_is_redirected_to_the_same_url_over_https() {
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
            let response = request(address, &format!("{head}\r\n")).await;
            assert!(response.lines().next().unwrap().ends_with(" 308 Permanent Redirect"), "{response}");
            assert_eq!(field(&response, "location"), Some(expected));
        }
    }

    #[tokio::test]
    async fn a_request_without_one_plain_host_is_refused() {
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
            let response = request(address, head).await;
            assert!(response.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head:?}: {response}");
            assert_eq!(field(&response, "location"), None);
        }
        let long = format!("GET /{} HTTP/1.1\r\nhost: a.test\r\n\r\n", "x".repeat(limits(1).buffer_max));
        let response = request(address, &long).await;
        assert!(response.starts_with("HTTP/1.1 4"), "{response}");
    }

    #[tokio::test]
    async fn listeners_are_added_and_removed() {
        let (redirects, address) = start(443).await;
        assert!(redirects.missing(&[address]).await.is_empty());
        let second = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = second.local_addr().unwrap();
        assert_eq!(redirects.missing(&[address, other]).await, [other]);
        redirects.set(&[other], vec![(other, second)], 8443).await;
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let response = request(other, "GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
        assert_eq!(field(&response, "location"), Some("https://a.test:8443/"));
    }
}
