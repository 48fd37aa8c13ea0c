//! Counts of events per second, and their sums over the last spans.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use watari_packets::Timestamp;

use crate::connection::{Connection, Event, Request};
use crate::ending::{Ending, Phase, Side};
use crate::histogram::Histogram;

/// Counts and histograms of a second or a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Connections that began.
    pub opened: u32,
    /// Connections that ended, in the order of [`Ending::ALL`].
    pub endings: [u32; Ending::ALL.len()],
    /// Connections that were evicted to make room for others.
    pub evicted: u32,
    /// X: delivered, whichever side closed then. (In the paper: `S_NORMAL`. Its servers closed behind each answer.
    /// Connections that servers keep open are closed by clients, RFC 9112, section 9.3.)
    pub s_normal: u32,
    /// Y: cut off by the client, `C_NORMAL` or `C_RESET`.
    pub client_abort: u32,
    /// Z: timed out.
    pub timeout: u32,
    /// Cut off or refused by the server: `S_NORMAL` or `S_RESET` before the answer was complete, or right after the
    /// accept; or a TLS handshake that the server ended with an alert.
    pub failed: u32,
    /// Requests that got a first octet of an answer.
    pub answered: u32,
    /// SYNs and requests that got no answer, or that are overdue.
    pub unanswered: u32,
    /// The longest wait of the unanswered ones, in seconds, rounded down. After a subtraction it may be a wait of the
    /// subtracted tally.
    pub unanswered_wait_s: u32,
    /// Histogram of the known times from requests to the first octet of their answers.
    pub responses: Histogram,
    /// Sum of the times in `responses`, in microseconds.
    pub response_us: u64,
    /// Maximum of the times in `responses`, in microseconds, rounded up. After a subtraction it may be a time of the
    /// subtracted tally.
    pub response_max_us: u32,
    /// Connections that ended with a TLS session from a full handshake.
    pub tls_full: u32,
    /// Connections that ended with a resumed TLS session.
    pub tls_resumed: u32,
    /// TLS handshakes whose duration is known.
    pub tls_handshakes: u32,
    /// Sum of the durations of `tls_handshakes`, in microseconds.
    pub tls_handshake_us: u64,
    /// Octets of data to clients, of connections that ended.
    pub bytes_to_client: u64,
}

/// Shares of X + Y + Z, each 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Shares {
    /// X.
    pub s_normal: f64,
    /// Y.
    pub client_abort: f64,
    /// Z.
    pub timeout: f64,
}

/// A time up to now over which a server's counts are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lately {
    /// [`Profile::span`](crate::Profile::span): the time over which shares are judged.
    Span,
    /// [`Profile::stopped_span`](crate::Profile::stopped_span).
    StoppedSpan,
    /// [`Server::SHORT_SPAN`](crate::Server::SHORT_SPAN).
    ShortSpan,
}

impl Tally {
    /// The counts of an event and its time. `None` if it is not counted.
    pub fn of(event: &Event) -> Option<(Timestamp, Self)> {
        let at = Self::at(event)?;
        let mut tally = Self::default();
        tally.count(event);
        Some((at, tally))
    }

    /// The time of an event. `None` if it is not counted.
    pub fn at(event: &Event) -> Option<Timestamp> {
        match event {
            Event::Opened(opened) => Some(opened.at),
            Event::Request(request) => request.exchange.first_at,
            Event::Overdue(overdue) => Some(overdue.at),
            Event::Closed(connection) => Some(connection.end),
            Event::Evicted(evicted) => Some(evicted.at),
        }
    }

    /// Adds an event for which [`Tally::at`] has a time. It adds in place, because there may be an event for each
    /// packet.
    pub fn count(&mut self, event: &Event) {
        let none = Self::default();
        match event {
            Event::Opened(_) => self.opened = self.opened.wrapping_add(1),
            Event::Request(request) => self.count_request(request),
            Event::Overdue(overdue) => *self += none.unanswered(1, overdue.at.since(overdue.since)),
            Event::Closed(connection) => *self += Self::of_connection(connection),
            Event::Evicted(evicted) => {
                let is_unanswered = !evicted.is_answered && !evicted.was_overdue;
                *self += Self { evicted: 1, ..none.unanswered(is_unanswered.into(), Duration::ZERO) };
            }
        }
    }

    /// X, Y and Z as shares; `None` if all are 0.
    pub fn shares(&self) -> Option<Shares> {
        let all = self.ended();
        let share = |count: u32| f64::from(count) / f64::from(all);
        (all > 0).then(|| Shares {
            s_normal: share(self.s_normal),
            client_abort: share(self.client_abort),
            timeout: share(self.timeout),
        })
    }

