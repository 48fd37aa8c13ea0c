//! An interface, and the frames that are sent and received on it.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, recvfrom, sendto};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::packets::{self, ETHERTYPE_ARP, Mac};

/// `ARPHRD_ETHER`
const ETHERNET: u16 = 1;
/// How long a machine has time to answer a probe. On one link, answers take less than a millisecond.
const PROBE_MAX: Duration = Duration::from_millis(60);
/// When a second probe follows, in case the first was lost.
const PROBE_AGAIN: Duration = Duration::from_millis(20);

/// An Ethernet interface.
#[derive(Debug, Clone)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) mac: Mac,
    link: LinkAddr,
}

/// An interface cannot have service addresses.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    #[error("there is no interface {0}")]
    Missing(String),
    #[error("the interface {0} is not Ethernet")]
    NotEthernet(String),
    #[error("cannot list interfaces: {0}")]
    List(io::Error),
}

impl Interface {
    pub(crate) fn find(name: &str) -> Result<Self, InterfaceError> {
        let all = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
        let link = all
            .filter(|interface| interface.interface_name == name)
            .find_map(|interface| interface.address?.as_link_addr().copied());
        let link = link.ok_or_else(|| InterfaceError::Missing(name.to_owned()))?;
        match (link.hatype(), link.addr(), u32::try_from(link.ifindex())) {
            (ETHERNET, Some(mac), Ok(index)) => Ok(Self { name: name.to_owned(), index, mac, link }),
            _ => Err(InterfaceError::NotEthernet(name.to_owned())),
        }
    }

    /// The index of the loopback interface.
    pub(crate) fn loopback() -> Result<u32, InterfaceError> {
        const NAME: &str = "lo";
        let mut all = getifaddrs().map_err(|error| InterfaceError::List(error.into()))?;
        let link = all.find_map(|interface| {
            interface.address.filter(|_| interface.interface_name == NAME)?.as_link_addr().copied()
        });
        let index = link.and_then(|link| u32::try_from(link.ifindex()).ok());
        index.ok_or_else(|| InterfaceError::Missing(NAME.to_owned()))
    }

    /// The address of the interface for packet sockets, of all protocols.
    pub(crate) fn link(&self) -> &LinkAddr {
        &self.link
    }

    /// Makes the sockets for frames once, to find out whether that is permitted (`CAP_NET_RAW`).
    pub(crate) fn try_sockets() -> io::Result<()> {
        packet_socket(0)?;
        neighbour_socket().map(drop)
    }

    /// Tells all neighbours that this machine has `address`.
    pub(crate) fn announce(&self, address: IpAddr) -> io::Result<()> {
        self.send(&packet_socket(0)?, &packets::announcement(self.mac, address))
    }

    /// The other machine that has `address`, if one answers within 60 ms. Blocks so long.
    pub(crate) fn other_with(&self, address: IpAddr) -> io::Result<Option<Mac>> {
        let listening = match address {
            IpAddr::V4(_) => packet_socket(ETHERTYPE_ARP)?,
            IpAddr::V6(_) => neighbour_socket()?,
        };
        let sending = packet_socket(0)?;
        let probe = packets::probe(self.mac, address);
        let began = Instant::now();
        self.send(&sending, &probe)?;
        let mut is_again = false;
        loop {
            let elapsed = began.elapsed();
            if elapsed >= PROBE_MAX {
                return Ok(None);
            }
            if elapsed >= PROBE_AGAIN && !is_again {
                is_again = true;
                self.send(&sending, &probe)?;
            }
            let end = if is_again { PROBE_MAX } else { PROBE_AGAIN };
            // A timeout of zero would be none.
            listening.set_read_timeout(Some(end.saturating_sub(elapsed).max(Duration::from_millis(1))))?;
            if let Some(mac) = self.claim(&listening, address)? {
                return Ok(Some(mac));
            }
        }
    }

    /// Receives once.
    fn claim(&self, socket: &Socket, address: IpAddr) -> io::Result<Option<Mac>> {
        let mut bytes = [0; 1500];
        let claim = match address {
            IpAddr::V4(address) => recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut bytes).map(|(len, from)| {
                let is_here = from.is_some_and(|from| from.ifindex() == self.link.ifindex());
                packets::arp_claim(&bytes[..len], address, self.mac).filter(|_| is_here)
            }),
            IpAddr::V6(address) => {
                recvfrom::<nix::sys::socket::SockaddrIn6>(socket.as_raw_fd(), &mut bytes).map(|(len, from)| {
                    // Only link-local sources have a scope, which is the interface.
                    let is_here = from.is_some_and(|from| [0, self.index].contains(&from.scope_id()));
                    packets::neighbour_claim(&bytes[..len], address, self.mac).filter(|_| is_here)
                })
            }
        };
        match claim {
            Ok(claim) => Ok(claim),
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn send(&self, socket: &Socket, frame: &[u8]) -> io::Result<()> {
        sendto(socket.as_raw_fd(), frame, &self.link, MsgFlags::empty())?;
        Ok(())
    }
}

/// Sends frames, and receives those of one type (0: none).
fn packet_socket(ethertype: u16) -> io::Result<Socket> {
    let protocol = (ethertype != 0).then(|| Protocol::from(i32::from(ethertype.to_be())));
    Socket::new(Domain::PACKET, Type::RAW, protocol)
}

/// Receives `ICMPv6` messages.
fn neighbour_socket() -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    socket.bind(&SockAddr::from(std::net::SocketAddrV6::new(std::net::Ipv6Addr::UNSPECIFIED, 0, 0, 0)))?;
    Ok(socket)
}
