//! Balancing policies:
//!
//! * The agent that does a client's handshake, and the agent that gets the connection after it.
//! * The origin that gets a request.
//! * Response times, health and ejections, on which these choices depend.
//! * The connections that move by themselves, because agents have uneven loads.
//!
//! The crate is pure: the caller passes the available candidates and the time, and gets a choice. Candidates can have
//! names of any type that is ordered and has a text form.

mod address;
mod budget;
mod health;
mod origin;
mod outlier;
mod rebalance;
mod rendezvous;
mod response;
mod turns;
mod window;

use std::net::IpAddr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use address::{ClientPrefix, InvalidPrefix};
pub use budget::{RetryBudget, RetryLimits};
pub use health::{Change, Health, HealthThresholds};
pub use origin::{Balancer, InvalidLoadFactor, LoadFactor, OriginPolicy};
pub use outlier::{Cause, Outcome, OutlierLimits, Outliers, Verdict};
pub use rebalance::{AgentLoad, LoadKind, Rebalancer, Transfer};
pub use rendezvous::{by_client_address, by_key};
pub use response::ResponseAverage;
pub use turns::Turns;

/// Selects the agent for a handshake. Equally good agents take turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HandshakePolicy {
    /// Each available agent in turn, regardless of weight.
    RoundRobin,
    /// In turn, in proportion to the weights (smooth weighted round robin).
    Weighted,
    /// The agent with the fewest connections in proportion to its weight.
    LeastConnections,
    /// The agent with the shortest expected response time in proportion to its weight: its average, multiplied by its
    /// unanswered connections plus one.
    ShortestResponse,
    /// The agent that the client's address selects.
    ClientAddress,
}

/// Selects the agent for the connection after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkPolicy {
    /// The agent that the client's address selects, whichever agent did the handshake: the persistence of CSSL-SF.
    ClientAddress,
    /// The agent that did the handshake.
    Stay,
    /// No handoff: the client's address also selects the agent for the handshake (the paper's "migration off").
    Off,
}

/// The largest weight.
pub const WEIGHT_MAX: u32 = 1000;

/// The full share of a candidate with weight 1.
const WHOLE: u64 = 1000;

/// The lower bound of a response time in comparisons, also for a candidate that has not answered yet. Such a candidate
/// has to be tried, but not flooded.
const RESPONSE_MIN: Duration = Duration::from_micros(100);

/// An agent or origin that can be selected, with a name of type `N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<N> {
    pub name: N,
    /// The share in relation to others: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// The time since the candidate became available, and the time after that until it gets its full share. `None`: it
    /// gets its full share.
    pub slow_start: Option<(Duration, Duration)>,
    /// Its connections, or for origins its requests in progress.
    pub connections: usize,
    /// The connections or requests among these that it has not answered yet.
    pub unanswered: usize,
    /// The average response time; see [`ResponseAverage`]. Zero: none is known.
    pub response: Duration,
}

impl<N> Candidate<N> {
    /// A candidate of weight 1 without load.
    pub fn new(name: N) -> Self {
        Self { name, weight: 1, slow_start: None, connections: 0, unanswered: 0, response: Duration::ZERO }
    }

    /// The share in relation to others, by weight and slow start. Never 0.
    fn share(&self) -> u64 {
        u64::from(self.weight.max(1)) * self.even_share()
    }

    /// The share of a candidate of weight 1, by slow start.
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
    /// The agent of `available` for the handshake of `client`. The caller passes the network where a network counts as
    /// one client ([`ClientPrefix::network`]). `None`: `available` is empty.
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

/// All candidates with the lowest cost in proportion to their share.
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
