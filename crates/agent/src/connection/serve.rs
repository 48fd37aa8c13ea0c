//! Serves a connection that this node owns until it ends or can leave, and concludes how its stream ends.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use watari_http2::server::Fault;
use watari_record::{AlertDescription, OpenError, PeerMisbehaved};
use watari_stream::{Parts, ReadEnd};

use super::http::{Http, HttpEnd, HttpError, HttpStart, Parked};
use super::http1::serve_http1;
use super::http2::serve_http2;
use super::stalls::Stalled;
use crate::handoff::ending::Ending;
use crate::handoff::live::About;
use crate::handoff::registry::Orders;
use crate::leg::Leg;
use crate::node::metrics::{Counted, Metrics};
use crate::settings::current::CurrentSettings;

/// Serves connections with HTTP, and counts them.
pub(crate) struct Serving {
    http: Http,
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
}

/// The state of a connection after it was served.
pub(super) enum Served {
    /// The connection has to move.
    Parked(Box<Parked>),
    /// The stream to the client is complete. Its end is to be announced.
    Ended(Leg, Ending),
    /// The handshake failed after early data, and the client has the alert. The end of the stream is to be announced.
    Unfinished(Leg, Ending),
    /// The client did not take the end of the stream. The leg is reset.
    Reset,
}

impl Serving {
    pub(crate) fn new(http: Http, settings: Arc<CurrentSettings>, metrics: Arc<Metrics>) -> Self {
        Self { http, settings, metrics }
    }

    /// Serves the connection until it ends, or leaves for another agent as `orders` ask.
    pub(super) async fn serve(&self, start: HttpStart, orders: &mut Orders) -> Served {
        let about = start.about().clone();
        let (received, sent) = start.counts();
        let spoken = {
            let _counted = Counted::one_more(&self.metrics.connections);
            if about.tls.is_http2() {
                Box::pin(serve_http2(&self.http, start, orders)).await
            } else {
                serve_http1(&self.http, start, orders).await
            }
        };
        let (parts, read_end, result) = match spoken {
            HttpEnd::Parked(parked) => {
                let parts = &parked.live.parts;
                self.metrics.count_bytes(parts.received - received, parts.sent - sent);
                return Served::Parked(parked);
            }
            HttpEnd::Unfinished(unfinished) => {
                let cause = unfinished.failure();
                tracing::info!(connection = %about.id, client = %about.client, %cause, "handshake failed after early data");
                self.metrics.count_handshake_failed(cause.label());
                let flushed = Box::pin(unfinished.flush(self.settings.limits().end_timeout, &about)).await;
                return flushed.map_or(Served::Reset, |(leg, ending)| Served::Unfinished(leg, ending));
            }
            HttpEnd::Ended(stream, result) => {
                let read_end = stream.read_end();
                (stream.into_parts(), read_end, result)
            }
        };
        // The unsent rest goes out together with the end.
        let sent_in_all = parts.sent + parts.unsent.len() as u64;
        self.metrics.count_bytes(parts.received - received, sent_in_all - sent);
        self.note(&about, &result, read_end);
        let conclusion = conclusion(&result, read_end);
        tracing::debug!(connection = %about.id, conclusion = conclusion.label(), error = result.err(), "served");
        self.metrics.count_end(conclusion.label());
        // Boxed like all short states: see `Connections::run_new`.
        Box::pin(self.end(&about, parts, conclusion)).await
    }

