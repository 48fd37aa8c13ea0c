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

/// A handle to the filter that selects the lines to log.
pub(crate) struct Level {
    level: reload::Handle<Targets, Registry>,
    throttle: Throttle,
}

/// Starts the log of the whole process as `log` configures it. Only the first call in a process has an effect.
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
    /// Sets other levels, and another limit on the lines of a kind.
    pub(crate) fn set(&self, log: &Log) {
        // Fails only if this call to `start` was not the first.
        let _ = self.level.reload(log.level.clone());
        self.throttle.set(log.repeats_max);
    }

    /// Writes the summaries of suppressed lines. Never ends.
    pub(crate) fn summarize(&self) -> impl Future<Output = ()> + use<> {
        self.throttle.clone().summarize()
    }
}
