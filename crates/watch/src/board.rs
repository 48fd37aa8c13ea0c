//! The board: the current data of all servers of all sensors, for the page, the terminal and metrics.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use serde::Serialize;
use watari_endings::{Change, Ending, Histogram, Lately, Profile, Server, ServerState, Shares, States, Tally};
use watari_packets::Timestamp;

use crate::listener::{DELAY_MAX, SET_BACK_MIN};
use crate::recent::{Covered, Recent};
use crate::report::{Health, Report};
use crate::rows::seconds;
use crate::spans::{EvidenceRow, SharesRow, because};

/// The data of all sensors. Pass it reports and the time, then call [`Board::poll`] until it returns `None`.
#[derive(Debug)]
pub struct Board {
    profile: Profile,
    sensors: BTreeMap<String, Sensor>,
    changes: VecDeque<(String, Change)>,
    now: Timestamp,
}

#[derive(Debug)]
struct Sensor {
    states: States,
    timelines: BTreeMap<SocketAddr, Timeline>,
    totals: BTreeMap<SocketAddr, Totals>,
    /// One for each of its threads.
    parts: BTreeMap<u8, Part>,
    /// The time up to which all threads have reported.
    heard: Timestamp,
    /// The begin of the reports without a gap; `None` before the first report.
    began: Option<Timestamp>,
    /// The time up to which servers are judged.
    judged: Timestamp,
    late: Late,
    /// For a sensor on another machine.
    link: Option<Link>,
}

/// A thread of a sensor.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: Timestamp,
    health: Health,
    /// The thread has ended.
    is_over: bool,
}

/// Past seconds whose counts changed later, because connections are reported when they have settled. By server: the
/// time of the change, and the second; the latest is last.
#[derive(Debug, Default)]
struct Late(BTreeMap<SocketAddr, VecDeque<(u64, u64)>>);

/// The health of a sensor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Listens {
    /// The sums of all its threads.
    pub health: Health,
    /// Threads that are so far behind the others that the board does not wait for them.
    pub hanging: usize,
    /// Number of events at servers that are not watched, because there are too many.
    pub unwatched: u64,
}

/// The connection of a sensor on another machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Link {
    /// Whether it is connected.
    pub is_there: bool,
    /// How far its clock is ahead of this machine's, in nanoseconds, if measured.
    pub clock_offset_ns: Option<i64>,
    /// Seconds of servers that the sensor dropped before the judge got them.
    pub lost: u64,
    /// Seconds of servers that the judge refused, because their time is impossible.
    pub refused: u64,
}

/// A server on the board.
#[derive(Debug)]
pub struct Entry<'a> {
    /// The name of its sensor.
    pub sensor: &'a str,
    pub address: SocketAddr,
    /// Its state and its latest seconds.
    pub server: &'a Server,
    /// Counts since it was seen first.
    pub totals: Totals,
    /// The time of the sensor's last report, by the sensor's own clock.
    pub heard: Timestamp,
    /// The complete seconds.
    pub covered: Covered,
    /// Counts over the last ten complete seconds.
    pub recent: Recent,
    /// Connections that were open at the end of the last complete second.
    pub open: u32,
    /// X, Y and Z over the span of the current state; `None` if no connection ended in it.
    pub shares: Option<Shares>,
    /// The length of that span, in seconds.
    pub shares_span_s: u64,
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
type Timeline = VecDeque<(Timestamp, ServerState)>;

