//! Balancing policies: which agent does a client's handshake, and which gets its data; which origin gets a request; and
//! what is known of them for that: how fast they answer, and whether they do.
//!
//! Pure: the caller says who is available at the moment, and what time it is, and gets a choice among them. What a
//! candidate is called is its own business, as long as names are in order and have a text.

mod address;
mod budget;
mod health;
mod origin;
mod outlier;
mod rendezvous;
mod response;
mod turns;
mod window;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use address::{ClientPrefix, InvalidPrefix};
pub use budget::{RetryBudget, RetryLimits};
pub use health::{Change, Health, Patience};
pub use origin::{Balancer, InvalidLoadFactor, LoadFactor, OriginPolicy};
pub use outlier::{Cause, Outcome, OutlierLimits, Outliers, Verdict};
pub use rendezvous::{by_client_address, by_key};
pub use response::ResponseAverage;
pub use turns::Turns;

/// Picks the agent for a handshake. Where several are as good, they take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakePolicy {
    /// Each available agent in turn, whatever its weight.
    RoundRobin,
    /// Each in turn, as often as its weight says (smooth weighted round robin).
    Weighted,
    /// The one with the fewest connections for its weight.
    LeastConnections,
    /// The one that answers soonest for its weight; connections that it has not answered yet count as so many times its
    /// average.
    ShortestResponse,
    /// The one that the client's address selects.
    ClientAddress,
}

/// Picks the agent for the data that follows a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkPolicy {
    /// The agent that the client's address selects, whoever did the handshake: the persistence of CSSL-SF.
    ClientAddress,
    /// The agent that did the handshake.
    Stay,
    /// No handoff: the client's address selects the agent of the handshake too (the paper's "migration off").
    Off,
}

/// The largest weight an agent may have.
pub const WEIGHT_MAX: u32 = 1000;

/// A share that has not been reduced, of an agent of weight 1.
const WHOLE: u64 = 1000;

/// Nobody who has answered is taken for faster than this, nor one that never has: that it is tried is enough, it need not
/// be flooded.
const RESPONSE_MIN: Duration = Duration::from_micros(100);

/// One that can be picked, and is called `N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<N> {
    /// Its name.
    pub name: N,
    /// How much it shall get in relation to others: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// How long ago it appeared, and how long it takes from then on until it gets all of its share. `None`: it does.
    pub slow_start: Option<(Duration, Duration)>,
    /// Connections that it has; requests in progress, where it is requests that are given out.
    pub connections: usize,
    /// Of those, the ones it was given and has not answered yet.
    pub unanswered: usize,
    /// See [`ResponseAverage`].
    pub response: Duration,
}

impl<N> Candidate<N> {
    /// One like any other.
    pub fn new(name: N) -> Self {
        Self { name, weight: 1, slow_start: None, connections: 0, unanswered: 0, response: Duration::ZERO }
    }

    /// What it gets in relation to others; never 0.
    fn share(&self) -> u64 {
        u64::from(self.weight.max(1)) * self.even_share()
    }

    /// As [`Candidate::share`], whatever its weight.
    fn even_share(&self) -> u64 {
        match self.slow_start {
            Some((appeared_ago, whole_after)) if appeared_ago < whole_after => {
                let reached = appeared_ago.as_millis() * u128::from(WHOLE) / whole_after.as_millis().max(1);
                u64::try_from(reached).map_or(WHOLE, |reached| reached.clamp(1, WHOLE))
            }
            _ => WHOLE,
        }
    }

    fn expected_response(&self) -> u128 {
        self.response.max(RESPONSE_MIN).as_nanos() * (self.unanswered as u128 + 1)
    }
}

impl HandshakePolicy {
    /// The one of `available` that does the handshake of `client`, which is a network where addresses of one count as
    /// the same client ([`ClientPrefix::network`]). `None` if none is available.
    pub fn pick<'a, N: Ord + Clone + AsRef<str>>(
        self,
        turns: &mut Turns<N>,
        client: IpAddr,
        available: &'a [Candidate<N>],
    ) -> Option<&'a Candidate<N>> {
        match self {
            Self::RoundRobin => turns.next(available, Candidate::even_share),
            Self::Weighted => turns.next(available, Candidate::share),
            Self::LeastConnections => {
                turns.next(cheapest(available, |agent| agent.connections as u128), Candidate::share)
            }
            Self::ShortestResponse => turns.next(cheapest(available, Candidate::expected_response), Candidate::share),
            Self::ClientAddress => by_client_address(client, available),
        }
    }
}

/// All that cost the least for their share.
fn cheapest<N>(
    available: &[Candidate<N>],
    cost: impl Fn(&Candidate<N>) -> u128,
) -> impl Iterator<Item = &Candidate<N>> {
    let compare = move |a: &Candidate<N>, b: &Candidate<N>| {
        (cost(a) * u128::from(b.share())).cmp(&(cost(b) * u128::from(a.share())))
    };
    let least = available.iter().min_by(|a, b| compare(a, b));
    available.iter().filter(move |agent| least.is_some_and(|least| compare(agent, least).is_eq()))
}

#[cfg(test)]
mod tests;
