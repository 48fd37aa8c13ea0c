//! What samples add up to.
//!
//! Every thread of a load keeps a [`Tally`] of its own; at the end, or whenever somebody looks, they are merged.
//!
//! A tally is a table of [`Part`]s, one for each combination of class, address family and handshake that occurred. A sample belongs to
//! exactly one of them, so that it is recorded once, and every split ([`Tally::total`], [`Tally::by_family`], ..) is a sum of the same
//! parts: splits cannot disagree with the total.
//!
//! What the times mean is said in [`Part`], what the course of a run is kept as in [`Series`].

mod endings;
mod part;
mod series;
mod times;
mod wire;

pub use endings::Endings;
pub use part::{Connections, Part};
pub use series::{Point, Series};
pub use times::Times;
pub(crate) use wire::{BadTally, WireTally};

use std::sync::Arc;
use std::time::Duration;

use crate::sample::{ConnectionSample, Family, HandshakeKind, RequestSample};

/// Samples, added up.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    classes: Arc<[String]>,
    /// At `class * PARTS_PER_CLASS + family * HANDSHAKES.len() + handshake`; `None` where nothing has come yet.
    parts: Vec<Option<Box<Part>>>,
    series: Series,
    flows: Flows,
    lag: Times,
    unfinished: u64,
}

/// Flows that ended. One that the end of the run broke off is in none of the counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Flows {
    /// From when a flow was due to its last answer, thinking included, of those that came to their end.
    pub done: Times,
    /// How many ended before, with a request that failed.
    pub failed: u64,
}

impl Tally {
    /// Nothing yet. `classes` are the names that [`RequestSample::class`] and [`ConnectionSample::class`] are indices into.
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

    /// Counts a flow that came to its end after so long; `None`: one whose request failed.
    pub fn flow(&mut self, took: Option<Duration>) {
        match took {
            Some(took) => self.flows.done.record(took),
            None => self.flows.failed += 1,
        }
    }

    /// Open loop: by how much an arrival was begun later than it was due, which is the error of this program's schedule.
    pub fn lag(&mut self, late: Duration) {
        self.lag.record(late);
    }

    /// Counts requests that had begun, and were given up because the run was broken off. They are in no other count.
    pub fn unfinished(&mut self, requests: u64) {
        self.unfinished += requests;
    }

    /// Adds what another one has counted. Panics if that one has other classes.
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

    /// All parts together.
    pub fn total(&self) -> Part {
        self.sum(|_| true)
    }

    /// What went over a family of addresses.
    pub fn by_family(&self, family: Family) -> Part {
        self.sum(|at| at % PARTS_PER_CLASS / HANDSHAKES.len() == family_index(family))
    }

    /// What went over connections with such a handshake; `None`: without TLS, or ended before a handshake was done.
    pub fn by_handshake(&self, handshake: Option<HandshakeKind>) -> Part {
        self.sum(|at| at % HANDSHAKES.len() == handshake_index(handshake))
    }

    /// What belongs to a class. Panics if the class has no name.
    pub fn by_class(&self, class: usize) -> Part {
        assert!(class < self.classes.len(), "class {class} has no name");
        self.sum(|at| at / PARTS_PER_CLASS == class)
    }

    /// The names of the classes.
    pub fn classes(&self) -> &Arc<[String]> {
        &self.classes
    }

    /// The course of the run.
    pub fn series(&self) -> &Series {
        &self.series
    }

    /// The flows, where flows were gone through.
    pub fn flows(&self) -> &Flows {
        &self.flows
    }

    /// How late arrivals were begun. Empty in a closed loop.
    pub fn lags(&self) -> &Times {
        &self.lag
    }

    /// How many requests were given up because the run was broken off.
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
