//! Packets that arrive before their connection does.
//!
//! The owner of an address forwards packets of a flow from the moment at which it sends the flow away. The next owner's
//! kernel drops them until the connection is released there, and the client would repeat them after 200 ms or more. So
//! the next owner captures them from [`Holder::hold`] on, and sends them to itself over the loopback interface in
//! [`Holder::deliver`]. A packet that also arrives otherwise is a repetition to TCP.
//!
//! Frames have a `virtio_net_hdr` in front, which has what the network card has left to do: checksums that are not
//! computed yet, and segments that are not cut yet. It passes from the captured frame to the sent one.

mod filter;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
// The macros name `libc`.
use nix::libc;
use nix::sys::socket::sockopt::{RcvBufForce, SetBool};
use nix::sys::socket::{LinkAddr, MsgFlags, bind, recv, sendto, setsockopt};
use socket2::{Domain, Protocol, Socket, Type};

use crate::gate::Flow;
use crate::link::Interface;

/// What the kernel stores for each interface, in bytes.
const KERNEL_LEN_MAX: usize = 8 << 20;
/// What the process stores for each interface, in bytes. Further packets are dropped.
const HELD_LEN_MAX: usize = 16 << 20;
/// A header, Ethernet, and the longest IP packet.
const FRAME_LEN_MAX: usize = HEADER_LEN + ETHERNET_LEN + (64 << 10);
/// `struct virtio_net_hdr`
const HEADER_LEN: usize = 10;
const ETHERNET_LEN: usize = 14;
/// `ETH_P_ALL`
const ALL_PROTOCOLS: u16 = 3;
const PACKET_VNET_HDR: libc::c_int = 15;
const PACKET_IGNORE_OUTGOING: libc::c_int = 23;
const TCP: u8 = 6;

/// `PACKET_VNET_HDR`.
#[derive(Debug, Clone, Copy)]
struct VnetHeader;
/// `PACKET_IGNORE_OUTGOING`.
#[derive(Debug, Clone, Copy)]
struct IgnoreOutgoing;

nix::setsockopt_impl!(VnetHeader, libc::SOL_PACKET, PACKET_VNET_HDR, bool, SetBool);
nix::setsockopt_impl!(IgnoreOutgoing, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, bool, SetBool);

/// The packets that are held, by interface.
#[derive(Default)]
pub(crate) struct Holder(HashMap<u32, Collector>);

/// Captures the packets of flows at an interface.
struct Collector {
    socket: Socket,
    held: HashMap<Flow, HeldFlow>,
    /// Of all held frames, in bytes.
    len: usize,
}

struct HeldFlow {
    until: Instant,
    /// In the order of their arrival.
    frames: Vec<Vec<u8>>,
}

impl Holder {
    /// Holds packets of the flows from now on, until then at the latest. For a flow that is held already, only the time
    /// changes.
    pub(crate) fn hold(&mut self, interface: &Interface, flows: &[Flow], until: Instant) -> io::Result<()> {
        self.end_in_time();
        let collector = match self.0.entry(interface.index) {
            Entry::Occupied(collector) => collector.into_mut(),
            Entry::Vacant(none) => {
                check_reverse_path_filter();
                none.insert(Collector::begin(interface)?)
            }
        };
        for flow in flows {
            let held = collector.held.entry(*flow).or_insert_with(|| HeldFlow { until, frames: Vec::new() });
            held.until = until;
        }
        collector.collect_only_held()
    }

    /// Delivers what was held to the sockets of this machine, and holds no more packets of the flows. Returns the number
    /// of packets.
    pub(crate) fn deliver(&mut self, flows: &[Flow]) -> io::Result<usize> {
        let frames = self.take(flows)?;
        if frames.is_empty() {
            return Ok(0);
        }
        let loopback = Loopback::open()?;
        for frame in &frames {
            loopback.send(frame)?;
        }
        Ok(frames.len())
    }

    /// Drops what was held.
    pub(crate) fn forget(&mut self, flows: &[Flow]) {
        let _ = self.take(flows);
    }

    /// Drops what was held too long.
    pub(crate) fn end_in_time(&mut self) {
        let now = Instant::now();
        for collector in self.0.values_mut() {
            collector.held.retain(|_, held| held.until > now);
            collector.len = collector.held.values().flat_map(|held| &held.frames).map(Vec::len).sum();
        }
        self.0.retain(|_, collector| !collector.held.is_empty());
    }

    fn take(&mut self, flows: &[Flow]) -> io::Result<Vec<Vec<u8>>> {
        let mut taken = Vec::new();
        for collector in self.0.values_mut() {
            collector.drain();
            for held in flows.iter().filter_map(|flow| collector.held.remove(flow)) {
                collector.len -= held.frames.iter().map(Vec::len).sum::<usize>();
                taken.extend(held.frames);
            }
            collector.collect_only_held()?;
        }
        self.end_in_time();
        Ok(taken)
    }
}

