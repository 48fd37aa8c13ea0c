//! Origins for tests of what stands in front of origins.
//!
//! * [`Origin`] serves one [`Resource`] as RFC 9110 wants it, and misbehaves where a [`Case`] says so.
//! * [`Case::ALL`] lists the ways in which origins are wrong, each with the [`Verdict`] that is due; [`Case::stage`]
//!   sets one up: an origin that dies in the middle of a transfer, and a bad one to go on from.
//! * [`Pace`] makes an origin's speed depend on how many it serves, as those of the paper's measurements.
//! * [`Content`] is bytes of any length that need not be kept to be known.
//! * [`real::Server`] starts the servers that others run: Apache, nginx, and so on.
//! * [`raw::ask`] asks an origin one thing, and shows the answer as it came.
//!
//! All of it speaks HTTP/1.1 by plain bytes: what a library would not let out is the point. Nothing here is for
//! production: what a machine lacks for it is a panic, or the error of a test.

mod address;
mod case;
mod content;
mod origin;
mod pace;
pub mod raw;
pub mod real;
mod reply;
mod request;
mod resource;
mod spoil;
mod table;

pub use address::LoopbackAddresses;
pub use case::{Case, Fault, Moment, Stage, Verdict};
pub use content::Content;
pub use origin::{Manners, Origin};
pub use pace::Pace;
pub use request::Asked;
pub use resource::Resource;
pub use table::Table;
