//! An upgrade in place: a new process of this node takes over from the running one.
//!
//! ```text
//!   running process (predecessor)                 new process (successor)
//!     |--- starts it, with a stream as its input --->|  reads the configuration
//!     |<-- Hello -----------------------------------|
//!     |--- Listeners, with the sockets ------------->|  starts all but the mesh and the listeners for clients
//!     |<-- Prepared --------------------------------|
//!     | accepts no more clients                      |
//!     |--- Connections, with their sockets --------->|  \
//!     |<-- Taken ------------------------------------|   } until all have passed
//!     |                                              |  /  goes on with them
//!     |--- Finish ---------------------------------->|  links with the peers, accepts clients
//!     | ends its links, then itself                  |
//! ```
//!
//! Until `Connections`, a failure changes nothing. The predecessor kills the successor then. After it, each connection
//! belongs to one process: to the successor from its `Taken` on. If the successor fails, its connections end with it,
//! and the predecessor goes on with the others. If the predecessor fails, the successor does as after `Finish`.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use watari_dispatcher::{Dispatcher, Passing, RestoreError, SOCKETS_MAX};
use watari_sys::{DESCRIPTORS_MAX, DescriptorStream};
use watari_values::NodeName;

use super::error::NodeError;
use super::listeners::Inherited;
use super::reload::Reloader;
use crate::admin::Handle;

/// The form of the messages and states. A process takes over only from one with the same.
const FORM: u32 = 1;

/// How long a successor may take to start, and to take a batch of connections.
const START_MAX: Duration = Duration::from_secs(30);
const TAKE_MAX: Duration = Duration::from_secs(5);

/// How long connections that cannot pass at the moment may take until they can.
const PASS_MAX: Duration = Duration::from_secs(5);
const PASS_AGAIN: Duration = Duration::from_millis(1);

/// The connections of one message. They stand still while it is on its way, so they are few.
const BATCH_MAX: usize = 32;
const _: () = assert!(BATCH_MAX * SOCKETS_MAX <= DESCRIPTORS_MAX);

#[derive(Debug, Serialize, Deserialize)]
enum FromSuccessor {
    /// The first message in every form.
    Hello {
        form: u32,
        version: String,
    },
    Prepared,
    /// The successor has the connections of the last message.
    Taken,
}

#[derive(Debug, Serialize, Deserialize)]
enum FromPredecessor {
    /// The addresses of the TCP listeners. The administration socket is the last descriptor.
    Listeners(Vec<SocketAddr>),
    /// Connections, each with the number of its sockets.
    Connections(Vec<(Vec<u8>, usize)>),
    Finish {
        /// The agents that an operator drains.
        drained: Vec<NodeName>,
    },
}

/// An upgrade has failed. The node goes on as before.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpgradeError {
    #[error("another upgrade is in progress")]
    InProgress,
    #[error("a node with an agent cannot be upgraded in place: drain the agent, and restart it")]
    HasAgent,
    #[error("a candidate for service addresses cannot be upgraded in place: switch them to another, and restart it")]
    HasAddresses,
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
}

/// The running process, which a successor can take over from.
pub(super) struct Predecessor {
    /// Handles of listeners that stay as long as the process.
    tcp: Vec<TcpListener>,
    admin: Handle,
    busy: tokio::sync::Mutex<()>,
    /// Notified when a successor has taken over.
    pub(super) replaced: Notify,
}

impl Predecessor {
    pub(super) fn new(tcp: Vec<TcpListener>, admin: Handle) -> Self {
        Self { tcp, admin, busy: tokio::sync::Mutex::new(()), replaced: Notify::new() }
    }

