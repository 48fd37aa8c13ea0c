//! Several dispatchers have the same addresses, and routers spread packets over them (ECMP, anycast).
//!
//! Routers know nothing of connections: when a dispatcher joins or leaves, they send packets of established connections
//! to other dispatchers than before. So each dispatcher's kernel passes packets on to the dispatcher that has the
//! connection:
//!
//! * A packet whose connection has a socket on this machine stays here.
//! * Otherwise the [`Slot`] of the client's address and port has an order of dispatchers ([`Table`]). The first packet of
//!   a connection (SYN) goes to the first, the **primary**.
//! * Other packets go to the primary, too. If it has no socket, it gives them a **second chance**: it passes them on to
//!   the dispatchers that may still have connections of slots that they lost ([`Members`]).
//!
//! Slots, primaries and second chance are as in GLB director (GitHub, 2018). A BPF program at the interface's ingress
//! ([`Steering`]) does it by rewriting link-layer addresses, so the dispatchers are on one link.
//!
//! docs/internals/multipath.md has the whole picture.

mod assembler;
mod attach;
mod kernel;
mod members;
mod program;
mod table;

pub use kernel::{ADDRESSES_MAX, Counts, Steering, SteeringError};
pub use members::{AGREED_FOR, Members, SILENT_AFTER, SILENT_MAX, YOUNG_FOR};
pub use program::Mac;
pub use table::{Entry, Primaries, SLOTS, Slot, Table};
pub use watari_wire::SteeringState;
