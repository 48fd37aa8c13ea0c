//! A network with a delay, for IPv4 packets of any protocol.
//!
//! ```text
//!   10.201.0.1 --> TUN device --> [swaps the addresses, half a round trip later] --> TUN device --> 10.201.0.1
//! ```
//!
//! A client that connects to the far end reaches the server that listens at the near end. Each of the two sees the far
//! end as its peer. Checksums stay valid, because the sum of two addresses does not depend on their order.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::failure::{Failure, doing};

/// The machine's own address in this network. Servers listen here.
pub(super) const NEAR_END: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
/// The address at which clients reach the servers that listen at [`NEAR_END`].
pub(super) const FAR_END: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 2);

/// Creates the network. The device and its network namespace end with the program.
pub(super) fn lay(round_trip: Duration) -> Result<(), Failure> {
    let device = DeviceBuilder::new().name("far").ipv4(NEAR_END, 24, None).mtu(MTU).build_sync();
    let device = Arc::new(device.map_err(doing("making a TUN device"))?);
    let (sender, received) = channel();
    let (from, to) = (Arc::clone(&device), device);
    thread::spawn(move || take(&from, &sender, round_trip / 2));
    thread::spawn(move || give(&to, &received));
    Ok(())
}

const MTU: u16 = 1500;
/// Source and destination in the header of an IPv4 packet (RFC 791, section 3.1).
const ADDRESSES: std::ops::Range<usize> = 12..20;

/// A packet, and the time of its delivery.
type Due = (Instant, Vec<u8>);

fn take(device: &SyncDevice, packets: &Sender<Due>, delay: Duration) {
    let mut buffer = [0; MTU as usize];
    while let Ok(len) = device.recv(&mut buffer) {
        let mut packet = buffer[..len].to_vec();
        // Other packets than those of IPv4 have no receiver here.
        if packet.len() >= ADDRESSES.end && packet[0] >> 4 == 4 {
            packet[ADDRESSES].rotate_left(4);
            if packets.send((Instant::now() + delay, packet)).is_err() {
                return;
            }
        }
    }
}

fn give(device: &SyncDevice, packets: &Receiver<Due>) {
    while let Ok((due, packet)) = packets.recv() {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A packet that the device refuses is lost, as in any network.
        let _ = device.send(&packet);
    }
}
