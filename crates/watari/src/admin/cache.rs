//! Answers about the response cache, and purges.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The state of an agent's response cache.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cache {
    /// Whether its store is open. If not, all requests go to origins.
    pub(crate) is_open: bool,
    pub(crate) entries_in_memory: u64,
    pub(crate) bytes_in_memory: u64,
    /// What the directory has. `None`: the cache has no directory.
    pub(crate) bytes_on_disk: Option<u64>,
    /// Responses that origins are sending for the store.
    pub(crate) filling: usize,
    /// Requests to origins that other requests wait for.
    pub(crate) asking: usize,
    /// Requests by result: `hit`, `miss` and others.
    pub(crate) requests: BTreeMap<String, u64>,
    /// The purges that the agent has learned of.
    pub(crate) purges: u64,
}

/// Which stored responses an order purges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Purged {
    Everything,
    /// `host/path?query`
    Url(String),
    /// The beginning of `host/path?query`.
    Prefix(String),
    /// Of all hosts.
    Group(String),
}
