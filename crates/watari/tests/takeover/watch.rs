//! Asks who has the address, again and again.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::mem;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};

const INTERVAL: Duration = Duration::from_millis(10);
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_IPV4: u16 = 0x0800;
const CLIENT: [u8; 4] = [192, 0, 2, 9];
const ADDRESS: [u8; 4] = [192, 0, 2, 100];

/// Asks every 10 ms, and captures.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    watching: [JoinHandle<()>; 2],
}

/// Counts of the answers.
#[derive(Default)]
pub(crate) struct Seen {
    /// To ARP requests.
    pub(crate) answers: usize,
    /// To requests for a connection.
    pub(crate) connections: usize,
    /// Requests that several machines answered.
    pub(crate) doubles: Vec<String>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let (is_over, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Seen::default())));
        let [arp, ipv4] = [ETHERTYPE_ARP, ETHERTYPE_IPV4].map(|ethertype| {
            Socket::new(Domain::PACKET, Type::RAW, Some(Protocol::from(i32::from(ethertype.to_be())))).unwrap()
        });
        let mut all = getifaddrs().unwrap().filter(|interface| interface.interface_name == "br0");
        let bridge = all.find_map(|interface| interface.address?.as_link_addr().copied()).unwrap();
        let (over, answers) = (Arc::clone(&is_over), Arc::clone(&seen));
        let asking = thread::spawn(move || ask_again(&arp, &bridge, &over, &answers));
        let (over, answers) = (Arc::clone(&is_over), Arc::clone(&seen));
        let capturing = thread::spawn(move || capture(ipv4, &over, &answers));
        Self { is_over, seen, watching: [asking, capturing] }
    }

    /// Requests so far that several machines answered.
    pub(crate) fn doubles(&self) -> Vec<String> {
        self.seen.lock().unwrap().doubles.clone()
    }

    pub(crate) fn stop(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.watching {
            thread.join().unwrap();
        }
        mem::take(&mut self.seen.lock().unwrap())
    }
}

fn ask_again(socket: &Socket, bridge: &LinkAddr, is_over: &AtomicBool, seen: &Mutex<Seen>) {
    let began = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        let machines = ask(socket, bridge);
        let mut seen = seen.lock().unwrap();
        seen.answers += machines.len();
        if machines.len() > 1 {
            seen.doubles.push(format!("ARP, after {:?}: {machines:02x?}", began.elapsed()));
        }
    }
}

/// Captures the answers to the client's requests for connections.
fn capture(mut socket: Socket, is_over: &AtomicBool, seen: &Mutex<Seen>) {
    let began = Instant::now();
    // By the client's port and the number that is acknowledged, which are those of one request.
    let mut answered: HashMap<[u8; 6], [u8; 6]> = HashMap::new();
    socket.set_read_timeout(Some(INTERVAL)).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let mut frame = [0; 128];
        let Ok(len) = socket.read(&mut frame) else { continue };
        let Some((machine, request)) = connection_answered(&frame[..len]) else { continue };
        let other = answered.insert(request, machine).filter(|other| *other != machine);
        let mut seen = seen.lock().unwrap();
        seen.connections += 1;
        if let Some(other) = other {
            seen.doubles.push(format!("TCP, after {:?}: {:02x?}", began.elapsed(), [other, machine]));
        }
    }
}

/// Of a SYN-ACK from the address: the machine that sent it, and the request that it answers.
fn connection_answered(frame: &[u8]) -> Option<([u8; 6], [u8; 6])> {
    let (head, packet) = frame.split_at_checked(14)?;
    let is_tcp = *packet.get(9)? == 6 && packet.get(12..16)? == ADDRESS;
    let segment = packet.get(usize::from(packet[0] & 0xf) * 4..)?;
    // SYN and ACK.
    let is_answer = *segment.get(13)? & 0x12 == 0x12;
    let request = [segment.get(2..4)?, segment.get(8..12)?].concat();
    (is_tcp && is_answer).then(|| (head[6..12].try_into().unwrap(), request.try_into().unwrap()))
}

/// The machines that answer one request within 10 ms.
fn ask(mut socket: &Socket, bridge: &LinkAddr) -> BTreeSet<[u8; 6]> {
    // Answers to an earlier request, which came while this process had no CPU.
    while socket.recv_with_flags(&mut [], MsgFlags::MSG_DONTWAIT.bits()).is_ok() {}
    let own = bridge.addr().unwrap();
    let head = [&[0xff; 6][..], &own, &ETHERTYPE_ARP.to_be_bytes(), &[0, 1, 8, 0, 6, 4, 0, 1]].concat();
    let request = [&head[..], &own, &CLIENT, &[0; 6], &ADDRESS].concat();
    sendto(socket.as_raw_fd(), &request, bridge, MsgFlags::empty()).unwrap();
    let sent = Instant::now();
    let mut machines = BTreeSet::new();
    while let Some(left) = INTERVAL.checked_sub(sent.elapsed()).filter(|left| !left.is_zero()) {
        socket.set_read_timeout(Some(left)).unwrap();
        let mut frame = [0; 128];
        let Ok(len) = socket.read(&mut frame) else { continue };
        // An answer to the client, of a machine with the address.
        if len >= 42 && frame[20..22] == [0, 2] && frame[28..32] == ADDRESS && frame[38..42] == CLIENT {
            machines.insert(frame[22..28].try_into().unwrap());
        }
    }
    machines
}
