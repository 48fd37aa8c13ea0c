//! Serves HTTP/2 over a connection, until the connection ends. The HTTP library holds the state of the streams, so the
//! connection cannot move.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::Interval;
use watari_http2::{Flood, Metered};
use watari_stream::TlsStream;
use watari_values::StayReason;

use super::borrowed_stream::{BorrowedStream, Stream, StreamOwner, lend};
use super::client_end::Content;
use super::http::{Http, HttpEnd, HttpError, HttpStart, client};
use super::lingering::Lingering;
use super::part_wakers::PartWakers;
use super::requests::Answer;
use super::stalls::{Stalled, Stalls};
use super::stream_tasks::StreamTasks;
use super::streams::Streams;
use crate::handoff::live::{About, Live};
use crate::handoff::registry::{Order, Orders};
use crate::node::peers::Peers;

/// Requests in progress at a time on one connection.
const STREAMS_MAX: u32 = 64;

/// Bytes that are sealed in advance for a client that does not read, for each stream.
const SEND_BUFFER_LEN: usize = 64 * 1024;

/// The parts of a connection's task. Streams come first: the connection sends at once what they have.
const STREAMS: usize = 0;
const CONNECTION: usize = 1;
const EVENTS: usize = 2;

/// Serves HTTP/2 until the connection ends. If it is asked to leave, it ends after its streams, if that was requested.
pub(super) async fn serve_http2(http: &Http, start: HttpStart, orders: &mut Orders) -> HttpEnd {
    let streams = Arc::new(Streams::default());
    let (about, borrowed, owner) = lend_stream(start, &streams);
    drive(http, &about, borrowed, owner, &streams, orders).await
}

fn lend_stream(start: HttpStart, streams: &Arc<Streams>) -> (About, BorrowedStream, StreamOwner) {
    match start {
        // No connection of HTTP/2 arrives within a response: `Preparations::take` refuses it.
        HttpStart::Live(live) | HttpStart::InResponse(live, _) => {
            let Live { about, parts } = *live;
            let (borrowed, owner) = lend(Stream::Open(Box::new(TlsStream::from_parts(parts))), streams, None);
            (about, borrowed, owner)
        }
        HttpStart::EarlyConnection(early) => {
            let (about, stream, opening) = early.begin();
            let (borrowed, owner) = lend(Stream::EarlyConnection(stream), streams, Some(opening));
            (about, borrowed, owner)
        }
    }
}

/// What ends a connection, or may end it.
enum Event {
    Ended(Result<(), HttpError>),
    /// It is time to look whether the connection is idle.
    Look,
    /// A client takes nothing of a response, or sends nothing of a request.
    Stall,
    Order(Box<Order>),
}

fn poll_event(
    look: &mut Interval,
    stalled: Pin<&mut impl Future<Output = ()>>,
    orders: &mut Orders,
    cx: &mut Context<'_>,
) -> Poll<Event> {
    if let Poll::Ready(Some(order)) = orders.poll_recv(cx) {
        return Poll::Ready(Event::Order(order));
    }
    if look.poll_tick(cx).is_ready() {
        return Poll::Ready(Event::Look);
    }
    stalled.poll(cx).map(|()| Event::Stall)
}

