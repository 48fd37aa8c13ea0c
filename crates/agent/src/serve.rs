//! Serves a connection that this node owns, until it ends or leaves.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use watari_http2::Flood;
use watari_record::{AlertDescription, OpenError, PeerMisbehaved};
use watari_stream::{Parts, ReadEnd};
use watari_sys::tcp;
use watari_wire::Leave;

use crate::AgentShared;
use crate::departure::{self, Outcome};
use crate::ending::{Ending, announce_end};
use crate::live::About;
use crate::metrics::Counted;
use crate::serve_http::{HTTP2, HttpEnd, HttpError, HttpStart, serve_http};
use crate::stalls::Stalled;

/// Serves the connection until it ends, or leaves for another agent as `leaves` asks. Returns the leg if it is free for
/// another connection.
pub(crate) async fn serve(
    shared: &Arc<AgentShared>,
    mut start: HttpStart,
    leaves: &mut mpsc::Receiver<Box<Leave>>,
) -> Option<TcpStream> {
    loop {
        let about = start.about().clone();
        let (received, sent) = start.counts();
        let spoken = {
            let _counted = Counted::one_more(&shared.metrics.connections);
            serve_http(shared, start, leaves).await
        };
        let (parts, read_end, result) = match spoken {
            HttpEnd::Parked(parked, target) => {
                shared.metrics.count_bytes(parked.parts.received - received, parked.parts.sent - sent);
                match departure::depart(shared, parked, target).await {
                    Outcome::Stays(stays) => start = HttpStart::Live(stays),
                    Outcome::Left(leg) => return leg,
                }
                continue;
            }
            HttpEnd::Unfinished(unfinished) => {
                unfinished.end(shared, &about).await;
                return None;
            }
            HttpEnd::Ended(stream, result) => {
                let read_end = stream.read_end();
                (stream.into_parts(), read_end, result)
            }
        };
        // The unsent rest goes out together with the end.
        let sent_in_all = parts.sent + parts.unsent.len() as u64;
        shared.metrics.count_bytes(parts.received - received, sent_in_all - sent);
        if let Some(ReadEnd::Failed(cause)) = read_end {
            tracing::info!(connection = %about.id, client = %about.client, %cause, "record refused");
            shared.metrics.count_record_refused(label(cause));
        }
        if let Some(error) = refused_request(&result) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %error, "request refused");
        }
        if let Some(stalled) = result.as_ref().err().and_then(|error| error.downcast_ref::<Stalled>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %stalled, "connection closed: the client stalls");
        }
        if let Some(flood) = result.as_ref().err().and_then(|error| error.downcast_ref::<Flood>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %flood, "connection ended");
            shared.metrics.http2_floods.inc();
        }
        let conclusion = conclusion(&about, &result, read_end);
        tracing::debug!(connection = %about.id, conclusion = conclusion.label(), error = result.err(), "served");
        shared.metrics.count_end(conclusion.label());
        return end(shared, &about, parts, conclusion).await;
    }
}

/// How the agent ends the stream to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Conclusion {
    /// All responses that were begun are complete: `close_notify`.
    Complete,
    /// A response was cut short, or may have been: a fatal alert.
    Cut,
    /// Either side has already sent an alert.
    Alerted,
}

impl Conclusion {
    fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Cut => "cut",
            Self::Alerted => "alert",
        }
    }
}

/// The client's malformed request, if that ended the connection.
fn refused_request(result: &Result<(), HttpError>) -> Option<&hyper::Error> {
    let error = result.as_ref().err()?.downcast_ref::<hyper::Error>()?;
    error.is_parse().then_some(error)
}

/// The reason that a record was refused, as a metric label.
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

fn conclusion(about: &About, result: &Result<(), HttpError>, read_end: Option<ReadEnd>) -> Conclusion {
    if let Some(ReadEnd::Failed(_) | ReadEnd::PeerAlert(_)) = read_end {
        return Conclusion::Alerted;
    }
    let Err(error) = result else { return Conclusion::Complete };
    // GOAWAY reports the error, as below.
    if error.is::<Flood>() {
        return Conclusion::Complete;
    }
    match error.downcast_ref::<hyper::Error>() {
        // These errors occur between responses, or before the first.
        Some(error) if error.is_parse() || error.is_timeout() => Conclusion::Complete,
        // HTTP/2 ends each stream explicitly, and GOAWAY reports the connection's error.
        Some(_) if about.tls.alpn == HTTP2 => Conclusion::Complete,
        _ => Conclusion::Cut,
    }
}

/// Ends the stream to the client as `conclusion` requires, and reports its length to the dispatcher. Returns the leg if
/// it is free afterwards.
async fn end(
    shared: &Arc<AgentShared>,
    about: &About,
    mut parts: Parts<TcpStream>,
    conclusion: Conclusion,
) -> Option<TcpStream> {
    if !parts.connection.is_write_closed() {
        let alert = match conclusion {
            Conclusion::Complete | Conclusion::Alerted => AlertDescription::CLOSE_NOTIFY,
            Conclusion::Cut => AlertDescription::INTERNAL_ERROR,
        };
        if let Err(error) = parts.connection.seal_alert(alert, &mut parts.unsent) {
            tracing::debug!(connection = %about.id, %error, "cannot seal the closing alert");
        }
    }
    let Parts { mut io, unsent, sent, received, .. } = parts;
    let flushed = tokio::time::timeout(shared.limits().end_timeout, io.write_all(&unsent)).await;
    if !matches!(flushed, Ok(Ok(()))) {
        // The client is gone or does not take the end. A reset shows it that the stream is incomplete.
        tcp::reset_on_close(&io);
        return None;
    }
    let ending = Ending {
        connection: about.id,
        dispatcher: about.dispatcher.clone(),
        tenure: about.tenure,
        sent: sent + unsent.len() as u64,
        received,
    };
    announce_end(shared, io, &ending).await
}
