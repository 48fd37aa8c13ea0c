//! Serves a connection that this node owns until it ends or can leave, and concludes how its stream ends.

use std::sync::Arc;

use tokio::io::AsyncWriteExt;
use watari_http2::Flood;
use watari_record::{AlertDescription, OpenError, PeerMisbehaved};
use watari_stream::{Parts, ReadEnd};

use super::http::{HTTP2, Http, HttpEnd, HttpError, HttpStart, Parked};
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
            if about.tls.alpn == HTTP2 {
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
        let conclusion = conclusion(about.tls.alpn == HTTP2, &result, read_end);
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
        if let Some(error) = refused_request(result) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %error, "request refused");
        }
        if let Some(stalled) = result.as_ref().err().and_then(|error| error.downcast_ref::<Stalled>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %stalled, "connection closed: the client stalls");
        }
        if let Some(flood) = result.as_ref().err().and_then(|error| error.downcast_ref::<Flood>()) {
            tracing::info!(connection = %about.id, client = %about.client, cause = %flood, "connection ended");
            self.metrics.http2_floods.inc();
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

/// How a connection ends, by what HTTP and the record layer report:
///
/// | record layer | HTTP | HTTP/1.1 | HTTP/2 |
/// | --- | --- | --- | --- |
/// | a bad record, or the client's alert | any | alerted | alerted |
/// | any other | no error, or a flood of frames | complete | complete |
/// | any other | a malformed request, or none in time | complete | complete |
/// | any other | another error of HTTP | cut | complete |
/// | any other | a stalled client, a broken tunnel | cut | cut |
fn conclusion(is_http2: bool, result: &Result<(), HttpError>, read_end: Option<ReadEnd>) -> Conclusion {
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
        Some(_) if is_http2 => Conclusion::Complete,
        _ => Conclusion::Cut,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::convert::Infallible;
    use std::io;

    use http::Response;
    use http_body_util::Empty;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;
    use tokio::io::duplex;

    use super::*;

    /// The error of HTTP/1.1 for a client that sends `input` and ends.
    async fn http_error(input: &'static [u8]) -> HttpError {
        let (mut client, server) = duplex(4096);
        client.write_all(input).await.unwrap();
        client.shutdown().await.unwrap();
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Empty::<bytes::Bytes>::new())) });
        http1::Builder::new().serve_connection(TokioIo::new(server), service).await.unwrap_err().into()
    }

    #[tokio::test]
    async fn each_result_of_http_has_its_conclusion() {
        use Conclusion::{Complete, Cut};
        let results: [(&str, Result<(), HttpError>, Conclusion, Conclusion); 6] = [
            ("no error", Ok(()), Complete, Complete),
            ("a flood", Err(Flood.into()), Complete, Complete),
            ("a malformed request", Err(http_error(b"nonsense\r\n\r\n").await), Complete, Complete),
            ("an error of HTTP", Err(http_error(b"GET / HTTP/1.1\r\nHo").await), Cut, Complete),
            ("a stalled client", Err(Stalled.into()), Cut, Cut),
            ("another error", Err(io::Error::other("broken").into()), Cut, Cut),
        ];
        for (text, result, of_http1, of_http2) in &results {
            for read_end in [None, Some(ReadEnd::CloseNotify), Some(ReadEnd::Truncated)] {
                assert_eq!(conclusion(false, result, read_end), *of_http1, "{text}");
                assert_eq!(conclusion(true, result, read_end), *of_http2, "{text}");
            }
            for read_end in
                [ReadEnd::Failed(OpenError::BadRecordMac), ReadEnd::PeerAlert(AlertDescription::INTERNAL_ERROR)]
            {
                assert_eq!(conclusion(false, result, Some(read_end)), Conclusion::Alerted, "{text}");
                assert_eq!(conclusion(true, result, Some(read_end)), Conclusion::Alerted, "{text}");
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
