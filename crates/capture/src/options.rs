//! What to capture.

/// Octets of a frame that are enough for heads of HTTP and hellos of TLS as they usually are. How connections end takes 96, or 160 for
/// TCP in IPv6 in VXLAN over IPv6.
pub const SNAP_LEN: u32 = 600;

/// Memory for a ring: with [`SNAP_LEN`], it holds 47,000 full frames (710 octets each) that are not read yet. On loopback, a quarter of it
/// was enough for 100,000 frames a second.
pub const RING_BYTES: u32 = 32 << 20;

/// What to capture, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of an interface, or `any`.
    pub interface: String,
    /// Which frames, in the language of pcap-filter(7); `None` is all.
    pub filter: Option<String>,
    /// How many octets of each frame are kept.
    pub snap_len: u32,
    /// How much memory each ring has, in bytes. It is used by blocks of 256 KiB, and each block that has a frame is handed over after
    /// [`READ_TIMEOUT`](crate::READ_TIMEOUT), full or not: so a ring of 16 MiB lasts a reader that pauses for 6 seconds, if there is
    /// little to see.
    pub ring_bytes: u32,
    /// How many rings there are: one for each thread that reads.
    pub threads: usize,
    /// Whether the interface is to take frames that are not for this host, too. Means nothing for `any`.
    pub promiscuous: bool,
}

impl Options {
    /// All headers that pass this interface, read by one thread.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            filter: None,
            snap_len: SNAP_LEN,
            ring_bytes: RING_BYTES,
            threads: 1,
            promiscuous: false,
        }
    }
}
