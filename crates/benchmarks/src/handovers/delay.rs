//! A way that takes time, for packets of whatever kind.
//!
//! ```text
//!   10.201.0.1 --> TUN device --> [source and destination swapped, half a round trip later] --> TUN device --> 10.201.0.1
//! ```
//!
//! Whoever connects to the far end meets who listens at the near end, and each takes the other for somebody at the far end. Checksums
//! stay right: the sum of two addresses is the same in either order.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use tun_rs::{DeviceBuilder, SyncDevice};

use crate::failure::{Failure, doing};

/// The machine's own address on the way.
pub(super) const NEAR_END: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 1);
/// Where somebody can be asked who listens at [`NEAR_END`].
pub(super) const FAR_END: Ipv4Addr = Ipv4Addr::new(10, 201, 0, 2);

/// Lays the way, for as long as the program runs: the device and its network namespace end with it.
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
/// Source and destination in the head of an IPv4 packet (RFC 791, section 3.1).
const ADDRESSES: std::ops::Range<usize> = 12..20;

/// A packet, and when it arrives.
type Due = (Instant, Vec<u8>);

fn take(device: &SyncDevice, packets: &Sender<Due>, delay: Duration) {
    let mut buffer = [0; MTU as usize];
    while let Ok(len) = device.recv(&mut buffer) {
        let mut packet = buffer[..len].to_vec();
        // What is no IPv4 is not for anybody here.
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
        // A packet that does not get there is lost, as packets are.
        let _ = device.send(&packet);
    }
}
