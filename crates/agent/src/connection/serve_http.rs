//! Speaks HTTP over a connection, until the connection ends or is parked between two requests.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http::header::{CONNECTION, UPGRADE};
use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_http2::{Flood, Metered};
use watari_proxy::Client;
use watari_stream::{Parts, TlsStream};
use watari_values::{NodeName, StayReason};
use watari_wire::Leave;

use super::activity::Activity;
use super::borrowed_stream::{BorrowedStream, Stream, StreamReturn, lend};
use super::client_end::Content;
use super::early_data::opening::{EarlyConnection, Unfinished};
use super::lingering::Lingering;
use super::requests::{Answer, Requests};
use super::stalls::{Stalled, Stalls};
use super::streams::Streams;
use super::tunnel::Agreed;
use crate::handoff::live::{About, Live};
use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;

/// The number of fields for which hyper has room on its stack.
const FIELDS_MAX_OF_HYPER: usize = 100;

/// Requests in progress at a time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 64;

/// Bytes that are sealed in advance for a client that does not read, for each HTTP/2 stream.
const SEND_BUFFER_LEN: usize = 64 * 1024;

/// The ALPN protocol name of HTTP/2 (RFC 9113, section 3.2).
pub(crate) const HTTP2: &[u8] = b"h2";

pub(crate) type HttpError = Box<dyn Error + Send + Sync>;

/// What HTTP uses of the agent.
pub(crate) struct Http {
    /// To report why a connection stays.
    pub(crate) peers: Peers,
    pub(crate) settings: Arc<CurrentSettings>,
    pub(crate) requests: Arc<Requests>,
}

/// The state of a connection when HTTP begins.
pub(crate) enum HttpStart {
    /// The handshake is done.
    Live(Box<Live>),
    /// The client has sent early data.
    EarlyConnection(Box<EarlyConnection>),
}

/// The state of a connection when HTTP has ended.
pub(crate) enum HttpEnd {
    /// The connection has ended, or cannot continue.
    Ended(Box<TlsStream<TcpStream>>, Result<(), HttpError>),
    /// The connection is between two requests, and has to move to this agent.
    Parked(Box<Live>, NodeName),
    /// The handshake failed.
    Unfinished(Box<Unfinished>),
}

impl HttpStart {
    pub(crate) fn about(&self) -> &About {
        match self {
            Self::Live(live) => &live.about,
            Self::EarlyConnection(early) => early.about(),
        }
    }

    /// The bytes received and sent before.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match self {
            Self::Live(live) => (live.parts.received, live.parts.sent),
            Self::EarlyConnection(early) => early.counts(),
        }
    }

    fn lend(self) -> (About, BorrowedStream, StreamReturn) {
        let (about, (borrowed, stream_return)) = match self {
            Self::Live(live) => {
                let Live { about, parts } = *live;
                (about, lend(Stream::Open(Box::new(TlsStream::from_parts(parts))), None))
            }
            Self::EarlyConnection(early) => {
                let (about, stream, opening) = early.begin();
                (about, lend(Stream::EarlyConnection(stream), Some(opening)))
            }
        };
        (about, borrowed, stream_return)
    }
}

/// Speaks HTTP until the connection ends, or can leave as `leaves` asks.
pub(crate) async fn serve_http(http: &Http, start: HttpStart, leaves: &mut mpsc::Receiver<Box<Leave>>) -> HttpEnd {
    let (about, borrowed, stream_return) = start.lend();
    if about.tls.alpn == HTTP2 {
        Box::pin(http2(http, &about, borrowed, stream_return, leaves)).await
    } else {
        http1(http, about, borrowed, stream_return, leaves).await
    }
}

