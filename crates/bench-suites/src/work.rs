//! How much is measured.

/// The amount of work for each suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// The bytes that the bulk transfer carries.
    pub bulk_bytes: u64,
    /// The number of new connections, and the number of reused ones.
    pub connections: u32,
}

impl Work {
    /// The amount of work in the paper.
    pub const PAPER: Self = Self { bulk_bytes: 100_000_000, connections: 1000 };
}
