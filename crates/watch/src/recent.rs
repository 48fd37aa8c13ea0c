//! Complete seconds: those whose events are all reported. Rates, response times and the number of open connections are
//! displayed over these.
//!
//! ```text
//!          N-2         N-1          N        a sensor's clock, seconds
//!   ────────┼───────────┼───────────┼──▲
//!    reported and       │ closes may│  └ a report: the second N has barely begun
//!    settled            │ be missing│
//!   ────────────────────┘
//!           until_s = N - 1
//! ```
//!
//! A sensor reports when a second begins. The end of a connection is reported when it has settled
//! ([`watari_endings::Settings::settle`], and two ticks of the wheel: 0.52 s). So two seconds are not complete: the
//! current one and the one before. A rate over them would be too low.

use watari_endings::{Lately, Profile, Server, ServerState, Shares, Tally};

/// The seconds before the current one whose ends may not all be reported.
const SETTLE_S: u64 = 1;
/// The seconds at the end of a window that are not complete.
pub(crate) const INCOMPLETE_S: u64 = SETTLE_S + 1;

/// The complete seconds since the Unix epoch, by the sensor's own clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Covered {
    /// The first complete second since the sensor began.
    pub from_s: u64,
    /// The first second that is not complete.
    pub until_s: u64,
}

/// Counts of a server over complete seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recent {
    /// The counts of all these seconds.
    pub tally: Tally,
    /// The number of these seconds; 0 if none is complete yet.
    pub covered_s: u64,
}

impl Covered {
    /// The complete seconds of a sensor that began at `began_ns` and has reported up to `now_s`.
    pub(crate) const fn new(began_ns: u64, now_s: u64) -> Self {
        let (from_s, until_s) = (began_ns.div_ceil(1_000_000_000), now_s.saturating_sub(SETTLE_S));
        Self { from_s: if from_s < until_s { from_s } else { until_s }, until_s }
    }

    /// How many of the last [`Server::SHORT_SPAN`] are complete.
    pub fn len_s(self) -> u64 {
        (self.until_s - self.from_s).min(Server::SHORT_SPAN.as_secs())
    }

    /// Counts of the last [`Server::SHORT_SPAN`].
    pub(crate) fn short(self, server: &Server) -> Recent {
        let covered_s = self.len_s();
        Recent { tally: sum_since(server, self.until_s - covered_s, self.until_s), covered_s }
    }

    /// Counts of the complete part of a span of the profile. `len_s`: the length of the span, which ends with the
    /// current second.
    pub(crate) fn of_span(self, server: &Server, lately: Lately, len_s: u64) -> Recent {
        let span_first = (self.until_s + INCOMPLETE_S).saturating_sub(len_s.max(1));
        let first = self.from_s.max(span_first).min(self.until_s);
        let mut tally = server.total(lately);
        for (_, later) in server.window().seconds().rev().take_while(|(at_s, _)| *at_s >= self.until_s.max(span_first))
        {
            tally -= *later;
        }
        if span_first < first {
            let before = server.window().seconds().skip_while(|(at_s, _)| *at_s < span_first);
            for (_, before) in before.take_while(|(at_s, _)| *at_s < first) {
                tally -= *before;
            }
        }
        Recent { tally, covered_s: self.until_s - first }
    }

    /// Connections that were open at the end of the last complete second. All closes in it are reported by now.
    pub(crate) fn open(self, server: &Server) -> u32 {
        let later = server.window().seconds().rev().take_while(|(at_s, _)| *at_s >= self.until_s);
        later.fold(server.open(), |open, (_, tally)| open.saturating_add(tally.closed()).saturating_sub(tally.opened))
    }

    /// X, Y and Z, and the length of their span in seconds: the span of the profile, or for a stopped server the time
    /// since it stopped. `None` if no connection ended.
    pub(crate) fn shares(self, server: &Server, profile: &Profile) -> (Option<Shares>, u64) {
        let stopped = server.verdict().filter(|it| it.state == ServerState::Stopped);
        let span_s = profile.span.as_secs();
        let since_s = stopped.map_or(0, |it| it.since.0 / 1_000_000_000);
        (server.shares(Lately::Span), (self.until_s + INCOMPLETE_S).saturating_sub(since_s).clamp(1, span_s.max(1)))
    }
}

impl Recent {
    /// The rate of a count, in 1/s; `None` if no second is complete.
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    pub fn per_s(&self, count: u64) -> Option<f64> {
        (self.covered_s > 0).then(|| count as f64 / self.covered_s as f64)
    }
}

