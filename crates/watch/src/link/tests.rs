//! Properties of backlog, cursor and books together, over connections that fail at any point.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use watari_endings::Tally;
use watari_link::decode;
use watari_packets::Timestamp;
use watari_values::NodeName;

use super::books::{Books, RUNS_MAX};
use super::wire::{FromSensor, TALLIES_MAX, Taken};
use super::{Backlog, Cursor, FalseTaking, Limits};
use crate::report::{Health, Report};

fn name() -> NodeName {
    NodeName::new("s1").unwrap()
}

fn server() -> SocketAddr {
    ([192, 0, 2, 1], 443).into()
}

/// A report whose tallies differ by their seconds.
fn report(at_s: u64, seconds: std::ops::Range<u64>) -> Report {
    let tally = Tally { opened: 1, ..Tally::default() };
    Report {
        at: Timestamp(at_s * 1_000_000_000),
        tallies: seconds.map(|second| (server(), second, tally)).collect(),
        health: Health::default(),
    }
}

fn read(message: &[u8]) -> (u64, u64, u8, Report) {
    match decode(&message[4..]).unwrap() {
        FromSensor::Report { number, before, report } => (number, before, report.part(), report.into_report().unwrap()),
        other => panic!("{other:?}"),
    }
}

#[derive(Debug, Clone)]
enum Step {
    Tell(u64),
    Send,
    /// The judge reads a report, and its answer is on its way.
    Judge,
    /// The sensor reads an answer.
    Sensor,
    /// The judge reads a report from a connection that was replaced.
    Ghost,
    /// The sensor connects before the judge detects the end of the old connection.
    Connect,
    /// The judge's answer to the hello is lost.
    HalfConnect,
    Break,
    JudgeRestarts,
    SensorRestarts,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..4_u64).prop_map(Step::Tell),
        8 => Just(Step::Send),
        7 => Just(Step::Judge),
        6 => Just(Step::Sensor),
        2 => Just(Step::Ghost),
        3 => Just(Step::Connect),
        1 => Just(Step::HalfConnect),
        2 => Just(Step::Break),
        1 => Just(Step::JudgeRestarts),
        1 => Just(Step::SensorRestarts),
    ];
    proptest::collection::vec(step, 0..200)
}

struct World {
    limits: Limits,
    run: u64,
    backlog: Backlog,
    reported: u64,
    at_s: u64,
    link: Option<Link>,
    ghost: VecDeque<Arc<[u8]>>,
    books: Books,
    /// The tallies that this judge has taken of this run.
    taken: Vec<u64>,
    /// The tallies that any judge has taken of this run.
    taken_by_any: BTreeSet<u64>,
}

struct Link {
    cursor: Cursor,
    reports: VecDeque<Arc<[u8]>>,
    answers: VecDeque<Taken>,
}

impl World {
    fn new(limits: Limits) -> Self {
        Self {
            limits,
            run: 1,
            backlog: Backlog::new(limits),
            reported: 0,
            at_s: 0,
            link: None,
            ghost: VecDeque::new(),
            books: Books::default(),
            taken: Vec::new(),
            taken_by_any: BTreeSet::new(),
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Tell(count) => {
                self.at_s += 1;
                self.backlog.add(0, &report(self.at_s, self.reported..self.reported + count));
                self.reported += count;
            }
            Step::Send => {
                if let Some(link) = &mut self.link {
                    link.reports.extend(link.cursor.next(&self.backlog));
                }
            }
            Step::Judge => {
                let message = self.link.as_mut().and_then(|link| link.reports.pop_front());
                if let Some(taken) = message.and_then(|message| self.judge(&message)) {
                    self.link.as_mut().unwrap().answers.push_back(taken);
                }
            }
            Step::Ghost => {
                if let Some(message) = self.ghost.pop_front() {
                    self.judge(&message);
                }
            }
            Step::Sensor => {
                if let Some(link) = &mut self.link
                    && let Some(taken) = link.answers.pop_front()
                {
                    self.backlog.take(taken).unwrap();
                    link.cursor.taken(taken.number);
                }
            }
            Step::Connect => {
                let opened = self.books.open(&name(), self.run, self.backlog.taken());
                self.backlog.take(opened.taken).unwrap();
                self.ghost = self.link.take().map(|link| link.reports).unwrap_or_default();
                let cursor = Cursor::behind(opened.taken.number);
                self.link = Some(Link { cursor, reports: VecDeque::new(), answers: VecDeque::new() });
            }
            Step::HalfConnect => {
                self.books.open(&name(), self.run, self.backlog.taken());
                self.link = None;
            }
            Step::Break => self.link = None,
            Step::JudgeRestarts => {
                (self.link, self.ghost) = (None, VecDeque::new());
                self.books = Books::default();
                self.taken.clear();
                // Tallies that this judge took without an acknowledgment are lost with it.
                self.taken_by_any.split_off(&self.backlog.taken().reported);
            }
            Step::SensorRestarts => {
                (self.link, self.ghost) = (None, VecDeque::new());
                self.run += 1;
                self.backlog = Backlog::new(self.limits);
                self.reported = 0;
                self.taken.clear();
                self.taken_by_any.clear();
            }
        }
    }

    /// The judge reads a report. Checks the order, and that none comes twice.
    fn judge(&mut self, message: &[u8]) -> Option<Taken> {
        let (number, before, _, report) = read(message);
        let taking = self.books.take(&name(), self.run, number, before, report.tallies.len() as u64)?;
        if taking.is_next {
            let seconds = report.tallies.iter().map(|(_, second, _)| *second);
            for second in seconds {
                assert!(self.taken.last().is_none_or(|last| *last < second), "{second} after {:?}", self.taken);
                self.taken.push(second);
                self.taken_by_any.insert(second);
            }
        }
        Some(taking.taken)
    }

