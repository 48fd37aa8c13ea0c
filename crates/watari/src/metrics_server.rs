//! An HTTP server for Prometheus metrics.

use std::convert::Infallible;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, VARY};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use socket2::SockRef;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use format::Format;

mod format;

/// Connections at the same time. A node expects a few scrapers.
const CONNECTIONS_MAX: usize = 64;
/// The longest time that a scraper may keep a connection, even one that does not read the response.
const CONNECTION_MAX: Duration = Duration::from_mins(1);
/// The timeout for the head of a request, from the moment it is expected. It applies to the first and to each later
/// one.
const HEAD_MAX: Duration = Duration::from_secs(5);
/// The longest head, in bytes.
const HEAD_LEN_MAX: usize = 16 << 10;

/// Serves `registry` at `/metrics` until `shutdown` is cancelled. Must be called in a tokio runtime. Connections over
/// the limit are reset. In the listener's queue they would stay open, and scrapers behind them would wait.
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
            match listener.accept().await {
                Ok((stream, _)) => {
                    let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
                        // Fails only if the socket is closed already.
                        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
                        continue;
                    };
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
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(HEAD_LEN_MAX);
    if let Ok(Err(error)) = timeout(CONNECTION_MAX, server.serve_connection(stream, service)).await {
        tracing::debug!(%error, "a metrics connection ended");
    }
}

fn respond(request: &Request<Incoming>, registry: &Registry) -> Response<Full<Bytes>> {
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

    use std::io::ErrorKind;
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
        let listener = StdTcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        serve(listener, Arc::new(registry), CancellationToken::new()).unwrap();
        address
    }

    async fn say(address: SocketAddr, request: &str, fields: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("{request} HTTP/1.1\r\nhost: x\r\n{fields}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn metrics_are_served_and_nothing_else() {
        let address = start();
        let cases = [
            ("GET /metrics", "", "200 OK", "# TYPE crossings_total counter\ncrossings_total 3\n"),
            ("GET /metrics", "accept: text/plain\r\n", "200 OK", "crossings_total 3\n"),
            ("GET /metrics", "accept: application/openmetrics-text\r\n", "200 OK", "crossings_total 3\n# EOF\n"),
            ("GET /", "", "404 Not Found", "metrics are at /metrics\n"),
            ("POST /metrics", "", "405 Method Not Allowed", "only GET and HEAD\n"),
        ];
        for (request, fields, status, end) in cases {
            let answer = say(address, request, fields).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
            assert!(answer.ends_with(end), "{answer}");
            let format = if fields.contains("openmetrics") { "application/openmetrics-text; " } else { "text/plain; " };
            assert!(answer.contains(&format!("\r\ncontent-type: {format}")), "{answer}");
        }
    }

    #[tokio::test]
    async fn connections_over_the_limit_are_reset_and_idle_ones_end() {
        let address = start();
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(address).await.unwrap());
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        let error = refused.read_u8().await.unwrap_err();
        assert!([ErrorKind::ConnectionReset, ErrorKind::UnexpectedEof].contains(&error.kind()), "{error}");
        // One client has sent half a head, another has had its response.
        idle[0].write_all(b"GET /metrics HTTP/1.1\r\nhost").await.unwrap();
        idle[1].write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        for mut stream in idle {
            // The server answers with 408 or not at all.
            let _ = timeout(2 * CONNECTION_MAX, stream.read_to_end(&mut Vec::new())).await.expect("it ends");
        }
        assert!(say(address, "GET /metrics", "").await.contains(" 200 OK"));
    }
}
