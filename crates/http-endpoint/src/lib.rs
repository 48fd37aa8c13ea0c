//! Small HTTP/1 servers beside the service: redirects to HTTPS, metrics, the page of the state monitor.
//!
//! An [`Endpoint`] accepts connections within its [`Limits`], reads requests, and ends connections at timeouts and at
//! shutdown. A [`Handler`] maps each request to a response, and reads no body.

mod write_timeout;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::TcpListener as StdTcpListener;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::metrics::counter::Counter;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use watari_sys::Acceptor;

use write_timeout::WriteTimeout;

/// The responses of an endpoint.
pub trait Handler: Send + Sync + 'static {
    type Body: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static;

    /// Must not block.
    fn respond(&self, request: &Request<Incoming>) -> Response<Self::Body>;
}

/// Limits on the clients of an endpoint.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Simultaneous connections of all listeners. The endpoint resets connections beyond that. In the listener's queue
    /// they would stay open, and other clients behind them would wait.
    pub connections_max: usize,
    /// From the moment that a head is expected, so it is also the idle timeout of a connection.
    pub head_timeout: Duration,
    /// Bytes that are buffered in each direction of a connection, at least 8 KiB. A longer head is refused.
    pub buffer_max: usize,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// From the accept to the end of the connection.
    pub connection_timeout: Option<Duration>,
    /// The time that a client may read nothing while a response is written. With it, the kernel also buffers no more
    /// than `buffer_max`. Otherwise it would buffer megabytes, and the timeout would come hours later.
    pub write_timeout: Option<Duration>,
}

/// A server that can listen at several addresses, with common limits.
pub struct Endpoint<H> {
    shared: Arc<EndpointShared<H>>,
}

struct EndpointShared<H> {
    /// Its clients, for the log.
    clients: &'static str,
    limits: Limits,
    handler: H,
    slots: Arc<Semaphore>,
    refused: Counter,
    shutdown: CancellationToken,
}

/// A listener of an endpoint. It stays open when this is dropped.
pub struct Listener {
    close: CancellationToken,
    acceptor: Acceptor,
}

impl<H: Handler> Endpoint<H> {
    /// Listens nowhere yet. `clients` describes the clients in the log. `shutdown` ends all listeners and connections.
    pub fn new(clients: &'static str, limits: Limits, handler: H, shutdown: CancellationToken) -> Self {
        let (slots, refused) = (Arc::new(Semaphore::new(limits.connections_max)), Counter::default());
        Self { shared: Arc::new(EndpointShared { clients, limits, handler, slots, refused, shutdown }) }
    }

    /// Listens on a listener of the standard library. Requires a tokio runtime.
    pub fn listen_std(&self, listener: StdTcpListener) -> io::Result<Listener> {
        listener.set_nonblocking(true)?;
        Ok(self.listen(TcpListener::from_std(listener)?))
    }

    /// Requires a tokio runtime.
    pub fn listen(&self, listener: TcpListener) -> Listener {
        let close = self.shared.shutdown.child_token();
        let shared = Arc::clone(&self.shared);
        let acceptor = Acceptor::start(&close, listener, shared.clients, move |stream, _| admit(&shared, stream));
        Listener { close, acceptor }
    }

    pub fn handler(&self) -> &H {
        &self.shared.handler
    }

    /// The number of connections refused over the limit.
    pub fn refused(&self) -> &Counter {
        &self.shared.refused
    }
}

impl Listener {
    /// Another handle of the socket. `None`: it is closed.
    pub fn handle(&self) -> Option<io::Result<StdTcpListener>> {
        self.acceptor.listener()
    }

    /// Stops accepting, and waits until the socket is closed. Accepted connections go on.
    pub async fn close(self) {
        self.close.cancel();
        self.acceptor.ended().await;
    }
}

fn admit<H: Handler>(shared: &Arc<EndpointShared<H>>, stream: TcpStream) {
    let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() else {
        shared.refused.inc();
        // Fails only if the socket is closed already.
        let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
        return;
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let _slot = slot;
        shared.shutdown.run_until_cancelled(serve(&shared, stream)).await;
    });
}

async fn serve<H: Handler>(shared: &EndpointShared<H>, stream: TcpStream) {
    let EndpointShared { clients, limits, handler, .. } = shared;
    if limits.write_timeout.is_some()
        && let Err(error) = SockRef::from(&stream).set_send_buffer_size(limits.buffer_max)
    {
        tracing::debug!(%error, clients, "cannot limit the send buffer of a connection");
    }
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write_timeout));
    let service = service_fn(|request| {
        let response = handler.respond(&request);
        async { Ok::<_, Infallible>(response) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    server.max_buf_size(limits.buffer_max).keep_alive(limits.keep_alive);
    let serving = server.serve_connection(stream, service);
    let ended = match limits.connection_timeout {
        Some(limit) => timeout(limit, serving).await.unwrap_or(Ok(())),
        None => serving.await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, clients, "a connection ended");
    }
}
