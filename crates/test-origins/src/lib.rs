//! Origins to test proxies with, and what else tests of several crates need.
//!
//! * [`Origin`] serves one [`Resource`] as RFC 9110 requires. A [`Case`] makes it misbehave.
//! * [`Case::ALL`] lists the faults of origins, each with the required [`Verdict`]. [`Case::stage`] starts the origins
//!   of a case: one that dies within a transfer, and a faulty one to continue at.
//! * [`Pace`] makes the speed of an origin depend on its number of transfers, as in the paper's measurements.
//! * [`Content`] is bytes of any length that are not stored.
//! * [`real::Server`] starts servers of other projects: Apache, nginx, and others.
//! * [`namespace::is_inside`] runs a test in a network namespace of its own. [`namespace::Machine`] is another one.
//! * [`raw::ask`] sends one request to an origin, and returns the answer unparsed.
//!
//! All of them read and write HTTP/1.1 as plain bytes, because an HTTP library does not send faulty answers. The crate
//! is for tests only: a problem of the machine is a panic, or the error of a test.

mod address;
mod case;
mod content;
mod fault;
pub mod namespace;
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
pub use case::{Case, Stage, Verdict};
pub use content::Content;
pub use fault::{Fault, Moment};
pub use origin::{Manners, Origin};
pub use pace::Pace;
pub use request::Asked;
pub use resource::Resource;
pub use table::Table;
