//! Drives the relay of one client connection: sockets, pipes, messages and the timer. [`watari_relay::Relay`] decides.

mod actions;

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use watari_addresses::Flow;
use watari_relay::{Action, ClientRead, Context, Input, LegRead, Relay, Start, Timeouts};
use watari_sys::tcp;
use watari_values::{DispatcherChange, NodeName};

use crate::alarm::Alarm;
use crate::change::giving::{ChangeOrder, Reply, Standing};
use crate::clients::Client;
use crate::config::Limits;
use crate::direction::{Broken, Direction, Written};
use crate::find::Found;
use crate::legs::Leg;
use crate::scheduler::Stopwatch;
use crate::shared::DispatcherShared;
use crate::table::{Registered, RelayMessage};
use crate::upgrade::{Passed, PassedClient, PassedConnection, ToSuccessor, pass_on};

/// The most bytes of one read that are discarded.
const DISCARD_LEN: usize = 4 * 1024;

/// The most reads of one direction in a row.
const PASSES_MAX: usize = 4;

type Connecting = Pin<Box<dyn Future<Output = io::Result<Leg>> + Send>>;
type Finding = Pin<Box<dyn Future<Output = Result<Found, &'static str>> + Send>>;

/// Relays one connection until it is over.
pub(crate) struct RelayDriver {
    shared: Arc<DispatcherShared>,
    relay: Relay,
    inputs: mpsc::Receiver<RelayMessage>,
    /// The bytes of both directions so far.
    relayed: Arc<AtomicU64>,
    client_address: SocketAddr,
    server_address: SocketAddr,
    client: TcpStream,
    /// The owner's leg. `None` once it is kept for another connection.
    leg: Option<TcpStream>,
    /// The leg to the target of an attempt.
    prepared: Option<TcpStream>,
    /// From the client to the owner's leg.
    up: Direction,
    /// From the owner's leg to the client.
    down: Direction,
    connecting: Option<Connecting>,
    /// The search for another agent, because the first was gone when its leg was used again.
    finding: Option<Finding>,
    /// Where the connection passes to a successor of this process, which is asked for.
    to_successor: Option<ToSuccessor>,
    /// The order to change the dispatcher, until it is answered.
    change: Option<ChangeOrder>,
    /// What the predecessor's relay could not do without an agent, until the first step.
    needs_agent: Option<NeedsAgent>,
    alarm: Alarm,
    stopwatch: Stopwatch,
}

/// Why a relay of the predecessor waits for an agent to link to this process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NeedsAgent {
    /// To sign a preface for it.
    LegKey(NodeName),
    /// To begin the handshake again at another agent.
    BeginAgain,
}

impl RelayDriver {
    /// Drives a relay between `client` and its first leg.
    pub(crate) fn new(shared: &Arc<DispatcherShared>, client: Client, found: Found) -> Self {
        let Found { leg, place, reserved, stopwatch } = found;
        let owner = place.agent().clone();
        let bulk = reserved.as_ref().map(|place| place.agent().clone());
        let flow = flow_of(&client.stream, client.address, client.server);
        let registered = shared.table.insert(client.address, flow, place, reserved);
        let start =
            Start { id: registered.id, owner, bulk, read_ahead: client.read_ahead.len(), reused_leg: leg.reused };
        let up = Direction::holding(client.read_ahead);
        // The limits in force when the client connects.
        let relay = Relay::new(start, timeouts(&shared.limits()), Instant::now().into_std());
        let client = (client.stream, client.address, client.server);
        let mut driver = Self::driving(shared, relay, registered, client, stopwatch);
        driver.up = if leg.reused { up.keeping_copy() } else { up };
        driver.leg = Some(leg.stream);
        driver
    }

    /// Drives the relay of a connection of this process's predecessor: the client, the owner's leg, the prepared leg.
    pub(crate) fn restore(
        shared: &Arc<DispatcherShared>,
        passed: PassedConnection,
        (client, leg, prepared): (TcpStream, Option<TcpStream>, Option<TcpStream>),
    ) -> Self {
        let relay = Relay::restore(passed.relay, Instant::now().into_std());
        let needs_agent = if passed.is_finding {
            Some(NeedsAgent::BeginAgain)
        } else {
            relay.next_preface_for().cloned().map(NeedsAgent::LegKey)
        };
        let place = shared.agents.place_at(&passed.entry.node);
        let stopwatch = Stopwatch::stopped(&place);
        let reserved = passed.entry.reserved.as_ref().map(|agent| shared.agents.place_at(agent));
        let places = (place, reserved);
        let flow = flow_of(&client, passed.client, passed.server);
        let registered = shared.table.restore(relay.id(), (passed.client, flow), passed.entry, places);
        let client = (client, passed.client, passed.server);
        let mut driver = Self::driving(shared, relay, registered, client, stopwatch);
        (driver.up, driver.down) = (Direction::restore(passed.up), Direction::restore(passed.down));
        (driver.leg, driver.prepared, driver.needs_agent) = (leg, prepared, needs_agent);
        driver
    }

