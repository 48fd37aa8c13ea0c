//! The state of the board: what reports and links change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use watari_endings::{Change, Ending, Histogram, Profile, ServerState, States, Tally};
use watari_packets::Timestamp;

use crate::listener::{DELAY_MAX, SET_BACK_MIN};
use crate::report::{Health, Report};

/// The data of all sensors. Pass it reports and the time, then call [`Board::poll`] until it returns `None`.
#[derive(Debug)]
pub struct Board {
    pub(super) profile: Profile,
    pub(super) sensors: BTreeMap<String, Sensor>,
    pub(super) changes: VecDeque<(String, Change)>,
    pub(super) now: Timestamp,
}

#[derive(Debug)]
pub(super) struct Sensor {
    pub(super) states: States,
    pub(super) timelines: BTreeMap<SocketAddr, Timeline>,
    pub(super) totals: BTreeMap<SocketAddr, Totals>,
    /// One for each of its threads.
    pub(super) parts: BTreeMap<u8, Part>,
    /// The time up to which all threads have reported.
    pub(super) last_report: Timestamp,
    /// The begin of the reports without a gap; `None` before the first report.
    pub(super) began: Option<Timestamp>,
    /// The time up to which servers are judged.
    pub(super) judged: Timestamp,
    pub(super) late: Late,
    /// For a sensor on another machine.
    pub(super) link: Option<Link>,
}

/// A thread of a sensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) at: Timestamp,
    pub(super) health: Health,
    /// The thread has ended.
    pub(super) is_over: bool,
}

/// Past seconds whose counts changed later, because connections are reported when they have settled. By server: the
/// time of the change, and the second; the latest is last.
#[derive(Debug, Default)]
pub(super) struct Late(BTreeMap<SocketAddr, VecDeque<(u64, u64)>>);

/// The connection of a sensor on another machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it is connected.
    pub is_connected: bool,
    /// How far its clock is ahead of this machine's, in nanoseconds, if measured.
    pub clock_offset_ns: Option<i64>,
    /// Seconds of servers that the sensor dropped before the judge got them.
    pub lost: u64,
    /// Seconds of servers that the judge refused, because their time is impossible.
    pub refused: u64,
}

/// Counts of a server since it was seen first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections that began.
    pub opened: u64,
    /// Connections that ended, in the order of [`Ending::ALL`].
    pub endings: [u64; Ending::ALL.len()],
    /// Connections that were evicted to make room for others.
    pub evicted: u64,
    /// Requests that got an answer.
    pub answered: u64,
    /// SYNs and requests that got none.
    pub unanswered: u64,
    /// Times from requests to the first octet of their answers, by bucket of [`Histogram`].
    pub responses: [u64; Histogram::BUCKETS],
    /// Sum of the times in `responses`, in microseconds.
    pub response_us: u64,
    /// Connections with a full TLS handshake.
    pub tls_full: u64,
    /// Connections with a resumed TLS session.
    pub tls_resumed: u64,
    /// Octets of data to clients.
    pub bytes_to_client: u64,
}

/// The states of a server and their begins; the latest is last.
pub(super) type Timeline = VecDeque<(Timestamp, ServerState)>;

/// The most servers of a sensor that are judged.
pub const SERVERS_MAX: usize = 1024;
/// The maximum number of sensors of a board.
pub const SENSORS_MAX: usize = 256;
/// The most changes of a server that are stored.
const TIMELINE_MAX: usize = 256;
/// The number of latest seconds that a view repeats, and how long it repeats past seconds that changed later.
pub(super) const LATEST_S: u64 = 5;
/// The most past seconds of a server that are stored for that.
const LATE_MAX: usize = 256;
/// How far a sensor's clock may be ahead of the judge's, in seconds. Later seconds are refused.
pub const AHEAD_MAX_S: u64 = 60;
/// Reports come each second. If one comes this much later, by the sensor's clock, there was a pause, or the clock was
/// set.
const REPORT_LATE_MAX: Duration = Duration::from_secs(5);
/// The board does not wait for a thread that is further behind the others than this.
const PART_LATE_MAX: Duration = Duration::from_secs(10);

