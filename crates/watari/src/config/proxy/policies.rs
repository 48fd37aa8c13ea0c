//! `[[agent.proxy.pool]]`: the selection of origins, their checks, and the limits.

use std::num::{NonZeroU32, NonZeroUsize};
use std::ops::RangeInclusive;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use watari_balance::{HealthThresholds, OriginPolicy};
use watari_proxy::{Balance, Check as OriginCheck, HttpCheck, Limits, PoolConfig, RetryOn};

use super::RawPool;
use crate::config::check::{Check, Wrong};
use crate::config::value::Span;

/// The settings of the file. All others stay as in a plain pool.
#[derive(Debug, Default)]
pub(super) struct Policies {
    balance: Balance,
    /// In the order of the origins. Empty: all have the same weight.
    weights: Vec<u32>,
    resolve_interval: Option<Duration>,
    check: Option<OriginCheck>,
    limits: Limits,
}

#[derive(Clone, Copy, Deserialize)]
pub(super) enum RawRetryOn {
    #[serde(rename = "reset")]
    Reset,
    #[serde(rename = "502")]
    BadGateway,
    #[serde(rename = "503")]
    Unavailable,
    #[serde(rename = "504")]
    GatewayTimeout,
}

/// `[agent.proxy.pool.check]`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCheck {
    path: Option<Spanned<String>>,
    host: Option<Spanned<String>>,
    statuses: Option<Spanned<String>>,
    interval: Option<Span>,
    timeout: Option<Span>,
    fall: Option<NonZeroU32>,
    rise: Option<NonZeroU32>,
}

/// In bytes per second, from 0 to 1,000,000. The bound keeps it from ending transfers of ordinary speed.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "u32")]
struct RateMin(u32);

impl TryFrom<u32> for RateMin {
    type Error = String;

    fn try_from(rate: u32) -> Result<Self, String> {
        if rate <= 1_000_000 { Ok(Self(rate)) } else { Err(format!("{rate} is above the limit of 1000000 bytes/s")) }
    }
}

/// `[agent.proxy.pool.limits]`
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLimits {
    connect_timeout: Option<Span>,
    response_timeout: Option<Span>,
    body_timeout: Option<Span>,
    body_bytes_per_s_min: Option<RateMin>,
    attempts_max: Option<NonZeroUsize>,
    in_flight_max: Option<NonZeroUsize>,
    idle_max: Option<usize>,
    idle_timeout: Option<Span>,
}

impl Policies {
    /// `pool` with these settings.
    pub(super) fn of(&self, mut pool: PoolConfig) -> PoolConfig {
        for (origin, weight) in pool.origins.iter_mut().zip(&self.weights) {
            origin.weight = *weight;
        }
        if let Some(interval) = self.resolve_interval {
            pool.resolution.interval = interval;
        }
        let Self { balance, check, limits, .. } = self;
        PoolConfig { balance: balance.clone(), check: check.clone(), limits: limits.clone(), ..pool }
    }
}

