//! The running process, which passes all that it has to a new one.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tokio::process::{Child, Command};
use tokio::sync::{Mutex, Notify};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use watari_addresses::{Addresses, Multipath, PassedAddresses, PassedMultipath};
use watari_agent::{Agent, CannotPass};
use watari_dispatcher::{Dispatcher, SOCKETS_MAX};
use watari_sys::{DESCRIPTORS_MAX, DescriptorStream};
use watari_values::{NodeName, SecretBytes};
use zeroize::Zeroizing;

use super::{FORM, Fixed, FromPredecessor, FromSuccessor, Part, decoded, encoded};
use crate::admin::{Handle, Upgraded};
use crate::node::reload::Reloader;
use crate::node::roles::Roles;

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
/// The same for an agent. It passes the rest later.
const AGENT_PASS_MAX: Duration = Duration::from_secs(1);
/// The pause between two messages about the rest.
const REST_AGAIN: Duration = Duration::from_millis(20);

/// The connections of one message. They stand still while it is on its way, so they are few.
const BATCH_MAX: usize = 32;
const _: () = assert!(BATCH_MAX * SOCKETS_MAX <= DESCRIPTORS_MAX);
const _: () = assert!(watari_agent::SOCKETS_MAX <= SOCKETS_MAX);
const _: () = assert!(watari_agent::FORWARDED_LEGS_MAX <= DESCRIPTORS_MAX);
/// The bytes of the states in one message, unless one state has more: a few MiB at most.
const BATCH_LEN_MAX: usize = 8 << 20;

/// An upgrade has failed. This process goes on, except after [`UpgradeError::NotServing`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error("another upgrade is in progress")]
    InProgress,
    #[error("the node is about to end")]
    Ending,
    #[error(transparent)]
    Agent(#[from] CannotPass),
    #[error("cannot accept legs: {0}")]
    Legs(io::Error),
    #[error("cannot start {}: {cause}", program.display())]
    Start { program: PathBuf, cause: io::Error },
    #[error("the new process has ended before it was ready: its reason is in the log")]
    Ended,
    #[error("the new process was not ready within {} s", START_MAX.as_secs())]
    Slow,
    #[error("the new process (version {0}) does not take over from this version: restart the node")]
    Form(String),
    #[error("the new process has failed{}: {cause}", and_lost(*.taken))]
    Lost { taken: usize, cause: io::Error },
    #[error("cannot pass the listeners on: {0}")]
    Listeners(io::Error),
    #[error("the new process has all connections, and does not serve clients: {0}")]
    NotServing(io::Error),
}

fn and_lost(taken: usize) -> String {
    if taken == 0 { String::new() } else { format!(" after it took {taken} connections, which are lost") }
}

/// The running process, which a successor can take over from.
pub(crate) struct Predecessor {
    /// Handles of listeners that stay as long as the process.
    tcp: Vec<TcpListener>,
    admin: Handle,
    /// Held by an upgrade. Whether the node ends.
    busy: Mutex<bool>,
    /// Ends what a successor has instead: links, and the listeners that are not for clients.
    unlink: CancellationToken,
    /// The successor's process, once it has all connections.
    successor: OnceLock<Pid>,
    /// What the agent passes on later.
    rest: Mutex<Option<Rest>>,
    /// Notified when a successor has taken over, and this process has to end.
    pub(crate) replaced: Notify,
}

/// The parts of a node that take part in an upgrade.
pub(crate) struct Parts<'a> {
    pub(crate) roles: &'a Roles,
    pub(crate) addresses: &'a Addresses,
    pub(crate) multipath: Option<&'a Multipath>,
    pub(crate) fixed: Fixed,
    pub(crate) reloader: &'a Reloader,
}

impl Predecessor {
    /// `unlink` ends what a successor has instead.
    pub(crate) fn new(tcp: Vec<TcpListener>, admin: Handle, unlink: CancellationToken) -> Self {
        let (busy, successor, rest) = (Mutex::new(false), OnceLock::new(), Mutex::default());
        Self { tcp, admin, busy, unlink, successor, rest, replaced: Notify::new() }
    }