    /// A driver without legs, and with nothing to relay. `client` has the addresses of the client and of the server.
    fn driving(
        shared: &Arc<DispatcherShared>,
        relay: Relay,
        Registered { inputs, relayed, .. }: Registered,
        (client, client_address, server_address): (TcpStream, SocketAddr, SocketAddr),
        stopwatch: Stopwatch,
    ) -> Self {
        Self {
            shared: shared.clone(),
            alarm: Alarm::at(Instant::from_std(relay.timeout())),
            relay,
            inputs,
            relayed,
            client_address,
            server_address,
            client,
            leg: None,
            prepared: None,
            up: Direction::default(),
            down: Direction::default(),
            connecting: None,
            finding: None,
            to_successor: None,
            change: None,
            needs_agent: None,
            stopwatch,
        }
    }

    /// Relays until the connection is over. Boxed, because a future has room for its arguments twice.
    pub(crate) async fn run(mut self: Box<Self>) {
        self.carry_out_all();
        if self.needs_agent.is_some() && self.wait_for_agent().await {
            return;
        }
        while !self.relay.is_over() {
            if let Some(to) = self.to_successor.take() {
                if self.pass_on(to).await {
                    return;
                }
            } else if self.relay.is_quiet() {
                if self.offer().await {
                    return;
                }
            } else {
                self.step().await;
                self.answer_change();
            }
        }
    }

    /// Waits until an agent is available to this process, which has just begun. Returns whether the connection has passed
    /// to a successor meanwhile. Other messages are handled after the wait.
    async fn wait_for_agent(&mut self) -> bool {
        let (shared, mut later) = (self.shared.clone(), Vec::new());
        let agent = match &self.needs_agent {
            Some(NeedsAgent::LegKey(agent)) => Some(agent.clone()),
            Some(NeedsAgent::BeginAgain) | None => None,
        };
        {
            let mut available = pin!(shared.until_available(agent.as_ref()));
            loop {
                let message = tokio::select! {
                    () = available.as_mut() => break,
                    Some(message) = self.inputs.recv() => message,
                };
                match message {
                    RelayMessage::PassOn(to) => {
                        if self.pass_on(to).await {
                            return true;
                        }
                    }
                    message => later.push(message),
                }
            }
        }
        if self.needs_agent.take() == Some(NeedsAgent::BeginAgain) {
            self.carry_out(Action::BeginAgain);
        }
        for message in later {
            self.on_message(message);
        }
        false
    }

    /// Passes the connection to a successor of this process. Returns whether the successor has it.
    async fn pass_on(&mut self, to: ToSuccessor) -> bool {
        if self.connecting.take().is_some() {
            // The socket of a connection that is being made cannot pass. The move is aborted, and may be tried again.
            self.handle(Input::Connected { ok: false });
        }
        // A change of the dispatcher does not pass on. The agent attaches its leg again.
        self.handle(Input::ChangeFailed);
        self.answer_change();
        let Some(passed) = self.passed() else { return false };
        let sockets: Vec<_> =
            [Some(&self.client), self.leg.as_ref(), self.prepared.as_ref()].into_iter().flatten().collect();
        pass_on(to, &Passed::Connection(Box::new(passed)), &sockets).await
    }

    /// The state of the connection.
    fn passed(&mut self) -> Option<PassedConnection> {
        let relay = self.relay.snapshot(Instant::now().into_std())?;
        let (up, down) = (self.up.snapshot().ok()?, self.down.snapshot().ok()?);
        let entry = self.shared.table.entry(self.relay.id())?;
        Some(PassedConnection {
            relay,
            client: self.client_address,
            server: self.server_address,
            up,
            down,
            has_leg: self.leg.is_some(),
            has_prepared: self.prepared.is_some(),
            is_finding: self.finding.is_some() || self.needs_agent == Some(NeedsAgent::BeginAgain),
            entry,
        })
    }

