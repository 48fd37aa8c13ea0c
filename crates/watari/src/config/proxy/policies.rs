//! `[[agent.proxy.pool]]`: the selection of origins, their checks, and the limits.

use std::ops::RangeInclusive;
use std::time::Duration;

use watari_balance::{HealthThresholds, OriginPolicy};
use watari_proxy::{Balance, Check as OriginCheck, HttpCheck, Limits, PoolConfig};
use watari_values::setting::Span;

use crate::config::check::{Check, Checked, optional};
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
    pub(super) fn policies(&self, raw: &RawPool) -> Option<Policies> {
        let (balance, weights) = (self.balance(raw), self.weights(raw));
        let check = optional(raw.check.as_ref(), |check| self.origin_check(check));
        Some(Policies {
            balance: balance?,
            weights: weights?,
            resolve_interval: raw.resolve_interval.map(Span::get),
            check: check?,
            limits: raw.limits.clone(),
        })
    }

    fn balance(&self, raw: &RawPool) -> Option<Balance> {
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
        Some(Balance { policy, hash_key, slow_start, retry_on: retry_on.unwrap_or(default.retry_on), ..default })
    }

    fn weights(&self, raw: &RawPool) -> Option<Vec<u32>> {
        let Some(weights) = &raw.weights else { return Some(Vec::new()) };
        let (given, origins) = (weights.get_ref().len(), raw.origins.get_ref().len());
        if given != origins {
            return self.wrong(weights, format!("there are {given} weights for {origins} origins"));
        }
        if raw.balance.is_none_or(|policy| policy == OriginPolicy::RoundRobin) {
            return self.wrong(weights, "round_robin does not use weights: set balance = \"weighted\"");
        }
        Some(weights.get_ref().iter().map(|weight| weight.0).collect())
    }

    fn origin_check(&self, raw: &RawCheck) -> Option<OriginCheck> {
        let RawCheck { interval, timeout, fall, rise, .. } = *raw;
        let http = self.http_check(raw)?;
        Some(OriginCheck { http, interval, timeout, thresholds: HealthThresholds { fall, rise } })
    }

    fn http_check(&self, raw: &RawCheck) -> Checked<Option<HttpCheck>> {
        let Some(path) = &raw.path else {
            return match raw.host.as_ref().or(raw.statuses.as_ref()) {
                Some(alone) => {
                    self.wrong(alone, "host and statuses have no effect without path: the check only connects")
                }
                None => Some(None),
            };
        };
        let http = if path.get_ref().starts_with('/') {
            self.parsed(path).map(HttpCheck::of)
        } else {
            self.wrong(path, format!("the path \"{}\" does not begin with /", path.get_ref()))
        };
        let host = optional(raw.host.as_ref(), |host| self.parsed(host));
        let statuses = optional(raw.statuses.as_ref(), |statuses| self.statuses(statuses));
        let (http, host, statuses) = (http?, host?, statuses?);
        Some(Some(HttpCheck { host, statuses: statuses.unwrap_or(http.statuses.clone()), ..http }))
    }

    fn statuses(&self, raw: &Spanned<String>) -> Option<RangeInclusive<u16>> {
        let text = raw.get_ref();
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if (100..=last).contains(&first) && last <= 599 => Some(first..=last),
            _ => self.wrong(raw, format!("\"{text}\" is not a status or a range, such as \"204\" or \"200-299\"")),
        }
    }
}