    /// The node is to end: waits until no upgrade is in progress, and refuses further ones. Returns the process that has
    /// taken over, if there is one.
    pub(crate) async fn end(&self) -> Option<Pid> {
        *self.busy.lock().await = true;
        self.successor.get().copied()
    }

    /// Runs `program`, which takes over all connections.
    pub(crate) async fn upgrade(&self, parts: Parts<'_>, program: Option<PathBuf>) -> Result<Upgraded, UpgradeError> {
        let busy = self.busy.try_lock().map_err(|_| UpgradeError::InProgress)?;
        if *busy {
            return Err(UpgradeError::Ending);
        }
        // A reload would change the listeners.
        let _reloading = parts.reloader.hold().await;
        let program = program.map_or_else(own_program, Ok);
        let program = program.map_err(|cause| UpgradeError::Start { program: PathBuf::from("this program"), cause })?;
        let mut successor = Successor::spawn(program, parts.reloader.file())?;
        match self.hand_over_to(&mut successor, &parts).await {
            Ok((upgraded, rest)) => {
                *self.rest.lock().await = rest.map(|passing| Rest { successor, passing });
                self.replaced.notify_one();
                Ok(upgraded)
            }
            // It has all connections.
            Err(error @ UpgradeError::NotServing(_)) => {
                self.replaced.notify_one();
                Err(error)
            }
            Err(error) => {
                if matches!(error, UpgradeError::Ended) {
                    let _ = timeout(REPORT_MAX, successor.process.wait()).await;
                }
                let _ = successor.process.kill().await;
                Err(error)
            }
        }
    }

    /// Returns what the agent could not pass on yet.
    async fn hand_over_to(
        &self,
        successor: &mut Successor,
        parts: &Parts<'_>,
    ) -> Result<(Upgraded, Option<watari_agent::PassingOn>), UpgradeError> {
        let Roles { dispatcher, agent } = parts.roles;
        successor.greet().await?;
        let mut listening = Listening::of(dispatcher.as_ref()).await.map_err(UpgradeError::Listeners)?;
        let redirects = parts.reloader.redirects().await.map_err(UpgradeError::Listeners)?;
        let legs = agent.as_ref().map(Agent::listener).transpose().map_err(UpgradeError::Listeners)?;
        let tcp: Vec<_> = listening.accepting.all().chain(&redirects).chain(&self.tcp).chain(&legs).collect();
        let has_admin = successor.prepare(&tcp, &self.admin, parts.fixed.clone()).await?;

        let of_agent = match agent {
            Some(agent) => Some(agent.begin_to_pass_on().await?),
            None => None,
        };
        let mut passed = Passed { taken: 0, of_dispatcher: None, of_agent };
        let taken_over = async {
            successor.take_most_over(&mut passed).await?;
            listening.stop(parts.roles).await?;
            successor.take_over(dispatcher.as_ref(), &mut passed).await
        };
        let taken_over = taken_over.await;
        if let Err(cause) = taken_over {
            let taken = passed.taken;
            // The connections go on here before new ones come.
            drop(passed);
            listening.start(parts.roles).await?;
            return Err(UpgradeError::Lost { taken, cause });
        }
        // From here on, this process goes on with nothing.
        let addresses = parts.addresses.pass_on().await;
        let multipath = parts.multipath.map(Multipath::pass_on);
        let Passed { taken, of_dispatcher, mut of_agent } = passed;
        if let Some(passing) = of_dispatcher {
            passing.finish();
        }
        if let Some(passing) = &mut of_agent {
            passing.finish();
        }
        if has_admin {
            self.admin.passed_on();
        }
        if let Some(pid) = successor.pid() {
            let _ = self.successor.set(pid);
        }
        self.unlink.cancel();
        let drained = dispatcher.as_ref().map(Dispatcher::drained).unwrap_or_default();
        successor.finish(drained, addresses, multipath).await.map_err(UpgradeError::NotServing)?;
        let left = of_agent.as_ref().map_or(0, watari_agent::PassingOn::left);
        let left =
            left + dispatcher.as_ref().map_or(0, |dispatcher| usize::try_from(dispatcher.clients()).unwrap_or(0));
        tracing::info!(taken, left, pid = successor.process.id(), "a new process has taken over");
        Ok((Upgraded { passed: taken, left }, of_agent))
    }

