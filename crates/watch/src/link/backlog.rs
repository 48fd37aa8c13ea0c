//! The backlog of a sensor: reports that no judge has taken, and those of the last while for a new judge.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use watari_link::encode;
use watari_packets::Timestamp;

use super::wire::{FromSensor, TALLIES_MAX, Taken, WireReport};
use crate::report::Report;

/// The limits of a backlog. Beyond them, the oldest reports are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// By the time of reports.
    pub span: Duration,
    /// In bytes.
    pub len: usize,
}

impl Default for Limits {
    /// 20 minutes, as the span of the profiles; 64 MiB.
    fn default() -> Self {
        Self { span: Duration::from_mins(20), len: 64 << 20 }
    }
}

/// Numbers reports and stores them, encoded.
#[derive(Debug)]
pub struct Backlog {
    limits: Limits,
    /// Their numbers are consecutive.
    held: VecDeque<Held>,
    len: usize,
    /// The last number.
    number: u64,
    /// Number of tallies reported.
    reported: u64,
    taken: Taken,
    latest: Timestamp,
    /// The time of each thread.
    parts: BTreeMap<u8, Timestamp>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    before: u64,
    at: Timestamp,
    message: Arc<[u8]>,
}

/// A judge acknowledges reports that the sensor has not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it acknowledged report {0}, which was not sent")]
pub struct FalseTaking(pub u64);

/// Bytes of a stored report in addition to its message.
const OVERHEAD: usize = size_of::<Held>() + 2 * size_of::<usize>();

impl Backlog {
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: VecDeque::new(),
            len: 0,
            number: 0,
            reported: 0,
            taken: Taken { number: 0, reported: 0, missed: 0 },
            latest: Timestamp(0),
            parts: BTreeMap::new(),
        }
    }

    /// Stores a report of the thread `part`. A report that is longer than a message is split. Only the last message has
    /// the thread's new time, so that nothing is judged before all of it has arrived.
    pub fn add(&mut self, part: u8, report: &Report) {
        let mut chunks = report.tallies.chunks(TALLIES_MAX);
        let mut chunk = chunks.next().unwrap_or_default();
        for next in chunks {
            let second_before = Timestamp(report.at.0.saturating_sub(1_000_000_000));
            let before = self.parts.get(&part).copied().unwrap_or(second_before).min(report.at);
            self.push(report.at, WireReport::of(part, before, &report.health, chunk), chunk.len());
            chunk = next;
        }
        self.parts.insert(part, report.at);
        self.push(report.at, WireReport::of(part, report.at, &report.health, chunk), chunk.len());
        self.trim();
    }

    /// Takes a judge's acknowledgment.
    pub fn take(&mut self, taken: Taken) -> Result<(), FalseTaking> {
        if taken.number > self.number || taken.reported > self.reported || taken.missed > taken.reported {
            return Err(FalseTaking(taken.number));
        }
        if taken.number > self.taken.number {
            self.taken = taken;
        }
        Ok(())
    }

    /// The reports that judges have taken.
    pub const fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether it has reports that no judge has taken.
    pub const fn is_untaken(&self) -> bool {
        self.taken.number < self.number
    }

    /// Number of tallies reported.
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// Tallies dropped before a judge got them, as far as acknowledged. A judge may have taken them without an
    /// acknowledgment yet, which then corrects this.
    pub fn lost(&self) -> u64 {
        let held_from = self.held.front().map_or(self.reported, |held| held.before);
        self.taken.missed + held_from.saturating_sub(self.taken.reported)
    }

    /// Bytes stored.
    pub const fn held_len(&self) -> usize {
        self.len
    }

    /// The oldest report after this number.
    fn after(&self, number: u64) -> Option<&Held> {
        let first = self.held.front()?.number;
        let index = (number + 1).saturating_sub(first);
        self.held.get(usize::try_from(index).ok()?)
    }

    fn push(&mut self, at: Timestamp, report: WireReport, count: usize) {
        self.number += 1;
        let (number, before) = (self.number, self.reported);
        self.reported += count as u64;
        let report = Box::new(report);
        let message = encode(&FromSensor::Report { number, before, report });
        let message = message.expect("the fullest report is short enough").into();
        let held = Held { number, before, at, message };
        // The time goes back if the clock is set back. Older reports are then in the future, and stay while there is
        // room.
        self.latest = at;
        self.len += held.len();
        self.held.push_back(held);
    }

    fn trim(&mut self) {
        while let Some(oldest) = self.held.front()
            && (self.len > self.limits.len || self.latest.since(oldest.at) > self.limits.span)
        {
            self.len -= oldest.len();
            self.held.pop_front();
        }
    }
}

impl Held {
    fn len(&self) -> usize {
        OVERHEAD + self.message.len()
    }
}

/// The next report to send on one connection.
#[derive(Debug)]
pub struct Cursor {
    sent: u64,
    /// Sent, and not yet taken.
    ahead: VecDeque<u64>,
}

/// The most reports that are sent without an acknowledgment. The acknowledgments of so many always fit into the
/// system's buffers of a connection, so the two sides cannot block each other.
const AHEAD_MAX: usize = 64;

impl Cursor {
    /// A cursor for a judge that has taken the reports up to this number.
    pub const fn behind(number: u64) -> Self {
        Self { sent: number, ahead: VecDeque::new() }
    }

    /// The next report to send now, if any.
    pub fn next(&mut self, backlog: &Backlog) -> Option<Arc<[u8]>> {
        if self.ahead.len() >= AHEAD_MAX {
            return None;
        }
        let held = backlog.after(self.sent)?;
        self.sent = held.number;
        self.ahead.push_back(held.number);
        Some(Arc::clone(&held.message))
    }

    /// The judge has taken the reports up to this number.
    pub fn taken(&mut self, number: u64) {
        while self.ahead.front().is_some_and(|ahead| *ahead <= number) {
            self.ahead.pop_front();
        }
    }
}
