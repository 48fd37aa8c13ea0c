//! IP packets, as the headers before them announce them.

use super::octets::Octets;

/// The expected IP version and the packet. The IP header decides the version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet<'a> {
    pub(super) version: Version,
    pub(super) octets: Octets<'a>,
}

/// The version of an IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}
