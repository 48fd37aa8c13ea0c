//! Limits how often one kind of log line is written. So a peer that provokes lines at will can neither fill a disk nor
//! hide other lines.
//!
//! A kind is a place in the source. The throttle writes the first lines of a kind, and no more of it until 10 s after
//! the first. Then a summary reports how many lines there were. Levels below INFO have no limit, because an operator
//! has asked for them.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// The window in which the lines of a kind are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// How often the task looks for summaries that are due.
const LOOK: Duration = Duration::from_secs(1);
/// The target of summaries. They are not counted.
const TARGET: &str = "watari::log";

/// A layer that gets only as many lines of a kind as `throttle` admits.
///
/// It is not a [`Filter`](tracing_subscriber::layer::Filter). A filter that refuses single events, and not all events
/// of a callsite, leaves tracing-subscriber 0.3.23 in a state in which its debug assertions fail at the next event.
pub(super) struct Throttled<L> {
    pub(super) lines: L,
    pub(super) throttle: Throttle,
}

/// Decides which lines are written, and makes the summaries.
#[derive(Clone)]
pub(crate) struct Throttle(Arc<ThrottleShared>);

struct ThrottleShared {
    lines_max: AtomicUsize,
    kinds: Mutex<HashMap<Identifier, Window>>,
}

struct Window {
    since: Instant,
    lines: usize,
    level: Level,
    /// The message of the suppressed lines, without their fields.
    message: String,
}

/// The number of suppressed lines of a kind.
#[derive(Debug, PartialEq, Eq)]
struct Summary {
    level: Level,
    message: String,
    more: usize,
}

impl Throttle {
    pub(super) fn new(lines_max: usize) -> Self {
        Self(Arc::new(ThrottleShared { lines_max: AtomicUsize::new(lines_max), kinds: Mutex::default() }))
    }

    /// Sets how many lines of a kind are written in 10 s.
    pub(super) fn set(&self, lines_max: usize) {
        self.0.lines_max.store(lines_max, Ordering::Relaxed);
    }

    /// Writes summaries when they are due. Never ends.
    pub(crate) async fn summarize(self) {
        let mut look = tokio::time::interval(LOOK);
        loop {
            look.tick().await;
            for summary in self.due(Instant::now()) {
                summary.write();
            }
        }
    }

    fn admits(&self, event: &Event<'_>, now: Instant) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == TARGET {
            return true;
        }
        let lines_max = self.0.lines_max.load(Ordering::Relaxed);
        let mut kinds = self.kinds();
        let window = kinds.entry(metadata.callsite()).or_insert_with(|| Window {
            since: now,
            lines: 0,
            level: *metadata.level(),
            message: String::new(),
        });
        window.lines += 1;
        if window.lines == lines_max.saturating_add(1) {
            event.record(&mut Message(&mut window.message));
        }
        window.lines <= lines_max
    }

    /// The summaries of windows that have ended.
    fn due(&self, now: Instant) -> Vec<Summary> {
        let lines_max = self.0.lines_max.load(Ordering::Relaxed);
        let ended = |_: &Identifier, window: &mut Window| now.saturating_duration_since(window.since) >= WINDOW;
        let ended: Vec<_> = self.kinds().extract_if(ended).map(|(_, window)| window).collect();
        let summary = |Window { level, message, lines, .. }| {
            let more = lines.saturating_sub(lines_max);
            (more > 0).then_some(Summary { level, message, more })
        };
        ended.into_iter().filter_map(summary).collect()
    }

    fn kinds(&self) -> MutexGuard<'_, HashMap<Identifier, Window>> {
        self.0.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Subscriber, L: Layer<S>> Layer<S> for Throttled<L> {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        if self.throttle.admits(event, Instant::now()) {
            self.lines.on_event(event, context);
        }
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        self.lines.on_new_span(attributes, id, context);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        self.lines.on_record(id, values, context);
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        self.lines.on_enter(id, context);
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        self.lines.on_exit(id, context);
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        self.lines.on_close(id, context);
    }
}

impl Summary {
    fn write(&self) {
        match self.level {
            Level::ERROR => tracing::error!(target: TARGET, "{self}"),
            Level::WARN => tracing::warn!(target: TARGET, "{self}"),
            _ => tracing::info!(target: TARGET, "{self}"),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, more, .. } = self;
        write!(f, "{message}: {more} more in the last {} s", WINDOW.as_secs())
    }
}

/// Copies the message of an event.
struct Message<'a>(&'a mut String);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.clear();
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing::level_filters::LevelFilter;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Written {
        fn count(&self, part: &str) -> usize {
            let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            String::from_utf8_lossy(&bytes).lines().filter(|line| line.contains(part)).count()
        }
    }

    #[test]
    fn lines_of_a_kind_are_few() {
        let (written, throttle) = (Written::default(), Throttle::new(3));
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone());
        let lines = Throttled { lines, throttle: throttle.clone() };
        let subscriber = tracing_subscriber::registry().with(lines.with_filter(LevelFilter::DEBUG));
        tracing::subscriber::with_default(subscriber, || {
            for number in 0..10 {
                tracing::warn!(number, "leg refused");
                tracing::info!(number, "client refused");
                tracing::debug!(number, "in detail");
            }
            assert_eq!((written.count("leg refused"), written.count("client refused")), (3, 3));
            assert_eq!(written.count("in detail"), 10);
            let now = Instant::now();
            assert_eq!(throttle.due(now), []);
            let mut due = throttle.due(now + WINDOW);
            due.sort_by_key(|summary| summary.level);
            for summary in &due {
                summary.write();
            }
            assert_eq!(due.len(), 2);
            assert_eq!(written.count("leg refused: 7 more in the last 10 s"), 1);
            assert_eq!(written.count("client refused: 7 more in the last 10 s"), 1);
            // A new window has begun, so nothing of the old one is due.
            assert_eq!(throttle.due(now + WINDOW), []);
        });
    }
}