impl Board {
    pub const fn new(profile: Profile) -> Self {
        Self { profile, sensors: BTreeMap::new(), changes: VecDeque::new(), now: Timestamp(0) }
    }

    /// Takes a report of the thread `part` of a sensor. Returns false if there are too many sensors.
    pub fn take(&mut self, sensor: &str, part: u8, report: &Report) -> bool {
        let Some(sensor) = self.sensor(sensor) else { return false };
        let at_s = report.at.0 / 1_000_000_000;
        for (server, second, tally) in &report.tallies {
            sensor.states.add(*server, Timestamp(second.saturating_mul(1_000_000_000)), tally);
            if sensor.states.server(server).is_some() {
                sensor.totals.entry(*server).or_default().add(tally);
                sensor.late.note(*server, at_s, *second);
            }
        }
        let before = sensor.parts.insert(part, Part { at: report.at, health: report.health, is_over: false });
        sensor.advance_reported();
        if sensor.began.is_none() || before.is_some_and(|it| report.at.since(it.at) > REPORT_LATE_MAX) {
            // On a quiet link, the report's time is this much behind the clock at which it began.
            sensor.began = sensor.began.max(Some(report.at + DELAY_MAX));
        }
        true
    }

    /// The connection of a sensor on another machine, which may not have reported yet. `None` if there are too many
    /// sensors.
    pub fn link(&mut self, sensor: &str) -> Option<&mut Link> {
        self.sensor(sensor).map(|sensor| sensor.link.get_or_insert_default())
    }

    /// A thread of a sensor has ended. The board no longer waits for it.
    pub fn leave(&mut self, sensor: &str, part: u8) {
        let part = self.sensors.get_mut(sensor).and_then(|sensor| sensor.parts.get_mut(&part));
        if let Some(part) = part {
            part.is_over = true;
        }
    }

    /// A sensor has restarted: its earlier health no longer counts, and the ends of its open connections will not be
    /// reported.
    pub fn renew(&mut self, sensor: &str) {
        if let Some(sensor) = self.sensors.get_mut(sensor) {
            sensor.parts.clear();
            sensor.began = None;
            sensor.states.forget_open();
        }
    }

    /// Advances time to `now`. Servers are judged once a second.
    pub fn advance(&mut self, now: Timestamp) {
        let is_next_second = now.0 / 1_000_000_000 != self.now.0 / 1_000_000_000;
        self.now = now;
        for (name, sensor) in &mut self.sensors {
            // Without reports of a sensor, the states of its servers are unknown. Silence of the sensor is not silence
            // of its servers.
            sensor.judged = sensor.last_report.min(self.now + Duration::from_secs(AHEAD_MAX_S));
            sensor.states.advance(sensor.judged);
            while let Some(change) = sensor.states.poll() {
                sensor.note(&change);
                self.changes.push_back((name.clone(), change));
            }
            if is_next_second {
                sensor.forget();
            }
        }
    }

    /// The next change of a server's state, with the name of its sensor.
    pub fn poll(&mut self) -> Option<(String, Change)> {
        self.changes.pop_front()
    }

    /// The limits between the states.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The sensor of this name, which may be new. `None` if there are too many. A new one replaces the one that has
    /// been disconnected for the longest time.
    fn sensor(&mut self, name: &str) -> Option<&mut Sensor> {
        if !self.sensors.contains_key(name) && self.sensors.len() >= SENSORS_MAX {
            let away = self.sensors.iter().filter(|(_, sensor)| sensor.is_away());
            let longest = away.min_by_key(|(_, sensor)| sensor.last_report).map(|(name, _)| name.clone());
            self.sensors.remove(&longest?);
        }
        let profile = self.profile;
        Some(self.sensors.entry(name.to_owned()).or_insert_with(|| Sensor::new(profile)))
    }
}

