//! `[[agent.proxy.pool]]`: the selection of origins, their checks, and the limits.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::uri::PathAndQuery;
use schemars::JsonSchema;
use serde::Deserialize;
use watari_balance::{HealthThresholds, OriginPolicy};
use watari_proxy::{Balance, Check as OriginCheck, HttpCheck, Limits, PoolConfig};
use watari_values::setting::{As, Span};

use super::RawPool;
use crate::config::check::{Check, Wrong};
use crate::config::spanned::Spanned;

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

/// Health checks of origins. Without this table, there are none.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RawCheck {
    /// The path that a check requests, with a query or without. Without it, a check only connects.
    path: Option<Spanned<String>>,
    /// The value of the field `Host`. It needs `path`. Without it, the host of the origin's address.
    host: Option<Spanned<String>>,
    /// The statuses of a healthy origin: one, or a range. It needs `path`.
    #[schemars(extend("default" = healthy_statuses(), "pattern" = "^[1-5][0-9][0-9](-[1-5][0-9][0-9])?$"))]
    statuses: Option<Spanned<String>>,
    /// The time from the start of one check to the start of the next.
    #[serde(with = "As::<Span>")]
    interval: Duration,
    /// The time limit of one check.
    #[serde(with = "As::<Span>")]
    timeout: Duration,
    /// Consecutive failures after which an origin gets no requests.
    #[serde(with = "As::<NonZeroU32>")]
    fall: u32,
    /// Consecutive successes after which the origin gets requests again.
    #[serde(with = "As::<NonZeroU32>")]
    rise: u32,
}

impl Default for RawCheck {
    fn default() -> Self {
        let OriginCheck { http: _, interval, timeout, thresholds } = OriginCheck::default();
        let HealthThresholds { fall, rise } = thresholds;
        Self { path: None, host: None, statuses: None, interval, timeout, fall, rise }
    }
}

fn healthy_statuses() -> String {
    let statuses = HttpCheck::of(PathAndQuery::from_static("/")).statuses;
    format!("{}-{}", statuses.start(), statuses.end())
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
            limits: raw.limits.clone(),
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
        let retry_on = raw.retry_on.as_ref().map(|on| on.iter().copied().collect());
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
        let RawCheck { interval, timeout, fall, rise, .. } = *raw;
        Ok(OriginCheck { http: self.http_check(raw)?, interval, timeout, thresholds: HealthThresholds { fall, rise } })
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
