//! A capture ring: memory that the kernel fills with frames.

mod socket;

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pcap::{Active, Capture, Packet, Precision};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use watari_packets::{Frame, LinkType, Timestamp, UnknownLinkType};

use crate::interface::{self, ANY, Drops};
use crate::{CaptureError, Options};

/// How long the kernel collects frames before it hands them over, and how long [`Ring::next`] waits for frames.
pub const READ_TIMEOUT: Duration = Duration::from_millis(100);

/// A filter that matches no frame. (The optimizer of the filter compiler would reject it.)
const NOTHING: &str = "less 0";

/// The frames of an interface, for one thread.
pub struct Ring {
    capture: Capture<Active>,
    interface: String,
    link: LinkType,
    /// Whether all frames that came were read.
    drained: bool,
    stale: Stale,
    copy: Vec<u8>,
    received: Total,
    dropped: Total,
    drops: Drops,
}

/// Numbers of frames since the ring was opened. The sums over all rings are those of the capture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames that matched the filter, with dropped ones.
    pub received: u64,
    /// Frames in `received` for which the ring had no room.
    pub dropped: u64,
    /// Frames of any kind that the interface dropped. Only the first of several rings counts them.
    pub dropped_by_interface: u64,
}

/// Begins a capture. Each ring is for one thread. The kernel distributes frames by connection. (See the crate's
/// documentation.)
pub fn open(options: &Options) -> Result<Vec<Ring>, CaptureError> {
    if !interface::exists(&options.interface) {
        return Err(CaptureError::NoInterface { interface: options.interface.clone(), there: interface::names() });
    }
    let mut rings = (0..options.threads.max(1)).map(|_| Ring::activate(options)).collect::<Result<Vec<_>, _>>()?;
    if rings.len() > 1 {
        share(&mut rings, interface::is_loopback(&options.interface))?;
    }
    for ring in &mut rings {
        ring.begin(options)?;
    }
    rings[0].drops = Drops::of(&options.interface);
    Ok(rings)
}

/// Distributes frames among the rings. Frames that came before all had joined are discarded.
fn share(rings: &mut [Ring], incoming_only: bool) -> Result<(), CaptureError> {
    for ring in rings.iter_mut() {
        ring.filter(NOTHING, false)?;
    }
    let mut group = None;
    for ring in rings.iter_mut() {
        let joined = socket::share(&ring.capture, group, incoming_only);
        group = Some(joined.map_err(|source| CaptureError::Share { interface: ring.interface.clone(), source })?);
    }
    rings.iter_mut().try_for_each(Ring::forget)
}

impl Ring {
    /// The next frame; `None` if all frames that came were read. The call after that waits for more, up to
    /// [`READ_TIMEOUT`]. So a caller that checks its clock after each `None` does so often enough.
    #[expect(clippy::should_implement_trait, reason = "frames borrow the ring, and items of an iterator cannot")]
    pub fn next(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        if self.drained {
            self.wait()?;
        }
        if self.stale.left > 0 {
            return self.first();
        }
        let packet = self.capture.next_packet();
        self.drained = packet.is_err();
        match packet {
            Ok(packet) => Ok(Some(frame(&packet, self.link))),
            Err(error) => nothing(&self.interface, &error).map(|()| None),
        }
    }

    /// The first frame behind the stale ones. It is copied, because the loop cannot return a borrowed frame.
    fn first(&mut self) -> Result<Option<Frame<'_>>, CaptureError> {
        loop {
            let packet = self.capture.next_packet();
            self.drained = packet.is_err();
            match packet {
                Ok(packet) => {
                    let frame = frame(&packet, self.link);
                    if !self.stale.is(frame.time) {
                        self.copy = frame.data.to_vec();
                        return Ok(Some(Frame { data: &self.copy, ..frame }));
                    }
                }
                Err(error) => return nothing(&self.interface, &error).map(|()| None),
            }
        }
    }

    /// The numbers of frames so far. The kernel's counters have 32 bits, so this has to be called more often than every
    /// 4 billion frames.
    pub fn counts(&mut self) -> Result<Counts, CaptureError> {
        let stat = self.capture.stats();
        let stat =
            stat.map_err(|error| CaptureError::Read { interface: self.interface.clone(), reason: words(&error) })?;
        Ok(Counts {
            received: self.received.add(stat.received),
            dropped: self.dropped.add(stat.dropped),
            dropped_by_interface: self.drops.count(),
        })
    }

    /// The link type of its frames.
    pub const fn link(&self) -> LinkType {
        self.link
    }

    /// Opens a capture of all frames.
    fn activate(options: &Options) -> Result<Self, CaptureError> {
        let interface = &options.interface;
        let capture = activate(options).map_err(|error| not_opened(interface, &error))?;
        let link = link(&capture).map_err(|source| CaptureError::Link { interface: interface.clone(), source })?;
        let opened = |error: io::Error| CaptureError::Open { interface: interface.clone(), reason: error.to_string() };
        // Programs that this process starts must not inherit the capture, which libpcap would allow.
        fcntl_setfd(&capture, FdFlags::CLOEXEC).map_err(|error| opened(error.into()))?;
        if interface::is_loopback(interface) {
            socket::ignore_outgoing(&capture).map_err(opened)?;
        }
        Ok(Self {
            capture,
            interface: interface.clone(),
            link,
            drained: false,
            stale: Stale { left: 0, since: Timestamp(0) },
            copy: Vec::new(),
            received: Total::default(),
            dropped: Total::default(),
            drops: Drops::none(),
        })
    }

    /// Captures the frames of the filter. The kernel truncates frames only with a filter, so there always is one.
    fn begin(&mut self, options: &Options) -> Result<(), CaptureError> {
        self.filter(options.filter.as_deref().unwrap_or_default(), true)
    }

    fn filter(&mut self, filter: &str, optimize: bool) -> Result<(), CaptureError> {
        self.capture.filter(filter, optimize).map_err(|error| CaptureError::Filter {
            filter: filter.to_owned(),
            interface: self.interface.clone(),
            reason: words(&error),
        })
    }

    /// Discards the frames that have come so far, and sets the counts to 0. The filter lets no further ones through
    /// meanwhile.
    fn forget(&mut self) -> Result<(), CaptureError> {
        let counts = self.counts()?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.stale = Stale { left: counts.received - counts.dropped, since: Timestamp(since.as_nanos() as u64) };
        self.received.total = 0;
        self.dropped.total = 0;
        Ok(())
    }

    fn wait(&self) -> Result<(), CaptureError> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: READ_TIMEOUT.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.capture.as_fd(), PollFlags::IN)], Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(CaptureError::Read { interface: self.interface.clone(), reason: error.to_string() }),
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { interface, link, received, dropped, .. } = self;
        f.debug_struct("Ring")
            .field("interface", interface)
            .field("link", link)
            .field("received", received)
            .field("dropped", dropped)
            .finish_non_exhaustive()
    }
}