    /// Passes the rest of the agent's connections on, as soon as each can. Returns when none is left, when the successor
    /// has ended, or after `limit`, when the owners of anchored streams have learned of their end.
    pub(crate) async fn pass_the_rest(&self, agent: &Agent, limit: Duration) {
        let Some(mut rest) = self.rest.lock().await.take() else { return };
        if let Err(error) = rest.pass(agent, Instant::now() + limit).await {
            tracing::warn!(%error, left = rest.passing.left(), "the new process takes no more connections");
            while rest.passing.left() > 0 {
                rest.passing.end_all();
                sleep(REST_AGAIN).await;
            }
        }
    }
}

/// Where the dispatcher of a node accepts clients.
struct Listening {
    wanted: watari_dispatcher::Listeners<SocketAddr>,
    accepting: watari_dispatcher::Listeners,
    is_stopped: bool,
}

impl Listening {
    async fn of(dispatcher: Option<&Dispatcher>) -> io::Result<Self> {
        let accepting = match dispatcher {
            Some(dispatcher) => dispatcher.listeners().await?,
            None => watari_dispatcher::Listeners::default(),
        };
        Ok(Self { wanted: accepting.addresses()?, accepting, is_stopped: false })
    }

    /// Has the roles accept nothing. The listeners stay.
    async fn stop(&mut self, roles: &Roles) -> io::Result<()> {
        self.is_stopped = true;
        if let Some(dispatcher) = &roles.dispatcher {
            let nowhere = watari_dispatcher::Listeners::default();
            let nothing = watari_dispatcher::Listeners::default();
            dispatcher.listen(&nowhere, nothing).await?;
        }
        if let Some(agent) = &roles.agent {
            agent.stop_accepting().await;
        }
        Ok(())
    }

    /// Has the roles accept again, after [`Listening::stop`].
    async fn start(self, roles: &Roles) -> Result<(), UpgradeError> {
        let Self { wanted, accepting, is_stopped } = self;
        if !is_stopped {
            return Ok(());
        }
        if let Some(dispatcher) = &roles.dispatcher {
            dispatcher.listen(&wanted, accepting).await.map_err(UpgradeError::Listeners)?;
        }
        roles.accept_legs().await.map_err(UpgradeError::Legs)
    }
}

/// What has passed. Without `finish`, this process goes on.
struct Passed {
    taken: usize,
    of_dispatcher: Option<watari_dispatcher::PassingOn>,
    of_agent: Option<watari_agent::PassingOn>,
}

/// Connections of the agent that could not pass.
struct Rest {
    successor: Successor,
    passing: watari_agent::PassingOn,
}

impl Rest {
    async fn pass(&mut self, agent: &Agent, deadline: Instant) -> io::Result<()> {
        let Self { successor, passing } = self;
        let mut taken = 0;
        while (passing.left() > 0 || agent.has_predecessor()) && Instant::now() < deadline {
            let batch = passing.next(BATCH_MAX).await.into_iter().map(Passing::Agent).collect();
            successor.pass_all(batch, &mut taken, Failing::ShutDown).await?;
            let is_busy = passing.has_messages();
            let came = successor.exchange(passing).await?;
            passing.end_others();
            if came == 0 && !is_busy {
                sleep(REST_AGAIN).await;
            }
        }
        agent.end_anchors();
        // The last announcements.
        while passing.has_messages() {
            successor.exchange(passing).await?;
        }
        tracing::info!(taken, left = passing.left(), "the new process has taken over the rest");
        Ok(())
    }
}

/// A connection of either role on its way.
enum Passing {
    Dispatcher(watari_dispatcher::Passing),
    Agent(watari_agent::Passing),
}

