//! Connections as lines of text.
//!
//! A line holds segments, each one millisecond after the previous: `C` or `S` for the sender, then
//!
//! * `s` SYN, `sa` SYN-ACK, `a` ACK, `f` FIN-ACK, `r` RST-ACK, `R` RST alone, `F` FIN alone, `sF` SYN-FIN;
//! * `w` behind that: its window is closed;
//! * `+n` for n octets of data, or the data themselves in `{}`.
//!
//! Sequence and acknowledgment numbers follow from the earlier segments. `@n` and `^n` set other ones, relative to the
//! first. `~n` waits for n seconds. `-` before a segment: it is sent, and not captured.

use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::{Flags, Segment, Timestamp};

use crate::{Connection, Connections, Event, Settings};

/// Sequence numbers wrap in nearly each script.
const FIRST: [u32; 2] = [u32::MAX - 50, 7_000];
pub(crate) const START: u64 = 1_000_000_000_000;

/// A segment that owns its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) time: u64,
    pub(crate) is_client: bool,
    pub(crate) sequence: u32,
    pub(crate) acknowledgment: u32,
    pub(crate) flags: Flags,
    pub(crate) window: u16,
    pub(crate) len: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) port: u16,
    /// How much later it was captured, in microseconds.
    pub(crate) delay_us: u64,
}

impl Sent {
    pub(crate) fn segment(&self) -> Segment<'_> {
        let (client, server) = (SocketAddr::from(([10, 0, 0, 1], self.port)), SocketAddr::from(([10, 0, 0, 2], 443)));
        let (source, destination) = if self.is_client { (client, server) } else { (server, client) };
        Segment {
            time: Timestamp(self.time),
            source,
            destination,
            sequence: self.sequence,
            acknowledgment: self.acknowledgment,
            flags: self.flags,
            window: self.window,
            len: self.len,
            data: &self.data,
        }
    }
}

pub(crate) fn script(text: &str) -> Vec<Sent> {
    let mut time = START;
    let mut next = [0_u32; 2];
    let mut sent = Vec::new();
    for word in words(text) {
        if let Some(wait) = word.strip_prefix('~') {
            let wait = Duration::from_secs_f64(wait.parse().unwrap_or_default());
            time = (Timestamp(time) + wait).0;
            continue;
        }
        time += 1_000_000;
        let (word, is_lost) = word.strip_prefix('-').map_or((word, false), |word| (word, true));
        let is_client = word.starts_with('C');
        assert!(is_client || word.starts_with('S'), "{word}");
        let segment = read(&word[1..], time, is_client, &mut next);
        if !is_lost {
            sent.push(segment);
        }
    }
    sent
}

fn read(word: &str, time: u64, is_client: bool, next: &mut [u32; 2]) -> Sent {
    let (me, peer) = (usize::from(!is_client), usize::from(is_client));
    let (word, data) = match word.split_once('{') {
        Some((word, data)) => (word, unescape(data.trim_end_matches('}'))),
        None => (word, Vec::new()),
    };
    let kind: String = word.chars().take_while(char::is_ascii_alphabetic).collect();
    let number = |mark: char| -> Option<u32> {
        let text = word.split_once(mark)?.1;
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok()
    };
    let (kind, window) = kind.strip_suffix('w').map_or((kind.as_str(), 1000), |kind| (kind, 0));
    let flags = match kind {
        "s" => Flags::SYN,
        "sF" => Flags::SYN.with(Flags::FIN),
        "sa" => Flags::SYN.with(Flags::ACK),
        "a" | "" => Flags::ACK,
        "f" => Flags::FIN.with(Flags::ACK),
        "F" => Flags::FIN,
        "r" => Flags::RST.with(Flags::ACK),
        "R" => Flags::RST,
        other => panic!("what is {other}?"),
    };
    let len = number('+').unwrap_or(data.len() as u32);
    let relative = number('@').unwrap_or(next[me]);
    let occupied = len + u32::from(flags.contains(Flags::SYN)) + u32::from(flags.contains(Flags::FIN));
    if !flags.contains(Flags::RST) {
        next[me] = next[me].max(relative + occupied);
    }
    Sent {
        time,
        is_client,
        sequence: FIRST[me].wrapping_add(relative),
        acknowledgment: if flags.contains(Flags::ACK) {
            FIRST[peer].wrapping_add(number('^').unwrap_or(next[peer]))
        } else {
            0
        },
        flags,
        window,
        len,
        data,
        port: 40_000,
        delay_us: 0,
    }
}

