//! Addresses for servers and for clients, all on loopback.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use watari_balance::{Candidate, by_client_address};
use watari_wire::NodeName;

use super::AGENTS;

/// Ports on a loopback address drawn at random, of 127.128.0.0/9: outgoing connections take 127.0.0.1, and clients the
/// lower half, so that nobody takes a port between the moment it is found and the moment its process binds it.
pub(crate) struct ServerAddresses {
    ip: IpAddr,
    taken: RefCell<BTreeSet<SocketAddr>>,
}

impl ServerAddresses {
    pub(crate) fn draw() -> Self {
        let mut bytes = [0; 3];
        aws_lc_rs::rand::fill(&mut bytes).unwrap();
        let [a, b, c] = bytes;
        Self { ip: Ipv4Addr::new(127, a | 0x80, b, c.clamp(1, 254)).into(), taken: RefCell::default() }
    }

    /// The system may find a free port twice.
    pub(crate) fn take(&self) -> SocketAddr {
        let mut found = std::iter::repeat_with(|| free(self.ip));
        found.find(|address| self.taken.borrow_mut().insert(*address)).expect("there are many ports")
    }
}

/// A port of the only IPv6 loopback address there is.
pub(crate) fn take_v6() -> SocketAddr {
    free(Ipv6Addr::LOCALHOST.into())
}

fn free(ip: IpAddr) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}

/// Addresses for clients, each given out once, so that an address tells a connection.
#[derive(Default)]
pub(crate) struct ClientAddresses(AtomicU32);

impl ClientAddresses {
    /// An address whose data the policy gives to `agent`.
    pub(crate) fn served_by(&self, agent: &str) -> IpAddr {
        let mut addresses = std::iter::repeat_with(|| self.any());
        addresses.find(|address| bulk_agent(*address) == agent).expect("addresses spread over the agents")
    }

    /// Two addresses for each agent to serve. Handshakes go round: where one such client connects after the other, and
    /// nobody else, at least three of the six connections move.
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