impl Passing {
    fn state(&self) -> &[u8] {
        match self {
            Self::Dispatcher(passing) => passing.state(),
            Self::Agent(passing) => passing.state().as_slice(),
        }
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::Dispatcher(passing) => passing.sockets().collect(),
            Self::Agent(passing) => passing.sockets().collect(),
        }
    }

    fn part(&self) -> Part {
        match self {
            Self::Dispatcher(_) => Part::Dispatcher,
            Self::Agent(_) => Part::Agent,
        }
    }

    fn taken(self) {
        match self {
            Self::Dispatcher(passing) => passing.taken(),
            Self::Agent(passing) => passing.taken(),
        }
    }
}

/// What happens to a successor that does not confirm in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failing {
    /// It is killed.
    Kill,
    /// The stream is shut down, because the successor serves connections. It can confirm nothing after that.
    ShutDown,
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
    async fn prepare(&mut self, tcp: &[&TcpListener], admin: &Handle, fixed: Fixed) -> Result<bool, UpgradeError> {
        for some in tcp.chunks(DESCRIPTORS_MAX) {
            let addresses = some.iter().map(|listener| listener.local_addr()).collect::<io::Result<_>>();
            let addresses = FromPredecessor::Listeners(addresses.map_err(UpgradeError::Listeners)?);
            let descriptors: Vec<_> = some.iter().map(|listener| listener.as_fd()).collect();
            self.send(&addresses, &descriptors).await.map_err(|cause| starting(&cause))?;
        }
        let start = FromPredecessor::Start { admin: admin.path.clone(), fixed };
        self.send(&start, &[admin.listener.as_fd()]).await.map_err(|cause| starting(&cause))?;
        match self.receive(START_MAX).await {
            Ok(FromSuccessor::Prepared { has_admin }) => Ok(has_admin),
            Ok(_) => Err(UpgradeError::Ended),
            Err(cause) => Err(starting(&cause)),
        }
    }

    /// Passes most connections of the agent on, while it still accepts legs. So new clients wait only for the rest.
    async fn take_most_over(&mut self, passed: &mut Passed) -> io::Result<()> {
        let Some(passing) = &mut passed.of_agent else { return Ok(()) };
        let mut goes_on = true;
        while goes_on {
            let before = passed.taken;
            self.take_batch_over(passing, &mut passed.taken).await?;
            goes_on = passed.taken > before && passing.not_asked() > BATCH_MAX;
        }
        Ok(())
    }

    /// Passes all connections on. After an error the new process has ended.
    async fn take_over(&mut self, dispatcher: Option<&Dispatcher>, passed: &mut Passed) -> io::Result<()> {
        if let Some(passing) = &mut passed.of_agent {
            self.take_over_agent(passing, &mut passed.taken).await?;
        }
        if let Some(dispatcher) = dispatcher {
            let passing = passed.of_dispatcher.insert(dispatcher.begin_to_pass_on());
            self.take_over_dispatcher(passing, &mut passed.taken).await?;
        }
        if let Some(passing) = &mut passed.of_agent {
            for state in passing.states().await {
                self.send(&FromPredecessor::AgentState(state), &[]).await?;
                self.receive_taken().await?;
            }
        }
        Ok(())
    }

    async fn take_over_dispatcher(
        &mut self,
        passing: &mut watari_dispatcher::PassingOn,
        taken: &mut usize,
    ) -> io::Result<()> {
        let mut waits_since = Instant::now();
        while !passing.is_complete() {
            let batch: Vec<_> = passing.next(BATCH_MAX).await.into_iter().map(Passing::Dispatcher).collect();
            let before = *taken;
            self.pass_all(batch, taken, Failing::Kill).await?;
            if *taken > before {
                waits_since = Instant::now();
            } else if waits_since.elapsed() < PASS_MAX {
                sleep(PASS_AGAIN).await;
            } else {
                // What is left goes on here to its end.
                break;
            }
        }
        Ok(())
    }

    async fn take_over_agent(&mut self, passing: &mut watari_agent::PassingOn, taken: &mut usize) -> io::Result<()> {
        let mut waits_since = Instant::now();
        while !passing.is_settled() && waits_since.elapsed() < AGENT_PASS_MAX {
            let before = *taken;
            self.take_batch_over(passing, taken).await?;
            if *taken > before {
                waits_since = Instant::now();
            }
        }
        Ok(())
    }

    async fn take_batch_over(&mut self, passing: &mut watari_agent::PassingOn, taken: &mut usize) -> io::Result<()> {
        let batch = passing.next(BATCH_MAX).await.into_iter().map(Passing::Agent).collect();
        self.pass_all(batch, taken, Failing::Kill).await?;
        if passing.has_messages() {
            self.exchange(passing).await?;
        }
        Ok(())
    }

    /// Exchanges messages between the agents. Returns how many have come, and legs with them.
    async fn exchange(&mut self, passing: &watari_agent::PassingOn) -> io::Result<usize> {
        self.send(&FromPredecessor::Messages(passing.messages()), &[]).await?;
        match self.receive_with_sockets(TAKE_MAX).await? {
            (FromSuccessor::Messages(answer), sockets) => {
                passing.handle(answer.as_slice(), sockets).map_err(io::Error::other)
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn pass_all(&mut self, batch: Vec<Passing>, taken: &mut usize, failing: Failing) -> io::Result<()> {
        for batch in of_bounded_len(batch) {
            self.pass(batch, taken, failing).await?;
        }
        Ok(())
    }

    /// Waits until the new process serves clients.
    async fn finish(
        &mut self,
        drained: Vec<NodeName>,
        addresses: PassedAddresses,
        multipath: Option<PassedMultipath>,
    ) -> io::Result<()> {
        self.send(&FromPredecessor::Finish { drained, addresses, multipath }, &[]).await?;
        match self.receive(SERVE_MAX).await? {
            FromSuccessor::Serving => Ok(()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Passes some connections of one role on, and counts those that the new process has taken. After an error it can
    /// take nothing more. This process goes on with the connections that it had not taken.
    async fn pass(&mut self, batch: Vec<Passing>, taken: &mut usize, failing: Failing) -> io::Result<()> {
        let Some(part) = batch.first().map(Passing::part) else { return Ok(()) };
        let states = batch.iter().map(|passing| (SecretBytes::new(passing.state().to_vec()), passing.sockets().len()));
        let message = FromPredecessor::Connections(part, states.collect());
        let sockets: Vec<_> = batch.iter().flat_map(Passing::sockets).collect();
        let answer = match self.send(&message, &sockets).await {
            Ok(()) => self.receive_taken().await,
            Err(cause) => Err(cause),
        };
        let (refused, result) = match answer {
            Ok(refused) => (Some(refused), Ok(())),
            Err(cause) => {
                match failing {
                    Failing::Kill => drop(self.process.kill().await),
                    Failing::ShutDown => drop(self.stream.shut_down()),
                }
                // It may have confirmed in the last moment, and gone on with the connections.
                (self.receive_taken().await.ok(), Err(cause))
            }
        };
        if let Some(refused) = refused {
            for (_, passing) in batch.into_iter().enumerate().filter(|(at, _)| !refused.contains(at)) {
                *taken += 1;
                passing.taken();
            }
        }
        result
    }

    /// Returns the positions that the new process has refused.
    async fn receive_taken(&mut self) -> io::Result<Vec<usize>> {
        match self.receive(TAKE_MAX).await? {
            FromSuccessor::Taken { refused } => Ok(refused),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// After an error, the stream takes nothing more.
    async fn send(&mut self, message: &FromPredecessor, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let message = encoded(message)?;
        within(TAKE_MAX, self.stream.send(&message, descriptors)).await
    }

    async fn receive(&mut self, limit: Duration) -> io::Result<FromSuccessor> {
        Ok(self.receive_with_sockets(limit).await?.0)
    }

    async fn receive_with_sockets(&mut self, limit: Duration) -> io::Result<(FromSuccessor, Vec<OwnedFd>)> {
        let (message, sockets) = within(limit, self.stream.receive()).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((decoded(&Zeroizing::new(message))?, sockets))
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