/// The most servers of a sensor that are judged.
pub const SERVERS_MAX: usize = 1024;
/// The most sensors.
pub const SENSORS_MAX: usize = 256;
/// The most changes of a server that are stored.
const TIMELINE_MAX: usize = 256;
/// The number of latest seconds that a view repeats, and how long it repeats past seconds that changed later.
const LATEST_S: u64 = 5;
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
        sensor.hear();
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
            sensor.judged = sensor.heard.min(self.now + Duration::from_secs(AHEAD_MAX_S));
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

    /// Each server with its sensor.
    pub fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        self.sensors.iter().flat_map(|(name, sensor)| {
            sensor.states.servers().map(|(address, server)| sensor.entry(name, *address, server))
        })
    }

    /// Each sensor with its health.
    pub fn sensors(&self) -> impl Iterator<Item = (&str, Listens)> {
        self.sensors.iter().map(|(name, sensor)| (name.as_str(), sensor.listens()))
    }

    /// Each sensor on another machine with its connection.
    pub fn links(&self) -> impl Iterator<Item = (&str, Link)> {
        self.sensors.iter().filter_map(|(name, sensor)| Some((name.as_str(), sensor.link?)))
    }

    /// The limits between the states.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// All data except past seconds.
    pub fn view(&self) -> BoardView<'_> {
        BoardView {
            now: seconds(self.now),
            columns: COLUMNS,
            response_bounds_ms: Histogram::BOUNDS_US.map(|bound| f64::from(bound) / 1e3),
            profile: ProfileView::from(&self.profile),
            sensors: self.sensors.iter().map(|(name, sensor)| sensor.view(name)).collect(),
            servers: self.sensors.iter().flat_map(|(name, sensor)| sensor.servers(name)).collect(),
        }
    }

    /// The sensor of this name, which may be new. `None` if there are too many. A new one replaces the one that has
    /// been disconnected for the longest time.
    fn sensor(&mut self, name: &str) -> Option<&mut Sensor> {
        if !self.sensors.contains_key(name) && self.sensors.len() >= SENSORS_MAX {
            let away = self.sensors.iter().filter(|(_, sensor)| sensor.is_away());
            let longest = away.min_by_key(|(_, sensor)| sensor.heard).map(|(name, _)| name.clone());
            self.sensors.remove(&longest?);
        }
        let profile = self.profile;
        Some(self.sensors.entry(name.to_owned()).or_insert_with(|| Sensor::new(profile)))
    }

    /// The stored seconds of a server, and its states; `None` if it is not watched.
    pub fn course(&self, sensor: &str, server: &SocketAddr) -> Option<CourseView> {
        let sensor = self.sensors.get(sensor)?;
        let rows = sensor.states.server(server)?.window().seconds().map(|(at_s, tally)| row(at_s, tally)).collect();
        let timeline = sensor.timelines.get(server).into_iter().flatten();
        let timeline =
            timeline.map(|(since, state)| StateView { since: seconds(*since), state: state.as_str() }).collect();
        Some(CourseView { rows, timeline })
    }
}