impl Check<'_> {
    pub(super) fn policies(&self, raw: &RawPool) -> Result<Policies, Wrong> {
        Ok(Policies {
            balance: self.balance(raw)?,
            weights: self.weights(raw)?,
            resolve_interval: raw.resolve_interval.map(Span::get),
            check: raw.check.as_ref().map(|check| self.origin_check(check)).transpose()?,
            limits: limits(&raw.limits),
        })
    }

    fn balance(&self, raw: &RawPool) -> Result<Balance, Wrong> {
        let default = Balance::default();
        let policy = raw.balance.unwrap_or(default.policy);
        let hash_key = match &raw.hash_key {
            Some(key) if policy != OriginPolicy::Hash => {
                return self.wrong(key, "hash_key has no effect without balance = \"hash\"");
            }
            Some(key) => self.parsed(key)?,
            None => default.hash_key,
        };
        let slow_start = raw.slow_start.map(Span::get);
        let retry_on = raw.retry_on.as_ref().map(|on| on.iter().copied().map(RetryOn::from).collect());
        Ok(Balance { policy, hash_key, slow_start, retry_on: retry_on.unwrap_or(default.retry_on), ..default })
    }

    fn weights(&self, raw: &RawPool) -> Result<Vec<u32>, Wrong> {
        let Some(weights) = &raw.weights else { return Ok(Vec::new()) };
        let (given, origins) = (weights.get_ref().len(), raw.origins.get_ref().len());
        if given != origins {
            return self.wrong(weights, format!("there are {given} weights for {origins} origins"));
        }
        if raw.balance.is_none_or(|policy| policy == OriginPolicy::RoundRobin) {
            return self.wrong(weights, "round_robin does not use weights: set balance = \"weighted\"");
        }
        Ok(weights.get_ref().iter().map(|weight| weight.0).collect())
    }

    fn origin_check(&self, raw: &RawCheck) -> Result<OriginCheck, Wrong> {
        let default = OriginCheck::default();
        Ok(OriginCheck {
            http: self.http_check(raw)?,
            interval: raw.interval.map_or(default.interval, Span::get),
            timeout: raw.timeout.map_or(default.timeout, Span::get),
            thresholds: HealthThresholds {
                fall: raw.fall.map_or(default.thresholds.fall, NonZeroU32::get),
                rise: raw.rise.map_or(default.thresholds.rise, NonZeroU32::get),
            },
        })
    }

    fn http_check(&self, raw: &RawCheck) -> Result<Option<HttpCheck>, Wrong> {
        let Some(path) = &raw.path else {
            return match raw.host.as_ref().or(raw.statuses.as_ref()) {
                Some(alone) => {
                    self.wrong(alone, "host and statuses have no effect without path: the check only connects")
                }
                None => Ok(None),
            };
        };
        if !path.get_ref().starts_with('/') {
            return self.wrong(path, format!("the path \"{}\" does not begin with /", path.get_ref()));
        }
        let mut http = HttpCheck::of(self.parsed(path)?);
        http.host = raw.host.as_ref().map(|host| self.parsed(host)).transpose()?;
        if let Some(statuses) = &raw.statuses {
            http.statuses = self.statuses(statuses)?;
        }
        Ok(Some(http))
    }

    fn statuses(&self, raw: &Spanned<String>) -> Result<RangeInclusive<u16>, Wrong> {
        let text = raw.get_ref();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if (100..=last).contains(&first) && last <= 599 => Ok(first..=last),
            _ => self.wrong(raw, format!("\"{text}\" is not a status or a range, such as \"204\" or \"200-299\"")),
        }
    }

    fn parsed<T>(&self, raw: &Spanned<String>) -> Result<T, Wrong>
    where
        T: std::str::FromStr,
        T::Err: std::fmt::Display,
    {
        let parsed = raw.get_ref().parse();
        parsed.or_else(|error| self.wrong(raw, format!("\"{}\": {error}", raw.get_ref())))
    }
}

impl From<RawRetryOn> for RetryOn {
    fn from(raw: RawRetryOn) -> Self {
        match raw {
            RawRetryOn::Reset => Self::Reset,
            RawRetryOn::BadGateway => Self::BadGateway,
            RawRetryOn::Unavailable => Self::Unavailable,
            RawRetryOn::GatewayTimeout => Self::GatewayTimeout,
        }
    }
}

fn limits(raw: &RawLimits) -> Limits {
    let default = Limits::default();
    Limits {
        connect_timeout: raw.connect_timeout.map_or(default.connect_timeout, Span::get),
        response_timeout: raw.response_timeout.map_or(default.response_timeout, Span::get),
        body_timeout: raw.body_timeout.map_or(default.body_timeout, Span::get),
        body_rate_min: raw.body_bytes_per_s_min.map_or(default.body_rate_min, |rate| rate.0),
        attempts_max: raw.attempts_max.map_or(default.attempts_max, NonZeroUsize::get),
        in_flight_max: raw.in_flight_max.map_or(default.in_flight_max, NonZeroUsize::get),
        idle_max: raw.idle_max.unwrap_or(default.idle_max),
        idle_timeout: raw.idle_timeout.map_or(default.idle_timeout, Span::get),
    }
}
