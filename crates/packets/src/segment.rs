//! What a captured packet says of a TCP connection.

use std::net::SocketAddr;
use std::ops::Add;
use std::time::Duration;

/// When a packet was captured, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// The flags of a TCP header (RFC 9293, section 3.1), as its 13th octet has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

/// One TCP segment (RFC 9293), as it was seen on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    /// When it was captured.
    pub time: Timestamp,
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// Its sequence number: of its first octet, or of its SYN.
    pub sequence: u32,
    /// Its acknowledgment number; means something with [`Flags::ACK`] only.
    pub acknowledgment: u32,
    /// SYN, FIN, RST, ACK, ..
    pub flags: Flags,
    /// Its window field, not scaled.
    pub window: u16,
    /// How many octets of data it carried on the wire.
    pub len: u32,
    /// The first of them: as many as the capture kept, which may be none.
    pub data: &'a [u8],
}

impl Timestamp {
    /// How long after `earlier` it is; zero if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// The latest time there is, if that would be later.
    fn add(self, later: Duration) -> Self {
        Self(u64::try_from(later.as_nanos()).map_or(u64::MAX, |later| self.0.saturating_add(later)))
    }
}

impl Flags {
    /// The sender has no more data.
    pub const FIN: Self = Self(0x01);
    /// Sequence numbers are synchronized.
    pub const SYN: Self = Self(0x02);
    /// The connection is reset.
    pub const RST: Self = Self(0x04);
    /// Data shall be given to the application at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment number is significant.
    pub const ACK: Self = Self(0x10);

    /// Whether all of `flags` are set.
    pub const fn contains(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Those of both.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }
}