impl Sensor {
    fn new(profile: Profile) -> Self {
        Self {
            states: States::new(profile, SERVERS_MAX),
            timelines: BTreeMap::new(),
            totals: BTreeMap::new(),
            parts: BTreeMap::new(),
            heard: Timestamp(0),
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
    fn hear(&mut self) {
        let parts = || self.parts.values().filter(|part| !part.is_over).map(|part| part.at);
        let first = parts().max().unwrap_or(Timestamp(0));
        let waited_for = parts().filter(|at| first.since(*at) <= PART_LATE_MAX).min();
        if self.heard.since(first) > SET_BACK_MIN {
            (self.heard, self.judged, self.began) = (first, first, None);
            self.late = Late::default();
            self.states.set_back(first);
        }
        self.heard = self.heard.max(waited_for.unwrap_or(Timestamp(0)));
    }

    /// The complete seconds of the sensor.
    fn covered(&self) -> Covered {
        let began_ns = self.began.map_or(u64::MAX, |began| began.0);
        Covered::new(began_ns, self.judged.0 / 1_000_000_000)
    }

    fn entry<'a>(&self, name: &'a str, address: SocketAddr, server: &'a Server) -> Entry<'a> {
        let covered = self.covered();
        let (shares, shares_span_s) = covered.shares(server, self.states.profile());
        Entry {
            sensor: name,
            address,
            server,
            totals: self.totals.get(&address).copied().unwrap_or_default(),
            heard: self.judged,
            covered,
            recent: covered.short(server),
            open: covered.open(server),
            shares,
            shares_span_s,
        }
    }

    fn is_away(&self) -> bool {
        self.link.is_some_and(|link| !link.is_there)
    }

    /// Drops the past of servers that are no longer watched, because they have been idle for long.
    fn forget(&mut self) {
        let states = &self.states;
        self.timelines.retain(|server, _| states.server(server).is_some());
        self.totals.retain(|server, _| states.server(server).is_some());
        self.late.0.retain(|server, _| states.server(server).is_some());
        self.late.forget(self.heard.0 / 1_000_000_000);
    }

    fn listens(&self) -> Listens {
        let mut health = Health::default();
        for part in self.parts.values() {
            health += part.health;
        }
        let hanging = self.parts.values().filter(|part| !part.is_over && part.at < self.heard).count();
        Listens { health, hanging, unwatched: self.states.unwatched() }
    }

    #[expect(clippy::cast_precision_loss, reason = "a rough offset")]
    fn view<'a>(&self, name: &'a str) -> SensorView<'a> {
        let Listens { health, hanging, unwatched } = self.listens();
        let link = self.link;
        let covered = self.covered();
        SensorView {
            name,
            heard: seconds(self.heard),
            complete_until: covered.until_s,
            covered_s: covered.len_s(),
            packets: health.frames.all(),
            dropped: health.dropped,
            dropped_by_interface: health.dropped_by_interface,
            evicted: health.counts.evicted,
            untracked: health.counts.untracked,
            stray: health.counts.stray,
            uncounted: health.uncounted,
            unwatched,
            hanging,
            away: self.is_away(),
            clock_offset_s: link.and_then(|link| link.clock_offset_ns).map(|offset| offset as f64 / 1e9),
            lost: link.map_or(0, |link| link.lost),
            refused: link.map_or(0, |link| link.refused),
        }
    }

    fn servers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = ServerView<'a>> {
        self.states.servers().map(move |(address, server)| ServerView::new(name, *address, server, self))
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

    fn seconds(&self, server: &SocketAddr) -> BTreeSet<u64> {
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

/// The board as JSON. Times are in seconds since the Unix epoch, shares are 0 to 1.
#[derive(Debug, Serialize)]
pub struct BoardView<'a> {
    now: f64,
    /// The names of the numbers of a row.
    columns: &'static [&'static str],
    /// Upper bounds of the buckets of response times, in milliseconds. The last bucket has none.
    response_bounds_ms: [f64; Histogram::BOUNDS_US.len()],
    profile: ProfileView,
    sensors: Vec<SensorView<'a>>,
    servers: Vec<ServerView<'a>>,
}

/// The limits between the states; `null` is no limit.
#[derive(Debug, Serialize)]
struct ProfileView {
    span_s: u64,
    stopped_span_s: u64,
    aborts: Option<f64>,
    timeouts: Option<f64>,
    aborts_and_timeouts: Option<f64>,
    failures: Option<f64>,
    unanswered: f64,
}

/// A sensor and its health.
#[derive(Debug, Serialize)]
struct SensorView<'a> {
    name: &'a str,
    /// The time of its last report.
    heard: f64,
    /// The end of the last complete second.
    complete_until: u64,
    /// The number of seconds before `complete_until` that are covered without a pause, at most ten.
    covered_s: u64,
    packets: u64,
    dropped: u64,
    dropped_by_interface: u64,
    evicted: u64,
    untracked: u64,
    stray: u64,
    /// Seconds of servers that were not reported, because there were too many.
    uncounted: u64,
    /// Number of events at servers that are not watched, because there are too many.
    unwatched: u64,
    /// Threads that are behind the others, for which the board does not wait.
    hanging: usize,
    /// Whether it is another machine, and not connected. Then its servers have the data of its last report.
    away: bool,
    /// How far its clock is ahead.
    clock_offset_s: Option<f64>,
    /// Seconds of servers that it dropped while it was disconnected.
    lost: u64,
    /// Seconds of servers that were refused, because their time is impossible.
    refused: u64,
}

