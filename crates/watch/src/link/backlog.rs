//! What a sensor holds: reports that no judge has taken, and those of the last while for a judge that is new.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use watari_packets::Timestamp;

use super::wire::{self, FromSensor, TALLIES_MAX, Taken, WireReport};
use crate::report::Report;

/// How much is held; what is older, or more, goes, the oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// By the time of reports.
    pub span: Duration,
    /// In bytes.
    pub len: usize,
}

impl Default for Limits {
    /// The span of the profiles; 64 MiB.
    fn default() -> Self {
        Self { span: Duration::from_mins(20), len: 64 << 20 }
    }
}

/// Numbers reports and holds them, ready to be sent.
#[derive(Debug)]
pub struct Backlog {
    limits: Limits,
    /// Their numbers follow each other.
    held: VecDeque<Held>,
    len: usize,
    /// The last number.
    number: u64,
    /// How many tallies were told.
    told: u64,
    taken: Taken,
    latest: Timestamp,
    /// How far each part has come.
    parts: BTreeMap<u8, Timestamp>,
}

#[derive(Debug)]
struct Held {
    number: u64,
    before: u64,
    at: Timestamp,
    message: Arc<[u8]>,
}

/// A judge says that it has taken what there was not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it says that it has taken report {0}, which was never told")]
pub struct FalseTaking(pub u64);

/// What a held report takes besides its message.
const OVERHEAD: usize = size_of::<Held>() + 2 * size_of::<usize>();

impl Backlog {
    /// Of nothing yet.
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: VecDeque::new(),
            len: 0,
            number: 0,
            told: 0,
            taken: Taken { number: 0, told: 0, missed: 0 },
            latest: Timestamp(0),
            parts: BTreeMap::new(),
        }
    }

    /// A part of the sensor reports. What is longer than a message goes in several; only the last says how far the part has
    /// come, so that nothing is judged before all of it is there.
    pub fn tell(&mut self, part: u8, report: &Report) {
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

    /// Judges have taken so much.
    pub fn take(&mut self, taken: Taken) -> Result<(), FalseTaking> {
        if taken.number > self.number || taken.told > self.told || taken.missed > taken.told {
            return Err(FalseTaking(taken.number));
        }
        if taken.number > self.taken.number {
            self.taken = taken;
        }
        Ok(())
    }

    /// How far judges have taken reports.
    pub const fn taken(&self) -> Taken {
        self.taken
    }

    /// Whether there is something that no judge has taken.
    pub const fn is_untaken(&self) -> bool {
        self.taken.number < self.number
    }

    /// How many tallies were told.
    pub const fn told(&self) -> u64 {
        self.told
    }

    /// How many tallies were dropped before a judge had them, as far as is known: a judge that has taken them and could not say
    /// so yet corrects it.
    pub fn lost(&self) -> u64 {
        let held_from = self.held.front().map_or(self.told, |held| held.before);
        self.taken.missed + held_from.saturating_sub(self.taken.told)
    }

    /// How many bytes are held.
    pub const fn held_len(&self) -> usize {
        self.len
    }

    /// The oldest beyond this number.
    fn after(&self, number: u64) -> Option<&Held> {
        let first = self.held.front()?.number;
        let index = (number + 1).saturating_sub(first);
        self.held.get(usize::try_from(index).ok()?)
    }

    fn push(&mut self, at: Timestamp, report: WireReport, count: usize) {
        self.number += 1;
        let (number, before) = (self.number, self.told);
        self.told += count as u64;
        let report = Box::new(report);
        let message = wire::encode(&FromSensor::Report { number, before, report });
        let message = message.expect("the fullest report is short enough").into();
        let held = Held { number, before, at, message };
        // It goes back where the clock is set back; what is older is of the future then, and held as long as there is room.
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

/// What is sent next on one connection.
#[derive(Debug)]
pub struct Cursor {
    sent: u64,
    /// Sent, and not yet taken.
    ahead: VecDeque<u64>,
}

/// How many reports are sent ahead of what the judge has taken. What it says of them always fits into what the system holds
/// for a connection: neither waits for the other to read.
const AHEAD_MAX: usize = 64;

impl Cursor {
    /// A judge has had the reports up to this number.
    pub const fn behind(number: u64) -> Self {
        Self { sent: number, ahead: VecDeque::new() }
    }

    /// What is sent now, if something is.
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
