//! TCP segments.

use std::net::SocketAddr;
use std::ops::Add;
use std::time::Duration;

/// The time of a packet's capture, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// The flags of a TCP header (RFC 9293, section 3.1): its 14th octet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

/// One TCP segment (RFC 9293), as captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Time of the capture.
    pub time: Timestamp,
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
    /// The sequence number of its first octet, or of its SYN.
    pub sequence: u32,
    /// Valid only with [`Flags::ACK`].
    pub acknowledgment: u32,
    /// SYN, FIN, RST, ACK and others.
    pub flags: Flags,
    /// The window field, not scaled.
    pub window: u16,
    /// Octets of data on the wire.
    pub len: u32,
    /// The captured data, from the first octet; may be empty.
    pub data: &'a [u8],
}

impl Timestamp {
    /// The time since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the largest value.
    fn add(self, later: Duration) -> Self {
        Self(u64::try_from(later.as_nanos()).map_or(u64::MAX, |later| self.0.saturating_add(later)))
    }
}

impl Flags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Synchronizes sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Resets the connection.
    pub const RST: Self = Self(0x04);
    /// The receiver should pass the data to the application at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number is valid.
    pub const ACK: Self = Self(0x10);

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// The union of both.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}
