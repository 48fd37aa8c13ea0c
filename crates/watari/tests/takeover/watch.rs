//! Asks who has the address, again and again.

use std::collections::BTreeSet;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{LinkAddr, MsgFlags, sendto};
use socket2::{Domain, Protocol, Socket, Type};

const INTERVAL: Duration = Duration::from_millis(10);
const ETHERTYPE_ARP: u16 = 0x0806;
const CLIENT: [u8; 4] = [192, 0, 2, 9];
const ADDRESS: [u8; 4] = [192, 0, 2, 100];

/// Asks every 10 ms.
pub(crate) struct Watch {
    is_over: Arc<AtomicBool>,
    watching: JoinHandle<Seen>,
}

/// Counts of the answers.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) answers: usize,
    /// Requests that several machines answered.
    pub(crate) doubles: Vec<String>,
}

impl Watch {
    pub(crate) fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, began) = (is_over.clone(), Instant::now());
        let protocol = Protocol::from(i32::from(ETHERTYPE_ARP.to_be()));
        let socket = Socket::new(Domain::PACKET, Type::RAW, Some(protocol)).unwrap();
        let mut all = getifaddrs().unwrap().filter(|interface| interface.interface_name == "br0");
        let bridge = all.find_map(|interface| interface.address?.as_link_addr().copied()).unwrap();
        let watching = thread::spawn(move || {
            let mut seen = Seen::default();
            while !over.load(Ordering::Relaxed) {
                let machines = ask(&socket, &bridge);
                seen.answers += machines.len();
                if machines.len() > 1 {
                    seen.doubles.push(format!("after {:?}: {machines:02x?}", began.elapsed()));
                }
            }
            seen
        });
        Self { is_over, watching }
    }

    pub(crate) fn stop(self) -> Seen {
        self.is_over.store(true, Ordering::Relaxed);
        self.watching.join().unwrap()
    }
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
