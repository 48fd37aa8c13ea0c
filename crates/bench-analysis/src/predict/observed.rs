//! The load that an access log shows.

use std::collections::{BTreeMap, VecDeque};

use time::UtcDateTime;

use super::{Assumption, Busiest, Demand, Window};
use crate::access_log::{LineError, LogLine};

/// The requests of a log, counted by second. The order of the log's lines does not matter.
///
/// A day with requests takes about 360 KB, and there are at most [`DAYS_MAX`].
#[derive(Clone, Debug, Default)]
pub struct Observed {
    days: BTreeMap<i64, Day>,
    /// The first and the last second, as Unix times.
    span: Option<(i64, i64)>,
    requests: u64,
    bytes: u64,
}

/// Maximum number of days: a year, plus the days that a leap year and time zones add.
pub const DAYS_MAX: usize = 370;

/// One day of UTC that has requests.
#[derive(Clone, Debug)]
struct Day {
    requests_by_second: Vec<u32>,
    bytes_by_minute: Vec<u64>,
}

impl Observed {
    /// Counts a line.
    pub fn enter(&mut self, line: &LogLine<'_>) -> Result<(), LineError> {
        let unix_s = line.time.unix_timestamp();
        let (date, second) = (unix_s.div_euclid(DAY_S), unix_s.rem_euclid(DAY_S) as usize);
        if self.days.len() == DAYS_MAX && !self.days.contains_key(&date) {
            return Err(LineError::TooManyDays);
        }
        self.days.entry(date).or_default().enter(second, line.bytes);
        let (first, last) = self.span.unwrap_or((unix_s, unix_s));
        self.span = Some((first.min(unix_s), last.max(unix_s)));
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(line.bytes);
        Ok(())
    }

    /// The load of the busiest windows, at any offset. `None` without lines.
    ///
    /// * `name`: names the log in the assumptions;
    /// * `bad_lines`: number of lines that could not be read, or entered.
    pub fn demand(&self, name: &str, bad_lines: u64) -> Option<Demand> {
        let span = self.span?;
        let per_s = |window: Window| self.busiest_requests(window.seconds() as usize) / f64::from(window.seconds());
        Some(Demand {
            requests_per_s: Busiest {
                hour: per_s(Window::Hour),
                minute: per_s(Window::Minute),
                second: per_s(Window::Second),
            },
            bytes_per_s: Some(self.busiest_bytes_per_s()),
            handshake_share: None,
            assumptions: self.assumptions(name, bad_lines, span),
        })
    }

    /// Requests in the busiest window of `width` seconds.
    #[allow(clippy::cast_precision_loss, reason = "under 2^53")]
    fn busiest_requests(&self, window_s: usize) -> f64 {
        let days = self.days.iter().map(|(date, day)| (*date, day.requests_by_second.as_slice()));
        fullest_window(days, window_s) as f64
    }

    #[allow(clippy::cast_precision_loss, reason = "an average of large numbers")]
    fn busiest_bytes_per_s(&self) -> f64 {
        let days = self.days.iter().map(|(date, day)| (*date, day.bytes_by_minute.as_slice()));
        fullest_window(days, 1) as f64 / f64::from(Window::Minute.seconds())
    }

    /// Number of whole hours of the span without a request.
    fn empty_hours(&self, (from, to): (i64, i64)) -> u64 {
        let all = from.div_euclid(HOUR_S).abs_diff(to.div_euclid(HOUR_S)) + 1;
        let used = |day: &Day| {
            day.requests_by_second.chunks(HOUR_S as usize).filter(|hour| hour.iter().any(|n| *n > 0)).count()
        };
        all - self.days.values().map(used).sum::<usize>() as u64
    }

