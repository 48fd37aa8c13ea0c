//! The board as JSON, as the page reads it.

use std::net::SocketAddr;

use serde::Serialize;
use watari_endings::{Histogram, Lately, Profile, Server, Shares, Tally};

use super::entries::SensorHealth;
use super::state::{Board, LATEST_S, Sensor};
use crate::recent::Recent;
use crate::rows::seconds;
use crate::spans::{EvidenceRow, SharesRow, because};

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
    last_report: f64,
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

impl Board {
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
    #[expect(clippy::cast_precision_loss, reason = "a rough offset")]
    fn view<'a>(&self, name: &'a str) -> SensorView<'a> {
        let SensorHealth { health, hanging, unwatched } = self.health();
        let link = self.link;
        let covered = self.covered();
        SensorView {
            name,
            last_report: seconds(self.last_report),
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

impl<'a> ServerView<'a> {
    fn new(sensor: &'a str, address: SocketAddr, server: &Server, of: &Sensor) -> Self {
        let (profile, late) = (of.states.profile(), &of.late);
        let from_s = (of.last_report.0 / 1_000_000_000).saturating_sub(LATEST_S);
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
