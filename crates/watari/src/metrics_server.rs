//! The metrics, over HTTP as Prometheus asks for them.

use std::convert::Infallible;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// What the format is called (`OpenMetrics` 1.0).
const OPENMETRICS: HeaderValue = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
/// Connections at the same time; a few scrapers are expected.
const CONNECTIONS_MAX: usize = 16;
/// The longest that a scraper may keep a connection.
const CONNECTION_MAX: Duration = Duration::from_mins(5);
const HEAD_MAX: Duration = Duration::from_secs(5);

/// Serves `registry` at `/metrics` until `shutdown` is cancelled. Must be called in a tokio runtime.
pub(crate) fn serve(
    listener: StdTcpListener,
    registry: Arc<Registry>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    tokio::spawn(shutdown.run_until_cancelled_owned(async move {
        loop {
            let permit = Arc::clone(&connections).acquire_owned().await;
            match listener.accept().await {
                Ok((stream, _)) => {
                    let registry = Arc::clone(&registry);
                    tokio::spawn(async move {
                        let _permit = permit;
                        converse(TokioIo::new(stream), registry).await;
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept on the metrics address");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }));
    Ok(())
}

async fn converse(stream: TokioIo<tokio::net::TcpStream>, registry: Arc<Registry>) {
    let service = service_fn(move |request| {
        let response = respond(&request, &registry);
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX);
    if let Ok(Err(error)) = timeout(CONNECTION_MAX, server.serve_connection(stream, service)).await {
        tracing::debug!(%error, "a metrics connection ended");
    }
}

fn respond(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/metrics") => metrics(registry),
        (_, "/metrics") => {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            response
        }
        _ => text(StatusCode::NOT_FOUND, "metrics are at /metrics\n"),
    }
}

fn metrics(registry: &Registry) -> Response<Full<Bytes>> {
    let mut page = String::new();
    if encode(&mut page, registry).is_err() {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written\n");
    }
    let mut response = Response::new(Full::from(page));
    response.headers_mut().insert(CONTENT_TYPE, OPENMETRICS);
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

    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn metrics_are_served_and_nothing_else() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("crossings", "Crossings", counter.clone());
        counter.inc_by(3);
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, Arc::new(registry), CancellationToken::new()).unwrap();
        let cases = [
            ("GET /metrics", "200 OK", "crossings_total 3\n# EOF\n"),
            ("GET /", "404 Not Found", "metrics are at /metrics\n"),
            ("POST /metrics", "405 Method Not Allowed", "only GET and HEAD\n"),
        ];
        for (request, status, end) in cases {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let head = format!("{request} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.ends_with(end), "{answer}");
        }
    }
}