    /// X + Y + Z.
    pub const fn ended(&self) -> u32 {
        self.s_normal.saturating_add(self.client_abort).saturating_add(self.timeout)
    }

    /// Connections that are over, with evicted ones.
    pub fn closed(&self) -> u32 {
        self.endings.iter().fold(self.evicted, |all, count| all.saturating_add(*count))
    }

    /// Connections that ended with this ending.
    pub const fn ending(&self, ending: Ending) -> u32 {
        self.endings[ending as usize]
    }

    /// The share of SYNs and requests that got no answer, 0 to 1; `None` if there were none.
    pub fn unanswered_share(&self) -> Option<f64> {
        let all = f64::from(self.answered) + f64::from(self.unanswered);
        (all > 0.0).then(|| f64::from(self.unanswered) / all)
    }

    /// An estimate of the time from the request to the first octet of the answer that the share `quantile` of requests
    /// did not exceed; see [`Histogram::quantile`].
    pub fn response_quantile(&self, quantile: f64) -> Option<Duration> {
        self.responses.quantile(quantile, Duration::from_micros(self.response_max_us.into()))
    }

    /// Whether the server answered anything, or cut anything off.
    pub const fn is_alive(&self) -> bool {
        self.answered > 0 || self.ended() > 0 || self.failed > 0
    }

    fn unanswered(self, count: u32, waited: Duration) -> Self {
        let wait_s = if count == 0 { 0 } else { u32::try_from(waited.as_secs()).unwrap_or(u32::MAX) };
        Self { unanswered: count, unanswered_wait_s: wait_s, ..self }
    }

    fn count_request(&mut self, request: &Request) {
        self.answered = self.answered.wrapping_add(1);
        if let Some(time) = request.exchange.first_octet() {
            self.responses.count(time);
            let time_us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            self.response_us = self.response_us.wrapping_add(time_us);
            let rounded_us = u32::try_from(time.as_nanos().div_ceil(1_000)).unwrap_or(u32::MAX);
            self.response_max_us = self.response_max_us.max(rounded_us);
        }
    }

    fn of_connection(connection: &Connection) -> Self {
        // Before the end of its handshake, a connection waits for that alone.
        let has_shaken = connection.phase != Phase::BeforeHandshake;
        let waited = if has_shaken { Duration::ZERO } else { connection.end.since(connection.start) };
        let mut tally = Self {
            bytes_to_client: connection.bytes_to_client,
            ..Self::default().unanswered(is_unanswered(connection).into(), waited)
        };
        tally.endings[connection.ending as usize] = 1;
        tally.count_tls(connection);
        match connection.ending {
            Ending::Refused | Ending::NoAnswer | Ending::Open | Ending::Backscatter => {}
            Ending::Timeout => tally.timeout = 1,
            _ if is_delivered(connection) => tally.s_normal = 1,
            _ if is_turned_away(connection) => tally.failed = 1,
            // A client without a request missed no answer.
            _ if !has_asked(connection) => {}
            Ending::SNormal | Ending::SReset => tally.failed = 1,
            Ending::CNormal | Ending::CReset => tally.client_abort = 1,
        }
        tally
    }

