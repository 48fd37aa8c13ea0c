//! An upgrade in place: a new process of this node takes over from the running one.
//!
//! ```text
//!   running process (predecessor)                 new process (successor)
//!     |--- starts it, with a stream as its input --->|  reads the configuration
//!     |<-- Hello -----------------------------------|
//!     |--- Listeners, Start, with the sockets ------>|  starts all but links, voter and listeners for clients
//!     |<-- Prepared --------------------------------|
//!     | accepts no more clients                      |
//!     |--- Connections, with their sockets --------->|  \
//!     |<-- Taken ------------------------------------|   } until all have passed
//!     |                                              |  /  goes on with them
//!     | ends its links, has no more leases           |
//!     |--- Finish, with leases and votes ----------->|  links with the peers, accepts clients
//!     |<-- Serving ---------------------------------|
//!     | ends                                         |
//! ```
//!
//! Until `Connections`, a failure changes nothing. The predecessor kills the successor then. After it, each connection
//! belongs to one process: to the successor from its `Taken` on. If the successor fails, its connections end with it,
//! and the predecessor goes on with the others. If the predecessor fails, the successor does as after `Finish`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use watari_addresses::{Addresses, FixedSettings, PassedAddresses};
use watari_dispatcher::{Dispatcher, Passing, PassingOn, RestoreError, SOCKETS_MAX};
use watari_sys::{DESCRIPTORS_MAX, DescriptorStream};
use watari_values::NodeName;

use super::error::NodeError;
use super::listeners::Inherited;
use super::reload::Reloader;
use crate::admin::Handle;

/// The form of the messages and states. A process takes over only from one with the same.
const FORM: u32 = 2;

/// How long a successor may take to start, to take a batch of connections, and to serve clients. It waits for an agent,
/// but not for ever.
const START_MAX: Duration = Duration::from_secs(30);
const TAKE_MAX: Duration = Duration::from_secs(5);
const SERVE_MAX: Duration = Duration::from_secs(15);

/// How long a successor that has closed its stream may take to report its reason, and to end.
const REPORT_MAX: Duration = Duration::from_secs(1);

/// How long connections that cannot pass at the moment may take until they can.
const PASS_MAX: Duration = Duration::from_secs(5);
const PASS_AGAIN: Duration = Duration::from_millis(1);

/// The connections of one message. They stand still while it is on its way, so they are few.
const BATCH_MAX: usize = 32;
const _: () = assert!(BATCH_MAX * SOCKETS_MAX <= DESCRIPTORS_MAX);
/// The bytes of the states in one message, unless one state has more: a few MiB at most.
const BATCH_LEN_MAX: usize = 8 << 20;

#[derive(Debug, Serialize, Deserialize)]
enum FromSuccessor {
    /// The first message in every form.
    Hello { form: u32, version: String },
    Prepared {
        /// Whether the successor has the administration socket. Its configuration may name another.
        has_admin: bool,
    },
    /// The successor has the connections of the last message.
    Taken,
    /// The successor accepts clients.
    Serving,
}

#[derive(Debug, Serialize, Deserialize)]
enum FromPredecessor {
    /// The addresses of TCP listeners. There may be several such messages.
    Listeners(Vec<SocketAddr>),
    /// The last listener, which is the administration socket.
    Start { admin: PathBuf, takeover: Option<FixedSettings> },
    /// Connections, each with the number of its sockets.
    Connections(Vec<(Vec<u8>, usize)>),
    Finish {
        /// The agents that an operator drains.
        drained: Vec<NodeName>,
        addresses: PassedAddresses,
    },
}

