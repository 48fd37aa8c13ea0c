//! What a sensor says: what happened at servers, second by second.
//!
//! Statistics travel, connections do not (ANMA paper, chapter 2): a report is small however many connections there were, and
//! who judges may be another machine than the one that listens.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::AddAssign;

use watari_endings::{Counts, Event, Tally};
use watari_packets::Timestamp;

use crate::analysis::FrameCounts;

/// What has happened since the report before.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// How far the sensor has come.
    pub at: Timestamp,
    /// At which server, in which second since the Unix epoch.
    pub tallies: Vec<(SocketAddr, u64, Tally)>,
    /// How it listens.
    pub health: Health,
}

/// How a sensor listens, since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// What frames were.
    pub frames: FrameCounts,
    /// What was not followed.
    pub counts: Counts,
    /// Frames that were lost because nobody read them in time.
    pub dropped: u64,
    /// Frames that the network interface lost.
    pub dropped_by_interface: u64,
    /// Seconds of servers of which nothing was told, because there were too many.
    pub untold: u64,
}

impl AddAssign for Health {
    fn add_assign(&mut self, other: Self) {
        self.frames += other.frames;
        self.counts += other.counts;
        self.dropped += other.dropped;
        self.dropped_by_interface += other.dropped_by_interface;
        self.untold += other.untold;
    }
}

/// Adds up events until they are told.
#[derive(Debug, Default)]
pub struct Tallies {
    held: BTreeMap<(SocketAddr, u64), Tally>,
    untold: u64,
}

/// How many seconds of servers are held until they are told.
const TALLIES_MAX: usize = 1 << 16;

impl Tallies {
    /// Something happened.
    pub fn add(&mut self, event: &Event) {
        let Some(at) = Tally::at(event) else { return };
        let place = (event.server(), at.0 / 1_000_000_000);
        if self.held.len() >= TALLIES_MAX && !self.held.contains_key(&place) {
            self.untold += 1;
            return;
        }
        self.held.entry(place).or_default().count(event);
    }

    /// All of it, which is told now.
    pub fn take(&mut self) -> Vec<(SocketAddr, u64, Tally)> {
        let told = std::mem::take(&mut self.held);
        told.into_iter().map(|((server, second), tally)| (server, second, tally)).collect()
    }

    /// How many were left out.
    pub const fn untold(&self) -> u64 {
        self.untold
    }
}