async fn http1(
    http: &Http,
    about: About,
    borrowed: BorrowedStream,
    mut stream_return: StreamReturn,
    leaves: &mut mpsc::Receiver<Box<Leave>>,
) -> HttpEnd {
    let (activity, close_due, gate) =
        (stream_return.activity.clone(), stream_return.close_due.clone(), stream_return.gate());
    let (client, end) = (client(&about), stream_return.end.clone());
    let stalls = Arc::<Stalls>::default();
    let agreed = Agreed::default();
    let service = service_fn(|request: Request<Incoming>| {
        // Recorded before the first await: from here on the connection is not between requests.
        let is_last = is_last(&request);
        let request = request.map(|body| activity.begin(Content::new(body, &end)));
        if is_last {
            activity.is_last();
        }
        let (requests, client, activity, stalls) =
            (http.requests.clone(), client.clone(), activity.clone(), stalls.clone());
        let (gate, agreed) = (gate.clone(), agreed.clone());
        Box::pin(async move {
            let Answer { response, tunnel } = requests.answer(request, &client, &stalls, gate).await;
            agreed.set(tunnel);
            Ok::<_, Infallible>(response.map(|body| activity.respond(body)))
        })
    });
    let mut builder = http1::Builder::new();
    let limits = http.settings.limits();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.keep_alive_timeout);
    builder.max_buf_size(limits.head_bytes_max);
    // A smaller limit would cost an allocation for each request. The fields are counted again anyway.
    if limits.head_fields_max > FIELDS_MAX_OF_HYPER {
        builder.max_headers(limits.head_fields_max);
    }
    let mut connection = builder.serve_connection(TokioIo::new(borrowed), service);
    let mut close_due = pin!(close_due.notified());
    let mut stalled = pin!(stalls.next_stall());
    let mut closing = false;
    let mut target = None;
    let result = poll_fn(|cx| {
        if !stream_return.poll_opening(cx) {
            return Poll::Ready(None);
        }
        if !closing && close_due.as_mut().poll(cx).is_ready() {
            closing = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.poll_without_shutdown(cx) {
            return Poll::Ready(Some(result.map_err(HttpError::from)));
        }
        if stalled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(Stalled.into())));
        }
        while let Poll::Ready(Some(leave)) = leaves.poll_recv(cx) {
            if !activity.is_idle() {
                about.report_stay(&http.peers, StayReason::InRequest);
            }
            target = leave.target;
            if target.is_none() && leave.or_end {
                Pin::new(&mut connection).graceful_shutdown();
            }
        }
        if target.is_some() && activity.is_idle() && !agreed.is_some() { Poll::Ready(None) } else { Poll::Pending }
    })
    .await;
    let http1::Parts { io, read_buf, .. } = connection.into_parts();
    drop(io);
    let stream = match stream_return.take_back().await {
        Ok(stream) => stream,
        Err(unfinished) => return HttpEnd::Unfinished(unfinished),
    };
    match (result, target, agreed.take()) {
        // If the client did not take the previous bytes, hyper has lost the unwritten part of this response.
        (Some(Ok(())), _, Some(tunnel)) if activity.is_idle() => {
            let mut stream = Box::new(TlsStream::from_parts(take_apart(*stream, &read_buf)));
            let result = tunnel.on_connection(&http.peers, &about, &mut stream, leaves).await;
            HttpEnd::Ended(stream, result.map_err(HttpError::from))
        }
        (None, Some(target), _) => {
            HttpEnd::Parked(Box::new(Live { about, parts: take_apart(*stream, &read_buf) }), target)
        }
        (result, ..) => HttpEnd::Ended(stream, result.map_or(Ok(()), |result| judge(result, &activity))),
    }
}

/// A client may end the connection within a request. If no response is due, nothing else was cut off.
fn judge(result: Result<(), HttpError>, activity: &Activity) -> Result<(), HttpError> {
    let is_incomplete =
        |error: &HttpError| error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
    match result {
        Err(error) if !activity.is_answering() && is_incomplete(&error) => {
            tracing::debug!(%error, "the client ended the connection within a request");
            Ok(())
        }
        result => result,
    }
}

