//! Limits on exchanges with origins.

use std::time::Duration;

/// Limits on the proxy's work. Every wait has a timeout, and every pool has a maximum size.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The timeout of connecting to an origin: all its addresses, name resolution and TLS included.
    pub connect_timeout: Duration,
    /// The timeout from the end of a request to the head of its response. While a body is sent, the maximum time in
    /// which the origin takes no piece.
    pub response_timeout: Duration,
    /// The maximum pause of an origin within a response body.
    pub body_timeout: Duration,
    /// The minimum rate of a body of known length, in bytes per second, measured while the proxy waits for it: of a
    /// response on average over `body_timeout`, of a request over `response_timeout`. 0: no limit. Streams of unknown
    /// length (server-sent events, gRPC) may pause after each byte.
    pub body_rate_min: u32,
    /// The maximum number of origins that are tried for one request.
    pub attempts_max: usize,
    /// The maximum number of requests in flight to one origin. With [`Limits::idle_max`], this limits its connections.
    pub in_flight_max: usize,
    /// The maximum number of idle connections to one origin.
    pub idle_max: usize,
    /// The idle timeout of these connections.
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_mins(1),
            body_rate_min: 240,
            attempts_max: 3,
            in_flight_max: 1024,
            idle_max: 128,
            idle_timeout: Duration::from_secs(30),
        }
    }
}
