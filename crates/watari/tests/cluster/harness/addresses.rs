//! Addresses for servers and for clients, all on loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use watari_balance::{Candidate, by_client_address};
use watari_values::NodeName;

use super::AGENTS;

/// A port of the only IPv6 loopback address. [`watari_test_origins::LoopbackAddresses`] explains why it is not bound to
/// find it.
pub(crate) fn take_v6() -> SocketAddr {
    static PORT: AtomicU16 = AtomicU16::new(10_000);
    let ports = std::iter::repeat_with(|| PORT.fetch_add(1, Ordering::Relaxed));
    let mut addresses = ports.map(|port| SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    addresses.find(|address| TcpStream::connect(address).is_err()).expect("there are many ports")
}

/// Addresses for clients. Each is used once, so that it identifies a connection.
#[derive(Default)]
pub(crate) struct ClientAddresses(AtomicU32);

impl ClientAddresses {
    /// An address whose data the policy gives to `agent`.
    pub(crate) fn served_by(&self, agent: &str) -> IpAddr {
        let mut addresses = std::iter::repeat_with(|| self.any());
        addresses.find(|address| bulk_agent(*address) == agent).expect("addresses spread over the agents")
    }

    /// Two addresses for each agent. Handshakes go to the agents in turn. If only these clients connect, one after the
    /// other, at least three of the six connections move.
    pub(crate) fn two_of_each_agent(&self) -> [IpAddr; 6] {
        let [first, second, third] = AGENTS;
        [first, first, second, second, third, third].map(|agent| self.served_by(agent))
    }

    pub(crate) fn any(&self) -> IpAddr {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 1).to_bits() + number).into()
    }
}

/// The agent that the policy gives a client's data to, while all are available.
pub(crate) fn bulk_agent(client: IpAddr) -> &'static str {
    let agents = AGENTS.map(|agent| Candidate::new(NodeName::new(agent).unwrap()));
    let chosen = by_client_address(client, &agents).unwrap();
    AGENTS.into_iter().find(|agent| *agent == chosen.name.as_str()).unwrap()
}
