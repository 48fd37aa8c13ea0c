//! Balancing policies: which agent does a client's handshake, and which gets its data; and what is known of agents for
//! that: how fast they answer, and whether they do.
//!
//! Pure: the caller says which agents are available at the moment, and what time it is, and gets a choice among them.

mod address;
mod health;
mod response;
mod turns;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_wire::NodeName;

pub use address::{ClientPrefix, InvalidPrefix, by_client_address};
pub use health::{Change, Health, Patience};
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

/// No agent that has answered is taken for faster than this, nor one that never has: that it is tried is enough, it
/// need not be flooded.
const RESPONSE_MIN: Duration = Duration::from_micros(100);

/// An agent that can be picked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: NodeName,
    /// How much it shall get in relation to others: 1 to [`WEIGHT_MAX`].
    pub weight: u32,
    /// How long ago it appeared, and how long it takes from then on until it gets all of its share. `None`: it does.
    pub slow_start: Option<(Duration, Duration)>,
    /// Connections that it has.
    pub connections: usize,
    /// Connections that it was given and has not answered yet.
    pub unanswered: usize,
    /// See [`ResponseAverage`].
    pub response: Duration,
}

impl Candidate {
    /// One like any other.
    pub fn new(name: NodeName) -> Self {
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
    pub fn pick<'a>(self, turns: &mut Turns, client: IpAddr, available: &'a [Candidate]) -> Option<&'a Candidate> {
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
fn cheapest(available: &[Candidate], cost: impl Fn(&Candidate) -> u128) -> impl Iterator<Item = &Candidate> + Clone {
    let compare =
        |a: &Candidate, b: &Candidate| (cost(a) * u128::from(b.share())).cmp(&(cost(b) * u128::from(a.share())));
    let least = available.iter().min_by(|a, b| compare(a, b));
    let is_least = |agent: &&Candidate| least.is_some_and(|least| compare(agent, least).is_eq());
    available.iter().filter(is_least).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests;
