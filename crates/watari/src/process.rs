//! Settings and signals of the node's process.

pub(crate) mod capabilities;

use std::env;
use std::fmt;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::process::{DumpableBehavior, Resource, Rlimit, Signal};
use tokio::runtime::Builder;
use tokio::signal::unix::{self, SignalKind, signal};

/// Keeps keys out of core dumps, and out of reach of debuggers of the same user.
pub(crate) fn forbid_core_dumps() -> io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Has the system terminate this process when the thread that started it ends.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?)
}

/// Raises the limit on open files to the highest allowed value, and returns it. `None`: the system has no limit.
pub(crate) fn raise_file_limit() -> Option<u64> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// A signal that asks this process for something other than its end.
pub(crate) struct RequestSignal(unix::Signal);

impl RequestSignal {
    /// SIGHUP: read the configuration again. From now on, it does not end the process. Must be called in a tokio
    /// runtime.
    pub(crate) fn reload() -> io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// SIGUSR1: open log files again, as nginx does for logrotate. Otherwise like [`Self::reload`].
    pub(crate) fn reopen_logs() -> io::Result<Self> {
        signal(SignalKind::user_defined1()).map(Self)
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) {
        self.0.recv().await;
    }
}

/// Signals that end a process by default, and that this process has no use for: SIGUSR1 (if
/// [`RequestSignal::reopen_logs`] does not take it), SIGUSR2, SIGALRM, SIGSTKFLT, SIGVTALRM, SIGPROF, SIGIO, SIGPWR,
/// and the real-time signals that the C library leaves to programs (signal(7)). Rust's runtime ignores SIGPIPE.
/// SIGQUIT, SIGABRT and the signals that the processor raises keep their meaning.
fn meaningless_signals() -> impl Iterator<Item = SignalKind> {
    const STANDARD: [Signal; 8] = [
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::STKFLT,
        Signal::VTALARM,
        Signal::PROF,
        Signal::IO,
        Signal::POWER,
    ];
    const REAL_TIME: std::ops::RangeInclusive<i32> = 34..=64;
    STANDARD.map(Signal::as_raw).into_iter().chain(REAL_TIME).map(SignalKind::from_raw)
}

/// From now on, neither a [`RequestSignal`] nor a signal without a meaning ends this process. For the time in which it
/// starts and has no runtime.
pub(crate) fn outlive_request_signals() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _context = runtime.enter();
    for kind in meaningless_signals().chain([SignalKind::hangup()]) {
        // The handler stays when the receiver is dropped.
        drop(signal(kind)?);
    }
    Ok(())
}

/// The signals that ask this process to end.
pub(crate) struct EndSignals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
}

/// The signal that asked this process to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndSignal {
    /// SIGTERM, from service managers and `kill`.
    Terminate,
    /// SIGINT, from Ctrl-C in a terminal.
    Interrupt,
}

impl EndSignals {
    /// From now on, none of these signals ends the process by itself, nor does a signal without a meaning to this
    /// process. A mistyped `kill` must not cost a client its connection. Must be called in a tokio runtime.
    pub(crate) fn listen() -> io::Result<Self> {
        for kind in meaningless_signals() {
            // The handler stays when the receiver is dropped.
            drop(signal(kind)?);
        }
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one. Cancelling the wait loses no signal.
    pub(crate) async fn next(&mut self) -> EndSignal {
        tokio::select! {
            _ = self.terminate.recv() => EndSignal::Terminate,
            _ = self.interrupt.recv() => EndSignal::Interrupt,
        }
    }
}

impl From<EndSignal> for Signal {
    fn from(signal: EndSignal) -> Self {
        match signal {
            EndSignal::Terminate => Self::TERM,
            EndSignal::Interrupt => Self::INT,
        }
    }
}

impl fmt::Display for EndSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminate => "SIGTERM",
            Self::Interrupt => "SIGINT",
        })
    }
}

/// Sends the state of this process to the service manager, if one runs it (`sd_notify(3)`).
pub(crate) fn notify(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(path.as_bytes(), state) {
        tracing::warn!(%error, "cannot notify the service manager of {state}");
    }
}

fn send(path: &[u8], state: &str) -> io::Result<()> {
    let address = match path.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_service_manager_is_notified() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        let mut buffer = [0; 64];
        let len = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"READY=1");
    }

    #[test]
    fn an_abstract_socket_is_understood() {
        let name = format!("watari-test-{}", std::process::id());
        let manager = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(format!("@{name}").as_bytes(), "STOPPING=1").unwrap();
        let mut buffer = [0; 64];
        let len = manager.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"STOPPING=1");
    }
}