    fn count_tls(&mut self, connection: &Connection) {
        let Some(tls) = &connection.tls else { return };
        if let Some(time) = tls.handshake {
            (self.tls_handshakes, self.tls_handshake_us) = (1, u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        match tls.is_resumed {
            Some(true) => self.tls_resumed = 1,
            Some(false) => self.tls_full = 1,
            None => {}
        }
    }
}

/// Whether the client got what it requested. A client sends a request that crossed the server's FIN again, on another
/// connection.
fn is_delivered(connection: &Connection) -> bool {
    let is_after = matches!(connection.phase, Phase::AfterAnswer | Phase::Idle);
    connection.is_delivered || connection.ending == Ending::SNormal && is_after
}

/// Whether the client sent a request or began a TLS handshake.
fn has_asked(connection: &Connection) -> bool {
    connection.requests > 0 || is_shaking(connection)
}

/// Whether a TLS handshake did not complete. Excluded: the client ended it with an alert, or the server speaks no TLS.
fn is_shaking(connection: &Connection) -> bool {
    let Some(tls) = connection.tls.as_ref().filter(|tls| connection.requests == 0 && tls.handshake.is_none()) else {
        return false;
    };
    match tls.alert {
        Some(alert) => alert.by == Side::Server,
        None => tls.version.is_some() || connection.bytes_to_client == 0,
    }
}

/// Whether the server closed a connection right after the accept, before either side sent data, or refused the TLS
/// session with an alert.
fn is_turned_away(connection: &Connection) -> bool {
    // If the beginning was not seen, earlier data may be missing from the capture.
    let is_new = connection.handshake.is_some() && connection.end.since(connection.start) < ACCEPTED_MAX;
    let is_silent = connection.bytes_to_server == 0 && connection.bytes_to_client == 0;
    let alert = connection.tls.as_ref().and_then(|tls| tls.alert);
    connection.closed_by == Some(Side::Server) && is_new && is_silent
        || is_shaking(connection) && alert.is_some_and(|alert| alert.by == Side::Server)
}

/// A server that closes later than this after the start had an idle timeout: the client sent nothing.
const ACCEPTED_MAX: Duration = Duration::from_secs(1);

/// Whether a SYN or request got no answer and was not reported overdue. A client that leaves before that is no
/// evidence.
fn is_unanswered(connection: &Connection) -> bool {
    if connection.was_overdue {
        return false;
    }
    match connection.ending {
        Ending::Refused | Ending::NoAnswer => true,
        Ending::Timeout => connection.phase == Phase::BeforeAnswer,
        Ending::SNormal | Ending::SReset if connection.closed_by == Some(Side::Server) => {
            connection.phase == Phase::BeforeAnswer || connection.bytes_to_server > 0 && connection.bytes_to_client == 0
        }
        _ => false,
    }
}

/// The seconds of the longest of several spans, and the sums over each span.
///
/// A second without events takes no memory.
#[derive(Debug)]
pub struct Window {
    seconds: VecDeque<Second>,
    /// Number of seconds that were dropped at the front.
    dropped: u64,
    spans: Vec<Span>,
    now_s: u64,
}

#[derive(Debug, Clone, Copy)]
struct Second {
    at_s: u64,
    tally: Tally,
}

#[derive(Debug)]
struct Span {
    len_s: u64,
    total: Tally,
    /// Index of the first second of the span, counted from the first second ever held.
    first: u64,
}

impl Window {
    /// `spans`: lengths of the spans, rounded down to whole seconds, at least 1 s.
    pub fn new(spans: &[Duration]) -> Self {
        let span = |len: &Duration| Span { len_s: len.as_secs().max(1), total: Tally::default(), first: 0 };
        Self { seconds: VecDeque::new(), dropped: 0, spans: spans.iter().map(span).collect(), now_s: 0 }
    }

    /// Adds counts to a second, which may be before the latest one.
    pub fn add(&mut self, at: Timestamp, tally: &Tally) {
        let at_s = at.0 / 1_000_000_000;
        let index = self.seconds.partition_point(|second| second.at_s < at_s);
        let place = self.dropped + index as u64;
        let is_there = self.seconds.get(index).is_some_and(|second| second.at_s == at_s);
        if !is_there {
            if self.spans.iter().all(|span| at_s + span.len_s <= self.now_s) {
                return;
            }
            self.seconds.insert(index, Second { at_s, tally: Tally::default() });
        }
        self.seconds[index].tally += *tally;
        for span in &mut self.spans {
            let is_outside = at_s + span.len_s <= self.now_s;
            if is_outside {
                span.first += u64::from(!is_there && place <= span.first);
            } else {
                span.total += *tally;
            }
        }
    }

    /// Sets the time to `now`: its second is the last one of each span.
    pub fn advance(&mut self, now: Timestamp) {
        self.now_s = self.now_s.max(now.0 / 1_000_000_000);
        for span in &mut self.spans {
            let mut is_max_gone = false;
            while let Some(second) = self.seconds.get((span.first - self.dropped) as usize)
                && second.at_s + span.len_s <= self.now_s
            {
                span.total -= second.tally;
                span.first += 1;
                is_max_gone |= second.tally.response_max_us >= span.total.response_max_us;
            }
            if is_max_gone {
                let left = self.seconds.iter().skip((span.first - self.dropped) as usize);
                span.total.response_max_us = left.map(|second| second.tally.response_max_us).max().unwrap_or_default();
            }
        }
        while self.spans.iter().all(|span| span.first > self.dropped) && self.seconds.pop_front().is_some() {
            self.dropped += 1;
        }
    }

    /// The sum over the span of this index.
    pub fn total(&self, span: usize) -> Tally {
        self.spans.get(span).map(|span| span.total).unwrap_or_default()
    }

    /// Each held second, in seconds since the Unix epoch, with its counts.
    pub fn seconds(&self) -> impl DoubleEndedIterator<Item = (u64, &Tally)> {
        self.seconds.iter().map(|second| (second.at_s, &second.tally))
    }

    /// When the server stopped answering, in seconds since the Unix epoch: the time of the first request without an
    /// answer after the last answer. `None` if the server has answered in `second_s` or later, or has answered every
    /// request.
    pub fn unanswered_since(&self, second_s: u64) -> Option<u64> {
        let answered_s = self.seconds.iter().rev().find(|second| second.tally.answered > 0).map(|second| second.at_s);
        if answered_s.is_some_and(|answered_s| answered_s >= second_s) {
            return None;
        }
        let unanswered = self.seconds.iter().rev().take_while(|second| Some(second.at_s) != answered_s);
        let asked_s = unanswered
            .filter(|second| second.tally.unanswered > 0)
            .map(|second| second.at_s.saturating_sub(second.tally.unanswered_wait_s.into()))
            .min()?;
        Some(asked_s.max(answered_s.unwrap_or_default()))
    }

    /// The sum over the seconds after `second_s` in the span of this index.
    pub fn since(&self, span: usize, second_s: u64) -> Tally {
        let first = self.spans.get(span).map_or(0, |span| (span.first - self.dropped) as usize);
        let mut total = Tally::default();
        for second in self.seconds.iter().skip(first).rev().take_while(|second| second.at_s > second_s) {
            total += second.tally;
        }
        total
    }

    /// Whether the window holds a second after that of `now`.
    pub fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.seconds.back().is_some_and(|second| second.at_s > now.0 / 1_000_000_000)
    }

    pub fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.merge(&other, u32::wrapping_add, u64::wrapping_add);
        self.response_max_us = self.response_max_us.max(other.response_max_us);
        self.unanswered_wait_s = self.unanswered_wait_s.max(other.unanswered_wait_s);
    }
}

