//! The terms on which an address is owned.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;

/// A point in time: the time since the machine was booted, with the time that it was suspended (`CLOCK_BOOTTIME`).
/// Times of different machines are never compared.
pub type Time = Duration;

/// How long after the end of a lease the gate of an address may stay open, because the kernel counts in ticks of up to
/// 10 ms and may carry out an order up to 20 ms late.
pub const GATE_SLACK: Duration = Duration::from_millis(30);

/// The part of a lease by which clocks may run at different rates: an owner's lease is shorter by this part.
const DRIFT_PART: u32 = 20;

/// The longest lease that a voter grants.
pub const LEASE_MAX: Duration = Duration::from_secs(30);

/// The settings that all candidates for an address share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// The nodes that decide. Safety needs the same set at all candidates.
    pub voters: BTreeSet<NodeName>,
    /// How long a voter grants no other candidate a lease. Safety needs the same value at all candidates.
    pub lease: Duration,
    /// The time from one renewal, and one advert, to the next.
    pub advert_interval: Duration,
}

impl Terms {
    /// More than half of the voters. Two majorities have a voter in common.
    pub(crate) fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// How long an owner uses a lease, from the moment at which it asked for it. Shorter than the voters' lease, by
    /// [`GATE_SLACK`] and by a twentieth for clocks that run at different rates.
    pub fn owner_lease(&self) -> Duration {
        self.lease.saturating_sub(self.lease / DRIFT_PART + GATE_SLACK)
    }

    pub(crate) fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }

    /// Whether an advert has the same terms.
    pub(crate) fn are(&self, lease_ms: u32, voters: &[NodeName]) -> bool {
        lease_ms == self.lease_ms() && voters.iter().eq(&self.voters)
    }
}
