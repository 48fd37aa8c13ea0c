//! Selects the origin for a request.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Candidate, RESPONSE_MIN, Turns, by_key, cheapest};

/// The policy that selects an origin for a request. Under every policy, an origin in slow start gets less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OriginPolicy {
    /// Each available origin in turn, regardless of weight.
    RoundRobin,
    /// In turn, in proportion to the weights (smooth weighted round robin).
    Weighted,
    /// The origin with the fewest requests in progress in proportion to its weight. Equally good origins take turns.
    LeastConnections,
    /// Draws two origins with probabilities in proportion to their weights. Selects the one with the shorter expected
    /// wait in proportion to its weight: the average response time multiplied by the requests in progress plus one.
    ///
    /// Two draws keep the fullest origin nearly as empty as the best choice among all would ("The power of two choices
    /// in randomized load balancing", Mitzenmacher, IEEE TPDS 2001). Independent proxies do not all rush to the same
    /// origin.
    TwoChoices,
    /// The origin that the request's key selects (weighted rendezvous hashing), unless it is over the load factor.
    Hash,
}

/// The limit on an origin's requests in progress where keys select origins, in relation to the average for its weight.
/// The next origin for the key gets a request that would exceed it ("Consistent hashing with bounded loads", Mirrokni,
/// Thorup and Zadimoghaddam, SODA 2018).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadFactor {
    percent: u32,
}

/// With this load factor, some requests would find no origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an origin must be allowed at least 100 percent of the average load, not {percent}")]
pub struct InvalidLoadFactor {
    percent: u32,
}

/// Distributes requests to origins with names of type `N`.
#[derive(Debug)]
pub struct Balancer<N> {
    policy: OriginPolicy,
    load_factor: Option<LoadFactor>,
    turns: Turns<N>,
}

impl LoadFactor {
    /// At least 100. With 100, no origin gets more than its share. With 125, most keys keep their origin.
    pub fn from_percent(percent: u32) -> Result<Self, InvalidLoadFactor> {
        if percent < 100 {
            return Err(InvalidLoadFactor { percent });
        }
        Ok(Self { percent })
    }
}

impl<N: Ord + Clone + AsRef<str>> Balancer<N> {
    /// `load_factor` limits [`OriginPolicy::Hash`]. Other policies ignore it.
    pub fn new(policy: OriginPolicy, load_factor: Option<LoadFactor>) -> Self {
        Self { policy, load_factor, turns: Turns::default() }
    }

    /// The origin of `available` that gets a request. `None`: `available` is empty.
    ///
    /// [`OriginPolicy::Hash`] uses `key`, such as the request's path or the client's address.
    /// [`OriginPolicy::TwoChoices`] uses `random`, 64 random bits.
    pub fn pick<'a>(&mut self, key: &[u8], random: u64, available: &'a [Candidate<N>]) -> Option<&'a Candidate<N>> {
        match self.policy {
            OriginPolicy::RoundRobin => self.turns.next(available, Candidate::even_share),
            OriginPolicy::Weighted => self.turns.next(available, Candidate::share),
            OriginPolicy::LeastConnections => {
                self.turns.next(cheapest(available, |origin| origin.connections as u128), Candidate::share)
            }
            OriginPolicy::TwoChoices => better_of_two(random, available),
            OriginPolicy::Hash => match self.load_factor {
                Some(factor) => by_key(key, with_room(available, factor)),
                None => by_key(key, available),
            },
        }
    }

    /// Removes the state of origins for which `kept` returns false.
    pub fn retain(&mut self, kept: impl Fn(&N) -> bool) {
        self.turns.retain(kept);
    }
}

/// The origins below the limit. With a factor of 1 or more there is always one.
fn with_room<N>(available: &[Candidate<N>], factor: LoadFactor) -> impl Iterator<Item = &Candidate<N>> {
    let in_progress: u128 = available.iter().map(|origin| origin.connections as u128).sum();
    let shares: u128 = available.iter().map(|origin| u128::from(origin.share())).sum();
    let allowed = u128::from(factor.percent) * (in_progress + 1);
    available
        .iter()
        .filter(move |origin| origin.connections as u128 * 100 * shares < allowed * u128::from(origin.share()))
}

fn better_of_two<N>(random: u64, available: &[Candidate<N>]) -> Option<&Candidate<N>> {
    let (high, low) = (random >> 32, random & u64::from(u32::MAX));
    let first = draw(high, available, None)?;
    let Some(second) = draw(low, available, Some(first)) else { return available.get(first) };
    let (first, second) = (available.get(first)?, available.get(second)?);
    Some(if compare_load(second, first).is_lt() { second } else { first })
}

/// The index of one of `available` except `other`, drawn in proportion to the shares. `random` has 32 bits.
fn draw<N>(random: u64, available: &[Candidate<N>], other: Option<usize>) -> Option<usize> {
    let shares = || {
        let others = available.iter().enumerate().filter(move |(index, _)| Some(*index) != other);
        others.map(|(index, origin)| (index, u128::from(origin.share())))
    };
    let all: u128 = shares().map(|(_, share)| share).sum();
    let mut left = (u128::from(random) * all) >> 32;
    let drawn = shares().find(|(_, share)| {
        let found = left < *share;
        left = left.saturating_sub(*share);
        found
    });
    drawn.map(|(index, _)| index)
}

fn compare_load<N>(a: &Candidate<N>, b: &Candidate<N>) -> Ordering {
    (load(a) * u128::from(b.share())).cmp(&(load(b) * u128::from(a.share())))
}

/// The expected time of a request, if all requests in progress take turns. An origin that has not answered yet gets one
/// request. Until it answers, all other origins have priority, as in Twitter's Finagle ("Peak EWMA").
fn load<N>(origin: &Candidate<N>) -> u128 {
    let requests = origin.connections as u128;
    if origin.response.is_zero() && requests > 0 {
        return u128::from(u64::MAX) + requests;
    }
    origin.response.max(RESPONSE_MIN).as_nanos() * (requests + 1)
}