/// An upgrade has failed. The node goes on as before.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpgradeError {
    #[error("another upgrade is in progress")]
    InProgress,
    #[error("a node with an agent cannot be upgraded in place: drain the agent, and restart it")]
    HasAgent,
    #[error("cannot start {}: {cause}", program.display())]
    Start { program: PathBuf, cause: io::Error },
    #[error("the new process has ended before it was ready: its reason is in the log")]
    Ended,
    #[error("the new process was not ready within {} s", START_MAX.as_secs())]
    Slow,
    #[error("the new process (version {0}) does not take over from this version: restart the node")]
    Form(String),
    #[error("the new process has failed after it took {taken} connections, which are lost: {cause}")]
    Lost { taken: usize, cause: io::Error },
    #[error("cannot pass the listeners on: {0}")]
    Listeners(io::Error),
    #[error("the new process has all connections, and does not serve clients: {0}")]
    NotServing(io::Error),
}

/// The running process, which a successor can take over from.
pub(super) struct Predecessor {
    /// Handles of listeners that stay as long as the process.
    tcp: Vec<TcpListener>,
    admin: Handle,
    busy: Mutex<()>,
    /// Ends what a successor has instead: links, and the listeners that are not for clients.
    unlink: CancellationToken,
    /// The successor's process, once it has all connections.
    successor: OnceLock<Pid>,
    /// Notified when a successor has taken over, and this process has to end.
    pub(super) replaced: Notify,
}

/// The parts of a node that take part in an upgrade.
pub(super) struct Parts<'a> {
    pub(super) dispatcher: &'a Dispatcher,
    pub(super) addresses: &'a Addresses,
    /// The settings of its candidates.
    pub(super) takeover: Option<FixedSettings>,
    pub(super) reloader: &'a Reloader,
}

impl Predecessor {
    /// `unlink` ends what a successor has instead.
    pub(super) fn new(tcp: Vec<TcpListener>, admin: Handle, unlink: CancellationToken) -> Self {
        let (busy, successor, replaced) = (Mutex::new(()), OnceLock::new(), Notify::new());
        Self { tcp, admin, busy, unlink, successor, replaced }
    }

    /// Waits until no upgrade is in progress. Returns the process that has taken over, if there is one.
    pub(super) async fn successor(&self) -> Option<Pid> {
        let _busy = self.busy.lock().await;
        self.successor.get().copied()
    }

    /// Runs `program`, which takes over all connections.
    pub(super) async fn upgrade(&self, parts: Parts<'_>, program: Option<PathBuf>) -> Result<(), UpgradeError> {
        let _busy = self.busy.try_lock().map_err(|_| UpgradeError::InProgress)?;
        // A reload would change the listeners.
        let _reloading = parts.reloader.hold().await;
        let program = program.map_or_else(own_program, Ok);
        let program = program.map_err(|cause| UpgradeError::Start { program: PathBuf::from("this program"), cause })?;
        let mut successor = Successor::spawn(program, parts.reloader.file())?;
        let upgraded = self.hand_over_to(&mut successor, &parts).await;
        if matches!(upgraded, Err(UpgradeError::Ended)) {
            let _ = timeout(REPORT_MAX, successor.process.wait()).await;
        }
        // With `NotServing`, it has all connections.
        if !matches!(upgraded, Ok(()) | Err(UpgradeError::NotServing(_))) {
            let _ = successor.process.kill().await;
        }
        upgraded
    }