/// Whether the client has announced that it sends no further request (RFC 9112, section 9.6), and asks for no upgrade.
fn is_last<B>(request: &Request<B>) -> bool {
    let options = request.headers().get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let mut options = options.flat_map(|value| value.split(',')).map(str::trim);
    options.any(|option| option.eq_ignore_ascii_case("close")) && !request.headers().contains_key(UPGRADE)
}

/// Takes a stream apart that HTTP has left. Includes the bytes that HTTP has read ahead.
fn take_apart(stream: TlsStream<TcpStream>, read_ahead: &[u8]) -> Parts<TcpStream> {
    let mut parts = stream.into_parts();
    parts.opened.splice(..0, read_ahead.iter().copied());
    parts
}

async fn http2(
    http: &Http,
    about: &About,
    borrowed: BorrowedStream,
    mut stream_return: StreamReturn,
    leaves: &mut mpsc::Receiver<Box<Leave>>,
) -> HttpEnd {
    let (close_due, gate, end) = (stream_return.close_due.clone(), stream_return.gate(), stream_return.end.clone());
    let client = client(about);
    let streams = Arc::new(Streams::default());
    let borrowed = borrowed.with_streams(&streams);
    let stalls = Arc::<Stalls>::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        let (requests, client, stalls, stream) =
            (http.requests.clone(), client.clone(), stalls.clone(), streams.begin());
        let (gate, end) = (gate.clone(), end.clone());
        async move {
            let upgrading = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
            let request = request.map(|body| Lingering::new(Content::new(body, &end)));
            let Answer { response, tunnel } = requests.answer(request, &client, &stalls, gate).await;
            Ok::<_, Infallible>(response.map(|body| match (tunnel, upgrading) {
                (Some(tunnel), Some(upgrading)) => tunnel.follow(body, stream, upgrading),
                _ => stream.keep(body),
            }))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let limits = http.settings.limits();
    let (timeout, list_len_max) = (limits.keep_alive_timeout, u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX));
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(list_len_max);
    if http.settings.get().site.has_tunnels() {
        builder.enable_connect_protocol();
    }
    builder.keep_alive_interval(timeout).keep_alive_timeout(timeout).max_send_buf_size(SEND_BUFFER_LEN);
    let mut look = tokio::time::interval(timeout);
    let mut start = 0;
    let mut is_finishing = false;
    let metered = Metered::of_client(borrowed);
    let verdict = metered.verdict();
    let result: Result<(), HttpError> = {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(metered), service));
        loop {
            let spoken = poll_fn(|cx| {
                if !stream_return.poll_opening(cx) {
                    return Poll::Ready(Ok(()));
                }
                connection.as_mut().poll(cx).map_err(HttpError::from)
            });
            tokio::select! {
                result = spoken => break result,
                () = close_due.notified() => connection.as_mut().graceful_shutdown(),
                _ = look.tick() => if streams.were_idle(&mut start) {
                    // All responses are complete, and the client does not take the rest.
                    if is_finishing {
                        break Err(Stalled.into());
                    }
                    is_finishing = true;
                    connection.as_mut().graceful_shutdown();
                },
                () = stalls.next_stall() => {
                    connection.as_mut().graceful_shutdown();
                    if stalls.count() >= streams.open() {
                        break Err(Stalled.into());
                    }
                }
                Some(leave) = leaves.recv() => {
                    about.report_stay(&http.peers, StayReason::Http2);
                    if leave.or_end {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    };
    // hyper reports a flood only as a failed read.
    let result = if verdict.is_flood() { Err(Flood.into()) } else { result };
    match stream_return.take_back().await {
        Ok(stream) => HttpEnd::Ended(stream, result),
        Err(unfinished) => HttpEnd::Unfinished(unfinished),
    }
}

fn client(about: &About) -> Arc<Client> {
    Arc::new(Client::new(about.client, about.server, about.client_certificate.as_deref()))
}
