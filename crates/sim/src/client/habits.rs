//! How a client behaves, and how its connection ends.

use std::time::Duration;

use super::handshake::Offer;
use crate::resource::Resource;

/// How a client behaves.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each holds independently of the others")]
pub(crate) struct Habits {
    pub(crate) requests: Vec<Ask>,
    /// The client sends each request without waiting for the response before it.
    pub(crate) pipelines: bool,
    /// The client ends its stream behind the last request, and reads on.
    pub(crate) half_closes: bool,
    /// The client changes its keys after each response, and asks the agent for new ones.
    pub(crate) updates_keys: bool,
    /// The most bytes of one read, and the pause after it.
    pub(crate) reads: (usize, Duration),
    /// The client reads nothing for this long, once, after so many bytes of content.
    pub(crate) stall: Option<(u64, Duration)>,
    /// Connections with one number share their sessions, and their offer.
    pub(crate) person: usize,
    /// Messages arrive, agents do not restart, and they have room: each offered session is resumed.
    pub(crate) resumes_surely: bool,
    pub(crate) offer: Offer,
    /// The pause before each request.
    pub(crate) pause: Duration,
}

/// One request of a client.
#[derive(Clone, Copy)]
pub(crate) struct Ask {
    pub(crate) resource: Resource,
    pub(crate) is_upload: bool,
}

/// How a connection ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    Complete,
    /// The end was no clean one.
    Cut,
    /// The client has reset the connection.
    Vanished,
}
