//! Captures frames from interfaces.
//!
//! [`open`] returns one or several [`Ring`]s, each for one thread. A ring is memory that the kernel fills with frames
//! (`AF_PACKET` with `TPACKET_V3`, through libpcap). The kernel filters and truncates them first. Reading copies
//! nothing out of the kernel. [`privileges`] then drops all privileges that reading does not need.
//!
//! # Captured frames
//!
//! * Frames of both directions come as the interface has them: with VLAN tags (libpcap restores the tags that a card
//!   has removed), and large if the card or the kernel merges or splits segments.
//! * On a loopback interface each frame comes once. The kernel shows it there twice, as it leaves and as it arrives.
//!   The ring takes only the second.
//! * On `any`, a frame comes once for each interface that it passes: twice behind a bridge or a VLAN interface, and for
//!   a tunnel both encapsulated and decapsulated. A frame of a loopback interface comes once here, too, but
//!   [`Counts::received`] counts it twice.
//! * Filters have the syntax of pcap-filter(7), and match the outermost headers only. `tcp port 80` matches within one
//!   VLAN tag, which the kernel removes first. It does not match within a tunnel: use `udp port 4789`, `proto gre` or
//!   `ip proto 4`. Nor does it match behind MPLS or `PPPoE`: use `ether proto 0x8847` or `0x8864`.
//!
//! # Several rings
//!
//! The kernel gives all frames of a connection, in both directions, to the same ring. Its hash of addresses and ports
//! does not depend on the direction (`PACKET_FANOUT_HASH`). The hash covers the headers within VLAN tags, `PPPoE`, GRE
//! and IP in IP.
//!
//! * All MPLS frames come to one ring.
//! * The hash does not cover headers within UDP. The two directions of a connection in VXLAN or Geneve have different
//!   outer ports, and may come to different rings. **With tunnels over UDP, use one thread.**
//! * IP fragments have no ports, and come to a ring by their addresses. They are not reassembled first
//!   (`PACKET_FANOUT_FLAG_DEFRAG`): this would take memory from the host's own reassembly with any filter. TCP avoids
//!   fragments.

mod error;
mod interface;
mod options;
pub mod privileges;
mod ring;

pub use error::CaptureError;
pub use options::{Options, RING_BYTES, SNAP_LEN};
pub use ring::{Counts, READ_TIMEOUT, Ring, open};
