//! A row for each connection and each request: a JSON object or a CSV line, with the same names.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use watari_endings::{Connection, Request, Side};
use watari_packets::Timestamp;

/// A connection that ended. Times are in seconds, times of day since the Unix epoch.
#[derive(Debug, Serialize)]
pub struct ConnectionRow<'a> {
    client: SocketAddr,
    server: SocketAddr,
    start: f64,
    duration_s: f64,
    ending: &'static str,
    phase: &'static str,
    /// `client`, `server`, or nothing.
    closed_by: Option<&'static str>,
    delivered: bool,
    requests: u32,
    handshake_s: Option<f64>,
    bytes_to_client: u64,
    bytes_to_server: u64,
    missed_bytes: u64,
    packets_to_client: u32,
    packets_to_server: u32,
    /// `http`, `tls`, or nothing.
    protocol: Option<&'static str>,
    tls_version: Option<&'static str>,
    tls_sni: Option<&'a str>,
    tls_resumed: Option<bool>,
    tls_early_data: Option<bool>,
    tls_handshake_s: Option<f64>,
    /// The alert's number (RFC 8446, section 6).
    tls_alert: Option<u8>,
    tls_alert_by: Option<&'static str>,
    /// As in Zeek's `conn.log`.
    conn_state: &'static str,
    /// As in Zeek's `conn.log`.
    history: &'a str,
}

/// A request with its answer, if it got one.
#[derive(Debug, Serialize)]
pub struct RequestRow<'a> {
    client: SocketAddr,
    server: SocketAddr,
    /// When its last octets were sent.
    asked: Option<f64>,
    /// From `asked` to the first octet of the answer.
    first_octet_s: Option<f64>,
    /// From `asked` to the last octet of the answer.
    response_s: Option<f64>,
    /// Whether the answer is known to be complete.
    complete: bool,
    method: Option<&'a str>,
    status: Option<u16>,
    /// Octets of content.
    content_bytes: Option<u64>,
}

impl<'a> ConnectionRow<'a> {
    pub fn new(connection: &'a Connection) -> Self {
        let tls = connection.tls.as_ref();
        let alert = tls.and_then(|tls| tls.alert);
        Self {
            client: connection.client,
            server: connection.server,
            start: seconds(connection.start),
            duration_s: connection.duration().as_secs_f64(),
            ending: connection.ending.as_str(),
            phase: connection.phase.as_str(),
            closed_by: connection.closed_by.map(Side::as_str),
            delivered: connection.is_delivered,
            requests: connection.requests,
            handshake_s: connection.handshake.as_ref().map(Duration::as_secs_f64),
            bytes_to_client: connection.bytes_to_client,
            bytes_to_server: connection.bytes_to_server,
            missed_bytes: connection.missed_bytes,
            packets_to_client: connection.packets_to_client,
            packets_to_server: connection.packets_to_server,
            protocol: connection.protocol.as_str(),
            tls_version: tls.and_then(|tls| Some(tls.version?.as_str())),
            tls_sni: tls.and_then(|tls| tls.sni.as_deref()),
            tls_resumed: tls.and_then(|tls| tls.is_resumed),
            tls_early_data: tls.map(|tls| tls.has_early_data),
            tls_handshake_s: tls.and_then(|tls| tls.handshake.as_ref().map(Duration::as_secs_f64)),
            tls_alert: alert.map(|alert| alert.description),
            tls_alert_by: alert.map(|alert| alert.by.as_str()),
            conn_state: connection.conn_state.as_str(),
            history: connection.history.as_str(),
        }
    }
}

impl<'a> RequestRow<'a> {
    pub fn new(request: &'a Request) -> Self {
        let (exchange, http) = (&request.exchange, request.http.as_ref());
        Self {
            client: request.client,
            server: request.server,
            asked: exchange.asked_at.map(seconds),
            first_octet_s: exchange.first_octet().as_ref().map(Duration::as_secs_f64),
            response_s: exchange.response().as_ref().map(Duration::as_secs_f64),
            complete: exchange.is_complete,
            method: http.and_then(|http| http.method.as_ref()).map(watari_endings::Method::as_str),
            status: http.and_then(|http| http.status),
            content_bytes: http.and_then(|http| http.content),
        }
    }
}

/// Seconds since the Unix epoch. An `f64` represents them to a microsecond.
#[expect(clippy::cast_precision_loss, reason = "as it says")]
pub fn seconds(at: Timestamp) -> f64 {
    (at.0 / 1_000) as f64 / 1e6
}
