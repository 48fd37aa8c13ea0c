//! Frames from interfaces as they pass.
//!
//! [`open`] gives one or several [`Ring`]s, each for one thread. A ring is memory that the kernel puts frames into (`AF_PACKET` with
//! `TPACKET_V3`, by way of libpcap), already filtered and cut to what is wanted of them; reading copies nothing out of the kernel.
//! [`privileges`] then takes everything from the process that reading does not need.
//!
//! # What is seen
//!
//! * Frames in both directions, as the interface has them: with VLAN tags (libpcap puts back what a card has taken off), and large
//!   where the card or the kernel puts segments together or takes them apart.
//! * On a loopback interface each frame once. The kernel shows it twice there, as it leaves and as it arrives; the first is not asked
//!   for.
//! * On `any`, a frame once for each interface that it passes: twice behind a bridge or a VLAN interface, and within a tunnel as
//!   carried and as unpacked. Those of loopback interfaces are once here, too, but [`Counts::received`] has both.
//! * Filters are of pcap-filter(7), and see the outermost headers only: `tcp port 80` matches within one VLAN tag (the kernel takes it
//!   off before), but nothing within a tunnel, where `udp port 4789`, `proto gre` or `ip proto 4` are what to ask for, nor behind MPLS
//!   or `PPPoE` (`ether proto 0x8847`, `0x8864`).
//!
//! # Several rings
//!
//! The kernel gives all frames of a connection, of both directions, to the same ring: its hash of addresses and ports does not depend
//! on the direction (`PACKET_FANOUT_HASH`). It looks into VLAN tags, `PPPoE`, GRE and IP in IP. All of MPLS comes to one ring. It
//! does not look into UDP: the two directions of a connection within VXLAN or Geneve have different outer ports, and may come to
//! different rings. **Where tunnels are over UDP, use one thread.** Fragments of IP have no ports, and come to a ring by their
//! addresses. They are not reassembled first (`PACKET_FANOUT_FLAG_DEFRAG`): whatever the filter is, that takes memory from the host's
//! own reassembly. TCP avoids fragments.

mod error;
mod interface;
mod options;
pub mod privileges;
mod ring;

pub use error::CaptureError;
pub use options::{Options, RING_BYTES, SNAP_LEN};
pub use ring::{Counts, READ_TIMEOUT, Ring, open};