impl Collector {
    fn begin(interface: &Interface) -> io::Result<Self> {
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ALL_PROTOCOLS.to_be()))))?;
        socket.attach_filter(&filter::of_ports([]))?;
        setsockopt(&socket, VnetHeader, &true)?;
        setsockopt(&socket, IgnoreOutgoing, &true)?;
        // In the initial user namespace only. Otherwise, as much as the kernel allows.
        setsockopt(&socket, RcvBufForce, &KERNEL_LEN_MAX)
            .or_else(|_| socket.set_recv_buffer_size(KERNEL_LEN_MAX).map_err(|_| Errno::EPERM))?;
        bind(socket.as_raw_fd(), interface.link())?;
        let mut collector = Self { socket, held: HashMap::new(), len: 0 };
        // What has arrived before there was a filter.
        collector.drain();
        Ok(collector)
    }

    /// Has the kernel drop other packets.
    fn collect_only_held(&self) -> io::Result<()> {
        self.socket.attach_filter(&filter::of_ports(self.held.keys().map(|flow| flow.client.port())))
    }

    /// Takes what the kernel has.
    fn drain(&mut self) {
        let mut buffer = vec![0; FRAME_LEN_MAX];
        loop {
            match recv(self.socket.as_fd().as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => self.add(&buffer[..len]),
                // The frame cannot be described by a header, and is gone.
                Err(Errno::EINTR | Errno::EINVAL) => {}
                Err(_) => return,
            }
        }
    }

    fn add(&mut self, frame: &[u8]) {
        let Some(flow) = frame.get(HEADER_LEN..).and_then(flow_of) else { return };
        if let Some(held) = self.held.get_mut(&flow)
            && self.len + frame.len() <= HELD_LEN_MAX
        {
            self.len += frame.len();
            held.frames.push(frame.to_vec());
        }
    }
}

/// Sends frames to this machine.
struct Loopback {
    socket: Socket,
    link: LinkAddr,
}

impl Loopback {
    fn open() -> io::Result<Self> {
        let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
        setsockopt(&socket, VnetHeader, &true)?;
        let mut all = getifaddrs()?.filter(|interface| interface.interface_name == "lo");
        let link = all.find_map(|interface| interface.address?.as_link_addr().copied());
        let link = link.ok_or_else(|| io::Error::other("there is no interface lo"))?;
        Ok(Self { socket, link })
    }

    fn send(&self, frame: &[u8]) -> io::Result<()> {
        let mut frame = frame.to_vec();
        // The link-layer addresses of the loopback interface.
        if let Some(addresses) = frame.get_mut(HEADER_LEN..HEADER_LEN + 12) {
            addresses.fill(0);
        }
        sendto(self.socket.as_raw_fd(), &frame, &self.link, MsgFlags::empty())?;
        Ok(())
    }
}

/// The flow of a captured frame, if it is a TCP packet from a client.
fn flow_of(frame: &[u8]) -> Option<Flow> {
    let (ethernet, packet) = frame.split_at_checked(ETHERNET_LEN)?;
    let (client, server, segment): (IpAddr, IpAddr, _) = match ethernet[12..] {
        [0x08, 0x00] => {
            let head: &[u8; 20] = packet.first_chunk()?;
            if head[9] != TCP || u16::from_be_bytes([head[6], head[7]]) & 0x1fff != 0 {
                return None;
            }
            let address = |at: usize| <[u8; 4]>::try_from(&head[at..at + 4]).ok().map(IpAddr::from);
            (address(12)?, address(16)?, packet.get(usize::from(head[0] & 15) * 4..)?)
        }
        [0x86, 0xdd] => {
            let (head, segment) = packet.split_first_chunk::<40>()?;
            if head[6] != TCP {
                return None;
            }
            let address = |at: usize| <[u8; 16]>::try_from(&head[at..at + 16]).ok().map(IpAddr::from);
            (address(8)?, address(24)?, segment)
        }
        _ => return None,
    };
    let [a, b, c, d] = *segment.first_chunk()?;
    Some(Flow {
        client: SocketAddr::new(client, u16::from_be_bytes([a, b])),
        server: SocketAddr::new(server, u16::from_be_bytes([c, d])),
    })
}

/// The kernel drops packets from clients on the loopback interface if its reverse path filter is strict.
fn check_reverse_path_filter() {
    const STRICT: u8 = b'1';
    let value = |interface: &str| {
        let text = std::fs::read(format!("/proc/sys/net/ipv4/conf/{interface}/rp_filter")).unwrap_or_default();
        text.first().copied().unwrap_or(b'0')
    };
    if value("all").max(value("lo")) == STRICT {
        tracing::warn!(
            "packets that arrive before their connection are lost, and IPv4 clients repeat them: the reverse path \
             filter of the interface lo is strict (set net.ipv4.conf.lo.rp_filter to 2)"
        );
    }
}

#[cfg(test)]
mod tests;
