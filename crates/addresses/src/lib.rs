//! The service addresses of a node: which of them it has, and the kernel's part in that.
//!
//! `watari_takeover` decides who owns an address. This crate carries its decisions out:
//!
//! ```text
//!   mesh ---> Addresses (voter, candidates) ---> keeper, one for each address
//!                 ^   timers, readiness              | gate       `nf_tables`: packets leave only during the lease
//!                 |                                  | netlink    the address on its interface
//!                 +----------------------------------| link       ARP, neighbour advertisements, probes
//!                        Removed, Checked, Failed    | notify     the operator's program
//! ```
//!
//! Every node has a voter. Only dispatchers with `[dispatcher.takeover]` have candidates.
//! docs/internals/takeover.md has the whole picture.

mod clock;
mod driver;
mod gate;
mod keeper;
mod link;
mod metrics;
mod netlink;
mod notify;
mod packets;
mod prepare;
mod settings;

pub use driver::{AddressStatus, Addresses, Config, SwitchError};
pub use gate::{Gate, GateError};
pub use link::InterfaceError;
pub use prepare::{Cause, StartError, dry_run};
pub use settings::{ServiceAddress, Settings};
