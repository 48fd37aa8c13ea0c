//! Selects the origin of a pool for a request, and others for retries.

use std::sync::{Arc, Mutex, PoisonError};

use http::Response;
use http::request::Parts;
use prometheus_client::metrics::counter::Counter;
use tokio::time::Instant;
use watari_balance::{Balancer, Candidate, OriginPolicy, RetryBudget};

use crate::exchange::client::Client;
use crate::exchange::failure::Failure;
use crate::pool::health::Name;
use crate::pool::origin::{Origin, Outcome};
use crate::pool::response_body::ResponseBody;
use crate::route::policy::{Balance, RetryOn};

/// The state for the selection.
#[derive(Debug)]
pub(super) struct Choice {
    balance: Balance,
    balancer: Mutex<Balancer<Name>>,
    budget: Mutex<RetryBudget>,
    attempts_max: usize,
    retries: Counter,
}

impl Choice {
    /// `retries` counts retries.
    pub(crate) fn new(balance: Balance, attempts_max: usize, retries: Counter, now: Instant) -> Self {
        Self {
            balancer: Mutex::new(Balancer::new(balance.policy, None)),
            budget: Mutex::new(RetryBudget::new(balance.retries, now.into_std())),
            balance,
            attempts_max,
            retries,
        }
    }

    /// The origins to try for a request. The one with index `wanted` comes first, unless another is in a better state.
    pub(crate) fn tries<'a>(
        &'a self,
        origins: &'a [Arc<Origin>],
        wanted: Option<usize>,
        request: &Parts,
        client: &Client,
        now: Instant,
    ) -> Attempts<'a> {
        let is_by_key = self.balance.policy == OriginPolicy::Hash;
        let key = if is_by_key { self.balance.hash_key.of(request, client).into_owned() } else { Vec::new() };
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).request(now.into_std());
        Attempts { choice: self, origins, wanted, key, picked: None, passed: Vec::new(), asked: 0 }
    }

    /// Selects one of `candidates`. Returns its index in the pool.
    fn pick(&self, key: &[u8], candidates: &[Candidate<Name>]) -> Option<usize> {
        let mut balancer = self.balancer.lock().unwrap_or_else(PoisonError::into_inner);
        balancer.pick(key, rand::random(), candidates).map(|picked| picked.name.index)
    }

    fn take_retry(&self) -> bool {
        let may = self.budget.lock().unwrap_or_else(PoisonError::into_inner).retry(Instant::now().into_std());
        if may {
            self.retries.inc();
        }
        may
    }
}

/// The origins that a request is sent to, one after the other.
pub(crate) struct Attempts<'a> {
    choice: &'a Choice,
    origins: &'a [Arc<Origin>],
    /// The index of the origin that the client is bound to.
    wanted: Option<usize>,
    /// The hash key, if the policy uses one.
    key: Vec<u8>,
    /// The index of the origin that was tried last.
    picked: Option<usize>,
    /// The indices of the origins before, which did not respond.
    passed: Vec<usize>,
    /// The number of origins that were actually sent the request.
    asked: usize,
}

/// The next step after the outcome of a try.
#[expect(clippy::large_enum_variant, reason = "nearly all values are responses")]
pub(super) enum AfterAttempt {
    /// Try another origin. The failure is the result if there is none.
    Again(Failure),
    End(Result<Response<ResponseBody>, Failure>),
}

impl Attempts<'_> {
    /// Selects the next origin among those in the best state. Origins that are draining come late, and those that are
    /// down come last: if all are down, all are tried.
    pub(crate) fn next(&mut self, now: Instant) -> Option<usize> {
        self.passed.extend(self.picked.take());
        if let [_] = self.origins {
            // The usual pool needs no selection.
            self.picked = self.passed.is_empty().then_some(0);
            return self.picked;
        }
        let left = self.origins.iter().enumerate().filter(|(index, _)| !self.passed.contains(index));
        let (mut best, mut candidates) = (None, Vec::new());
        for (_, origin) in left {
            let rank = origin.rank(now);
            if best.is_none_or(|best| rank < best) {
                best = Some(rank);
                candidates.clear();
            }
            if best == Some(rank) {
                candidates.push(origin.candidate(now));
            }
        }
        let is_among = |wanted: &usize| candidates.iter().any(|candidate| candidate.name.index == *wanted);
        self.picked = self.wanted.filter(is_among).or_else(|| self.choice.pick(&self.key, &candidates));
        self.picked
    }

    /// Decides after `outcome`.
    pub(super) fn judge(&mut self, outcome: Outcome, is_repeatable: bool) -> AfterAttempt {
        match outcome {
            // No origin was sent the request, so no attempt counts.
            Outcome::Untouched(failure @ Failure::Saturated(_)) => AfterAttempt::Again(failure),
            outcome => {
                self.asked += 1;
                self.judge_asked(outcome, is_repeatable)
            }
        }
    }

    fn judge_asked(&self, outcome: Outcome, is_repeatable: bool) -> AfterAttempt {
        match outcome {
            Outcome::Untouched(failure) if self.may_go_on() => AfterAttempt::Again(failure),
            Outcome::Failed(failure) if is_repeatable && failure.is_reset() && self.retries(Some(RetryOn::Reset)) => {
                AfterAttempt::Again(failure)
            }
            Outcome::Answered(response) if is_repeatable && self.retries(RetryOn::of(response.status())) => {
                AfterAttempt::Again(Failure::NoOrigin)
            }
            Outcome::Untouched(failure) | Outcome::Failed(failure) => AfterAttempt::End(Err(failure)),
            Outcome::Answered(response) => AfterAttempt::End(Ok(response)),
        }
    }

    fn retries(&self, on: Option<RetryOn>) -> bool {
        on.is_some_and(|on| self.choice.balance.retry_on.contains(&on)) && self.may_go_on()
    }

    /// Whether another origin may be tried. If so, charges the retry budget.
    fn may_go_on(&self) -> bool {
        self.asked < self.choice.attempts_max && self.passed.len() + 1 < self.origins.len() && self.choice.take_retry()
    }
}
