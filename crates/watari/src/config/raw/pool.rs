//! `[[agent.proxy.pool]]`, with its tables

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use http::uri::PathAndQuery;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use watari_balance::{HealthThresholds, OriginPolicy};
use watari_proxy::{
    Balance, Check, Damping, Governor, Handover, HttpCheck, HttpVersion, Metric, Resolution, RetryOn, Slow,
    TransferConditions, Unequal,
};
use watari_values::duration;
use watari_values::setting::{As, Span};

use crate::config::spanned::{Spanned, Texts};
use crate::config::value::{FilePath, Origin, ProxyProtocol, Weight};

/// A pool of origins that have the same content.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPool {
    /// The name of the pool, for routes, metrics and `watari ctl`.
    pub(crate) name: Spanned<String>,
    /// The origins.
    #[schemars(with = "Vec<Origin>")]
    pub(crate) origins: Texts,
    /// The version of HTTP for requests to origins.
    #[serde(default)]
    pub(crate) http: HttpVersion,
    /// The version of the PROXY protocol that carries the client's address to origins. Without it, the address is not
    /// sent.
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    #[serde(default)]
    pub(crate) tls: RawOriginTls,
    #[serde(default)]
    pub(crate) handover: RawHandover,
    /// Selects an origin for a request.
    #[schemars(extend("default" = Balance::default().policy))]
    pub(crate) balance: Option<OriginPolicy>,
    /// The part of a request that selects its origin, for `balance = "hash"`: `path`, `client`, `header:NAME` or
    /// `cookie:NAME`.
    #[schemars(extend("default" = Balance::default().hash_key.to_string(), "pattern" = "^(path|client|header:.+|cookie:.+)$"))]
    pub(crate) hash_key: Option<Spanned<String>>,
    /// The weights of the origins, in their order, for all policies but `round_robin`. Without it, they are equal.
    pub(crate) weights: Option<Spanned<Vec<Weight>>>,
    /// The time in which the share of an origin that comes back grows to its full size. Without it, the origin gets its
    /// full share at once.
    pub(crate) slow_start: Option<Span>,
    /// The failures after which a repeatable request is tried at another origin. A request that no origin has seen is
    /// always tried again.
    #[schemars(extend("default" = Balance::default().retry_on))]
    pub(crate) retry_on: Option<Vec<RetryOn>>,
    /// How long the addresses of a host name are used before it is resolved again.
    #[schemars(extend("default" = duration::text(Resolution::default().interval)))]
    pub(crate) resolve_interval: Option<Span>,
    pub(crate) check: Option<RawCheck>,
    #[serde(default)]
    pub(crate) limits: watari_proxy::Limits,
    #[serde(default)]
    pub(crate) queue: Vec<Spanned<RawQueue>>,
    /// Keeps clients at their origin by a cookie. Without it, each request gets an origin anew.
    pub(crate) sticky: Option<RawSticky>,
}

/// TLS settings for origins at `https://`.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawOriginTls {
    /// The authorities of the origins' certificates, in PEM. Without it, those of the system.
    pub(crate) ca: Option<Spanned<FilePath>>,
    /// The client certificate, in PEM, for origins that request one. It needs `key`.
    pub(crate) certificate: Option<Spanned<FilePath>>,
    /// The private key of `certificate`, in PEM.
    pub(crate) key: Option<Spanned<FilePath>>,
    /// The name in the origins' certificates. Without it, the host of the origin's address.
    pub(crate) server_name: Option<Spanned<String>>,
}

/// Limits on the requests at the origins of the pool. Further requests wait in a queue. The first rule whose pattern
/// matches a request applies to it, and the rule without a pattern applies to all requests of the pool.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawQueue {
    /// `HOST/PATH` or `/PATH`, with `*` for anything. Without it, the rule is for the whole pool.
    pub(crate) pattern: Option<Spanned<String>>,
    /// The most requests in progress. Without it, there is no limit.
    pub(crate) in_progress_max: Option<NonZeroUsize>,
    /// The most requests that wait. Beyond it, the client gets 503. Without it, there is no limit.
    pub(crate) queue_max: Option<usize>,
    /// The longest wait of a request. After it, the client gets 503. Without it, there is no limit.
    pub(crate) wait_max: Option<Span>,
    /// The priority of the requests. Requests of a higher priority begin first, except for one turn of ten.
    #[serde(default)]
    pub(crate) priority: u8,
}

/// Health checks of origins. Without this table, there are none.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RawCheck {
    /// The path that a check requests, with a query or without. Without it, a check only connects.
    pub(crate) path: Option<Spanned<String>>,
    /// The value of the field `Host`. It needs `path`. Without it, the host of the origin's address.
    pub(crate) host: Option<Spanned<String>>,
    /// The statuses of a healthy origin: one, or a range. It needs `path`.
    #[schemars(extend("default" = healthy_statuses(), "pattern" = "^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$"))]
    pub(crate) statuses: Option<Spanned<String>>,
    /// The time from the start of one check to the start of the next.
    #[serde(with = "As::<Span>")]
    pub(crate) interval: Duration,
    /// The time limit of one check.
    #[serde(with = "As::<Span>")]
    pub(crate) timeout: Duration,
    /// Consecutive failures after which an origin gets no requests.
    #[serde(with = "As::<NonZeroU32>")]
    pub(crate) fall: u32,
    /// Consecutive successes after which the origin gets requests again.
    #[serde(with = "As::<NonZeroU32>")]
    pub(crate) rise: u32,
}

