//! Frames at the ports of the bridge.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use nix::sys::socket::{LinkAddr, recvfrom};
use socket2::{Domain, Protocol, Socket, Type};
use watari_addresses::Flow;

use crate::bridge::Machine;

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_ARP: u16 = 0x0806;
/// `PACKET_OUTGOING`
const OUTGOING: u8 = 4;

pub(crate) struct Capture {
    socket: Socket,
    frames: RefCell<Vec<Frame>>,
}

pub(crate) struct Frame {
    port: u32,
    /// Whether the bridge got the frame from the machine at the port.
    is_from_machine: bool,
    bytes: Vec<u8>,
}

impl Capture {
    pub(crate) fn start() -> Self {
        const ALL: u16 = 3;
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ALL.to_be())))).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.set_recv_buffer_size(16 << 20);
        Self { socket, frames: RefCell::default() }
    }

    /// The number of frames until now that `machine` has sent, and that are meant.
    pub(crate) fn count(&self, machine: &Machine, is_meant: impl Fn(&Frame) -> bool) -> usize {
        let mut buffer = vec![0; 1 << 17];
        let mut frames = self.frames.borrow_mut();
        while let Ok((len, from)) = recvfrom::<LinkAddr>(self.socket.as_raw_fd(), &mut buffer) {
            let from = from.unwrap();
            let port = u32::try_from(from.ifindex()).unwrap();
            frames.push(Frame { port, is_from_machine: from.pkttype() != OUTGOING, bytes: buffer[..len].to_vec() });
        }
        frames.iter().filter(|frame| frame.port == machine.port && frame.is_from_machine && is_meant(frame)).count()
    }

    pub(crate) fn clear(&self, machine: &Machine) {
        self.count(machine, |_| true);
        self.frames.borrow_mut().clear();
    }
}

impl Frame {
    pub(crate) fn destination(&self) -> [u8; 6] {
        self.bytes[..6].try_into().unwrap()
    }

    pub(crate) fn source(&self) -> [u8; 6] {
        self.bytes[6..12].try_into().unwrap()
    }

    /// Whether the client has sent the packet, perhaps by way of the machine.
    pub(crate) fn is_request_of(&self, flow: Flow) -> bool {
        self.ends() == Some((flow.client, flow.server))
    }

    pub(crate) fn is_answer_of(&self, flow: Flow) -> bool {
        self.ends() == Some((flow.server, flow.client))
    }

    /// Whether the frame says that its sender has the address: by ARP, or by any packet from it.
    pub(crate) fn claims(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => {
                let sender = if self.ethertype() == ETHERTYPE_ARP { 14 } else { 12 };
                self.payload().get(sender..sender + 4) == Some(&address.octets()) && self.ethertype() != 0x86dd
            }
            IpAddr::V6(address) => self.ethertype() == 0x86dd && self.payload().get(8..24) == Some(&address.octets()),
        }
    }

    fn ethertype(&self) -> u16 {
        u16::from_be_bytes([self.bytes[12], self.bytes[13]])
    }

    fn payload(&self) -> &[u8] {
        &self.bytes[ETHERNET_LEN..]
    }

    /// The source and the destination of a TCP packet.
    fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        const TCP: u8 = 6;
        let packet = self.payload();
        let (source, destination, segment): (IpAddr, IpAddr, _) = match self.ethertype() {
            0x0800 if packet[9] == TCP => {
                let address = |at: usize| <[u8; 4]>::try_from(&packet[at..at + 4]).unwrap().into();
                (address(12), address(16), &packet[usize::from(packet[0] & 15) * 4..])
            }
            0x86dd if packet[6] == TCP => {
                let address = |at: usize| <[u8; 16]>::try_from(&packet[at..at + 16]).unwrap().into();
                (address(8), address(24), &packet[40..])
            }
            _ => return None,
        };
        let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        Some((SocketAddr::new(source, port(0)), SocketAddr::new(destination, port(2))))
    }
}