/// The counts from second `first_s` up to, but excluding, `until_s`.
fn sum_since(server: &Server, first_s: u64, until_s: u64) -> Tally {
    let mut total = Tally::default();
    let latest = server.window().seconds().rev().skip_while(|(at_s, _)| *at_s >= until_s);
    for (_, tally) in latest.take_while(|(at_s, _)| *at_s >= first_s) {
        total += *tally;
    }
    total
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeMap;
    use std::net::SocketAddr;

    use serde_json::Value;
    use watari_packets::Timestamp;

    use super::*;
    use crate::board::Board;
    use crate::report::{Health, Report};

    const MS: u64 = 1_000_000;
    /// The delay of a reported end, in milliseconds: it has to settle, and the wheel has to reach it.
    const SETTLE_MS: u64 = 250 + 268;

    fn server() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 443))
    }

    /// A sensor that sees `rate` connections in each second, each open for `open_ms`, with an answer.
    struct Sensor {
        name: &'static str,
        rate: u64,
        open_ms: u64,
        /// The time of the last report, by its own clock.
        at_ms: u64,
        /// Connections that were opened before are not seen.
        began_ms: u64,
    }

    impl Sensor {
        /// Each second's report comes 20 ms after the second began.
        fn reports(&mut self, board: &mut Board, upto_ms: u64, has_clients: bool) {
            while (self.at_ms / 1_000 + 1) * 1_000 + 20 <= upto_ms {
                let at_ms = (self.at_ms / 1_000 + 1) * 1_000 + 20;
                let mut tallies: BTreeMap<u64, Tally> = BTreeMap::new();
                let opens = |from_ms: u64, to_ms: u64| {
                    (from_ms * self.rate / 1_000..to_ms * self.rate / 1_000).map(|it| it * 1_000 / self.rate)
                };
                for opened_ms in opens(self.at_ms, at_ms).filter(|_| has_clients) {
                    tallies.entry(opened_ms / 1_000).or_default().opened += 1;
                }
                let late_ms = SETTLE_MS + self.open_ms;
                for opened_ms in
                    opens(self.at_ms - late_ms, at_ms - late_ms).filter(|it| has_clients && *it >= self.began_ms)
                {
                    let tally = tallies.entry((opened_ms + self.open_ms) / 1_000).or_default();
                    (tally.answered, tally.s_normal, tally.bytes_to_client) =
                        (tally.answered + 1, tally.s_normal + 1, tally.bytes_to_client + 1_000);
                    tally.endings[0] += 1;
                }
                let tallies = tallies.into_iter().map(|(second, tally)| (server(), second, tally)).collect();
                let report = Report { at: Timestamp(at_ms * MS), tallies, health: Health::default() };
                assert!(board.take(self.name, 0, &report));
                self.at_ms = at_ms;
            }
        }
    }

    /// The displayed values of the last ten seconds, and of the profile's span.
    fn shown(board: &Board, sensor: &str) -> (Value, Value) {
        let view = serde_json::to_value(board.view()).unwrap();
        let servers = view["servers"].as_array().unwrap();
        let server = servers.iter().find(|it| it["sensor"] == sensor).unwrap();
        (server["spans"][2].clone(), server["spans"][0].clone())
    }

    fn assert_rate(board: &Board, sensor: &str, rate: f64, covered_s: u64) {
        let (short, long) = shown(board, sensor);
        assert_eq!(short["covered_s"], covered_s, "{short}");
        for span in [short, long] {
            for key in ["opened_per_s", "answered_per_s"] {
                assert!((span[key].as_f64().unwrap() - rate).abs() < 1e-9, "{sensor}: {key} of {span} is not {rate}");
            }
            assert!((span["bytes_per_s"].as_f64().unwrap() - rate * 1e3).abs() < 1e-6);
        }
    }

    #[test]
    fn a_constant_rate_is_shown_as_it_is() {
        let mut board = Board::new(Profile::lab());
        let mut sensor = Sensor { name: "here", rate: 60, open_ms: 1, at_ms: 5_000_350, began_ms: 5_000_350 };
        for second in 5_001..5_100 {
            sensor.reports(&mut board, second * 1_000 + 250, true);
            board.advance(Timestamp((second * 1_000 + 250) * MS));
            // It began within a second, and two more are not complete.
            if second < 5_004 {
                let (short, _) = shown(&board, "here");
                assert_eq!((&short["opened_per_s"], &short["covered_s"]), (&Value::Null, &0.into()));
            } else {
                assert_rate(&board, "here", 60.0, (second - 5_003).min(10));
            }
        }
        assert_eq!(board.entries().next().unwrap().open, 0);
    }

    #[test]
    fn connections_that_wait_to_settle_are_not_open() {
        for (open_ms, open) in [(1, 0), (500, 30), (3_000, 180)] {
            let mut board = Board::new(Profile::lab());
            let mut sensor = Sensor { name: "here", rate: 60, open_ms, at_ms: 5_000_000, began_ms: 5_000_000 };
            for second in 5_001..5_030 {
                sensor.reports(&mut board, second * 1_000 + 250, true);
                board.advance(Timestamp((second * 1_000 + 250) * MS));
            }
            let entry = board.entries().next().unwrap();
            assert_eq!(entry.open, open);
            assert!(entry.server.open() >= open + 25, "{} wait to settle", entry.server.open() - open);
        }
    }

    #[test]
    fn a_short_profile_covers_ten_seconds_as_well() {
        let second = std::time::Duration::from_secs(1);
        let mut board = Board::new(Profile { span: 5 * second, stopped_span: second, ..Profile::lab() });
        let mut sensor = Sensor { name: "here", rate: 60, open_ms: 1, at_ms: 5_000_000, began_ms: 5_000_000 };
        for second in 5_001..5_030 {
            sensor.reports(&mut board, second * 1_000 + 250, true);
            board.advance(Timestamp((second * 1_000 + 250) * MS));
        }
        assert_rate(&board, "here", 60.0, 10);
        assert_eq!(shown(&board, "here").1["covered_s"], 3);
    }

    #[test]
    fn a_sensor_that_pauses_covers_only_what_it_captured() {
        let mut board = Board::new(Profile::lab());
        let mut sensor = Sensor { name: "here", rate: 60, open_ms: 1, at_ms: 5_000_000, began_ms: 5_000_000 };
        let mut pass = |seconds: std::ops::Range<u64>, is_paused: bool, has_clients: bool| {
            for second in seconds {
                if is_paused {
                    sensor.at_ms = second * 1_000 + 700;
                } else {
                    sensor.reports(&mut board, second * 1_000 + 250, has_clients);
                }
                board.advance(Timestamp((second * 1_000 + 250) * MS));
            }
            shown(&board, "here").0
        };
        pass(5_001..5_020, false, true);
        pass(5_020..5_040, true, true);
        assert_eq!(pass(5_040..5_042, false, true)["opened_per_s"], Value::Null);
        let after = pass(5_042..5_046, false, true);
        assert_eq!((&after["opened_per_s"], &after["covered_s"]), (&60.0.into(), &3.into()));
        // Silence is not a pause.
        let silent = pass(5_046..5_056, false, false);
        assert!((silent["opened_per_s"].as_f64().unwrap() - 6.2).abs() < 0.5, "{silent}");
        assert_eq!(silent["covered_s"], 10);
        assert_eq!(pass(5_056..5_060, false, false)["opened_per_s"], 0.0);
        board.renew("here");
        assert_eq!(shown(&board, "here").0["opened_per_s"], Value::Null);
    }

    #[test]
    fn each_sensor_has_its_own_clock() {
        let mut board = Board::new(Profile::lab());
        let sensor = |name, rate, at_ms| Sensor { name, rate, open_ms: 1, at_ms, began_ms: at_ms };
        let mut sensors = [sensor("a", 60, 5_000_000), sensor("b", 40, 5_037_900), sensor("c", 10, 4_950_400)];
        let offsets_ms = sensors.each_ref().map(|it| it.at_ms);
        for second in 1..40 {
            for (sensor, offset_ms) in sensors.iter_mut().zip(offsets_ms) {
                sensor.reports(&mut board, offset_ms + second * 1_000 + 250, true);
            }
            board.advance(Timestamp((5_000_250 + second * 1_000) * MS));
        }
        for (sensor, rate) in [("a", 60.0), ("b", 40.0), ("c", 10.0)] {
            assert_rate(&board, sensor, rate, 10);
        }
    }

    #[test]
    fn what_was_delivered_before_a_stop_is_no_share_of_it() {
        let mut board = Board::new(Profile::site());
        let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
        let bad = Tally { opened: 9, unanswered: 9, ..Tally::default() };
        for second in 5_000..5_200 {
            let tally = if second < 5_100 { good } else { bad };
            let tallies = vec![(server(), second, tally)];
            board.take(
                "here",
                0,
                &Report { at: Timestamp((second + 1) * 1_000 * MS), tallies, health: Health::default() },
            );
            board.advance(Timestamp((second + 1) * 1_000 * MS));
            let entry = board.entries().next().unwrap();
            match (second, entry.server.state()) {
                (5_090, state) => {
                    assert_eq!((state, entry.shares_span_s), (ServerState::Normal, 1_200));
                    assert_eq!(entry.shares.map(|it| it.s_normal), Some(1.0));
                }
                (5_150.., state) => {
                    assert_eq!((state, entry.shares), (ServerState::Stopped, None));
                    assert!(
                        (second - 5_101..=second - 5_098).contains(&entry.shares_span_s),
                        "{}",
                        entry.shares_span_s
                    );
                }
                _ => {}
            }
        }
        let view = serde_json::to_value(board.view()).unwrap();
        assert_eq!(view["servers"][0]["shares"], Value::Null);
    }
}