#[derive(Debug, Serialize)]
struct ServerView<'a> {
    sensor: &'a str,
    server: SocketAddr,
    state: &'static str,
    since: Option<f64>,
    /// The evidence as a sentence.
    because: Option<String>,
    evidence: Option<EvidenceRow>,
    /// Connections that were open at the end of the last complete second.
    open: u32,
    /// X, Y and Z as they are judged now. If the server is stopped, of the connections that ended since.
    shares: Option<SharesRow>,
    /// The length of the span of `shares`, in seconds.
    shares_span_s: u64,
    /// The span of the profile, that of stopped servers, and ten complete seconds.
    spans: Vec<SpanView>,
    /// The latest seconds, in the order of `columns`.
    rows: Vec<Row>,
}

/// Counts of a span. Rates and times are those of its complete seconds, whose number is `covered_s`; `null` if there
/// are none.
#[derive(Debug, Serialize)]
struct SpanView {
    span_s: u64,
    covered_s: u64,
    shares: Option<SharesRow>,
    opened_per_s: Option<f64>,
    answered_per_s: Option<f64>,
    unanswered_per_s: Option<f64>,
    bytes_per_s: Option<f64>,
    response_p50_ms: Option<f64>,
    response_p99_ms: Option<f64>,
    unanswered: Option<f64>,
    tls_full: u32,
    tls_resumed: u32,
    tls_handshake_ms: Option<f64>,
}

/// The past of a server.
#[derive(Debug, Serialize)]
pub struct CourseView {
    /// In the order of [`BoardView`]'s `columns`.
    rows: Vec<Row>,
    timeline: Vec<StateView>,
}

#[derive(Debug, Serialize)]
struct StateView {
    since: f64,
    state: &'static str,
}

/// The numbers of a second.
type Row = Vec<u64>;

/// The names of the numbers of a row: the second, and its counts. `response_0` and so on are the counts of the buckets
/// of response times.
pub const COLUMNS: &[&str] = &[
    "t",
    "x",
    "y",
    "z",
    "failed",
    "opened",
    "evicted",
    "answered",
    "unanswered",
    "tls_full",
    "tls_resumed",
    "S_NORMAL",
    "C_NORMAL",
    "C_RESET",
    "S_RESET",
    "TIMEOUT",
    "REFUSED",
    "NO_ANSWER",
    "OPEN",
    "BACKSCATTER",
    "response_0",
    "response_1",
    "response_2",
    "response_3",
    "response_4",
    "response_5",
    "response_6",
    "response_7",
    "response_8",
    "response_9",
    "response_10",
    "response_11",
    "response_12",
    "response_13",
    "response_14",
    "response_15",
    "response_16",
    "response_17",
    "response_18",
];

fn row(at_s: u64, tally: &Tally) -> Row {
    let counts = [
        tally.s_normal,
        tally.client_abort,
        tally.timeout,
        tally.failed,
        tally.opened,
        tally.evicted,
        tally.answered,
        tally.unanswered,
        tally.tls_full,
        tally.tls_resumed,
    ];
    let counts = counts.into_iter().chain(tally.endings).chain(tally.responses.0);
    std::iter::once(at_s).chain(counts.map(u64::from)).collect()
}

