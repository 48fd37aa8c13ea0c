//! Which origin gets a request.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::{Candidate, RESPONSE_MIN, Turns, by_key, cheapest};

/// What decides which origin gets a request. An origin that starts slowly gets less at first, whatever the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginPolicy {
    /// Each available origin in turn, whatever its weight.
    RoundRobin,
    /// Each in turn, as often as its weight says (smooth weighted round robin).
    Weighted,
    /// The one with the fewest requests in progress for its weight. Where several are as good, they take turns.
    LeastConnections,
    /// Of two that are drawn, each as often as its weight says, the one where a request waits the shortest for its
    /// weight: its average response time as often as it has requests, this one included.
    ///
    /// Two suffice to keep the fullest one nearly as empty as the best choice among all would ("The power of two
    /// choices in randomized load balancing", Mitzenmacher, IEEE TPDS 2001), and proxies that do not know of each other
    /// do not all rush to the same one.
    TwoChoices,
    /// The one that the request's key selects (weighted rendezvous hashing), unless it has too much to do.
    Hash,
}

/// How many requests in progress an origin may have where keys select origins, in relation to the average for its
/// weight. One that has as many is passed over for the next that the key selects ("Consistent hashing with bounded
/// loads", Mirrokni, Thorup and Zadimoghaddam, SODA 2018).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadFactor {
    percent: u32,
}

/// Not all requests would find an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an origin must be allowed at least 100 percent of the average load, not {percent}")]
pub struct InvalidLoadFactor {
    percent: u32,
}

/// Gives requests to origins that are called `N`.
#[derive(Debug)]
pub struct Balancer<N> {
    policy: OriginPolicy,
    load_factor: Option<LoadFactor>,
    turns: Turns<N>,
}

impl LoadFactor {
    /// At least 100: an origin then gets no more than its share. 125 keeps most keys where they belong.
    pub fn from_percent(percent: u32) -> Result<Self, InvalidLoadFactor> {
        if percent < 100 {
            return Err(InvalidLoadFactor { percent });
        }
        Ok(Self { percent })
    }
}

impl<N: Ord + Clone + AsRef<str>> Balancer<N> {
    /// `load_factor` bounds what [`OriginPolicy::Hash`] gives an origin, and means nothing to other policies.
    pub fn new(policy: OriginPolicy, load_factor: Option<LoadFactor>) -> Self {
        Self { policy, load_factor, turns: Turns::default() }
    }

    /// The one of `available` that gets a request; `None` if there is none.
    ///
    /// `key` is what [`OriginPolicy::Hash`] goes by, as the request's path or its client's address; `random` are 64
    /// random bits, which [`OriginPolicy::TwoChoices`] draws by.
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

    /// Forgets origins that are not to be kept.
    pub fn retain(&mut self, kept: impl Fn(&N) -> bool) {
        self.turns.retain(kept);
    }
}

/// Those that have less than they may have. With a factor of 1 or more there always is one.
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

/// The index of one of `available` but `other`, each as often as its share says. `random` has 32 bits.
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

/// How long a request would take if all in progress took turns. One that has not answered yet is tried with one request,
/// and until it answers, everybody else comes first, as in Twitter's Finagle ("Peak EWMA").
fn load<N>(origin: &Candidate<N>) -> u128 {
    let requests = origin.connections as u128;
    if origin.response.is_zero() && requests > 0 {
        return u128::from(u64::MAX) + requests;
    }
    origin.response.max(RESPONSE_MIN).as_nanos() * (requests + 1)
}
