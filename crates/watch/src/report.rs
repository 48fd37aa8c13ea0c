//! Reports of sensors: counts of servers, second by second.
//!
//! A report has statistics, not connections (ANMA paper, chapter 2). So it is small with any number of connections, and
//! the judge may be on another machine than the sensor.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;

use watari_endings::{Counts, Event, Tally};
use watari_packets::Timestamp;

use crate::analysis::FrameCounts;

/// Counts since the previous report.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The time up to which the sensor has read.
    pub at: Timestamp,
    /// The counts of a server in a second, which is since the Unix epoch.
    pub tallies: Vec<(SocketAddr, u64, Tally)>,
    pub health: Health,
}

/// The health of a sensor, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// Frames by result.
    pub frames: FrameCounts,
    /// Connections and segments that were not followed.
    pub counts: Counts,
    /// Frames for which the ring had no room.
    pub dropped: u64,
    /// Frames that the network interface dropped.
    pub dropped_by_interface: u64,
    /// Seconds of servers that are not reported, because there were too many.
    pub uncounted: u64,
}

impl AddAssign for Health {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.counts += other.counts;
        self.dropped += other.dropped;
        self.dropped_by_interface += other.dropped_by_interface;
        self.uncounted += other.uncounted;
    }
}

/// Sums of events up to the next report.
#[derive(Debug, Default)]
pub struct Tallies {
    held: BTreeMap<(SocketAddr, u64), Tally>,
    uncounted: u64,
}

/// The most seconds of servers in one report.
const TALLIES_MAX: usize = 1 << 16;

impl Tallies {
    /// Adds an event.
    pub fn add(&mut self, event: &Event) {
        let Some(at) = Tally::at(event) else { return };
        let place = (event.server(), at.0 / 1_000_000_000);
        if self.held.len() >= TALLIES_MAX && !self.held.contains_key(&place) {
            self.uncounted += 1;
            return;
        }
        self.held.entry(place).or_default().count(event);
    }

    /// Takes all counts, for a report.
    pub fn take(&mut self) -> Vec<(SocketAddr, u64, Tally)> {
        let held = std::mem::take(&mut self.held);
        held.into_iter().map(|((server, second), tally)| (server, second, tally)).collect()
    }

    /// Seconds of servers that were left out.
    pub const fn uncounted(&self) -> u64 {
        self.uncounted
    }
}