    fn assumptions(&self, name: &str, bad_lines: u64, span: (i64, i64)) -> Vec<Assumption> {
        let observed = |what: &str, value: String| Assumption::new(what, value, name);
        let mut all = vec![
            observed("requests", format!("{}, and {bad_lines} bad lines skipped", self.requests)),
            observed("logged from", shown(span.0)),
            observed("to", shown(span.1)),
            observed("hours without a request", format!("{}, counted as idle", self.empty_hours(span))),
            observed(
                "bytes a request",
                format!("{:.0} on average, heads and TLS not counted", self.bytes_per_request()),
            ),
        ];
        all.extend(MODEL.iter().map(|(what, value)| Assumption::new(what, value, "model")));
        all
    }

    #[allow(clippy::cast_precision_loss, reason = "an average")]
    fn bytes_per_request(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }
}

const MODEL: [(&str, &str); 2] = [
    ("the log has", "all requests of the site, and its busiest day"),
    ("a request counts", "in the second that it is logged with"),
];

const DAY_S: i64 = 86_400;
const HOUR_S: i64 = 3600;

impl Default for Day {
    fn default() -> Self {
        Self { requests_by_second: vec![0; DAY_S as usize], bytes_by_minute: vec![0; DAY_S as usize / 60] }
    }
}

impl Day {
    fn enter(&mut self, second: usize, bytes: u64) {
        let requests = &mut self.requests_by_second[second];
        *requests = requests.saturating_add(1);
        let minute = &mut self.bytes_by_minute[second / 60];
        *minute = minute.saturating_add(bytes);
    }
}

