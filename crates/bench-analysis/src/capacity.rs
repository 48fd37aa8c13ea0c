//! The capacity of a server: the highest level of load at which it still meets conditions.
//!
//! ```text
//!   search --Probe--> idle? a load, held, warmed up, measured --Summary--> judge --Point--> curve --> chart, svg, page
//!     ^                                                                      |
//!     +-------------------------------- Outcome -----------------------------+
//! ```
//!
//! A level is a rate (requests a second, open loop) or a number of connections (closed loop): the [`Quantity`]. `search`
//! is pure and imports no sibling. `measuring` makes its measurements. `report` imports `predict`.

mod chart;
pub mod curve;
mod found;
mod idle;
mod judge;
mod line;
mod measuring;
mod page;
mod probe;
mod quantity;
pub mod report;
pub mod search;
mod sentence;
mod svg;

pub use found::Found;
pub use line::Line;
pub use measuring::{CapacitySearch, SearchError};
pub use quantity::Quantity;
