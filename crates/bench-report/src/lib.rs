//! The results of a load, for people and programs.
//!
//! ```text
//!   Tally, Progress (engine) --> summary --> JSON, expect: conditions
//!                                   |
//!                                   +--> page, view, text
//!   ConnectionSample (engine) --> connection_csv
//!   Times (engine) --> hdr_log
//! ```
//!
//! Of the crates of the load generator it imports `bench-engine` only, whose tallies and samples it reads. Its modules,
//! each of which imports only those before it:
//!
//! 1. `grid`, `axis`: tables of text, and scales
//! 2. `summary`; `connection_csv`, `hdr_log`
//! 3. `expect`, `page`, `view`
//! 4. `files`

pub mod axis;
pub mod connection_csv;
pub mod expect;
pub mod files;
pub mod grid;
pub mod hdr_log;
pub mod page;
pub mod summary;
pub mod view;
