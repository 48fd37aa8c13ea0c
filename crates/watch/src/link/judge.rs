//! The judge: takes the reports of sensors.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use watari_endings::Profile;
use watari_link::TalkError;
use watari_packets::Timestamp;
use watari_values::NodeName;

use super::backlog::Limits;
use super::books::Books;
use super::clock::Clock;
use super::wire::{Taken, WireReport};
use crate::board::{AHEAD_MAX_S, Board};
use crate::report::Report;

/// Passes the reports of sensors to a board. It outlives the [`Listening`](super::Listening) that serves it.
#[derive(Debug, Clone)]
pub struct Judge(Arc<JudgeShared>);

#[derive(Debug)]
struct JudgeShared {
    board: Arc<Mutex<Board>>,
    clock: Clock,
    run: u64,
    state: Mutex<JudgeState>,
}

#[derive(Debug, Default)]
struct JudgeState {
    books: Books,
    seats: BTreeMap<NodeName, TakenSeat>,
    /// The number of the latest seat.
    seat: u64,
    counts: JudgeCounts,
    refusal: Option<String>,
}

/// The connection of a sensor.
#[derive(Debug)]
struct TakenSeat {
    number: u64,
    run: u64,
    /// Ends the connection.
    leave: oneshot::Sender<Replaced>,
}

/// The connection that replaced another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Replaced {
    /// The same run of the sensor, which detected before the judge that the old connection was dead.
    ByItself,
    /// Another run: a restarted process, or one of two with the same certificate.
    ByAnother,
}

/// Counts of connections and reports since the judge began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JudgeCounts {
    /// Sensors that are connected.
    pub connected: usize,
    /// Connections of sensors.
    pub welcomed: u64,
    /// Connections that were replaced by another one of the same sensor.
    pub replaced: u64,
    /// Connections of peers that are not sensors, or that violated the protocol.
    pub refused: u64,
    /// Connections without an identified sensor that had to make room for others.
    pub crowded: u64,
    /// Reports that were taken.
    pub reports: u64,
    /// Reports that sensors sent again after they were taken.
    pub repeated: u64,
    /// Seconds of servers that were taken.
    pub tallies: u64,
}

/// Seconds are refused that are this much older than the spans of the profile and the backlog of sensors, in seconds.
pub const BEHIND_MAX_S: u64 = 600;

impl Judge {
    /// A judge for this board.
    pub fn new(board: Arc<Mutex<Board>>, clock: Clock) -> Self {
        let run = rand::random();
        Self(Arc::new(JudgeShared { board, clock, run, state: Mutex::default() }))
    }

    pub fn counts(&self) -> JudgeCounts {
        let state = self.state();
        JudgeCounts { connected: state.seats.len(), ..state.counts }
    }

    /// The reason of the last refusal.
    pub fn last_refusal(&self) -> Option<String> {
        self.state().refusal.clone()
    }

    pub(super) fn run(&self) -> u64 {
        self.0.run
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// A run of a sensor connects. An older connection of this sensor has to end. `None` if there are too many sensors.
    pub(super) fn seat(&self, sensor: &NodeName, run: u64, before: Taken) -> Option<(Seat, Taken)> {
        let mut state = self.state();
        let mut board = self.board();
        let link = board.link(sensor.as_str())?;
        let opened = state.books.open(sensor, run, before);
        (link.is_connected, link.lost) = (true, opened.taken.missed);
        if opened.is_new {
            board.renew(sensor.as_str());
        }
        let (leave, left) = oneshot::channel();
        state.seat += 1;
        let number = state.seat;
        if let Some(before) = state.seats.insert(sensor.clone(), TakenSeat { number, run, leave }) {
            state.counts.replaced += 1;
            // The older connection may be ending already.
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

    /// Lock order: this before the board.
    fn state(&self) -> MutexGuard<'_, JudgeState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn board(&self) -> MutexGuard<'_, Board> {
        self.0.board.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The connection of a sensor. Dropping this disconnects it.
#[derive(Debug)]
pub(super) struct Seat {
    judge: Judge,
    sensor: NodeName,
    run: u64,
    number: u64,
    left: oneshot::Receiver<Replaced>,
}

impl Seat {
    /// Waits until another connection replaces this one.
    pub(super) async fn replaced(&mut self) -> Replaced {
        (&mut self.left).await.unwrap_or(Replaced::ByItself)
    }

    /// Takes a report, once, and judges its seconds before the next report. Returns the reports taken so far.
    pub(super) fn take(&self, number: u64, before: u64, report: WireReport) -> Result<Taken, TalkError> {
        let part = report.part();
        let mut report = report.into_report().map_err(TalkError::content)?;
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

    /// Sets the offset of the sensor's clock, as it measured it.
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
                link.is_connected = false;
            }
        }
    }
}

/// Removes impossible seconds from a report that arrives at `now`. Returns the number of removed tallies.
pub fn sift(report: &mut Report, now: Timestamp, profile: &Profile) -> u64 {
    let possible = possible(now, profile);
    let count = report.tallies.len();
    report.tallies.retain(|(_, second, _)| possible.contains(second));
    report.at = report.at.min(Timestamp(possible.end().saturating_mul(1_000_000_000)));
    (count - report.tallies.len()) as u64
}

/// The possible seconds. Others would exceed the memory limits, or advance time into the future.
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
