//! Runs of the load generator, wherever their load is generated.
//!
//! ```text
//!   measure: one run, shown while it goes on, and its summary
//!      |
//!   fleet: threads of this process, or workers
//!      |
//!   worker: both ends of the link between controller and worker
//! ```
//!
//! Of the crates of the load generator it imports `bench-engine`, which generates the load, and `bench-report`, which
//! shows it. Its modules import downwards, as in the picture.

pub mod fleet;
pub mod measure;
pub mod worker;