impl Sensor {
    fn new(profile: Profile) -> Self {
        Self {
            states: States::new(profile, SERVERS_MAX),
            timelines: BTreeMap::new(),
            totals: BTreeMap::new(),
            parts: BTreeMap::new(),
            last_report: Timestamp(0),
            began: None,
            judged: Timestamp(0),
            late: Late::default(),
            link: None,
        }
    }

    fn note(&mut self, change: &Change) {
        let timeline = self.timelines.entry(change.server).or_default();
        if timeline.len() >= TIMELINE_MAX {
            timeline.pop_front();
        }
        timeline.push_back((change.verdict.since, change.verdict.state));
    }

    /// Advances the sensor's time to that of its slowest thread, except for hanging ones. Sets it back if all threads
    /// have been set back.
    fn advance_reported(&mut self) {
        let parts = || self.parts.values().filter(|part| !part.is_over).map(|part| part.at);
        let first = parts().max().unwrap_or(Timestamp(0));
        let waited_for = parts().filter(|at| first.since(*at) <= PART_LATE_MAX).min();
        if self.last_report.since(first) > SET_BACK_MIN {
            (self.last_report, self.judged, self.began) = (first, first, None);
            self.late = Late::default();
            self.states.set_back(first);
        }
        self.last_report = self.last_report.max(waited_for.unwrap_or(Timestamp(0)));
    }

    pub(super) fn is_away(&self) -> bool {
        self.link.is_some_and(|link| !link.is_connected)
    }

    /// Drops the past of servers that are no longer watched, because they have been idle for long.
    fn forget(&mut self) {
        let states = &self.states;
        self.timelines.retain(|server, _| states.server(server).is_some());
        self.totals.retain(|server, _| states.server(server).is_some());
        self.late.0.retain(|server, _| states.server(server).is_some());
        self.late.forget(self.last_report.0 / 1_000_000_000);
    }
}

impl Late {
    /// Notes that a report at `at_s` changed `second`.
    fn note(&mut self, server: SocketAddr, at_s: u64, second: u64) {
        if second.saturating_add(LATEST_S) > at_s {
            return;
        }
        let seconds = self.0.entry(server).or_default();
        if seconds.len() >= LATE_MAX {
            seconds.pop_front();
        }
        seconds.push_back((at_s, second));
    }

    /// Drops notes that are older than [`LATEST_S`] at `now_s`.
    fn forget(&mut self, now_s: u64) {
        self.0.retain(|_, seconds| {
            while seconds.front().is_some_and(|(at_s, _)| at_s.saturating_add(LATEST_S) < now_s) {
                seconds.pop_front();
            }
            !seconds.is_empty()
        });
    }

    pub(super) fn seconds(&self, server: &SocketAddr) -> BTreeSet<u64> {
        self.0.get(server).into_iter().flatten().map(|(_, second)| *second).collect()
    }
}

impl Totals {
    fn add(&mut self, tally: &Tally) {
        for (total, count) in self.endings.iter_mut().zip(tally.endings) {
            *total += u64::from(count);
        }
        for (total, count) in self.responses.iter_mut().zip(tally.responses.0) {
            *total += u64::from(count);
        }
        for (total, count) in [
            (&mut self.opened, tally.opened),
            (&mut self.evicted, tally.evicted),
            (&mut self.answered, tally.answered),
            (&mut self.unanswered, tally.unanswered),
            (&mut self.tls_full, tally.tls_full),
            (&mut self.tls_resumed, tally.tls_resumed),
        ] {
            *total += u64::from(count);
        }
        self.response_us = self.response_us.saturating_add(tally.response_us);
        self.bytes_to_client = self.bytes_to_client.saturating_add(tally.bytes_to_client);
    }
}
