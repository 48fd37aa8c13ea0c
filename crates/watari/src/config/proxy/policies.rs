//! `[[agent.proxy.pool]]`: the selection of origins, their checks, and the limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use watari_balance::{HealthThresholds, OriginPolicy};
use watari_proxy::{Balance, Check as OriginCheck, HttpCheck, Limits, PoolConfig};
use watari_values::setting::Span;

use crate::config::check::{Check, Wrong};
use crate::config::raw::{RawCheck, RawPool};
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