    async fn hand_over_to(&self, successor: &mut Successor, parts: &Parts<'_>) -> Result<(), UpgradeError> {
        let dispatcher = parts.dispatcher;
        successor.greet().await?;
        let accepting = dispatcher.listeners().await.map_err(UpgradeError::Listeners)?;
        let redirects = parts.reloader.redirects().await.map_err(UpgradeError::Listeners)?;
        let tcp: Vec<_> = accepting.all().chain(&redirects).chain(&self.tcp).collect();
        let has_admin = successor.prepare(&tcp, &self.admin, parts.takeover.clone()).await?;

        let wanted = accepting.addresses().map_err(UpgradeError::Listeners)?;
        let nowhere = watari_dispatcher::Listeners::default();
        dispatcher.listen(&nowhere, watari_dispatcher::Listeners::default()).await.map_err(UpgradeError::Listeners)?;
        let (taken, passing) = match successor.take_over(dispatcher).await {
            Ok(passed) => passed,
            Err((taken, cause)) => {
                dispatcher.listen(&wanted, accepting).await.map_err(UpgradeError::Listeners)?;
                return Err(UpgradeError::Lost { taken, cause });
            }
        };
        // From here on, this process goes on with nothing.
        let addresses = parts.addresses.pass_on().await;
        passing.finish();
        if has_admin {
            self.admin.passed_on();
        }
        if let Some(pid) = successor.pid() {
            let _ = self.successor.set(pid);
        }
        self.unlink.cancel();
        let served = successor.finish(dispatcher.drained(), addresses).await;
        self.replaced.notify_one();
        served.map_err(UpgradeError::NotServing)?;
        tracing::info!(taken, pid = successor.process.id(), "a new process has taken over");
        Ok(())
    }
}

/// The program of this process. If its file was replaced, the new one.
fn own_program() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let replaced = program.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map(PathBuf::from);
    Ok(replaced.unwrap_or(program))
}

/// The new process, as the running one sees it.
struct Successor {
    process: Child,
    stream: DescriptorStream,
}

impl Successor {
    fn spawn(program: PathBuf, config: &Path) -> Result<Self, UpgradeError> {
        let started = || {
            let (stream, far) = DescriptorStream::pair()?;
            let mut command = Command::new(&program);
            let arguments = ["run", "--successor", "--config"].map(OsString::from);
            command.args(arguments).arg(config).stdin(Stdio::from(far));
            Ok((command.spawn()?, stream))
        };
        let (process, stream) = started().map_err(|cause| UpgradeError::Start { program, cause })?;
        Ok(Self { process, stream })
    }

    fn pid(&self) -> Option<Pid> {
        self.process.id().and_then(|id| Pid::from_raw(id.cast_signed()))
    }

    /// Checks that the new process is of the same form.
    async fn greet(&mut self) -> Result<(), UpgradeError> {
        match self.receive(START_MAX).await {
            Ok(FromSuccessor::Hello { form: FORM, .. }) => Ok(()),
            Ok(FromSuccessor::Hello { version, .. }) => Err(UpgradeError::Form(version)),
            Ok(_) => Err(UpgradeError::Ended),
            Err(cause) => Err(starting(&cause)),
        }
    }

    /// Has the new process start with these listeners. Returns whether it has the administration socket.
    async fn prepare(
        &mut self,
        tcp: &[&TcpListener],
        admin: &Handle,
        takeover: Option<FixedSettings>,
    ) -> Result<bool, UpgradeError> {
        for some in tcp.chunks(DESCRIPTORS_MAX) {
            let addresses = some.iter().map(|listener| listener.local_addr()).collect::<io::Result<_>>();
            let addresses = FromPredecessor::Listeners(addresses.map_err(UpgradeError::Listeners)?);
            let descriptors: Vec<_> = some.iter().map(|listener| listener.as_fd()).collect();
            self.send(&addresses, &descriptors).await.map_err(|cause| starting(&cause))?;
        }
        let start = FromPredecessor::Start { admin: admin.path.clone(), takeover };
        self.send(&start, &[admin.listener.as_fd()]).await.map_err(|cause| starting(&cause))?;
        match self.receive(START_MAX).await {
            Ok(FromSuccessor::Prepared { has_admin }) => Ok(has_admin),
            Ok(_) => Err(UpgradeError::Ended),
            Err(cause) => Err(starting(&cause)),
        }
    }

