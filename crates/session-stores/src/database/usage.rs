//! What a database counts.

/// The contents of a database.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of entries, expired or not.
    pub entries: u64,
    /// The bytes of their values, with [`Database::OVERHEAD`](super::Database::OVERHEAD) for each.
    pub bytes: u64,
}

/// See [`Database::OVERHEAD`](super::Database::OVERHEAD).
pub(super) const OVERHEAD: u64 = 192;