/// The largest sum of `width` successive slots. Windows cross midnight if the log has both days.
fn fullest_window<'a, T: Copy + Into<u64> + 'a>(days: impl Iterator<Item = (i64, &'a [T])>, width: usize) -> u64 {
    let (mut sum, mut fullest) = (0, 0);
    let mut recent = VecDeque::new();
    let mut yesterday = None;
    for (date, slots) in days {
        if yesterday.replace(date) != Some(date - 1) {
            (sum, recent) = (0, VecDeque::from(vec![0; width]));
        }
        for slot in slots.iter().map(|slot| (*slot).into()) {
            sum = sum - recent.pop_front().unwrap_or_default() + slot;
            recent.push_back(slot);
            fullest = fullest.max(sum);
        }
    }
    fullest
}

/// A Unix time as a date and a time of UTC.
fn shown(unix_s: i64) -> String {
    let Ok(time) = UtcDateTime::from_unix_timestamp(unix_s) else { return unix_s.to_string() };
    let (hour, minute, second) = time.as_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", time.date())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    #![allow(clippy::float_cmp, reason = "the numbers are whole, and small")]

    use super::*;
    use crate::access_log::read_log;

    /// A log whose lines each have a time, and 600 bytes.
    fn log<'a>(times: impl IntoIterator<Item = &'a str>) -> String {
        let lines = times.into_iter().map(|time| format!("::1 - - [{time}] \"GET / HTTP/1.1\" 200 600"));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn demand(log: &str) -> Option<Demand> {
        let mut observed = Observed::default();
        let count = read_log("a.log", log.as_bytes(), |line| observed.enter(line)).unwrap();
        observed.demand("a.log", count.bad)
    }

    fn assumed<'a>(demand: &'a Demand, what: &str) -> &'a str {
        let found = demand.assumptions.iter().find(|assumption| assumption.what == what);
        &found.unwrap().value
    }

    /// Requests of the busiest hour, minute and second.
    fn busiest(log: &str) -> [f64; 3] {
        let demand = demand(log).unwrap();
        Window::ALL.map(|window| demand.requests_per_s.of(window) * f64::from(window.seconds()))
    }

    #[test]
    fn a_log_by_hand() {
        // Three in a second, five in 60 s, six in 3600 s, one out of order, and one an hour later.
        let log = log([
            "22/Nov/2026:10:00:10 +0000",
            "22/Nov/2026:10:00:59 +0000",
            "22/Nov/2026:10:01:00 +0000",
            "22/Nov/2026:10:01:00 +0000",
            "22/Nov/2026:10:01:00 +0000",
            "22/Nov/2026:10:01:09 +0000",
            "22/Nov/2026:09:01:09 +0000",
            "22/Nov/2026:11:01:09 +0000",
        ]);
        assert_eq!(busiest(&log), [6.0, 6.0, 3.0]);
        let demand = demand(&log).unwrap();
        // In the minute from 10:01:00 there are four requests of 600 bytes.
        assert_eq!((demand.bytes_per_s, demand.handshake_share), (Some(40.0), None));
        assert_eq!(assumed(&demand, "logged from"), "2026-11-22 09:01:09 UTC");
        assert_eq!(assumed(&demand, "to"), "2026-11-22 11:01:09 UTC");
        assert_eq!(assumed(&demand, "hours without a request"), "0, counted as idle");
    }

    #[test]
    fn windows_are_as_long_as_they_say() {
        let apart = |seconds: u32| {
            let second = |at: u32| format!("22/Nov/2026:{:02}:{:02}:{:02} +0000", at / 3600, at / 60 % 60, at % 60);
            busiest(&log([second(7).as_str(), second(7 + seconds).as_str()]))
        };
        assert_eq!(apart(0), [2.0, 2.0, 2.0]);
        assert_eq!(apart(59), [2.0, 2.0, 1.0]);
        assert_eq!(apart(60), [2.0, 1.0, 1.0]);
        assert_eq!(apart(3599), [2.0, 1.0, 1.0]);
        assert_eq!(apart(3600), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn midnight_is_no_border_but_a_hole_is() {
        let over_midnight =
            log(["28/Feb/2024:23:59:59 +0000", "29/Feb/2024:00:00:00 +0000", "01/Mar/2024:00:00:00 +0000"]);
        assert_eq!(busiest(&over_midnight), [2.0, 2.0, 1.0]);
        let over_a_day = log(["27/Feb/2024:23:59:59 +0000", "29/Feb/2024:00:00:00 +0000"]);
        assert_eq!(busiest(&over_a_day), [1.0, 1.0, 1.0]);
        assert_eq!(assumed(&demand(&over_a_day).unwrap(), "hours without a request"), "24, counted as idle");
    }

    #[test]
    fn zones_are_one_clock() {
        // The same second in three zones; clocks go back in Berlin, and 02:30 comes twice.
        let one = log(["01/Jan/2026:00:00:00 +0900", "31/Dec/2025:15:00:00 +0000", "31/Dec/2025:11:30:00 -0330"]);
        assert_eq!(busiest(&one), [3.0, 3.0, 3.0]);
        let twice = log(["25/Oct/2026:02:30:00 +0200", "25/Oct/2026:02:30:00 +0100"]);
        assert_eq!(busiest(&twice), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn leap_seconds_and_bad_lines_are_no_obstacle() {
        let log = log(["31/Dec/2016:23:59:60 +0000", "31/Dec/2016:23:59:59 +0000", "32/Dec/2016:23:59:59 +0000"]);
        assert_eq!(busiest(&log), [2.0, 2.0, 2.0]);
        assert_eq!(assumed(&demand(&log).unwrap(), "requests"), "2, and 1 bad lines skipped");
    }

    #[test]
    fn an_empty_log_says_nothing() {
        assert_eq!(demand(""), None);
        assert_eq!(demand("nonsense\n"), None);
    }

    #[test]
    fn days_are_bounded() {
        let mut observed = Observed::default();
        let day = |day: i64| time::OffsetDateTime::from_unix_timestamp(day * DAY_S).unwrap();
        let line = |date| LogLine { client: "::1", time: day(date), request: "-", status: 0, bytes: u64::MAX };
        let days = i64::try_from(DAYS_MAX).unwrap();
        (0..days).for_each(|date| observed.enter(&line(date)).unwrap());
        assert_eq!(observed.enter(&line(days)), Err(LineError::TooManyDays));
        assert_eq!(observed.enter(&line(0)), Ok(()));
        assert!(observed.demand("a.log", 0).is_some());
    }
}
