//! HTTP over a connection that this node owns, and the connection's end.

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watari_proxy::Client;
use watari_record::{AlertDescription, OpenError, PeerMisbehaved};
use watari_stream::{Parts, ReadEnd, TlsStream};
use watari_sys::tcp;
use watari_wire::{ConnectionId, Epoch, Final, Message, NodeName};

use crate::Shared;
use crate::lent::{Lent, Receipt, lend};
use crate::live::{About, Live};

/// The longest head of a request, in bytes, and the longest list of fields in HTTP/2.
const HEAD_LEN_MAX: usize = 64 * 1024;

/// Requests in progress at the same time on one HTTP/2 connection.
const STREAMS_MAX: u32 = 128;

/// Serves the connection until it ends.
pub(crate) async fn serve(shared: &Arc<Shared>, live: Live) {
    let Live { about, parts } = live;
    shared.metrics.connections.inc();
    let (received, sent) = (parts.received, parts.sent);
    let (lent, receipt) = lend(TlsStream::from_parts(parts));
    let Receipt { back, close_due } = receipt;
    let result = speak_http(shared, &about, lent, &close_due).await;
    if let Ok(stream) = back.await {
        let read_end = stream.read_end();
        let parts = stream.into_parts();
        shared.metrics.bytes_received.inc_by(parts.received - received);
        shared.metrics.bytes_sent.inc_by(parts.sent - sent);
        if let Some(ReadEnd::Failed(cause)) = read_end {
            tracing::info!(connection = %about.id, client = %about.client, %cause, "record refused");
            shared.metrics.count_record_refused(label(cause));
        }
        let outcome = outcome(&result, read_end);
        tracing::debug!(connection = %about.id, outcome = outcome.label(), error = result.err(), "served");
        shared.metrics.count_end(outcome.label());
        end(shared, &about, parts, outcome).await;
    }
    shared.metrics.connections.dec();
}

type HttpError = Box<dyn Error + Send + Sync>;

async fn speak_http(
    shared: &Arc<Shared>,
    about: &About,
    lent: Lent,
    close_due: &tokio::sync::Notify,
) -> Result<(), HttpError> {
    let client = Arc::new(Client::new(about.client, about.server, about.client_certificate.as_deref()));
    let service = service_fn(|request: Request<Incoming>| {
        let (shared, client) = (shared.clone(), client.clone());
        async move {
            shared.metrics.requests.inc();
            Ok::<_, Infallible>(shared.site.respond(request, &client).await)
        }
    });
    let io = TokioIo::new(lent);
    let timeout = shared.limits.keep_alive_timeout;
    if about.tls.alpn == b"h2" {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(STREAMS_MAX).max_header_list_size(HEAD_LEN_MAX as u32);
        builder.keep_alive_interval(timeout).keep_alive_timeout(timeout);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            result = connection.as_mut() => return Ok(result?),
            () = close_due.notified() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(timeout).max_buf_size(HEAD_LEN_MAX).half_close(true);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            result = connection.as_mut() => return Ok(result?),
            () = close_due.notified() => connection.as_mut().graceful_shutdown(),
        }
        Ok(connection.await?)
    }
}

/// What the client is to learn of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// Everything that was begun is complete: `close_notify`.
    Complete,
    /// A response was cut short, or may have been: a fatal alert.
    Cut,
    /// The client was told by an alert, or told us by one.
    Alerted,
}

impl Outcome {
    fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cut => "cut",
            Self::Alerted => "alert",
        }
    }
}

/// Why a record was refused, as a metric label.
fn label(cause: OpenError) -> &'static str {
    match cause {
        OpenError::BadRecordMac => "bad_record_mac",
        OpenError::PeerMisbehaved(PeerMisbehaved::RecordTooLong(_) | PeerMisbehaved::PlaintextTooLong) => {
            "record_too_long"
        }
        OpenError::PeerMisbehaved(_) => "peer_misbehaved",
        OpenError::NotOneRecord | OpenError::AlreadyFailed => "internal",
    }
}

fn outcome(result: &Result<(), HttpError>, read_end: Option<ReadEnd>) -> Outcome {
    if let Some(ReadEnd::Failed(_) | ReadEnd::PeerAlert(_)) = read_end {
        return Outcome::Alerted;
    }
    let Err(error) = result else { return Outcome::Complete };
    match error.downcast_ref::<hyper::Error>() {
        // These end a connection between responses, or before one was begun.
        Some(error) if error.is_parse() || error.is_timeout() => Outcome::Complete,
        _ => Outcome::Cut,
    }
}

/// Ends the stream to the client as `outcome` says, and tells the dispatcher where.
async fn end(shared: &Arc<Shared>, about: &About, mut parts: Parts<TcpStream>, outcome: Outcome) {
    if !parts.connection.is_write_closed() {
        let alert = match outcome {
            Outcome::Complete | Outcome::Alerted => AlertDescription::CLOSE_NOTIFY,
            Outcome::Cut => AlertDescription::INTERNAL_ERROR,
        };
        if let Err(error) = parts.connection.seal_alert(alert, &mut parts.unsent) {
            tracing::debug!(connection = %about.id, %error, "no closing alert");
        }
    }
    let Parts { mut io, unsent, sent, .. } = parts;
    let flushed = tokio::time::timeout(shared.limits.end_timeout, io.write_all(&unsent)).await;
    if !matches!(flushed, Ok(Ok(()))) {
        // The client does not take the end, or is gone: what it has must not look complete.
        return tcp::reset_on_close(&io);
    }
    let ending = Ending {
        connection: about.id,
        dispatcher: about.dispatcher.clone(),
        tenure: about.tenure,
        sent: sent + unsent.len() as u64,
    };
    announce_end(shared, io, &ending).await;
}

/// The end of a connection's stream to the client.
pub(crate) struct Ending {
    pub(crate) connection: ConnectionId,
    pub(crate) dispatcher: NodeName,
    pub(crate) tenure: Epoch,
    /// The length of the stream.
    pub(crate) sent: u64,
}

/// Announces the end of the stream to the client, and closes the leg when the dispatcher has: the announcement is
/// repeated until then, because a link may be lost with it.
pub(crate) async fn announce_end(shared: &Shared, mut leg: TcpStream, ending: &Ending) {
    let message = Message::Final(Final { connection: ending.connection, epoch: ending.tenure, tx_offset: ending.sent });
    shared.tell(&ending.dispatcher, &message);
    tcp::finish(&leg);
    let repeat = async {
        let mut interval = tokio::time::interval(shared.limits.retry_interval);
        interval.tick().await;
        loop {
            interval.tick().await;
            shared.tell(&ending.dispatcher, &message);
        }
    };
    tokio::select! {
        _ = drain(&mut leg) => {}
        () = repeat => {}
        () = tokio::time::sleep(shared.limits.end_timeout) => {}
    }
}

/// Reads and drops what still comes: closing with unread input would reset the leg, and lose what was sent last.
async fn drain(leg: &mut TcpStream) -> io::Result<()> {
    let mut dropped = [0; 4096];
    while leg.read(&mut dropped).await? > 0 {}
    Ok(())
}
