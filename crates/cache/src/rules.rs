//! The settings of a route's cache.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::key::KeyRules;

/// Which responses of a route are stored, under which keys, and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub key: KeyRules,
    pub lifetimes: Lifetimes,
    /// The longest content that is stored, in bytes.
    pub object_bytes_max: u64,
    /// Whether a request for a range, of which nothing is stored, fetches the whole content.
    pub whole_on_range: bool,
}

/// Lifetimes that replace or complete those of origins. They make no response storable that an origin marks as private
/// or not to be stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lifetimes {
    /// For responses without any freshness information. `None`: heuristics (RFC 9111, section 4.2.2).
    pub default: Option<Duration>,
    /// In place of the lifetime that the origin states.
    pub fixed: Option<Duration>,
    /// For responses with these statuses, without freshness information. Statuses of errors (4xx, 5xx) are stored only
    /// if they are listed here, or if the origin states a lifetime.
    pub by_status: BTreeMap<u16, Duration>,
    /// If the origin states none (RFC 5861, section 3).
    pub stale_while_revalidate: Option<Duration>,
    /// If the origin states none (RFC 5861, section 4).
    pub stale_if_error: Option<Duration>,
}