    /// Answers an order to change the dispatcher that cannot be followed now.
    fn answer_change(&mut self) {
        if self.relay.change().is_none()
            && let Some(order) = self.change.take()
        {
            order.reply(self.relay.id(), Reply::CannotNow);
        }
    }

    /// Offers the connection to the next dispatcher, and stands still meanwhile. Returns whether it is given away.
    async fn offer(&mut self) -> bool {
        let is_given = match self.standing() {
            Some((order, standing, taken)) => {
                order.reply(self.relay.id(), Reply::Standing(Box::new(standing)));
                taken.await.is_ok()
            }
            None => false,
        };
        if is_given {
            // The agent reads the rest of the leg, and its end.
            self.leg.iter().for_each(tcp::fin_on_close);
        } else {
            self.handle(Input::ChangeFailed);
        }
        is_given
    }

    fn standing(&mut self) -> Option<(ChangeOrder, Standing, oneshot::Receiver<()>)> {
        let order = self.change.take()?;
        let (giving, change) = (self.relay.offer()?, self.relay.change()?);
        let passed = if self.relay.is_unopened() {
            let read_ahead = self.up.snapshot().ok()?.into_bytes();
            let (address, server) = (self.client_address, self.server_address);
            Passed::Client(PassedClient { address, server, read_ahead })
        } else {
            // The leg stays here.
            Passed::Connection(Box::new(PassedConnection { has_leg: false, ..self.passed()? }))
        };
        let flow = self.shared.table.flow(change.connection)?;
        let client = self.client.as_fd().try_clone_to_owned().ok()?;
        let (taken, given) = oneshot::channel();
        Some((order, Standing { giving, change, passed, client, flow, taken }, given))
    }

    /// Goes on with a connection that another dispatcher has given. `unwritten` are bytes to the client that the kernel
    /// of that dispatcher had, and that of this one has no room for.
    pub(crate) fn go_on(&mut self, change: DispatcherChange, unwritten: Vec<u8>) {
        self.relay.go_on(change, unwritten.len());
        self.down.put_back(unwritten);
    }

    /// Waits for the next input, and handles it.
    async fn step(&mut self) {
        let wanted = self.relay.interest();
        let deadline = Instant::from_std(self.relay.timeout());
        let (leg, prepared) = (self.leg.as_ref(), self.prepared.as_ref());
        let leg_read = wanted.leg_read.filter(|how| self.has_room_for(*how));
        tokio::select! {
            Some(message) = self.inputs.recv() => self.on_message(message),
            connected = optional(&mut self.connecting) => self.on_connected(connected),
            found = optional(&mut self.finding) => self.on_found(found),
            _ = self.client.readable(), if wanted.client_read.is_some() => self.read_client(wanted.client_read),
            () = ready(prepared, Interest::READABLE) => self.check_prepared(),
            () = ready(leg, Interest::WRITABLE), if wanted.leg_write => self.write_leg(),
            () = ready(leg, Interest::READABLE), if leg_read.is_some() => self.read_leg(leg_read),
            _ = self.client.writable(), if wanted.client_write => self.write_client(),
            _ = self.client.ready(Interest::ERROR), if wanted.client_reset => self.on_client_reset(),
            () = self.alarm.ring(deadline) => self.handle(Input::Deadline),
        }
    }

    /// Hands in one input, and carries out what follows from it.
    fn handle(&mut self, input: Input) {
        self.report(input);
        self.carry_out_all();
    }

    /// Hands in one input. Its actions come after those that are pending.
    fn report(&mut self, input: Input) {
        self.relay.handle(input, Context { now: Instant::now().into_std(), dispatcher: &*self.shared });
    }

    fn carry_out_all(&mut self) {
        while let Some(action) = self.relay.poll_action() {
            self.carry_out(action);
        }
        let waiting = (self.up.waiting() as u64, self.down.waiting() as u64);
        debug_assert!(self.relay.is_over() || self.relay.waiting() == waiting, "{waiting:?} bytes wait");
    }

    fn on_message(&mut self, message: RelayMessage) {
        match message {
            RelayMessage::Arbiter(event) => self.handle(Input::Agent(event)),
            RelayMessage::PassOn(to) => self.to_successor = Some(to),
            RelayMessage::Input(input) => self.handle(*input),
            RelayMessage::Change(order) => {
                self.handle(Input::ChangeDispatcher { to: order.to.clone() });
                self.change = Some(*order);
            }
            RelayMessage::Reset => {
                tracing::info!(connection = %self.relay.id(), client = %self.client_address, "connection reset: its address leaves this node");
                self.handle(Input::ClientReset);
            }
        }
    }

