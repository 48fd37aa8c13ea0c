//! The two TUN devices, and the threads that move packets between them.
//!
//! Each direction has a reader and a writer. The reader asks the queue when a packet is due, and the writer sleeps until
//! then. Packets of a direction are due in the order in which they came, so a channel holds them.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;
use std::time::Instant;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tun_rs::{DeviceBuilder, SyncDevice, VIRTIO_NET_HDR_LEN};

use super::lateness::Lateness;
use super::queue::Queue;
use super::{Error, Settings, failed};

/// The names of the devices, in the order of the interfaces.
pub(super) const DEVICES: [&str; 2] = ["tun0", "tun1"];

const MTU: u16 = 1500;
/// The packets that wait in the kernel for the reader.
const UNREAD_MAX: u32 = 10_000;
/// The packets that wait in a direction. The reader stops at this number, and the kernel drops what comes then. It bounds
/// memory, and is two million packets per second at a delay of 15 ms.
const WAITING_MAX: usize = 32_768;
/// The longest packet: the header of `virtio_net` is before the IP header if large packets pass.
const FRAME_LEN_MAX: usize = VIRTIO_NET_HDR_LEN + 65_535;

type Device = Arc<SyncDevice>;
/// A packet as the device gave it, and when it is due.
type Due = (Instant, Vec<u8>);

/// Creates the devices. They end with the process.
///
/// Both pass the same kinds of large packets, so that one understands what the other has read.
pub(super) fn open(settings: &Settings) -> Result<[Device; 2], Error> {
    let [first, second] = DEVICES.map(|name| {
        let device = DeviceBuilder::new().name(name).mtu(MTU).tx_queue_len(UNREAD_MAX).enable(false);
        let device = device.offload(settings.passes_large_packets()).build_sync();
        device.map(Arc::new).map_err(failed(format!("create the TUN device {name}")))
    });
    Ok([first?, second?])
}

/// Forwards packets between the devices, until one of them fails.
pub(super) fn forward([first, second]: [Device; 2], settings: &Settings) -> Error {
    let mut seeds = StdRng::seed_from_u64(settings.seed);
    let (failures, failure) = channel();
    for (from, to) in [(&first, &second), (&second, &first)] {
        let lateness = Arc::new(Lateness::default());
        let header_len = if settings.passes_large_packets() { VIRTIO_NET_HDR_LEN } else { 0 };
        let queue = Queue::new(settings, seeds.random());
        let (packets, due) = sync_channel(WAITING_MAX);
        let writer = Writer { device: Arc::clone(to), packets: due, lateness: Arc::clone(&lateness) };
        let mut reader = Reader { device: Arc::clone(from), header_len, queue, packets, lateness };
        let failures = failures.clone();
        thread::spawn(move || failures.send(reader.run()));
        thread::spawn(move || writer.run());
    }
    failure.recv().expect("this thread has a sender")
}

struct Reader {
    device: Device,
    /// The length of what comes before the IP header.
    header_len: usize,
    queue: Queue,
    packets: SyncSender<Due>,
    lateness: Arc<Lateness>,
}

impl Reader {
    fn run(&mut self) -> Error {
        let mut frame = vec![0; FRAME_LEN_MAX];
        loop {
            let before = Instant::now();
            let len = match self.device.recv(&mut frame) {
                Ok(len) => len,
                Err(error) => return failed("read packets from a TUN device")(error),
            };
            let came = self.lateness.came(before, Instant::now());
            if let Some(due) = self.queue.offer(came, len.saturating_sub(self.header_len)) {
                // The writer lives as long as this thread.
                let _ = self.packets.send((due, frame[..len].to_vec()));
            }
        }
    }
}

struct Writer {
    device: Device,
    packets: Receiver<Due>,
    lateness: Arc<Lateness>,
}

impl Writer {
    fn run(&self) {
        while let Ok((due, frame)) = self.packets.recv() {
            self.lateness.sleep_until(due);
            // A packet that the device refuses is lost, as in any network.
            let _ = self.device.send(&frame);
        }
    }
}