impl<'a> ServerView<'a> {
    fn new(sensor: &'a str, address: SocketAddr, server: &Server, of: &Sensor) -> Self {
        let (profile, late) = (of.states.profile(), &of.late);
        let from_s = (of.heard.0 / 1_000_000_000).saturating_sub(LATEST_S);
        let evidence = server.evidence();
        let late = late.seconds(&address);
        let latest = server.window().seconds().filter(|(at_s, _)| *at_s >= from_s || late.contains(at_s));
        let entry = of.entry(sensor, address, server);
        let spans = [(Lately::Span, profile.span), (Lately::StoppedSpan, profile.stopped_span)].map(|(lately, len)| {
            let recent = entry.covered.of_span(server, lately, len.as_secs());
            SpanView::new(len.as_secs(), &recent, server.shares(lately))
        });
        let short = SpanView::new(Server::SHORT_SPAN.as_secs(), &entry.recent, entry.recent.tally.shares());
        Self {
            sensor,
            server: address,
            state: server.state().as_str(),
            since: server.verdict().map(|verdict| seconds(verdict.since)),
            because: evidence.map(because),
            evidence: evidence.map(EvidenceRow::from),
            open: entry.open,
            shares: entry.shares.map(SharesRow::from),
            shares_span_s: entry.shares_span_s,
            spans: spans.into_iter().chain([short]).collect(),
            rows: latest.map(|(at_s, tally)| row(at_s, tally)).collect(),
        }
    }
}

impl SpanView {
    #[expect(clippy::cast_precision_loss, reason = "a mean")]
    fn new(span_s: u64, recent: &Recent, shares: Option<Shares>) -> Self {
        let Recent { tally, covered_s } = recent;
        let response_ms = |quantile| tally.response_quantile(quantile).map(|time| time.as_secs_f64() * 1e3);
        let handshake_us = tally.tls_handshake_us as f64 / f64::from(tally.tls_handshakes);
        Self {
            span_s,
            covered_s: *covered_s,
            shares: shares.map(SharesRow::from),
            opened_per_s: recent.per_s(tally.opened.into()),
            answered_per_s: recent.per_s(tally.answered.into()),
            unanswered_per_s: recent.per_s(tally.unanswered.into()),
            bytes_per_s: recent.per_s(tally.bytes_to_client),
            response_p50_ms: response_ms(0.5),
            response_p99_ms: response_ms(0.99),
            unanswered: tally.unanswered_share(),
            tls_full: tally.tls_full,
            tls_resumed: tally.tls_resumed,
            tls_handshake_ms: (tally.tls_handshakes > 0).then_some(handshake_us / 1e3),
        }
    }
}