    /// Logs and counts an end that a client caused.
    fn note(&self, about: &About, result: &Result<(), HttpError>, read_end: Option<ReadEnd>) {
        if let Some(ReadEnd::Failed(cause)) = read_end {
            tracing::info!(connection = %about.id, client = %about.client, %cause, "record refused");
            self.metrics.count_record_refused(label(cause));
        }
        if let Some(stalled) = result.as_ref().err().and_then(|error| error.downcast_ref::<Stalled>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %stalled, "connection closed: the client stalls");
        }
        if let Some(fault) = result.as_ref().err().and_then(|error| error.downcast_ref::<Fault>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %fault, "connection ended");
            if fault.is_flood() {
                self.metrics.http2_floods.inc();
            }
        }
    }

    /// Ends the stream to the client as `conclusion` requires.
    async fn end(&self, about: &About, mut parts: Parts<Leg>, conclusion: Conclusion) -> Served {
        if !parts.connection.is_write_closed() {
            let alert = conclusion.alert();
            if let Err(error) = parts.connection.seal_alert(alert, &mut parts.unsent) {
                tracing::debug!(connection = %about.id, %error, "cannot seal the closing alert");
            }
        }
        let Parts { mut io, unsent, sent, received, .. } = parts;
        let flushed = tokio::time::timeout(self.settings.limits().end_timeout, io.write_all(&unsent)).await;
        if !matches!(flushed, Ok(Ok(()))) {
            // The client is gone or does not take the end. A reset shows it that the stream is incomplete.
            io.reset_on_close();
            return Served::Reset;
        }
        let ending = Ending {
            connection: about.id,
            dispatcher: about.dispatcher.clone(),
            tenure: about.tenure,
            sent: sent + unsent.len() as u64,
            received,
        };
        Served::Ended(io, ending)
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

    /// The alert that ends the stream, if the agent has sent none.
    fn alert(self) -> AlertDescription {
        match self {
            Self::Complete | Self::Alerted => AlertDescription::CLOSE_NOTIFY,
            Self::Cut => AlertDescription::INTERNAL_ERROR,
        }
    }
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

/// How a connection ends, by what HTTP and the record layer report:
///
/// | record layer | HTTP | |
/// | --- | --- | --- |
/// | a bad record, or the client's alert | any | alerted |
/// | any other | no error, or a fault of HTTP/2, which GOAWAY reports | complete |
/// | any other | a cut response, a stalled client, a broken tunnel | cut |
fn conclusion(result: &Result<(), HttpError>, read_end: Option<ReadEnd>) -> Conclusion {
    if let Some(ReadEnd::Failed(_) | ReadEnd::PeerAlert(_)) = read_end {
        return Conclusion::Alerted;
    }
    match result {
        Ok(()) => Conclusion::Complete,
        Err(error) if error.is::<Fault>() => Conclusion::Complete,
        Err(_) => Conclusion::Cut,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use watari_http2::Code;

    use super::*;

    #[test]
    fn each_result_of_http_has_its_conclusion() {
        use Conclusion::{Complete, Cut};
        let fault = Fault { code: Code::ProtocolError, what: "a fault" };
        let results: [(Result<(), HttpError>, Conclusion); 4] = [
            (Ok(()), Complete),
            (Err(fault.into()), Complete),
            (Err(Stalled.into()), Cut),
            (Err(io::Error::other("broken").into()), Cut),
        ];
        for (result, expected) in &results {
            for read_end in [None, Some(ReadEnd::CloseNotify), Some(ReadEnd::Truncated)] {
                assert_eq!(conclusion(result, read_end), *expected, "{result:?}");
            }
            for read_end in
                [ReadEnd::Failed(OpenError::BadRecordMac), ReadEnd::PeerAlert(AlertDescription::INTERNAL_ERROR)]
            {
                assert_eq!(conclusion(result, Some(read_end)), Conclusion::Alerted, "{result:?}");
            }
        }
    }

    #[test]
    fn only_a_cut_stream_ends_with_a_fatal_alert() {
        assert_eq!(Conclusion::Complete.alert(), AlertDescription::CLOSE_NOTIFY);
        assert_eq!(Conclusion::Alerted.alert(), AlertDescription::CLOSE_NOTIFY);
        assert_eq!(Conclusion::Cut.alert(), AlertDescription::INTERNAL_ERROR);
    }
}
