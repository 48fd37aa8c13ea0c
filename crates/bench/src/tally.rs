//! Sums of samples.
//!
//! Every thread of a load has its own [`Tally`]. They are merged at the end, and when another part of the program reads
//! them.
//!
//! A tally is a table of [`Part`]s, one for each combination of class, address family and handshake that occurred. A
//! sample belongs to exactly one of them, so that it is recorded once. Every split ([`Tally::total`],
//! [`Tally::by_family`], ..) is a sum of the same parts, so that splits cannot disagree with the total.
//!
//! [`Part`] defines the times, and [`Series`] the course of a run.

mod endings;
mod part;
mod series;
mod times;
mod wire;

pub use endings::Endings;
pub use part::{Connections, Part};
pub use series::{Point, Series};
pub use times::Times;
pub(crate) use wire::WireTally;

use std::sync::Arc;
use std::time::Duration;

use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample};

/// Sums of the samples of a run, a thread or a process.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    classes: Arc<[String]>,
    /// At `class * PARTS_PER_CLASS + family * HANDSHAKES.len() + handshake`. `None` without samples.
    parts: Vec<Option<Box<Part>>>,
    series: Series,
    flows: Flows,
    lag: Times,
    unfinished: u64,
}

/// Flows that ended. Flows that the end of the run cancelled are in none of the counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// The times from when a flow was due to its last response, including think times. Completed flows only.
    pub done: Times,
    /// Flows that ended early because a request failed.
    pub failed: u64,
}

impl Tally {
    /// An empty tally. `classes` are the names that [`RequestSample::class`] and [`ConnectionSample::class`] are
    /// indices of.
    pub fn new(classes: Arc<[String]>) -> Self {
        let parts = vec![None; classes.len() * PARTS_PER_CLASS];
        let (series, flows, lag) = (Series::default(), Flows::default(), Times::default());
        Self { classes, parts, series, flows, lag, unfinished: 0 }
    }

    /// Counts a request that has ended. Panics if its class has no name.
    pub fn request(&mut self, sample: &RequestSample) {
        self.part_mut(sample.class, sample.family, sample.handshake).request(sample);
        self.series.request(sample);
    }

    /// Counts a connection that has ended. Panics if its class has no name.
    pub fn connection(&mut self, sample: &ConnectionSample) {
        let handshake = sample.tls.as_ref().map(|seen| seen.kind);
        self.part_mut(sample.class, sample.family, handshake).connections.add(sample);
        self.series.connection(sample);
    }

    /// Counts a flow that took this long. `None`: a flow that ended early because a request failed.
    pub fn flow(&mut self, took: Option<Duration>) {
        match took {
            Some(took) => self.flows.done.record(took),
            None => self.flows.failed += 1,
        }
    }

    /// Open loop: records by how much a request began later than it was due. This is the error of this program's
    /// schedule.
    pub fn lag(&mut self, late: Duration) {
        self.lag.record(late);
    }

    /// Counts requests that were in progress when the run was cancelled. They are in no other count.
    pub fn unfinished(&mut self, requests: u64) {
        self.unfinished += requests;
    }

    /// Adds the counts of `other`. Panics if its classes differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.classes, other.classes, "tallies of one run have the same classes");
        for (part, theirs) in self.parts.iter_mut().zip(&other.parts) {
            if let Some(theirs) = theirs {
                part.get_or_insert_default().merge(theirs);
            }
        }
        self.series.merge(&other.series);
        self.flows.done.merge(&other.flows.done);
        self.flows.failed += other.flows.failed;
        self.lag.merge(&other.lag);
        self.unfinished += other.unfinished;
    }

    /// The sum of all parts.
    pub fn total(&self) -> Part {
        self.sum(|_| true)
    }

    /// The sum of the parts with this address family.
    pub fn by_family(&self, family: Family) -> Part {
        self.sum(|at| at % PARTS_PER_CLASS / HANDSHAKES.len() == family_index(family))
    }

    /// The sum of the parts with this handshake. `None`: without TLS, or ended before the handshake completed.
    pub fn by_handshake(&self, handshake: Option<HandshakeKind>) -> Part {
        self.sum(|at| at % HANDSHAKES.len() == handshake_index(handshake))
    }

    /// The sum of the parts of a class. Panics if the class has no name.
    pub fn by_class(&self, class: usize) -> Part {
        assert!(class < self.classes.len(), "class {class} has no name");
        self.sum(|at| at / PARTS_PER_CLASS == class)
    }

    pub fn classes(&self) -> &Arc<[String]> {
        &self.classes
    }

    /// The course of the run.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// Empty in a run without flows.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// By how much requests began late. Empty in a closed loop.
    pub fn lags(&self) -> &Times {
        &self.lag
    }

    /// Number of requests in progress when the run was cancelled.
    pub fn given_up(&self) -> u64 {
        self.unfinished
    }

    fn part_mut(&mut self, class: usize, family: Family, handshake: Option<HandshakeKind>) -> &mut Part {
        let at = family_index(family) * HANDSHAKES.len() + handshake_index(handshake);
        self.parts[class * PARTS_PER_CLASS + at].get_or_insert_default()
    }

    fn sum(&self, wanted: impl Fn(usize) -> bool) -> Part {
        let mut sum = Part::default();
        for (_, part) in self.parts.iter().enumerate().filter(|(at, _)| wanted(*at)) {
            if let Some(part) = part {
                sum.merge(part);
            }
        }
        sum
    }
}

fn family_index(family: Family) -> usize {
    match family {
        Family::Ipv4 => 0,
        Family::Ipv6 => 1,
    }
}

fn handshake_index(handshake: Option<HandshakeKind>) -> usize {
    match handshake {
        None => 0,
        Some(HandshakeKind::Full) => 1,
        Some(HandshakeKind::Resumed) => 2,
    }
}

const HANDSHAKES: [Option<HandshakeKind>; 3] = [None, Some(HandshakeKind::Full), Some(HandshakeKind::Resumed)];
const PARTS_PER_CLASS: usize = 2 * HANDSHAKES.len();

#[cfg(test)]
pub(crate) mod tests;