impl From<&Profile> for ProfileView {
    fn from(profile: &Profile) -> Self {
        Self {
            span_s: profile.span.as_secs(),
            stopped_span_s: profile.stopped_span.as_secs(),
            aborts: profile.aborts,
            timeouts: profile.timeouts,
            aborts_and_timeouts: profile.aborts_and_timeouts,
            failures: profile.failures,
            unanswered: profile.unanswered,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::Value;

    use super::*;

    const FIRST_S: u64 = 1_000;

    fn server() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], 443))
    }

    fn report(at_s: u64, second: u64) -> Report {
        let tally = Tally { opened: 1, ..Tally::default() };
        Report { at: at(at_s), tallies: vec![(server(), second, tally)], health: Health::default() }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp(second * 1_000_000_000)
    }

    /// The seconds of the server in the view.
    fn shown(board: &Board) -> Vec<u64> {
        let view = serde_json::to_value(board.view()).unwrap();
        view["servers"][0]["rows"].as_array().unwrap().iter().map(|row| row[0].as_u64().unwrap()).collect()
    }

    fn sensor(board: &Board) -> Value {
        serde_json::to_value(board.view()).unwrap()["sensors"][0].clone()
    }

    #[test]
    fn a_row_has_what_its_columns_say() {
        let mut tally =
            Tally { opened: 5, answered: 3, unanswered: 2, tls_full: 1, tls_resumed: 4, ..Tally::default() };
        (tally.s_normal, tally.client_abort, tally.timeout, tally.failed, tally.evicted) = (6, 7, 8, 9, 10);
        tally.endings = std::array::from_fn(|at| 20 + at as u32);
        tally.responses.0 = std::array::from_fn(|at| 40 + at as u32);
        tally.response_max_us = 60_000_000;
        let mut board = Board::new(Profile::lab());
        let report = Report { tallies: vec![(server(), FIRST_S, tally)], ..report(FIRST_S, FIRST_S) };
        board.take("here", 0, &Report { at: at(FIRST_S - 1), tallies: Vec::new(), health: Health::default() });
        board.take("here", 0, &report);
        // A second is repeated until it is complete, and while it is one of the latest.
        let later = FIRST_S + 2;
        board.take("here", 0, &Report { at: at(later), tallies: Vec::new(), health: Health::default() });
        board.advance(at(later));
        let view = serde_json::to_value(board.view()).unwrap();
        let shown = &view["servers"][0];
        let (columns, row) = (view["columns"].as_array().unwrap(), shown["rows"][0].as_array().unwrap());
        assert_eq!(columns.len(), row.len());
        let of = |name: &str| row[columns.iter().position(|it| it == name).unwrap()].as_u64().unwrap();
        assert_eq!(["t", "x", "y", "z", "failed", "evicted"].map(of), [FIRST_S, 6, 7, 8, 9, 10]);
        assert_eq!(["opened", "answered", "unanswered", "tls_full", "tls_resumed"].map(of), [5, 3, 2, 1, 4]);
        for (at, ending) in Ending::ALL.into_iter().enumerate() {
            assert_eq!(of(ending.as_str()), 20 + at as u64);
        }
        for bucket in 0..Histogram::BUCKETS as u64 {
            assert_eq!(of(&format!("response_{bucket}")), 40 + bucket);
        }
        let bounds_ms = view["response_bounds_ms"].as_array().unwrap();
        assert_eq!((bounds_ms.len(), bounds_ms[3].as_f64()), (Histogram::BUCKETS - 1, Some(1.0)));
        let spans = shown["spans"].as_array().unwrap();
        let times = |name: &str| spans.iter().map(|span| span[name].as_f64().unwrap()).collect::<Vec<_>>();
        assert!(times("response_p99_ms").iter().all(|ms| (50_000.0..60_000.0).contains(ms)));
        assert!(times("response_p50_ms").iter().all(|ms| (100.0..200.0).contains(ms)));
    }

    #[test]
    fn what_is_told_late_is_shown_for_a_while() {
        let mut board = Board::new(Profile::lab());
        for second in FIRST_S..=FIRST_S + 60 {
            assert!(board.take("here", 0, &report(second, second)));
            board.advance(at(second));
        }
        let now = FIRST_S + 61;
        board.take("here", 0, &report(now, FIRST_S + 7));
        board.advance(at(now));
        let latest: Vec<_> = (now - LATEST_S..now).collect();
        assert_eq!(shown(&board), [&[FIRST_S + 7], &latest[..]].concat());
        let later = now + LATEST_S + 1;
        board.take("here", 0, &report(later, later));
        board.advance(at(later));
        assert_eq!(shown(&board), [later]);
    }

    #[test]
    fn time_goes_on_as_far_as_all_threads_have_come() {
        let mut board = Board::new(Profile::lab());
        let heard = |board: &Board| sensor(board)["heard"].as_f64().unwrap();
        for part in [0, 1] {
            board.take("here", part, &report(FIRST_S, FIRST_S));
        }
        board.take("here", 1, &report(FIRST_S + 8, FIRST_S + 8));
        assert_eq!((heard(&board), sensor(&board)["hanging"].as_u64()), (1_000.0, Some(0)));
        // This thread hangs.
        board.take("here", 1, &report(FIRST_S + 11, FIRST_S + 11));
        assert_eq!((heard(&board), sensor(&board)["hanging"].as_u64()), (1_011.0, Some(1)));
        board.take("here", 0, &report(FIRST_S + 11, FIRST_S + 11));
        assert_eq!(sensor(&board)["hanging"].as_u64(), Some(0));
        // After a restart the sensor has one other thread.
        board.renew("here");
        board.take("here", 0, &report(FIRST_S + 12, FIRST_S + 12));
        assert_eq!((heard(&board), sensor(&board)["hanging"].as_u64()), (1_012.0, Some(0)));
    }

    /// Two threads. One of them sees the new clock first.
    #[test]
    fn a_clock_that_is_set_back_blinds_nobody() {
        let mut board = Board::new(Profile::lab());
        let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
        let bad = Tally { opened: 9, unanswered: 9, ..Tally::default() };
        let mut pass = |seconds: std::ops::Range<u64>, parts: &[u8], tally: Tally| {
            for second in seconds {
                for part in parts {
                    let tallies = vec![(server(), second, tally)];
                    board.take("here", *part, &Report { at: at(second), tallies, health: Health::default() });
                }
                board.advance(at(second + 1));
            }
            let states: Vec<_> = std::iter::from_fn(|| board.poll()).map(|(_, change)| change.verdict.state).collect();
            (states, sensor(&board)["heard"].as_f64().unwrap())
        };
        assert_eq!(pass(5_000..5_060, &[0, 1], good), (vec![ServerState::Normal], 5_059.0));
        assert_eq!(pass(1_400..1_401, &[0], good), (vec![], 5_059.0));
        assert_eq!(pass(1_401..1_403, &[0, 1], good), (vec![], 1_402.0));
        assert_eq!(pass(1_403..1_420, &[0, 1], bad), (vec![ServerState::Stopped], 1_419.0));
        assert_eq!(pass(1_420..1_440, &[0, 1], good), (vec![ServerState::Normal], 1_439.0));
        // A delay within the limit for threads sets nothing back.
        assert_eq!(pass(1_430..1_431, &[0], good), (vec![], 1_439.0));
    }

    /// Offsets below the limit for refusals.
    #[test]
    fn clocks_that_are_apart_change_nothing() {
        for (now, heard) in [(1_000, 1_050), (1_050, 1_000)] {
            let mut board = Board::new(Profile::lab());
            let good = Tally { opened: 9, answered: 9, s_normal: 9, ..Tally::default() };
            for second in 0..20 {
                let tallies = vec![(server(), heard + second, good)];
                board.take("there", 0, &Report { at: at(heard + second), tallies, health: Health::default() });
                board.advance(at(now + second));
            }
            assert_eq!(board.poll().map(|(_, change)| change.verdict.state), Some(ServerState::Normal), "{heard}");
            assert_eq!(shown(&board), (heard + 14..heard + 20).collect::<Vec<_>>());
        }
    }

    #[test]
    fn who_listens_no_more_is_not_waited_for() {
        let mut board = Board::new(Profile::lab());
        for part in [0, 1] {
            board.take("here", part, &report(FIRST_S, FIRST_S));
        }
        board.leave("here", 1);
        board.take("here", 0, &report(FIRST_S + 1, FIRST_S + 1));
        let told = sensor(&board);
        assert_eq!((told["heard"].as_f64(), told["hanging"].as_u64()), (Some(1_001.0), Some(0)));
        let open = |board: &Board| board.entries().map(|entry| entry.server.open()).sum::<u32>();
        assert_eq!(open(&board), 3);
        board.renew("here");
        assert_eq!(open(&board), 0, "no event shows how they end");
    }

    #[test]
    fn a_sensor_that_is_away_gives_its_place_to_another() {
        let mut board = Board::new(Profile::lab());
        for number in 0..SENSORS_MAX as u64 {
            let name = format!("s{number}");
            board.link(&name).unwrap().is_there = true;
            board.take(&name, 0, &report(FIRST_S + number, FIRST_S));
        }
        assert!(board.link("new").is_none());
        for name in ["s9", "s8"] {
            board.link(name).unwrap().is_there = false;
        }
        assert!(board.link("new").is_some());
        let names: BTreeSet<_> = board.links().map(|(name, _)| name.to_owned()).collect();
        assert!(names.contains("s9") && !names.contains("s8") && names.len() == SENSORS_MAX);
    }
}
