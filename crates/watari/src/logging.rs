//! Log lines on the standard error.

mod throttle;

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{Log, LogFormat};
use throttle::{Throttle, Throttled};

/// No limit on the lines of a kind.
pub(crate) const ALL_LINES: usize = usize::MAX;

/// What decides which lines are logged.
pub(crate) struct Level {
    level: reload::Handle<Targets, Registry>,
    throttle: Throttle,
}

/// Starts logging as `log` says, for the whole process. Only the first call in a process counts.
pub(crate) fn start(log: &Log) -> Level {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let (level, handle) = reload::Layer::new(log.level.clone());
    let throttle = Throttle::new(log.repeats_max);
    let lines = Throttled { lines, throttle: throttle.clone() };
    let _ = registry().with(lines.with_filter(level)).try_init();
    Level { level: handle, throttle }
}

impl Level {
    /// Logs at other levels, and so many lines of a kind, from now on.
    pub(crate) fn set(&self, log: &Log) {
        // Fails only where this call to `start` was not the first.
        let _ = self.level.reload(log.level.clone());
        self.throttle.set(log.repeats_max);
    }

    /// Writes the summaries of lines that were not written, for ever.
    pub(crate) fn summarize(&self) -> impl Future<Output = ()> + use<> {
        self.throttle.clone().summarize()
    }
}