    /// Runs `program`, which takes over all connections.
    pub(super) async fn upgrade(
        &self,
        dispatcher: &Dispatcher,
        reloader: &Reloader,
        program: Option<PathBuf>,
    ) -> Result<(), UpgradeError> {
        let _busy = self.busy.try_lock().map_err(|_| UpgradeError::InProgress)?;
        // A reload would change the listeners.
        let _reloading = reloader.hold().await;
        let program = program.map_or_else(own_program, Ok);
        let program = program.map_err(|cause| UpgradeError::Start { program: PathBuf::from("this program"), cause })?;
        let mut successor = Successor::start(program, reloader.file()).await?;
        let mut tcp: Vec<_> = dispatcher.listeners().await.map_err(UpgradeError::Listeners)?.into_all().collect();
        tcp.extend(reloader.redirects().await.map_err(UpgradeError::Listeners)?);
        successor.prepare(tcp.iter().chain(&self.tcp), self.admin.listener.as_fd()).await?;

        let accepting = dispatcher.listeners().await.map_err(UpgradeError::Listeners)?;
        let wanted = accepting.addresses().map_err(UpgradeError::Listeners)?;
        let nowhere = watari_dispatcher::Listeners::default();
        dispatcher.listen(&nowhere, watari_dispatcher::Listeners::default()).await.map_err(UpgradeError::Listeners)?;
        match successor.take_over(dispatcher).await {
            Ok(taken) => {
                tracing::info!(taken, pid = successor.process.id(), "a new process has taken over");
                self.admin.passed_on();
                self.replaced.notify_one();
                Ok(())
            }
            Err((taken, cause)) => {
                // It may still run, and must not relay what this process goes on with.
                let _ = successor.process.kill().await;
                dispatcher.listen(&wanted, accepting).await.map_err(UpgradeError::Listeners)?;
                Err(UpgradeError::Lost { taken, cause })
            }
        }
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
    async fn start(program: PathBuf, config: &Path) -> Result<Self, UpgradeError> {
        let started = || {
            let (stream, far) = DescriptorStream::pair()?;
            let mut command = Command::new(&program);
            let arguments = ["run", "--successor", "--config"].map(OsString::from);
            command.args(arguments).arg(config).stdin(Stdio::from(far));
            Ok((command.spawn()?, stream))
        };
        let (process, stream) = started().map_err(|cause| UpgradeError::Start { program, cause })?;
        let mut successor = Self { process, stream };
        match successor.within(START_MAX, Self::receive).await {
            Ok(FromSuccessor::Hello { form: FORM, .. }) => Ok(successor),
            Ok(FromSuccessor::Hello { version, .. }) => Err(successor.give_up(UpgradeError::Form(version)).await),
            Ok(_) => Err(successor.give_up(UpgradeError::Ended).await),
            Err(cause) => {
                let error = starting(&cause);
                Err(successor.give_up(error).await)
            }
        }
    }

    /// Has the successor start with these listeners.
    async fn prepare(
        &mut self,
        tcp: impl Iterator<Item = &TcpListener>,
        admin: BorrowedFd<'_>,
    ) -> Result<(), UpgradeError> {
        let (mut addresses, mut descriptors) = (Vec::new(), Vec::new());
        for listener in tcp {
            addresses.push(listener.local_addr().map_err(UpgradeError::Listeners)?);
            descriptors.push(listener.as_fd());
        }
        descriptors.push(admin);
        let sent = self.send(&FromPredecessor::Listeners(addresses), &descriptors).await;
        let answer = match sent {
            Ok(()) => self.within(START_MAX, Self::receive).await,
            Err(cause) => Err(cause),
        };
        match answer {
            Ok(FromSuccessor::Prepared) => Ok(()),
            Ok(_) => Err(self.give_up(UpgradeError::Ended).await),
            Err(cause) => {
                let error = starting(&cause);
                Err(self.give_up(error).await)
            }
        }
    }

    /// Passes all connections on. Returns their number, also with an error.
    async fn take_over(&mut self, dispatcher: &Dispatcher) -> Result<usize, (usize, io::Error)> {
        let (mut taken, mut passing) = (0, dispatcher.begin_to_pass_on());
        let mut waits_since = Instant::now();
        while !passing.is_complete() {
            let batch = passing.next(BATCH_MAX).await;
            if !batch.is_empty() {
                taken += self.pass(batch).await.map_err(|cause| (taken, cause))?;
                waits_since = Instant::now();
            } else if waits_since.elapsed() < PASS_MAX {
                sleep(PASS_AGAIN).await;
            } else {
                // What is left goes on here to its end.
                break;
            }
        }
        let finish = FromPredecessor::Finish { drained: dispatcher.drained() };
        self.send(&finish, &[]).await.map_err(|cause| (taken, cause))?;
        passing.finish();
        Ok(taken)
    }

    /// Passes some connections on. After an error the new process has ended, and has none of them.
    async fn pass(&mut self, batch: Vec<Passing>) -> io::Result<usize> {
        let states = batch.iter().map(|passing| (passing.state().to_vec(), passing.sockets().count()));
        let message = FromPredecessor::Connections(states.collect());
        let sockets: Vec<_> = batch.iter().flat_map(Passing::sockets).collect();
        let answer = match self.send(&message, &sockets).await {
            Ok(()) => self.within(TAKE_MAX, Self::receive).await,
            Err(cause) => Err(cause),
        };
        let answer = match answer {
            Ok(answer) => Ok(answer),
            Err(cause) => {
                let _ = self.process.kill().await;
                // It may have confirmed in the last moment.
                self.receive().await.map_err(|_| cause)
            }
        };
        match answer? {
            FromSuccessor::Taken => {
                let count = batch.len();
                batch.into_iter().for_each(Passing::taken);
                Ok(count)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn send(&mut self, message: &FromPredecessor, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.stream.send(&encoded(message)?, descriptors).await
    }

    async fn receive(&mut self) -> io::Result<FromSuccessor> {
        let (message, _) = self.stream.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        decoded(&message)
    }

    async fn within<T>(
        &mut self,
        limit: Duration,
        what: impl AsyncFnOnce(&mut Self) -> io::Result<T>,
    ) -> io::Result<T> {
        timeout(limit, what(self)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Ends the new process before it has anything.
    async fn give_up(&mut self, error: UpgradeError) -> UpgradeError {
        let _ = self.process.kill().await;
        error
    }
}

fn starting(cause: &io::Error) -> UpgradeError {
    if cause.kind() == io::ErrorKind::TimedOut { UpgradeError::Slow } else { UpgradeError::Ended }
}

/// The end of the new process: what it gets of its predecessor.
pub(super) struct FromBefore {
    stream: DescriptorStream,
}

impl FromBefore {
    /// Reports to the predecessor, which is at the standard input. Returns its listeners. Must be called in a tokio
    /// runtime.
    pub(super) async fn meet() -> Result<(Self, Inherited), NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut before = Self { stream: DescriptorStream::open(input).map_err(failed)? };
        let hello = FromSuccessor::Hello { form: FORM, version: env!("CARGO_PKG_VERSION").to_owned() };
        before.send(&hello).await.map_err(failed)?;
        let (message, descriptors) = before.receive().await.map_err(failed)?;
        let FromPredecessor::Listeners(addresses) = message else {
            return Err(failed(io::ErrorKind::InvalidData.into()));
        };
        let mut inherited = Inherited::default();
        let mut descriptors = descriptors.into_iter();
        for (address, listener) in addresses.into_iter().zip(descriptors.by_ref()) {
            inherited.tcp.entry(address).or_default().push(listener.into());
        }
        inherited.admin = descriptors.next();
        Ok((before, inherited))
    }

    /// Takes the connections over. Returns when this process has all of them.
    pub(super) async fn take_over(mut self, dispatcher: &Dispatcher) -> Result<(), NodeError> {
        let failed = |cause| NodeError::Predecessor { cause };
        self.send(&FromSuccessor::Prepared).await.map_err(failed)?;
        let mut taken = 0;
        loop {
            match self.receive().await {
                Ok((FromPredecessor::Connections(states), sockets)) => {
                    let restored =
                        restore(dispatcher, states, sockets).map_err(|error| failed(io::Error::other(error)))?;
                    // From here on they are this process's. It has touched none before.
                    self.send(&FromSuccessor::Taken).await.map_err(failed)?;
                    taken += restored.len();
                    restored.into_iter().for_each(watari_dispatcher::Restored::start);
                }
                Ok((FromPredecessor::Finish { drained }, _)) => {
                    for agent in &drained {
                        // An agent may have left the configuration.
                        let _ = dispatcher.drain(agent);
                    }
                    break;
                }
                Ok((FromPredecessor::Listeners(_), _)) => return Err(failed(io::ErrorKind::InvalidData.into())),
                Err(cause) if taken == 0 => return Err(failed(cause)),
                Err(error) => {
                    tracing::error!(%error, "the previous process has failed: what it had not passed on is lost");
                    break;
                }
            }
        }
        tracing::info!(taken, "taken over from the previous process");
        Ok(())
    }

    async fn send(&mut self, message: &FromSuccessor) -> io::Result<()> {
        self.stream.send(&encoded(message)?, &[]).await
    }

    async fn receive(&mut self) -> io::Result<(FromPredecessor, Vec<OwnedFd>)> {
        let (message, descriptors) = self.stream.receive().await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((decoded(&message)?, descriptors))
    }
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