async fn drive(
    http: &Http,
    about: &About,
    borrowed: BorrowedStream,
    mut owner: StreamOwner,
    streams: &Arc<Streams>,
    orders: &mut Orders,
) -> HttpEnd {
    let (gate, end) = (owner.gate(), owner.end.clone());
    let client = client(about);
    let stalls = Arc::<Stalls>::default();
    let service = service_fn(|mut request: Request<Incoming>| {
        let upgrading = (request.method() == Method::CONNECT).then(|| hyper::upgrade::on(&mut request));
        let request = request.map(|body| Lingering::new(Content::new(body, &end)));
        let received = http.requests.receive(request, &stalls, None);
        let (requests, client, gate, stream) = (http.requests.clone(), client.clone(), gate.clone(), streams.begin());
        async move {
            let Answer { response, tunnel } = requests.answer(received, &client, gate).await;
            Ok::<_, Infallible>(response.map(|body| match (tunnel, upgrading) {
                (Some(tunnel), Some(upgrading)) => tunnel.follow(body, stream, upgrading),
                _ => stream.keep(body),
            }))
        }
    });
    let mut tasks = StreamTasks::default();
    let mut builder = http2::Builder::new(tasks.executor());
    let limits = http.settings.limits();
    let (timeout, list_len_max) = (limits.keep_alive_timeout, u32::try_from(limits.head_bytes_max).unwrap_or(u32::MAX));
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(list_len_max);
    if http.settings.get().site.has_origins() {
        builder.enable_connect_protocol();
    }
    builder.keep_alive_interval(timeout).keep_alive_timeout(timeout).max_send_buf_size(SEND_BUFFER_LEN);
    let mut look = tokio::time::interval(timeout);
    let mut start = 0;
    let mut is_finishing = false;
    let metered = Metered::of_client(borrowed);
    let verdict = metered.verdict();
    let wakers = PartWakers::<3>::new();
    let result: Result<(), HttpError> = {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(metered), service));
        loop {
            // A shutdown may have begun, and there may be more events.
            wakers.wake(CONNECTION);
            wakers.wake(EVENTS);
            let mut stalled = pin!(stalls.next_stall());
            let event = poll_fn(|cx| {
                let event = wakers.poll(cx, |part, cx| {
                    if part == STREAMS {
                        tasks.poll(cx);
                    } else if part == EVENTS {
                        return poll_event(&mut look, stalled.as_mut(), orders, cx);
                    } else if !owner.poll_opening(cx) {
                        return Poll::Ready(Event::Ended(Ok(())));
                    } else if let Poll::Ready(result) = connection.as_mut().poll(cx) {
                        return Poll::Ready(Event::Ended(result.map_err(HttpError::from)));
                    } else if owner.asks_for_close() {
                        connection.as_mut().graceful_shutdown();
                        wakers.wake(CONNECTION);
                    }
                    if tasks.have_begun() {
                        wakers.wake(STREAMS);
                    }
                    Poll::Pending
                });
                if event.is_ready() {
                    return event;
                }
                match owner.poll_flush(&mut Context::from_waker(wakers.waker(CONNECTION))) {
                    Poll::Ready(Err(error)) => Poll::Ready(Event::Ended(Err(error.into()))),
                    Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
                }
            });
            match event.await {
                Event::Ended(result) => break result,
                Event::Look => {
                    if streams.were_idle(&mut start) {
                        // All responses are complete, and the client does not take the rest.
                        if is_finishing {
                            break Err(Stalled.into());
                        }
                        is_finishing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                }
                Event::Stall => {
                    connection.as_mut().graceful_shutdown();
                    if stalls.count() >= streams.open() {
                        break Err(Stalled.into());
                    }
                }
                Event::Order(order) => {
                    if is_to_end(&order, &http.peers, about) {
                        connection.as_mut().graceful_shutdown();
                    }
                }
            }
        }
    };
    // hyper reports a flood only as a failed read.
    let result = if verdict.is_flood() { Err(Flood.into()) } else { result };
    match owner.take_back().await {
        Ok(stream) => HttpEnd::Ended(stream, result),
        Err(unfinished) => HttpEnd::Unfinished(unfinished),
    }
}

/// Whether the connection ends after its streams. It does not leave otherwise.
fn is_to_end(order: &Order, peers: &Peers, about: &About) -> bool {
    match order {
        Order::Leave(leave) => {
            about.report_stay(peers, StayReason::Http2);
            leave.or_end
        }
        Order::End(_) => true,
        Order::PassOn(_) | Order::Stay | Order::Prepared(..) => false,
    }
}
