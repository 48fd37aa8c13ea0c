//! An HTTP server for Prometheus metrics.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, VARY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use watari_http_endpoint::{Endpoint, Handler, Limits};

use format::Format;

mod format;

const LIMITS: Limits = Limits {
    // A node expects a few scrapers.
    connections_max: 64,
    head_timeout: Duration::from_secs(5),
    buffer_max: 16 << 10,
    keep_alive: true,
    connection_timeout: Some(Duration::from_mins(1)),
    write_timeout: None,
};

/// Serves `registry` at `/metrics` until `shutdown` is cancelled. Must be called in a tokio runtime.
pub(crate) fn serve(listener: TcpListener, registry: Arc<Registry>, shutdown: CancellationToken) -> io::Result<()> {
    Endpoint::new("scrapers of metrics", LIMITS, Metrics(registry), shutdown).listen_std(listener).map(drop)
}

struct Metrics(Arc<Registry>);

impl Handler for Metrics {
    type Body = Full<Bytes>;

    fn respond(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        respond(request, &self.0)
    }
}

fn respond<B>(request: &Request<B>, registry: &Registry) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => metrics(registry, Format::asked(request.headers())),
        (_, "/metrics") => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        _ => text(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}

fn metrics(registry: &Registry, format: Format) -> Response<Full<Bytes>> {
    let mut page = String::new();
    if encode(&mut page, registry).is_err() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n");
    }
    let mut response = Response::new(Full::from(format.page(page)));
    response.headers_mut().insert(CONTENT_TYPE, format.content_type());
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

fn text(status: StatusCode, sentence: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(sentence));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::SocketAddr;

    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    /// Starts a server with one counter, and returns its address.
    fn start() -> SocketAddr {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("crossings", "Crossings", counter.clone());
        counter.inc_by(3);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, Arc::new(registry), CancellationToken::new()).unwrap();
        address
    }

    async fn request(address: SocketAddr, target: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("{target} HTTP/1.1\r\nhost: x\r\n{fields}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        response
    }

    #[tokio::test]
    async fn only_metrics_are_served() {
        let address = start();
        let cases = [
            ("GET /metrics", "", "200 OK", "# TYPE crossings_total counter\ncrossings_total 3\n"),
            ("GET /metrics", "accept: text/plain\r\n", "200 OK", "crossings_total 3\n"),
            ("GET /metrics", "accept: application/openmetrics-text\r\n", "200 OK", "crossings_total 3\n# EOF\n"),
            ("GET /", "", "404 Not Found", "metrics are at /metrics\n"),
            ("POST /metrics", "", "405 Method Not Allowed", "only GET and HEAD\n"),
        ];
        for (target, fields, status, end) in cases {
            let response = request(address, target, fields).await;
            assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{response}");
            assert!(response.ends_with(end), "{response}");
            let format = if fields.contains("openmetrics") { "application/openmetrics-text; " } else { "text/plain; " };
            assert!(response.contains(&format!("\r\ncontent-type: {format}")), "{response}");
        }
    }
}
