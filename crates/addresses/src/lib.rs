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
//! In a planned switch, connections can move before their address: [`Config::before_leaving`], [`Addresses::expect`]
//! and [`Flows`].
//!
//! Every node has a voter. Only dispatchers with `[dispatcher.takeover]` have candidates.
//! docs/internals/takeover.md has the whole picture.

mod clock;
mod driver;
mod gate;
mod hold;
mod keeper;
mod link;
mod metrics;
mod multipath;
mod netlink;
mod notify;
mod packets;
mod prepare;
mod serving;
mod settings;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use driver::{
    AddressStatus, Addresses, BeforeLeaving, Config, EXPECT_MAX, ExpectError, Flows, FlowsError, HOLD_MAX, LEAVE_MAX,
    LeavingStep, PassedAddresses, SwitchError,
};
pub use gate::{FLOWS_MAX, Flow, Gate, GateError};
pub use link::InterfaceError;
pub use multipath::{
    CountStrays, FixedMultipath, Multipath, MultipathConfig, MultipathSettings, MultipathStatus, PassedMultipath,
    PreparedMultipath, SteeredFlows, dry_run_shared,
};
pub use prepare::{Cause, Prepared, StartError, dry_run};
pub use serving::CanServe;
pub use settings::{FixedSettings, ServiceAddress, Settings};

/// Locks a mutex. A panic leaves no value of this crate half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
