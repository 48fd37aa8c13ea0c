//! Limits on exchanges with origins.

use std::num::NonZeroUsize;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watari_values::setting::{As, Span};

/// The limits on exchanges with the origins of a pool. Every wait has a timeout, and every pool has a maximum size.
// `[agent.proxy.pool.limits]` of a configuration file: the documentation of a field is that of its key.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// The timeout of connecting to an origin: all its addresses, name resolution and TLS included.
    #[serde(with = "As::<Span>")]
    pub connect_timeout: Duration,
    /// The timeout from the end of a request to the head of its response. While a body is sent, the maximum time in
    /// which the origin takes no piece.
    #[serde(with = "As::<Span>")]
    pub response_timeout: Duration,
    /// The maximum pause of an origin within a response body.
    #[serde(with = "As::<Span>")]
    pub body_timeout: Duration,
    /// The minimum rate of a body of known length, in bytes per second, measured while the proxy waits for it: of a
    /// response on average over `body_timeout`, of a request over `response_timeout`. A slower response is cut, or
    /// continues from another origin. 0: no minimum. Streams of unknown length (server-sent events, gRPC) may pause
    /// after each byte.
    #[serde(with = "As::<RateMin>")]
    pub body_bytes_per_s_min: u32,
    /// The maximum number of origins that are tried for one request.
    #[serde(with = "As::<NonZeroUsize>")]
    pub attempts_max: usize,
    /// The maximum number of requests in progress at one origin. With `idle_max`, this limits its connections.
    #[serde(with = "As::<NonZeroUsize>")]
    pub in_flight_max: usize,
    /// The maximum number of idle connections to one origin.
    pub idle_max: usize,
    /// The idle timeout of these connections.
    #[serde(with = "As::<Span>")]
    pub idle_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            response_timeout: Duration::from_mins(1),
            body_timeout: Duration::from_mins(1),
            body_bytes_per_s_min: 240,
            attempts_max: 3,
            in_flight_max: 1024,
            idle_max: 128,
            idle_timeout: Duration::from_secs(30),
        }
    }
}

/// In bytes per second. The bound keeps it from ending transfers of ordinary speed.
const RATE_MIN_MAX: u32 = 1_000_000;

/// At most [`RATE_MIN_MAX`].
#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "u32", into = "u32")]
#[schemars(inline, extend("maximum" = RATE_MIN_MAX))]
struct RateMin(u32);

impl TryFrom<u32> for RateMin {
    type Error = String;

    fn try_from(rate: u32) -> Result<Self, String> {
        if rate <= RATE_MIN_MAX {
            Ok(Self(rate))
        } else {
            Err(format!("{rate} is above the limit of {RATE_MIN_MAX} bytes/s"))
        }
    }
}

impl From<RateMin> for u32 {
    fn from(rate: RateMin) -> Self {
        rate.0
    }
}
