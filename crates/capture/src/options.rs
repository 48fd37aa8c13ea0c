//! Options of a capture.

/// Octets of a frame that suffice for usual HTTP heads and TLS hellos. The endings of connections need 96, or 160 for
/// TCP in IPv6 in VXLAN over IPv6.
pub const SNAP_LEN: u32 = 600;

/// Memory of a ring, in bytes. With [`SNAP_LEN`] it holds 47,000 unread full frames (710 octets each). On loopback, a
/// quarter of it was enough for 100,000 frames/s.
pub const RING_BYTES: u32 = 32 << 20;

/// Options of a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The name of an interface, or `any`.
    pub interface: String,
    /// A filter in the syntax of pcap-filter(7); `None` captures all frames.
    pub filter: Option<String>,
    /// Octets captured of each frame.
    pub snap_len: u32,
    /// Memory of each ring, in bytes. The kernel fills blocks of 256 KiB. It hands over a block with any frame after
    /// [`READ_TIMEOUT`](crate::READ_TIMEOUT), full or not. So with little traffic, a ring of 16 MiB bridges a pause of
    /// the reader of 6 seconds.
    pub ring_bytes: u32,
    /// Number of rings, one for each reading thread.
    pub threads: usize,
    /// Whether the interface also takes frames for other hosts. It has no effect on `any`.
    pub promiscuous: bool,
}

impl Options {
    /// Captures all frames of this interface, with one ring.
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
