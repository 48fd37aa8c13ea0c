//! Balancing policies: which agent does a client's handshake, and which gets its data.
//!
//! Pure: the caller says which agents are available at the moment, and gets a choice among them.

use std::hash::Hasher;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use watari_wire::NodeName;

/// Picks the agent for a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakePolicy {
    /// Each available agent in turn.
    RoundRobin,
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

/// Goes round and round over however many agents are available.
#[derive(Debug, Default)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// The next of `available`; `None` if there is none.
    pub fn pick<'a, T>(&mut self, available: &'a [T]) -> Option<&'a T> {
        let picked = available.get(self.next.checked_rem(available.len())?);
        self.next = self.next.wrapping_add(1);
        picked
    }
}

/// The agent among `available` that `client` selects, by rendezvous hashing: when an agent goes, only its own clients are
/// spread over the others; when it returns, exactly they come back.
///
/// An IPv4 address and its IPv4-mapped IPv6 form are the same client. The hash is part of the configuration of a cluster: all its dispatchers agree.
pub fn by_client_address(client: IpAddr, available: &[NodeName]) -> Option<&NodeName> {
    let client = client.to_canonical();
    available.iter().max_by_key(|agent| (weight(client, agent), *agent))
}

fn weight(client: IpAddr, agent: &NodeName) -> u64 {
    let mut hasher = Fnv1a::default();
    match client {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.write(agent.as_str().as_bytes());
    hasher.finish()
}

/// FNV-1a, 64 bits, finished with the mixer of `SplitMix64`: FNV alone spreads its last bytes too little over the high bits,
/// and those decide here.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv1a {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;
    use std::net::Ipv4Addr;

    fn agents(count: usize) -> Vec<NodeName> {
        (0..count).map(|n| NodeName::new(&format!("agent-{n}")).unwrap()).collect()
    }

    #[test]
    fn round_robin_takes_each_in_turn() {
        let agents = agents(3);
        let mut policy = RoundRobin::default();
        let picked: Vec<_> = (0..6).map(|_| policy.pick(&agents).unwrap().as_str().to_owned()).collect();
        assert_eq!(picked, ["agent-0", "agent-1", "agent-2", "agent-0", "agent-1", "agent-2"]);
        assert_eq!(policy.pick::<NodeName>(&[]), None);
    }

    #[test]
    fn addresses_spread_evenly() {
        let agents = agents(4);
        let mut clients: HashMap<&NodeName, u32> = HashMap::new();
        for n in 0..40_000_u32 {
            let picked = by_client_address(Ipv4Addr::from(0x0a00_0000 + n).into(), &agents).unwrap();
            *clients.entry(picked).or_default() += 1;
        }
        assert!(clients.values().all(|count| (9_500..=10_500).contains(count)), "{clients:?}");
    }

    #[test]
    fn a_mapped_address_is_the_same_client() {
        let agents = agents(7);
        let v4 = Ipv4Addr::new(192, 0, 2, 7);
        assert_eq!(by_client_address(v4.into(), &agents), by_client_address(v4.to_ipv6_mapped().into(), &agents));
    }

    proptest! {
        #[test]
        fn only_the_clients_of_a_lost_agent_move(client: [u8; 16], lost in 0_usize..5) {
            let all = agents(5);
            let before = by_client_address(IpAddr::from(client), &all).unwrap();
            let mut left = all.clone();
            let gone = left.remove(lost);
            let after = by_client_address(IpAddr::from(client), &left).unwrap();
            prop_assert!(*before == gone || before == after);
        }

        #[test]
        fn the_order_of_agents_does_not_matter(client: [u8; 4]) {
            let agents = agents(5);
            let reversed: Vec<_> = agents.iter().rev().cloned().collect();
            prop_assert_eq!(
                by_client_address(IpAddr::from(client), &agents),
                by_client_address(IpAddr::from(client), &reversed)
            );
        }
    }
}
