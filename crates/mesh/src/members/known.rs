//! The state of another node, and its statement.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use watari_values::NodeName;
use watari_wire::Member;

use super::now::{AHEAD_MAX_S, Now};

/// The reason that a node is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// It is a configured peer.
    Configured,
    /// It has introduced itself, or other nodes have reported it.
    Learned,
}

impl Source {
    /// The source as a metric label and in status output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Learned => "learned",
        }
    }
}

/// The state of another node.
pub(super) struct Known {
    pub(super) configured: Option<SocketAddr>,
    pub(super) statement: Option<Statement>,
    pub(super) linked: bool,
    /// When any node last had a link to it.
    pub(super) last_linked: Instant,
}

/// A node's statement about itself. The greater one counts. The fields after `since` only break ties, in the same way
/// at all nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Statement {
    pub(super) since: u64,
    pub(super) mesh: SocketAddr,
    pub(super) legs: Option<SocketAddr>,
}

impl Known {
    pub(super) fn new(last_linked: Instant) -> Self {
        Self { configured: None, statement: None, linked: false, last_linked }
    }

    pub(super) fn is_nothing(&self) -> bool {
        self.configured.is_none() && self.statement.is_none()
    }

    pub(super) fn source(&self) -> Source {
        if self.configured.is_some() { Source::Configured } else { Source::Learned }
    }

    /// Its mesh listener. Its own statement takes precedence over the configuration, which may be older.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.statement.map(|statement| statement.mesh).or(self.configured)
    }

    /// Whether it may be removed.
    pub(super) fn may_go(&self) -> bool {
        self.source() == Source::Learned && !self.linked
    }

    /// The time without a link from any node.
    pub(super) fn unlinked_for(&self, now: Now) -> Duration {
        if self.linked { Duration::ZERO } else { now.instant.saturating_duration_since(self.last_linked) }
    }
}

impl Statement {
    /// The statement of a node with only configured peers. It is empty, and is never sent.
    pub(super) const NOTHING: Self =
        Self { since: 0, mesh: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), legs: None };

    pub(super) fn of(member: &Member) -> Self {
        Self { since: member.since, mesh: member.mesh, legs: member.legs }
    }

    /// The time is rounded up, so that it never shrinks when the statement is passed on.
    pub(super) fn member(&self, name: &NodeName, unlinked: Duration) -> Member {
        let unlinked_s = u32::try_from(unlinked.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        Member { name: name.clone(), since: self.since, mesh: self.mesh, legs: self.legs, unlinked_s }
    }

    /// Whether the addresses can be dialed, and the time is not too far in the future.
    pub(super) fn is_possible(&self, now: Now) -> bool {
        let mut addresses = [self.mesh].into_iter().chain(self.legs);
        self.since <= now.unix_s.saturating_add(AHEAD_MAX_S) && addresses.all(can_be_dialed)
    }
}

fn can_be_dialed(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    let is_broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    address.port() != 0 && !ip.is_unspecified() && !ip.is_multicast() && !is_broadcast
}