impl Default for RawCheck {
    fn default() -> Self {
        let Check { http: _, interval, timeout, thresholds } = Check::default();
        let HealthThresholds { fall, rise } = thresholds;
        Self { path: None, host: None, statuses: None, interval, timeout, fall, rise }
    }
}

fn healthy_statuses() -> String {
    let statuses = HttpCheck::of(PathAndQuery::from_static("/")).statuses;
    format!("{}-{}", statuses.start(), statuses.end())
}

/// How downloads continue from another origin.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawHandover {
    /// When downloads move.
    #[serde(default)]
    pub(crate) mode: HandoverMode,
    /// Bytes that the other origin sends again, for comparison.
    #[schemars(extend("default" = TransferConditions::default().overlap))]
    pub(crate) overlap_bytes: Option<usize>,
    /// The least length of a response that can move, in bytes. Shorter ones end with their origin.
    #[schemars(extend("default" = Handover::default().length_min))]
    pub(crate) length_min_bytes: Option<u64>,
    /// Origins count as equal, whatever their validators are, if this many bytes are equal. Without it, validators have
    /// to prove that they are equal.
    pub(crate) equal_by_bytes: Option<NonZeroUsize>,
    /// The time after which a download leaves an origin that sends nothing, or less than `body_bytes_per_s_min` in
    /// `[agent.proxy.pool.limits]`.
    #[schemars(extend("default" = Governor::default().stalled.map(duration::text)))]
    pub(crate) stalled: Option<Span>,
    /// A share of the rate that other downloads get. A download with less leaves its origin.
    #[schemars(extend("default" = Slow::default().share))]
    pub(crate) slow_share: Option<Ratio>,
    /// The load that is balanced between origins.
    #[schemars(extend("default" = RawMetric::from(Unequal::default().metric)))]
    pub(crate) metric: Option<RawMetric>,
    /// Downloads begin to leave an origin whose load exceeds that of the least loaded origin by this factor.
    #[schemars(extend("default" = Unequal::default().high))]
    pub(crate) unequal_above: Option<Ratio>,
    /// Downloads leave that origin until its load exceeds that of the least loaded origin by no more than this factor.
    #[schemars(extend("default" = Unequal::default().low))]
    pub(crate) unequal_until: Option<Ratio>,
    /// The least time at an origin before a download moves because of load or speed.
    #[schemars(extend("default" = duration::text(Damping::default().stay_min)))]
    pub(crate) stay_min: Option<Span>,
    /// The least factor in speed that such a move has to gain.
    #[schemars(extend("default" = Damping::default().gain_min))]
    pub(crate) gain_min: Option<Ratio>,
    /// The least rest of a download that moves because of load or speed, in bytes.
    #[schemars(extend("default" = Damping::default().remaining_min))]
    pub(crate) remaining_min_bytes: Option<u64>,
    /// The most moves of one download because of load or speed.
    #[schemars(extend("default" = Damping::default().moves_max))]
    pub(crate) moves_max: Option<u32>,
    /// The most downloads that move in a second. Those whose origin failed do not count.
    #[schemars(extend("default" = Damping::default().moves_per_s))]
    pub(crate) moves_per_s: Option<NonZeroU32>,
    /// The most downloads that move to or from one origin in a second. Those whose origin failed do not count.
    #[schemars(extend("default" = Damping::default().origin_moves_per_s))]
    pub(crate) origin_moves_per_s: Option<NonZeroU32>,
}

/// When transfers move.
#[derive(Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum HandoverMode {
    /// Never.
    Off,
    /// If their origin fails, stalls or is drained, or if an operator orders it.
    Needed,
    /// Also if their origin is slow, or has more load than others.
    #[default]
    Balanced,
}

#[derive(Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RawMetric {
    /// Requests in progress, divided by the weight.
    Connections,
    /// The time until the origin responds.
    Response,
    /// Bytes per second, divided by the weight. It suits origins that are far from their limits.
    Rate,
}

impl From<Metric> for RawMetric {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::Connections => Self::Connections,
            Metric::Response => Self::Response,
            Metric::Rate => Self::Rate,
        }
    }
}

/// A number above 0.
#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "f64")]
#[schemars(inline, with = "f64", extend("exclusiveMinimum" = 0))]
pub(crate) struct Ratio(pub(in crate::config) f64);

impl TryFrom<f64> for Ratio {
    type Error = String;

    fn try_from(ratio: f64) -> Result<Self, String> {
        if ratio.is_finite() && ratio > 0.0 { Ok(Self(ratio)) } else { Err(format!("{ratio} is not above 0")) }
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSticky {
    /// The name of the cookie: 1 to 64 letters, digits, `-` or `_`.
    pub(crate) cookie: Spanned<String>,
    /// How long the browser keeps the cookie. Without it, until the browser ends.
    pub(crate) ttl: Option<Span>,
    /// The file with the secret that seals cookies, of at least 32 bytes. It has to be the same at all agents.
    pub(crate) secret: Spanned<FilePath>,
}
