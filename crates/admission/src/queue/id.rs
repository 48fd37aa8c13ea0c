//! Ids of requests.

/// The id of a request that waits or is in progress. The queue never issues it twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionId(pub(super) u64);
