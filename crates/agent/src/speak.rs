//! HTTP over a connection, until it ends or is parked between two requests.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use watari_files::BoxError;
use watari_proxy::Client;
use watari_stream::{Parts, TlsStream};
use watari_wire::{Leave, Message, NodeName, StayReason, Stays};

use crate::Shared;
use crate::lent::{Lent, Receipt, lend};
use crate::live::{About, Live};

/// The longest head of a request, in bytes, and the longest list of fields in HTTP/2.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// Requests in progress at the same time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;

/// What is sealed ahead of a client that does not read, in bytes for each of its HTTP/2 streams.
const SEND_BUFFER_LEN: usize = 64 * 1024;

pub(crate) type HttpError = Box<dyn Error + Send + Sync>;

/// What speaking came to.
pub(crate) enum Spoken {
    /// The connection has ended, or cannot go on.
    Ended(Box<TlsStream<TcpStream>>, Result<(), HttpError>),
    /// It is between two requests, and shall go to this agent.
    Parked(Box<Live>, NodeName),
}

/// Speaks HTTP until the connection ends, or can leave as `leaves` asks.
pub(crate) async fn speak(shared: &Arc<Shared>, live: Live, leaves: &mut mpsc::Receiver<Leave>) -> Spoken {
    let Live { about, parts } = live;
    let (lent, receipt) = lend(TlsStream::from_parts(parts));
    if about.tls.alpn == b"h2" {
        http2(shared, &about, lent, receipt, leaves).await
    } else {
        http1(shared, about, lent, receipt, leaves).await
    }
}

async fn http1(
    shared: &Arc<Shared>,
    about: About,
    lent: Lent,
    receipt: Receipt,
    leaves: &mut mpsc::Receiver<Leave>,
) -> Spoken {
    let Receipt { back, activity, close_due } = receipt;
    let client = client(&about);
    let service = service_fn(|request: Request<Incoming>| {
        // Noted before anything is awaited: from here on the connection is not between requests.
        let request = request.map(|body| activity.begin(body));
        let (shared, client, activity) = (shared.clone(), client.clone(), activity.clone());
        Box::pin(async move {
            let response = answer(&shared, request, &client).await;
            Ok::<_, Infallible>(response.map(|body| activity.respond(body)))
        })
    });
    let mut builder = http1::Builder::new();
    let timeout = shared.limits.keep_alive_timeout;
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(HEAD_LEN_MAX).half_close(true);
    let mut connection = builder.serve_connection(TokioIo::new(lent), service);
    let mut close_due = pin!(close_due.notified());
    let mut closing = false;
    let mut target = None;
    let result = poll_fn(|cx| {
        if !closing && close_due.as_mut().poll(cx).is_ready() {
            closing = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(Some(result));
        }
        while let Poll::Ready(Some(leave)) = leaves.poll_recv(cx) {
            if !activity.is_idle() {
                stays(shared, &about, StayReason::InRequest);
            }
            target = leave.target;
            if target.is_none() && leave.or_end {
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
        if target.is_some() && activity.is_idle() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    drop(io);
    let Ok(stream) = back.await else { unreachable!("a lent stream is given back when it is dropped") };
    match (result, target) {
        (None, Some(target)) => Spoken::Parked(Box::new(park(about, stream, &read_buf)), target),
        (result, _) => Spoken::Ended(Box::new(stream), result.unwrap_or(Ok(())).map_err(HttpError::from)),
    }
}

/// Takes a connection apart between two requests. What was read ahead of the next request goes along.
fn park(about: About, stream: TlsStream<TcpStream>, read_ahead: &[u8]) -> Live {
    let mut parts: Parts<TcpStream> = stream.into_parts();
    parts.opened.splice(..0, read_ahead.iter().copied());
    Live { about, parts }
}

async fn http2(
    shared: &Arc<Shared>,
    about: &About,
    lent: Lent,
    receipt: Receipt,
    leaves: &mut mpsc::Receiver<Leave>,
) -> Spoken {
    let Receipt { back, close_due, .. } = receipt;
    let client = client(about);
    let streams = Arc::new(Streams::default());
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, client, stream) = (shared.clone(), client.clone(), streams.begin());
        async move {
            let response = answer(&shared, request, &client).await;
            Ok::<_, Infallible>(response.map(|body| Kept { body, _kept: stream }))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let timeout = shared.limits.keep_alive_timeout;
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_LEN_MAX as u32);
    builder.keep_alive_interval(timeout).keep_alive_timeout(timeout).max_send_buf_size(SEND_BUFFER_LEN);
    let mut look = tokio::time::interval(timeout);
    let mut begun = 0;
    let result = {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(lent), service));
        loop {
            tokio::select! {
                result = connection.as_mut() => break result,
                () = close_due.notified() => connection.as_mut().graceful_shutdown(),
                _ = look.tick() => if streams.were_idle(&mut begun) {
                    connection.as_mut().graceful_shutdown();
                },
                Some(leave) = leaves.recv() => {
                    stays(shared, about, StayReason::Http2);
                    if leave.or_end {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    };
    let Ok(stream) = back.await else { unreachable!("a lent stream is given back when it is dropped") };
    Spoken::Ended(Box::new(stream), result.map_err(HttpError::from))
}

/// Answers one request, if there is a place for it. The place is kept until the response's body is dropped.
async fn answer<B>(shared: &Shared, request: Request<B>, client: &Client) -> Response<Kept<watari_files::Body, Place>>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    shared.metrics.requests.inc();
    let Ok(place) = shared.requests.clone().try_acquire_owned() else {
        tracing::info!(client = %client.address(), "request refused: too many are in progress");
        shared.metrics.requests_refused.inc();
        return too_many_requests().map(|body| Kept { body, _kept: None });
    };
    shared.site.respond(request, client).await.map(|body| Kept { body, _kept: Some(place) })
}

type Place = Option<OwnedSemaphorePermit>;

fn too_many_requests() -> Response<watari_files::Body> {
    let text = Full::new(Bytes::from_static(b"Too many requests are in progress.\n"));
    let mut response = Response::new(text.map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// The requests of one HTTP/2 connection.
#[derive(Default)]
struct Streams {
    open: AtomicUsize,
    begun: AtomicUsize,
}

/// An open stream.
struct OpenStream(Arc<Streams>);

impl Streams {
    fn begin(self: &Arc<Self>) -> OpenStream {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.begun.fetch_add(1, Ordering::Relaxed);
        OpenStream(self.clone())
    }

    /// Whether none is open and none was begun since the last look.
    fn were_idle(&self, begun: &mut usize) -> bool {
        // The first look is at once, when nothing can have begun.
        let before = std::mem::replace(begun, self.begun.load(Ordering::Relaxed) + 1);
        self.open.load(Ordering::Relaxed) == 0 && before == *begun
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body, and what is kept as long as it is.
struct Kept<B, K> {
    body: B,
    _kept: K,
}

impl<B: Body + Unpin, K: Unpin> Body for Kept<B, K> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn client(about: &About) -> Arc<Client> {
    Arc::new(Client::new(about.client, about.server, about.client_certificate.as_deref()))
}

/// Tells the dispatcher why a connection that shall leave has not left yet.
pub(crate) fn stays(shared: &Shared, about: &About, reason: StayReason) {
    shared.tell(&about.dispatcher, &Message::Stays(Stays { connection: about.id, reason }));
}
