//! Log lines on the standard error.

use std::io;

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{Log, LogFormat};

/// Starts logging as `log` says, for the whole process. Only the first call in a process counts.
pub(crate) fn start(log: &Log) {
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = match log.format {
        LogFormat::Text => lines.with_ansi(io::IsTerminal::is_terminal(&io::stderr())).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    let _ = registry().with(lines.with_filter(log.level.clone())).try_init();
}