    fn on_connected(&mut self, connected: io::Result<Leg>) {
        self.connecting = None;
        let connected = connected.inspect_err(|error| {
            tracing::warn!(connection = %self.relay.id(), %error, "cannot connect a leg to the target");
        });
        self.prepared = connected.ok().map(|leg| leg.stream);
        self.handle(Input::Connected { ok: self.prepared.is_some() });
    }

    fn on_found(&mut self, found: Result<Found, &'static str>) {
        self.finding = None;
        let first = self.relay.id();
        let Found { leg, place, reserved, stopwatch } = match found {
            Ok(found) => found,
            Err(reason) => {
                tracing::info!(connection = %first, reason, "no other agent");
                return self.handle(Input::NotFound);
            }
        };
        let owner = place.agent().clone();
        let bulk = reserved.as_ref().map(|place| place.agent().clone());
        self.stopwatch = stopwatch;
        let flow = flow_of(&self.client, self.client_address, self.server_address);
        let again = self.shared.table.begin_again(first, (self.client_address, flow), place, reserved);
        let Registered { id, inputs, relayed } = again;
        (self.inputs, self.relayed) = (inputs, relayed);
        tracing::info!(connection = %id, %first, agent = %owner, "connection restarted at another agent");
        if let Some(left) = self.leg.replace(leg.stream) {
            tcp::reset_on_close(&left);
        }
        self.handle(Input::Found { id, owner, bulk });
    }