fn words(text: &str) -> Vec<&str> {
    let (mut words, mut from, mut is_data) = (Vec::new(), 0, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '{' => is_data = true,
            '}' => is_data = false,
            ' ' | '\n' if !is_data => {
                words.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[from..]);
    words.retain(|word| !word.is_empty());
    words
}

fn unescape(text: &str) -> Vec<u8> {
    text.replace("\\r", "\r").replace("\\n", "\n").into_bytes()
}

/// The same connection within a few milliseconds, except where it is idle.
pub(crate) fn hurried(mut sent: Vec<Sent>) -> Vec<Sent> {
    let (mut now, mut before) = (START, START);
    for it in &mut sent {
        let gap = it.time - std::mem::replace(&mut before, it.time);
        now += if gap > 1_000_000_000 { gap } else { gap / 20 };
        it.time = now;
    }
    sent
}

/// The segments with each capture delayed by some microseconds, and duplicates of some. A connection whose first
/// segment is late would begin in the middle, so the first one is not delayed.
pub(crate) fn mixed(sent: &[Sent], delays_us: &[u64], copies: &[bool]) -> Vec<Sent> {
    let mixed = stamped(sent, delays_us, copies).into_iter();
    mixed.map(|it| Sent { time: it.time + it.delay_us * 1_000, ..it }).collect()
}

/// The same in that order, with the times of sending, which go back and forth.
pub(crate) fn stamped(sent: &[Sent], delays_us: &[u64], copies: &[bool]) -> Vec<Sent> {
    let late = |it: &Sent, delay_us: u64| Sent { delay_us: it.delay_us + delay_us, ..it.clone() };
    let delays = std::iter::once(&0).chain(delays_us.iter().cycle());
    let mut mixed: Vec<_> = sent.iter().zip(delays).map(|(it, delay)| late(it, *delay)).collect();
    let twice = mixed.iter().zip(copies.iter().cycle()).filter(|(_, is_twice)| **is_twice);
    let copies: Vec<_> = twice.map(|(it, _)| late(it, 30)).collect();
    mixed.extend(copies);
    mixed.sort_by_key(|it| it.time + it.delay_us * 1_000);
    mixed
}

/// All events of these segments and of the end of the capture.
pub(crate) fn events(segments: &[Sent]) -> Vec<Event> {
    events_with(Settings::default(), segments)
}

pub(crate) fn events_with(settings: Settings, segments: &[Sent]) -> Vec<Event> {
    let mut connections = Connections::new(settings);
    let mut events = Vec::new();
    for sent in segments {
        connections.observe(&sent.segment());
        events.extend(std::iter::from_fn(|| connections.poll_event()));
    }
    connections.finish();
    events.extend(std::iter::from_fn(|| connections.poll_event()));
    events
}

pub(crate) fn closed(events: &[Event]) -> Vec<Connection> {
    let closed = |event: &Event| match event {
        Event::Closed(connection) => Some((**connection).clone()),
        _ => None,
    };
    events.iter().filter_map(closed).collect()
}

/// Each connection as `ENDING phase conn_state history to_client/to_server`.
pub(crate) fn summaries(text: &str) -> Vec<String> {
    let line = |connection: &Connection| {
        format!(
            "{} {} {} {} {}/{}",
            connection.ending,
            connection.phase,
            connection.conn_state,
            connection.history,
            connection.bytes_to_client,
            connection.bytes_to_server
        )
    };
    closed(&events(&script(text))).iter().map(line).collect()
}
