//! What a judge does with what sensors tell.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use watari_endings::Profile;
use watari_packets::Timestamp;
use watari_wire::NodeName;

use super::backlog::Limits;
use super::books::Books;
use super::clock::Clock;
use super::wire::{Taken, TalkError, WireReport};
use crate::board::{AHEAD_MAX_S, Board};
use crate::report::Report;

/// Takes what sensors tell to a board. It outlives the [`Listening`](super::Listening) that serves it.
#[derive(Debug, Clone)]
pub struct Judge(Arc<Desk>);

#[derive(Debug)]
struct Desk {
    board: Arc<Mutex<Board>>,
    clock: Clock,
    run: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    books: Books,
    seats: BTreeMap<NodeName, TakenSeat>,
    /// The last number of a seat.
    seat: u64,
    counts: JudgeCounts,
    refusal: Option<String>,
}

/// The connection of a sensor.
#[derive(Debug)]
struct TakenSeat {
    number: u64,
    run: u64,
    /// Tells it to leave.
    leave: oneshot::Sender<Replaced>,
}

/// Who has taken the place of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The sensor itself, which knew before the judge that this one is dead.
    ByItself,
    /// Another run: a process that has begun anew, or one of two that have the same certificate.
    ByAnother,
}

/// What came of connections and of what they said, since the judge began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JudgeCounts {
    /// Sensors that are connected.
    pub connected: usize,
    /// Connections of sensors.
    pub welcomed: u64,
    /// Connections that another of the same sensor took the place of.
    pub replaced: u64,
    /// Connections of somebody else, or that misbehaved.
    pub refused: u64,
    /// Connections that had not identified their sensor when another connection needed their place.
    pub crowded: u64,
    /// Reports that were taken.
    pub reports: u64,
    /// Reports that had been taken before.
    pub repeated: u64,
    /// Seconds of servers that were taken.
    pub tallies: u64,
}

/// Seconds that are longer past than the spans of the profile, or than sensors hold what they told, and this are refused.
pub const BEHIND_MAX_S: u64 = 600;

impl Judge {
    /// Takes to this board.
    pub fn new(board: Arc<Mutex<Board>>, clock: Clock) -> Self {
        let run = rand::random();
        Self(Arc::new(Desk { board, clock, run, state: Mutex::default() }))
    }

    /// What has come of it so far.
    pub fn counts(&self) -> JudgeCounts {
        let state = self.state();
        JudgeCounts { connected: state.seats.len(), ..state.counts }
    }

    /// Why somebody was refused last.
    pub fn last_refusal(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    pub(super) fn run(&self) -> u64 {
        self.0.run
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// A run of a sensor connects; whoever was connected as that sensor has to leave. `None`: there are too many sensors.
    pub(super) fn seat(&self, sensor: &NodeName, run: u64, before: Taken) -> Option<(Seat, Taken)> {
        let mut state = self.state();
        let mut board = self.board();
        let link = board.link(sensor.as_str())?;
        let opened = state.books.open(sensor, run, before);
        (link.is_there, link.lost) = (true, opened.taken.missed);
        if opened.is_new {
            board.renew(sensor.as_str());
        }
        let (leave, left) = oneshot::channel();
        state.seat += 1;
        let number = state.seat;
        if let Some(before) = state.seats.insert(sensor.clone(), TakenSeat { number, run, leave }) {
            state.counts.replaced += 1;
            // It may be about to leave anyway.
            let _ = before.leave.send(if before.run == run { Replaced::ByItself } else { Replaced::ByAnother });
        }
        state.counts.welcomed += 1;
        drop((board, state));
        Some((Seat { judge: self.clone(), sensor: sensor.clone(), run, number, left }, opened.taken))
    }

    pub(super) fn refused(&self, why: String) {
        let mut state = self.state();
        state.counts.refused += 1;
        state.refusal = Some(why);
    }

    pub(super) fn crowded(&self) {
        self.state().counts.crowded += 1;
    }

    /// Locked before the board where both are.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a sensor, which is there until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    judge: Judge,
    sensor: NodeName,
    run: u64,
    number: u64,
    left: oneshot::Receiver<Replaced>,
}

impl Seat {
    /// Waits until another connection takes the place of this one.
    pub(super) async fn replaced(&mut self) -> Replaced {
        (&mut self.left).await.unwrap_or(Replaced::ByItself)
    }

    /// Takes a report, once, and judges what it says before another comes. Returns how far reports have been taken.
    pub(super) fn take(&self, number: u64, before: u64, report: WireReport) -> Result<Taken, TalkError> {
        let part = report.part();
        let mut report = report.into_report()?;
        let now = self.judge.now();
        let mut state = self.judge.state();
        let mut board = self.judge.board();
        let count = report.tallies.len() as u64;
        let taking = state.books.take(&self.sensor, self.run, number, before, count).ok_or(TalkError::Closed)?;
        if !taking.is_next {
            state.counts.repeated += 1;
            return Ok(taking.taken);
        }
        let refused = sift(&mut report, now, board.profile());
        board.take(self.sensor.as_str(), part, &report);
        if let Some(link) = board.link(self.sensor.as_str()) {
            link.lost = taking.taken.missed;
            link.refused = link.refused.saturating_add(refused);
        }
        board.advance(now);
        state.counts.reports += 1;
        state.counts.tallies += count - refused;
        Ok(taking.taken)
    }

    /// The sensor has measured how far its clock is ahead.
    pub(super) fn clock_offset(&self, offset_ns: Option<i64>) {
        if let Some(link) = self.judge.board().link(self.sensor.as_str()) {
            link.clock_offset_ns = offset_ns;
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.judge.state();
        if state.seats.get(&self.sensor).is_some_and(|seat| seat.number == self.number) {
            state.seats.remove(&self.sensor);
            if let Some(link) = self.judge.board().link(self.sensor.as_str()) {
                link.is_there = false;
            }
        }
    }
}

/// Takes from a report what is of no time that can be at `now`. Returns how many tallies those are.
pub fn sift(report: &mut Report, now: Timestamp, profile: &Profile) -> u64 {
    let possible = possible(now, profile);
    let count = report.tallies.len();
    report.tallies.retain(|(_, second, _)| possible.contains(second));
    report.at = report.at.min(Timestamp(possible.end().saturating_mul(1_000_000_000)));
    (count - report.tallies.len()) as u64
}

/// Which seconds can be. More of them would be held than memory is bounded by, and would judge a time that has not come.
fn possible(now: Timestamp, profile: &Profile) -> RangeInclusive<u64> {
    let now_s = now.0 / 1_000_000_000;
    let span_s = profile.span.max(profile.stopped_span).max(Limits::default().span).as_secs();
    now_s.saturating_sub(span_s.saturating_add(BEHIND_MAX_S))..=now_s.saturating_add(AHEAD_MAX_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sensors_hold_can_be() {
        let now = Timestamp(10_000_900_000_000);
        assert_eq!(possible(now, &Profile::lab()), 10_000 - 1_200 - 600..=10_060);
        let long = Profile { span: std::time::Duration::from_secs(5_000), ..Profile::lab() };
        assert_eq!(possible(now, &long), 10_000 - 5_600..=10_060);
        assert_eq!(possible(Timestamp(0), &Profile::lab()), 0..=60);
    }
}
