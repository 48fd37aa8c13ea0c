//! HTTP over a connection, until it ends or is parked between two requests.

use std::convert::Infallible;
use std::error::Error;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_proxy::Client;
use watari_stream::{Parts, TlsStream};
use watari_wire::{Leave, Message, NodeName, StayReason, Stays};

use crate::Shared;
use crate::lent::{Lent, Receipt, lend};
use crate::live::{About, Live};
use crate::requests::{Streams, answer};
use crate::stalls::{Stalled, Stalls};

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
pub(crate) async fn speak(shared: &Arc<Shared>, live: Box<Live>, leaves: &mut mpsc::Receiver<Box<Leave>>) -> Spoken {
    let Live { about, parts } = *live;
    let (lent, receipt) = lend(Box::new(TlsStream::from_parts(parts)));
    if about.tls.alpn == b"h2" {
        Box::pin(http2(shared, &about, lent, receipt, leaves)).await
    } else {
        http1(shared, about, lent, receipt, leaves).await
    }
}

async fn http1(
    shared: &Arc<Shared>,
    about: About,
    lent: Lent,
    receipt: Receipt,
    leaves: &mut mpsc::Receiver<Box<Leave>>,
) -> Spoken {
    let Receipt { back, activity, close_due } = receipt;
    let client = client(&about);
    let stalls = Arc::<Stalls>::default();
    let service = service_fn(|request: Request<Incoming>| {
        // Noted before anything is awaited: from here on the connection is not between requests.
        let request = request.map(|body| activity.begin(body));
        let (shared, client, activity, stalls) = (shared.clone(), client.clone(), activity.clone(), stalls.clone());
        Box::pin(async move {
            let response = answer(&shared, request, &client, &stalls).await;
            Ok::<_, Infallible>(response.map(|body| activity.respond(body)))
        })
    });
    let mut builder = http1::Builder::new();
    let timeout = shared.limits().keep_alive_timeout;
    builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(HEAD_LEN_MAX).half_close(true);
    let mut connection = builder.serve_connection(TokioIo::new(lent), service);
    let mut close_due = pin!(close_due.notified());
    let mut stalled = pin!(stalls.told());
    let mut closing = false;
    let mut target = None;
    let result = poll_fn(|cx| {
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
        (None, Some(target)) => Spoken::Parked(Box::new(park(about, *stream, &read_buf)), target),
        (result, _) => Spoken::Ended(stream, result.unwrap_or(Ok(()))),
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
    leaves: &mut mpsc::Receiver<Box<Leave>>,
) -> Spoken {
    let Receipt { back, close_due, .. } = receipt;
    let client = client(about);
    let streams = Arc::new(Streams::default());
    let stalls = Arc::<Stalls>::default();
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, client, stalls, stream) = (shared.clone(), client.clone(), stalls.clone(), streams.begin());
        async move {
            let response = answer(&shared, request, &client, &stalls).await;
            Ok::<_, Infallible>(response.map(|body| stream.keep(body)))
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    let timeout = shared.limits().keep_alive_timeout;
    builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_LEN_MAX as u32);
    builder.keep_alive_interval(timeout).keep_alive_timeout(timeout).max_send_buf_size(SEND_BUFFER_LEN);
    let mut look = tokio::time::interval(timeout);
    let mut begun = 0;
    let mut told_to_finish = false;
    let result: Result<(), HttpError> = {
        let mut connection = pin!(builder.serve_connection(TokioIo::new(lent), service));
        loop {
            tokio::select! {
                result = connection.as_mut() => break result.map_err(HttpError::from),
                () = close_due.notified() => connection.as_mut().graceful_shutdown(),
                _ = look.tick() => if streams.were_idle(&mut begun) {
                    // What is left then is what the client does not take of responses that are complete.
                    if told_to_finish {
                        break Err(Stalled.into());
                    }
                    told_to_finish = true;
                    connection.as_mut().graceful_shutdown();
                },
                () = stalls.told() => {
                    connection.as_mut().graceful_shutdown();
                    if stalls.count() >= streams.open() {
                        break Err(Stalled.into());
                    }
                }
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
    Spoken::Ended(stream, result)
}

fn client(about: &About) -> Arc<Client> {
    Arc::new(Client::new(about.client, about.server, about.client_certificate.as_deref()))
}

/// Tells the dispatcher why a connection that shall leave has not left yet.
pub(crate) fn stays(shared: &Shared, about: &About, reason: StayReason) {
    shared.tell(&about.dispatcher, &Message::Stays(Stays { connection: about.id, reason }));
}
