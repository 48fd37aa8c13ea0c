//! The value types that the crates of the workspace share.
//!
//! * `nodes`, `connections`, `sessions`: names, ids, epochs, reasons and results.
//! * `secret`: bytes that are zeroized when dropped.
//! * [`duration`] and [`size`]: the text forms of durations and of sizes in configuration and arguments.
//! * [`setting`]: the types of settings in configuration files, with their ranges and JSON schemas.
//!
//! Messages and configuration contain these types, so the types are serializable. This crate uses no other crate of the
//! workspace.

mod connections;
pub mod duration;
mod nodes;
mod secret;
mod sessions;
pub mod setting;
pub mod size;

pub use connections::{
    AbortReason, ConnectionId, ConnectionStatus, DispatcherChange, Epoch, InvalidConnectionId, StayReason, TlsInfo,
};
pub use nodes::{InvalidNodeName, NodeName, Role, UnknownRole};
pub use secret::SecretBytes;
pub use sessions::{SessionKey, TicketSeedId};
