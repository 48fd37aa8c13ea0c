//! Log lines on the standard error.

use std::io;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::Registry;
use tracing_subscriber::reload;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{Log, LogFormat};

/// What decides which lines are logged.
pub(crate) struct Level(reload::Handle<Targets, Registry>);

/// Starts logging as `log` says, for the whole process. Only the first call in a process counts.
pub(crate) fn start(log: &Log) -> Level {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let (level, handle) = reload::Layer::new(log.level.clone());
    let _ = registry().with(lines.with_filter(level)).try_init();
    Level(handle)
}

impl Level {
    /// Logs at other levels from now on.
    pub(crate) fn set(&self, level: &Targets) {
        // Fails only where this call to `start` was not the first.
        let _ = self.0.reload(level.clone());
    }
}