    /// Passes all connections on. Returns their number, also with an error. After an error the new process has ended.
    async fn take_over(&mut self, dispatcher: &Dispatcher) -> Result<(usize, PassingOn), (usize, io::Error)> {
        let (mut taken, mut passing) = (0, dispatcher.begin_to_pass_on());
        let mut waits_since = Instant::now();
        while !passing.is_complete() {
            let batch = passing.next(BATCH_MAX).await;
            if !batch.is_empty() {
                for batch in of_bounded_len(batch) {
                    self.pass(batch, &mut taken).await.map_err(|cause| (taken, cause))?;
                }
                waits_since = Instant::now();
            } else if waits_since.elapsed() < PASS_MAX {
                sleep(PASS_AGAIN).await;
            } else {
                // What is left goes on here to its end.
                break;
            }
        }
        Ok((taken, passing))
    }

    /// Waits until the new process serves clients.
    async fn finish(&mut self, drained: Vec<NodeName>, addresses: PassedAddresses) -> io::Result<()> {
        self.send(&FromPredecessor::Finish { drained, addresses }, &[]).await?;
        match self.receive(SERVE_MAX).await? {
            FromSuccessor::Serving => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Passes some connections on, and counts those that the new process has taken. After an error it has ended. This
    /// process goes on with the connections that it had not taken.
    async fn pass(&mut self, batch: Vec<Passing>, taken: &mut usize) -> io::Result<()> {
        let states = batch.iter().map(|passing| (passing.state().to_vec(), passing.sockets().count()));
        let message = FromPredecessor::Connections(states.collect());
        let sockets: Vec<_> = batch.iter().flat_map(Passing::sockets).collect();
        let passed = match self.send(&message, &sockets).await {
            Ok(()) => self.receive_taken().await,
            Err(cause) => Err(cause),
        };
        let mut has_taken = passed.is_ok();
        if !has_taken {
            let _ = self.process.kill().await;
            // It may have confirmed in the last moment, and gone on with the connections.
            has_taken = self.receive_taken().await.is_ok();
        }
        if has_taken {
            *taken += batch.len();
            batch.into_iter().for_each(Passing::taken);
        }
        passed
    }

    async fn receive_taken(&mut self) -> io::Result<()> {
        match self.receive(TAKE_MAX).await? {
            FromSuccessor::Taken => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// After an error, the stream takes nothing more.
    async fn send(&mut self, message: &FromPredecessor, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let message = encoded(message)?;
        within(TAKE_MAX, self.stream.send(&message, descriptors)).await
    }

    async fn receive(&mut self, limit: Duration) -> io::Result<FromSuccessor> {
        let (message, _) = within(limit, self.stream.receive()).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        decoded(&message)
    }
}

async fn within<T>(limit: Duration, what: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(limit, what).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Divides a batch so that no part exceeds [`BATCH_LEN_MAX`], unless it is one connection.
fn of_bounded_len(batch: Vec<Passing>) -> Vec<Vec<Passing>> {
    let (mut parts, mut len): (Vec<Vec<Passing>>, usize) = (Vec::new(), 0);
    for passing in batch {
        len += passing.state().len();
        match parts.last_mut() {
            Some(part) if len <= BATCH_LEN_MAX => part.push(passing),
            _ => {
                len = passing.state().len();
                parts.push(vec![passing]);
            }
        }
    }
    parts
}

fn starting(cause: &io::Error) -> UpgradeError {
    if cause.kind() == io::ErrorKind::TimedOut { UpgradeError::Slow } else { UpgradeError::Ended }
}

/// The stream from the predecessor, in the new process.
pub(super) struct PredecessorStream {
    stream: DescriptorStream,
}

impl PredecessorStream {
    /// Reports to the predecessor, which is at the standard input. Returns its listeners. `own` are this process's
    /// settings. Must be called in a tokio runtime.
    pub(super) async fn meet(own: Option<&FixedSettings>) -> Result<(Self, Inherited), NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        // Otherwise the stream would stay open when this process has closed it.
        rustix::stdio::dup2_stdin(File::open("/dev/null").map_err(failed)?).map_err(|error| failed(error.into()))?;
        let mut before = Self { stream: DescriptorStream::open(input).map_err(failed)? };
        let hello = FromSuccessor::Hello { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned() };
        before.send(&hello).await.map_err(failed)?;
        let mut inherited = Inherited::default();
        loop {
            match before.receive().await.map_err(failed)? {
                (FromPredecessor::Listeners(addresses), descriptors) => {
                    for (address, listener) in addresses.into_iter().zip(descriptors) {
                        inherited.tcp.entry(address).or_default().push(listener.into());
                    }
                }
                (FromPredecessor::Start { admin, takeover }, descriptors) => {
                    inherited.admin = descriptors.into_iter().next().map(|socket| (admin, socket));
                    if takeover.as_ref() != own {
                        return Err(NodeError::FixedSettings);
                    }
                    return Ok((before, inherited));
                }
                _ => return Err(failed(io::ErrorKind::InvalidData.into())),
            }
        }
    }

    /// Takes the connections over. Returns when this process has all of them, with the leases of the predecessor.
    /// `None`: it failed before it passed these on.
    pub(super) async fn take_over(
        &mut self,
        dispatcher: &Dispatcher,
        has_admin: bool,
    ) -> Result<Option<PassedAddresses>, NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        self.send(&FromSuccessor::Prepared { has_admin }).await.map_err(failed)?;
        let mut taken = 0;
        let addresses = loop {
            match self.receive().await {
                Ok((FromPredecessor::Connections(states), sockets)) => {
                    let restored =
                        restore(dispatcher, states, sockets).map_err(|error| failed(io::Error::other(error)))?;
                    // From here on they are this process's. It has touched none before.
                    self.send(&FromSuccessor::Taken).await.map_err(failed)?;
                    taken += restored.len();
                    restored.into_iter().for_each(watari_dispatcher::Restored::start);
                }
                Ok((FromPredecessor::Finish { drained, addresses }, _)) => {
                    for agent in &drained {
                        // An agent may have left the configuration.
                        let _ = dispatcher.drain(agent);
                    }
                    break Some(addresses);
                }
                Ok(_) => return Err(failed(io::ErrorKind::InvalidData.into())),
                Err(cause) if taken == 0 || !has_ended(&cause) => return Err(failed(cause)),
                Err(error) => {
                    tracing::error!(%error, "the previous process has failed: what it had not passed on is lost");
                    break None;
                }
            }
        };
        tracing::info!(taken, "taken over from the previous process");
        Ok(addresses)
    }

    /// Reports that this process serves clients.
    pub(super) async fn serves(mut self) {
        // The predecessor may have ended.
        let _ = self.send(&FromSuccessor::Serving).await;
    }

    async fn send(&mut self, message: &FromSuccessor) -> io::Result<()> {
        self.stream.send(&encoded(message)?, &[]).await
    }

    async fn receive(&mut self) -> io::Result<(FromPredecessor, Vec<OwnedFd>)> {
        let (message, descriptors) = self.stream.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((decoded(&message)?, descriptors))
    }
}

/// Whether the other process has ended.
fn has_ended(cause: &io::Error) -> bool {
    matches!(cause.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn restore(
    dispatcher: &Dispatcher,
    states: Vec<(Vec<u8>, usize)>,
    sockets: Vec<OwnedFd>,
) -> Result<Vec<watari_dispatcher::Restored>, RestoreError> {
    let mut sockets = sockets.into_iter();
    let each =
        states.into_iter().map(|(state, count)| dispatcher.restore(&state, sockets.by_ref().take(count).collect()));
    each.collect()
}

fn encoded(message: &impl Serialize) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(message).map_err(io::Error::other)
}

fn decoded<T: for<'a> Deserialize<'a>>(message: &[u8]) -> io::Result<T> {
    postcard::from_bytes(message).map_err(|_| io::ErrorKind::InvalidData.into())
}