/// Frames from before a ring began. There are at most as many as were counted then, and all precede the first younger
/// frame.
#[derive(Debug)]
struct Stale {
    left: u64,
    since: Timestamp,
}

/// A running total of a counter modulo 2^32.
#[derive(Debug, Default)]
struct Total {
    last: u32,
    total: u64,
}

impl Stale {
    fn is(&mut self, time: Timestamp) -> bool {
        let stale = self.left > 0 && time < self.since;
        self.left = if stale { self.left - 1 } else { 0 };
        stale
    }
}

impl Total {
    fn add(&mut self, now: u32) -> u64 {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
        self.total
    }
}

/// Reads without blocking: libpcap would wait for frames without a limit.
fn activate(options: &Options) -> Result<Capture<Active>, pcap::Error> {
    let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    Capture::from_device(options.interface.as_str())?
        .snaplen(signed(options.snap_len.max(1)))
        .buffer_size(signed(options.ring_bytes.max(1)))
        .timeout(READ_TIMEOUT.as_millis() as i32)
        .immediate_mode(false)
        .precision(Precision::Nano)
        .promisc(options.promiscuous && options.interface != ANY)
        .open()?
        .setnonblock()
}

fn link(capture: &Capture<Active>) -> Result<LinkType, UnknownLinkType> {
    LinkType(u16::try_from(capture.get_datalink().0).unwrap_or(u16::MAX)).known()
}

fn frame<'a>(packet: &Packet<'a>, link: LinkType) -> Frame<'a> {
    let time = packet.header.ts;
    // With `Precision::Nano` the second field has nanoseconds.
    let time = Timestamp(time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned());
    Frame { time, link, len: packet.header.len, data: packet.data }
}

fn not_opened(interface: &str, error: &pcap::Error) -> CaptureError {
    let (interface, reason) = (interface.to_owned(), words(error));
    if ["ermission", "not permitted", "CAP_NET_RAW"].iter().any(|words| reason.contains(words)) {
        return CaptureError::NotPermitted { interface };
    }
    CaptureError::Open { interface, reason }
}

/// Succeeds if the error is only that there is no frame.
fn nothing(interface: &str, error: &pcap::Error) -> Result<(), CaptureError> {
    match error {
        pcap::Error::TimeoutExpired => Ok(()),
        error => Err(CaptureError::Read { interface: interface.to_owned(), reason: words(error) }),
    }
}

/// The message of libpcap.
fn words(error: &pcap::Error) -> String {
    match error {
        pcap::Error::PcapError(words) => words.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_go_on_where_counters_begin_again() {
        let mut total = Total::default();
        assert_eq!(total.add(u32::MAX), u64::from(u32::MAX));
        assert_eq!(total.add(4), (1 << 32) + 4);
        assert_eq!(total.add(4), (1 << 32) + 4);
    }

    #[test]
    fn no_more_frames_are_stale_than_there_were_and_none_behind_a_younger_one() {
        let is_stale = |left, times: [u64; 4]| {
            let mut stale = Stale { left, since: Timestamp(10) };
            times.map(|time| stale.is(Timestamp(time)))
        };
        assert_eq!(is_stale(2, [8, 9, 9, 11]), [true, true, false, false]);
        assert_eq!(is_stale(3, [9, 10, 9, 9]), [true, false, false, false]);
        assert_eq!(is_stale(0, [9, 9, 9, 9]), [false; 4]);
    }
}