    /// Reads from the leg to the target. Any byte before the decision is a violation, like an end.
    fn check_prepared(&mut self) {
        let Some(leg) = &self.prepared else { return };
        match leg.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                tracing::warn!(connection = %self.relay.id(), "the target closed its leg before the decision");
                self.prepared = None;
                self.handle(Input::PreparedEnded);
            }
        }
    }

    fn read_client(&mut self, how: Option<ClientRead>) {
        match (how, &self.leg) {
            (Some(ClientRead::Pass), Some(leg)) => {
                let passed = self.up.pass(&self.client, leg);
                self.on_passed_up(passed);
            }
            (Some(ClientRead::Hold), _) => match self.up.fill(&self.client) {
                Ok(read) => self.handle(Input::HeldUp(read)),
                Err(error) => self.on_client_error(&error),
            },
            (Some(ClientRead::Discard), _) => match tcp::try_read(&self.client, &mut [0; DISCARD_LEN]) {
                Ok(read) => self.handle(Input::Discarded(read)),
                Err(error) => self.on_client_error(&error),
            },
            (Some(ClientRead::Pass), None) | (None, _) => {}
        }
    }

    fn on_passed_up(&mut self, passed: Result<(usize, Written), Broken>) {
        match passed {
            Ok((read, written)) => {
                self.count_to_leg(written);
                self.handle(Input::PassedUp { read, written: written.bytes });
            }
            Err(Broken::Reading(error)) => self.on_client_error(&error),
            Err(Broken::Writing { read, error }) => {
                self.handle(Input::PassedUp { read, written: 0 });
                self.on_leg_error(&error);
            }
        }
    }

    /// Reads the owner's leg. Reads several times if there is much, to poll the runtime less.
    fn read_leg(&mut self, how: Option<LegRead>) {
        match how {
            Some(LegRead::Pass) => {
                for _ in 0..PASSES_MAX {
                    if !self.pass_down() {
                        return;
                    }
                }
            }
            Some(LegRead::Hold(max)) => self.hold_down(max),
            None => {}
        }
    }

    /// Whether the dispatcher may hold more bytes. If not, the leg is not read, and the attempt is aborted after
    /// `move_timeout` unless the client takes bytes before. Threads do not wait for each other here: each may exceed
    /// the limit by one read.
    fn has_room_for(&self, how: LegRead) -> bool {
        match how {
            LegRead::Pass => true,
            LegRead::Hold(_) => {
                let max = i64::from(self.shared.agents.settings().config.limits.undelivered_mib_max) << 20;
                self.shared.metrics.undelivered_bytes.get() < max
            }
        }
    }

    /// Passes one read to the client. Returns whether more bytes are probably ready and can be passed at once.
    fn pass_down(&mut self) -> bool {
        let Some(leg) = &self.leg else { return false };
        match self.down.pass(leg, &self.client) {
            Ok((read, written)) => {
                self.count_to_client(read, written);
                self.handle(Input::PassedDown { read, written: written.bytes });
                return read > 0 && self.down.goes_on() && !self.relay.is_over();
            }
            Err(Broken::Reading(error)) => self.on_leg_error(&error),
            Err(Broken::Writing { read, error }) => {
                self.handle(Input::PassedDown { read, written: 0 });
                self.on_client_error(&error);
            }
        }
        false
    }

    fn hold_down(&mut self, max: usize) {
        let Some(leg) = &self.leg else { return };
        match self.down.read_behind(leg, max, &self.shared.metrics.undelivered_bytes) {
            Ok(read) => {
                self.count_to_client(read, Written::default());
                self.handle(Input::PassedDown { read, written: 0 });
            }
            Err(error) => self.on_leg_error(&error),
        }
    }

    fn write_leg(&mut self) {
        self.report_write_to_leg();
        self.carry_out_all();
    }

    fn report_write_to_leg(&mut self) {
        let Some(leg) = &self.leg else { return };
        match self.up.write_to(leg) {
            Ok(written) => {
                self.count_to_leg(written);
                let preface_left = self.up.begins_with_head();
                self.report(Input::WrittenToLeg { written: written.bytes, preface_left });
            }
            Err(error) => {
                self.log_leg_error(&error);
                self.report(Input::LegReset);
            }
        }
    }

    fn write_client(&mut self) {
        match self.down.write_to(&self.client) {
            Ok(written) => {
                self.count_to_client(0, written);
                self.handle(Input::WrittenToClient(written.bytes));
            }
            Err(error) => self.on_client_error(&error),
        }
    }

    fn count_to_leg(&mut self, written: Written) {
        self.relayed.fetch_add(written.bytes as u64, Ordering::Relaxed);
        self.shared.metrics.bytes_to_agents.inc_by(written.bytes as u64);
        self.shared.metrics.bytes_spliced.inc_by(written.spliced as u64);
        self.stopwatch.sent(written.bytes);
    }

    fn count_to_client(&mut self, read: usize, written: Written) {
        self.relayed.fetch_add(written.bytes as u64, Ordering::Relaxed);
        self.shared.metrics.bytes_to_clients.inc_by(written.bytes as u64);
        self.shared.metrics.bytes_spliced.inc_by(written.spliced as u64);
        if read > 0 {
            self.stopwatch.received();
        }
    }

    fn on_client_error(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            tracing::debug!(connection = %self.relay.id(), %error, "client connection failed");
            self.handle(Input::ClientReset);
        }
    }

    fn on_client_reset(&mut self) {
        tracing::debug!(connection = %self.relay.id(), "client reset the connection");
        self.handle(Input::ClientReset);
    }

    fn on_leg_error(&mut self, error: &io::Error) {
        if error.kind() != io::ErrorKind::WouldBlock {
            self.log_leg_error(error);
            self.handle(Input::LegReset);
        }
    }

    fn log_leg_error(&self, error: &io::Error) {
        tracing::debug!(connection = %self.relay.id(), agent = %self.relay.owner(), %error, "leg reset");
    }
}

/// Runs also if the relay panics or its thread ends.
impl Drop for RelayDriver {
    fn drop(&mut self) {
        let connection = self.relay.id();
        self.shared.table.remove(connection);
        tracing::debug!(%connection, "connection ended");
    }
}

/// The connection of a client. Behind a relay, its ends are not those that the client knows.
fn flow_of(stream: &TcpStream, client: SocketAddr, server: SocketAddr) -> Flow {
    let own = stream.local_addr().unwrap_or(server);
    let other = if own == server { client } else { stream.peer_addr().unwrap_or(client) };
    Flow { client: other, server: own }.plain()
}

fn timeouts(limits: &Limits) -> Timeouts {
    Timeouts {
        handshake: limits.handshake_timeout,
        idle: limits.idle_timeout,
        lifetime: limits.lifetime_max,
        attempt: limits.move_timeout,
        end: limits.final_timeout,
    }
}

/// Waits until the stream is ready. Without one it waits forever.
async fn ready(stream: Option<&TcpStream>, interest: Interest) {
    match stream {
        // The following operation returns the error.
        Some(stream) => drop(stream.ready(interest).await),
        None => pending().await,
    }
}

/// Waits for the future, and clears it. Without one it waits forever.
async fn optional<T>(future: &mut Option<Pin<Box<dyn Future<Output = T> + Send>>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}