impl SubAssign for Tally {
    fn sub_assign(&mut self, other: Self) {
        self.merge(&other, u32::wrapping_sub, u64::wrapping_sub);
    }
}

impl Tally {
    fn merge(&mut self, other: &Self, small: fn(u32, u32) -> u32, large: fn(u64, u64) -> u64) {
        for (count, other) in self.endings.iter_mut().zip(other.endings) {
            *count = small(*count, other);
        }
        for (count, other) in self.responses.0.iter_mut().zip(other.responses.0) {
            *count = small(*count, other);
        }
        let counts = [
            (&mut self.opened, other.opened),
            (&mut self.evicted, other.evicted),
            (&mut self.s_normal, other.s_normal),
            (&mut self.client_abort, other.client_abort),
            (&mut self.timeout, other.timeout),
            (&mut self.failed, other.failed),
            (&mut self.answered, other.answered),
            (&mut self.unanswered, other.unanswered),
            (&mut self.tls_full, other.tls_full),
            (&mut self.tls_resumed, other.tls_resumed),
            (&mut self.tls_handshakes, other.tls_handshakes),
        ];
        for (count, other) in counts {
            *count = small(*count, other);
        }
        self.response_us = large(self.response_us, other.response_us);
        self.tls_handshake_us = large(self.tls_handshake_us, other.tls_handshake_us);
        self.bytes_to_client = large(self.bytes_to_client, other.bytes_to_client);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp(seconds * 1_000_000_000)
    }

    proptest! {
        #[test]
        fn totals_are_sums(steps in proptest::collection::vec((0..20_u64, 0..4_u64, 1..5_u32), 0..80)) {
            let (short, long) = (Duration::from_secs(5), Duration::from_secs(12));
            let mut window = Window::new(&[long, short]);
            let (mut now, mut all) = (1_000, Vec::new());
            for (back, step, count) in steps {
                now += step;
                window.advance(at(now));
                window.add(at(now - back), &Tally { opened: count, response_max_us: count, ..Tally::default() });
                all.push((now - back, count));
                for (index, span) in [long, short].into_iter().enumerate() {
                    let inside = all.iter().filter(|(second, _)| second + span.as_secs() > now);
                    let total = window.total(index);
                    prop_assert_eq!(total.opened, inside.clone().map(|(_, count)| count).sum::<u32>());
                    prop_assert_eq!(total.response_max_us, inside.map(|(_, count)| *count).max().unwrap_or_default());
                }
                prop_assert!(window.seconds.len() <= 12);
            }
        }
    }

    #[test]
    fn a_second_is_small() {
        assert!(size_of::<Second>() <= 200, "{}", size_of::<Second>());
    }
}