    /// The connection stays up for long enough.
    fn settle(&mut self) {
        self.step(&Step::Connect);
        loop {
            self.step(&Step::Send);
            self.step(&Step::Judge);
            self.step(&Step::Sensor);
            let link = self.link.as_mut().unwrap();
            link.reports.extend(link.cursor.next(&self.backlog));
            if link.reports.is_empty() && link.answers.is_empty() {
                return;
            }
        }
    }
}

/// Limits of a few reports.
fn tight() -> Limits {
    let mut backlog = Backlog::new(Limits::default());
    backlog.add(0, &report(1, 0..2));
    Limits { span: Duration::from_secs(20), len: backlog.held_len() * 6 }
}

proptest! {
    /// The invariant of the module: each reported tally is taken once, or counted as lost.
    #[test]
    fn each_report_is_taken_once_or_counted_as_lost(steps in steps(), is_tight in any::<bool>()) {
        let limits = if is_tight { tight() } else { Limits::default() };
        let mut world = World::new(limits);
        for step in &steps {
            world.step(step);
            prop_assert!(world.backlog.held_len() <= limits.len);
        }
        // One more report: by its number the judge finds what it has missed.
        world.step(&Step::Tell(1));
        world.settle();
        prop_assert!(!world.backlog.is_untaken());
        let lost = world.backlog.lost();
        prop_assert_eq!(world.taken_by_any.len() as u64 + lost, world.reported);
        prop_assert_eq!(world.books.open(&name(), world.run, Taken::default()).taken.missed, lost);
        if !is_tight {
            // A new judge has the past, too.
            prop_assert_eq!(lost, 0);
            prop_assert_eq!(&world.taken, &(0..world.reported).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_long_report_goes_in_parts_and_time_with_the_last() {
    let mut backlog = Backlog::new(Limits::default());
    backlog.add(3, &report(7, 0..1));
    let len = 2 * TALLIES_MAX as u64 + 5;
    backlog.add(3, &report(8, 0..len));
    let mut cursor = Cursor::behind(1);
    let mut seen = Vec::new();
    while let Some(message) = cursor.next(&backlog) {
        let (number, before, part, report) = read(&message);
        seen.push((number, before, part, report.at.0 / 1_000_000_000, report.tallies.len()));
    }
    let full = TALLIES_MAX;
    assert_eq!(seen, [(2, 1, 3, 7, full), (3, 1 + full as u64, 3, 7, full), (4, 1 + 2 * full as u64, 3, 8, 5)]);
}

#[test]
fn what_is_old_goes_and_is_lost_only_if_no_judge_had_it() {
    let mut backlog = Backlog::new(Limits { span: Duration::from_secs(10), len: usize::MAX });
    backlog.add(0, &report(1, 0..2));
    backlog.add(0, &report(2, 2..5));
    backlog.take(Taken { number: 1, reported: 2, missed: 0 }).unwrap();
    backlog.add(0, &report(12, 5..6));
    assert_eq!((backlog.lost(), backlog.reported()), (0, 6));
    backlog.add(0, &report(13, 6..7));
    assert_eq!(backlog.lost(), 3);
    // The judge had the report, and could not acknowledge it.
    backlog.take(Taken { number: 2, reported: 5, missed: 0 }).unwrap();
    assert_eq!(backlog.lost(), 0);
}

#[test]
fn a_false_acknowledgement_is_refused() {
    let mut backlog = Backlog::new(Limits::default());
    backlog.add(0, &report(1, 0..2));
    let taken = Taken { number: 1, reported: 2, missed: 0 };
    for wrong in [Taken { number: 2, ..taken }, Taken { reported: 3, ..taken }, Taken { missed: 3, ..taken }] {
        assert_eq!(backlog.take(wrong), Err(FalseTaking(wrong.number)));
    }
    assert_eq!(backlog.take(taken), Ok(()));
}

#[test]
fn a_cursor_waits_for_the_judge() {
    let mut backlog = Backlog::new(Limits::default());
    for at_s in 0..100 {
        backlog.add(0, &report(at_s, 0..0));
    }
    let mut cursor = Cursor::behind(0);
    let first: Vec<_> = std::iter::from_fn(|| cursor.next(&backlog)).collect();
    assert_eq!(first.len(), 64);
    cursor.taken(2);
    assert_eq!(std::iter::from_fn(|| cursor.next(&backlog)).count(), 2);
}

#[test]
fn runs_are_known_for_a_while() {
    let mut books = Books::default();
    for run in 0..=RUNS_MAX as u64 {
        assert!(books.open(&name(), run, Taken::default()).is_new);
        books.take(&name(), run, 1, 0, 5).unwrap();
    }
    assert!(books.take(&name(), 0, 2, 5, 0).is_none(), "the oldest is forgotten");
    assert!(!books.open(&name(), 1, Taken::default()).is_new);
    // Its connection made it the latest run.
    assert!(books.open(&name(), 100, Taken::default()).is_new);
    assert!(!books.open(&name(), 1, Taken::default()).is_new);
}

#[test]
fn absurd_numbers_are_survived() {
    let mut books = Books::default();
    books.open(&name(), 1, Taken { number: 9, reported: u64::MAX, missed: u64::MAX });
    books.take(&name(), 1, 1, u64::MAX, u64::MAX).unwrap();
    books.take(&name(), 1, u64::MAX, 0, 1).unwrap();
    assert!(!books.take(&name(), 1, u64::MAX, 0, 1).unwrap().is_next);
}
