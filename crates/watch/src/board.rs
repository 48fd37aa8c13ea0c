//! The board: the current data of all servers of all sensors.
//!
//! `state` stores what sensors report. `entries` has what the terminal and metrics read from it, `json` what the page
//! reads. Imports: `json` → `entries` → `state`, and from the crate the reports and their calculations
//! (`report`, `recent`, `rows`, `spans`, the constants of `listener`).

mod entries;
mod json;
mod state;
#[cfg(test)]
mod tests;

pub use entries::{Entry, SensorHealth};
pub use json::{BoardView, COLUMNS, CourseView};
pub use state::{AHEAD_MAX_S, Board, Link, SENSORS_MAX, SERVERS_MAX, Totals};
