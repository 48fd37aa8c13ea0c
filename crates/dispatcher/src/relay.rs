//! Relays one client connection, and carries out its arbiter's decisions.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use watari_handoff::{Arbiter, ArbiterAction, ArbiterEvent, ArbiterTimer, ResetCause};
use watari_sys::tcp;
use watari_values::{ConnectionId, Epoch, NodeName};
use watari_wire::leg::{Kind, Preface};
use watari_wire::{Aborted, Decided, DispatcherToAgent, Freeze, LegKept};

use crate::alarm::Alarm;
use crate::clients::Client;
use crate::config::Limits;
use crate::direction::{Broken, Direction, Written};
use crate::find::{Found, find_again};
use crate::legs::{Leg, LegChoice};
use crate::scheduler::Stopwatch;
use crate::shared::DispatcherShared;
use crate::table::Input;

/// The most bytes of one read that are discarded.
const DISCARD_LEN: usize = 4 * 1024;

/// How long a client's FIN is held back. The agent may end the stream by itself in this time, in answer to the
/// `close_notify` before the FIN. Then the leg does not end and can carry another connection.
const END_HELD: Duration = Duration::from_millis(50);

/// The most bytes that are read and discarded after the end: a client may have this many in flight when it learns of
/// the end. The relay does not read more.
const DISCARDED_LEN_MAX: usize = 64 << 20;

/// The most reads of one direction in a row.
const PASSES_MAX: usize = 4;

/// The state of the client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FromClient {
    Open,
    /// The client sent FIN.
    Ended,
    /// The relay has shut down the owner's leg. A new owner's leg is shut down again.
    EndRelayed,
}

/// The state of the stream to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToClient {
    Open,
    /// Complete, except for the bytes in `down`.
    Finishing,
    /// The relay has sent the client FIN.
    Finished,
}

type Connecting = Pin<Box<dyn Future<Output = (Epoch, io::Result<Leg>)> + Send>>;
type Finding = Pin<Box<dyn Future<Output = Result<Found, &'static str>> + Send>>;

/// Relays one connection until it is over.
pub(crate) struct Relay {
    shared: Arc<DispatcherShared>,
    id: ConnectionId,
    inputs: mpsc::Receiver<Input>,
    client_address: SocketAddr,
    server_address: SocketAddr,
    client: TcpStream,
    /// The owner's leg. `None` once the stream to the client is complete and the leg is kept for another connection.
    leg: Option<TcpStream>,
    arbiter: Arbiter,
    /// The agent that gets the connection after the handshake, if that is another.
    bulk: Option<NodeName>,
    actions: Vec<ArbiterAction>,
    /// From the client to the owner's leg.
    up: Direction,
    /// From the owner's leg to the client.
    down: Direction,
    from_client: FromClient,
    to_client: ToClient,
    /// Bytes that were read after the end of the stream to the client.
    discarded: usize,
    leg_ended: bool,
    leg_use: LegUse,
    /// The search for another agent, because the first was gone when its leg was used again.
    finding: Option<Finding>,
    over: bool,
    connecting: Option<Connecting>,
    prepared: Option<Prepared>,
    deadlines: Deadlines,
    alarm: Alarm,
    /// The limits in force when the client connected.
    limits: Limits,
    stopwatch: Stopwatch,
}

/// A leg to the target of an attempt. Until the decision, the only event on it can be its end.
struct Prepared {
    epoch: Epoch,
    leg: TcpStream,
}

/// Whether another connection may follow on the owner's leg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LegUse {
    /// An idle leg that is used again. The relay writes its preface together with the client's first bytes.
    Unopened,
    /// Only regular relaying: another connection may follow.
    Regular,
    /// An attempt to move was aborted: no other connection may follow.
    Irregular,
}

/// Whether the client's FIN is held back for the agent to end the stream. This happens once per connection, not once
/// per agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndHeld {
    NotYet,
    Until(Instant),
    LongEnough,
}

/// The time limits of a connection.
struct Deadlines {
    handshake: Option<Instant>,
    idle: Instant,
    lifetime: Instant,
    /// The arbiter's timer: for a move, or for the announcement of the end.
    timer: Option<(ArbiterTimer, Instant)>,
    client_end: EndHeld,
    linger: Option<Instant>,
}

impl Relay {
    /// Creates a relay between `client` and its first leg.
    pub(crate) fn new(shared: &Arc<DispatcherShared>, client: Client, found: Found) -> Self {
        let Found { leg, place, reserved, stopwatch } = found;
        let arbiter = Arbiter::new(place.agent().clone());
        let bulk = reserved.as_ref().map(|place| place.agent().clone());
        let (id, inputs) = shared.table.insert(client.address, place, reserved);
        let up = Direction::holding(client.read_ahead);
        let now = Instant::now();
        let limits = shared.limits();
        Self {
            id,
            inputs,
            client_address: client.address,
            server_address: client.server,
            client: client.stream,
            leg: Some(leg.stream),
            leg_use: if leg.reused && up.is_empty() { LegUse::Unopened } else { LegUse::Regular },
            arbiter,
            bulk,
            actions: Vec::new(),
            up: if leg.reused { up.keeping_copy() } else { up },
            down: Direction::default(),
            from_client: FromClient::Open,
            to_client: ToClient::Open,
            discarded: 0,
            leg_ended: false,
            finding: None,
            over: false,
            connecting: None,
            prepared: None,
            alarm: Alarm::at(now + limits.handshake_timeout),
            deadlines: Deadlines {
                handshake: Some(now + limits.handshake_timeout),
                idle: now + limits.idle_timeout,
                lifetime: now + limits.lifetime_max,
                timer: None,
                client_end: EndHeld::NotYet,
                linger: None,
            },
            limits,
            stopwatch,
            shared: shared.clone(),
        }
    }

    /// Relays until the connection is over. Boxed, because a future has room for its arguments twice.
    pub(crate) async fn run(mut self: Box<Self>) {
        if self.leg_use == LegUse::Unopened || self.begin() {
            while !self.over {
                self.step().await;
                self.follow_up();
            }
        }
    }

    async fn step(&mut self) {
        match self.leg {
            Some(_) => self.relay().await,
            None => self.finish().await,
        }
    }

    /// After the leg was kept: writes the rest to the client, and waits for the client's end.
    async fn finish(&mut self) {
        let lingers = self.to_client == ToClient::Finished && self.from_client == FromClient::Open;
        let deadline = self.deadlines.first();
        tokio::select! {
            Some(input) = self.inputs.recv() => self.on_input(input),
            _ = self.client.readable(), if lingers => self.discard_client(),
            _ = self.client.writable(), if !self.down.is_empty() => self.write_client(),
            _ = self.client.ready(Interest::ERROR), if !lingers => self.on_client_reset(),
            () = self.alarm.ring(deadline) => self.on_deadline(),
        }
    }

    async fn relay(&mut self) {
        let Some(leg) = &self.leg else { return };
        let relays_up = self.relays_up();
        let client_open = self.from_client == FromClient::Open;
        let reads_client = relays_up && self.up.is_empty() && client_open;
        let lingers = self.to_client == ToClient::Finished && !reads_client && client_open;
        let deadline = self.deadlines.first();
        tokio::select! {
            Some(input) = self.inputs.recv() => self.on_input(input),
            (epoch, connected) = optional(&mut self.connecting) => self.on_connected(epoch, connected),
            found = optional(&mut self.finding) => self.on_found(found),
            _ = self.client.readable(), if reads_client => self.pass_up(),
            _ = self.client.readable(), if lingers => self.discard_client(),
            () = readable(self.prepared.as_ref()) => self.check_prepared(),
            _ = leg.writable(), if relays_up && !self.up.is_empty() => self.write_leg(),
            _ = leg.readable(), if self.down.is_empty() && !self.leg_ended => self.pass_down(),
            _ = self.client.writable(), if !self.down.is_empty() => self.write_client(),
            // Notices a reset even while nothing is read.
            _ = self.client.ready(Interest::ERROR), if !reads_client && !lingers => self.on_client_reset(),
            () = self.alarm.ring(deadline) => self.on_deadline(),
        }
    }

    fn on_input(&mut self, input: Input) {
        match input {
            // The agent may be about to answer. Or its host is gone, and no reset will ever arrive.
            Input::OwnerLost if self.up.has_copy() => self.on_leg_end(true),
            Input::OwnerLost => {}
            Input::Arbiter(event) => self.on_event(*event),
        }
    }

    /// Handles an agent's message.
    fn on_event(&mut self, event: ArbiterEvent) {
        // An agent that proposes a move has done the handshake, even if its announcement was lost.
        if matches!(&event, ArbiterEvent::Proposed { from, .. } if from == self.arbiter.owner()) {
            self.deadlines.handshake = None;
            self.up.drop_copy();
        }
        self.arbitrate(event);
    }

    fn on_connected(&mut self, epoch: Epoch, connected: io::Result<Leg>) {
        self.connecting = None;
        match connected {
            Ok(leg) => {
                self.prepared = Some(Prepared { epoch, leg: leg.stream });
                self.arbitrate(ArbiterEvent::LegReady(epoch));
            }
            Err(error) => {
                tracing::warn!(connection = %self.id, %error, "cannot connect a leg to the target");
                self.arbitrate(ArbiterEvent::LegFailed(epoch));
            }
        }
    }

    /// A target that closes its leg cannot get the connection. It is better to find this before the decision.
    fn check_prepared(&mut self) {
        let Some(Prepared { epoch, leg }) = &self.prepared else { return };
        match leg.try_read(&mut [0]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => {
                tracing::warn!(connection = %self.id, "the target closed its leg before the decision");
                let epoch = *epoch;
                self.prepared = None;
                self.arbitrate(ArbiterEvent::LegFailed(epoch));
            }
        }
    }

    /// Passes bytes from the client to the owner's leg.
    fn pass_up(&mut self) {
        if self.leg_use == LegUse::Unopened {
            return self.open_with_first_bytes();
        }
        let Some(leg) = &self.leg else { return };
        match self.up.pass(&self.client, leg) {
            Ok((0, _)) => self.from_client = FromClient::Ended,
            Ok((_, written)) => self.on_written_to_leg(written),
            Err(Broken::Reading(error)) => self.on_client_error(&error),
            Err(Broken::Writing(error)) => self.on_leg_error(&error),
        }
    }

    /// Opens an idle leg that is used again. The preface and the client's first bytes take one write here, and one read
    /// at the agent.
    fn open_with_first_bytes(&mut self) {
        match self.up.fill(&self.client) {
            Ok(read) => {
                if read == 0 {
                    self.from_client = FromClient::Ended;
                }
                self.leg_use = LegUse::Regular;
                self.begin();
            }
            Err(error) => self.on_client_error(&error),
        }
    }

    /// Passes bytes from the owner's leg to the client. Reads several times if there is much, to poll the runtime less.
    fn pass_down(&mut self) {
        for _ in 0..PASSES_MAX {
            if !self.pass_down_once() {
                return;
            }
        }
    }

    /// Passes one read. Returns whether more bytes are probably ready and can be passed at once.
    fn pass_down_once(&mut self) -> bool {
        let Some(leg) = &self.leg else { return false };
        match self.down.pass(leg, &self.client) {
            Ok((0, _)) => self.on_leg_end(false),
            Ok((read, written)) => {
                self.up.drop_copy();
                self.on_written_to_client(written);
                self.arbitrate(ArbiterEvent::RelayedTx(read as u64));
                return self.down.goes_on() && !self.over;
            }
            Err(Broken::Reading(error)) => self.on_leg_error(&error),
            Err(Broken::Writing(error)) => self.on_client_error(&error),
        }
        false
    }

    /// Reads and discards what the client still sends. The relay waits for the client's end, because an early close
    /// would send a reset that overtakes the last bytes to the client.
    fn discard_client(&mut self) {
        match tcp::try_read(&self.client, &mut [0; DISCARD_LEN]) {
            Ok(0) => self.from_client = FromClient::Ended,
            Ok(read) => {
                self.discarded += read;
                // Ends the connection at the limit. A close with unread input resets it.
                self.over |= self.discarded > DISCARDED_LEN_MAX;
            }
            Err(error) => self.on_client_error(&error),
        }
    }

    fn write_leg(&mut self) {
        let Some(leg) = &self.leg else { return };
        match self.up.write_to(leg) {
            Ok(written) => self.on_written_to_leg(written),
            Err(error) => self.on_leg_error(&error),
        }
    }

    fn write_client(&mut self) {
        match self.down.write_to(&self.client) {
            Ok(written) => self.on_written_to_client(written),
            Err(error) => self.on_client_error(&error),
        }
    }

    fn on_written_to_leg(&mut self, written: Written) {
        self.shared.metrics.bytes_to_agents.inc_by(written.bytes as u64);
        self.shared.metrics.bytes_spliced.inc_by(written.spliced as u64);
        self.deadlines.touch(self.limits.idle_timeout);
        self.arbitrate(ArbiterEvent::RelayedRx(written.bytes as u64));
    }

    fn on_written_to_client(&mut self, written: Written) {
        self.shared.metrics.bytes_to_clients.inc_by(written.bytes as u64);
        self.shared.metrics.bytes_spliced.inc_by(written.spliced as u64);
        self.deadlines.touch(self.limits.idle_timeout);
    }

    fn on_client_error(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        tracing::debug!(connection = %self.id, %error, "client connection failed");
        self.arbitrate(ArbiterEvent::ClientGone);
    }

    fn on_client_reset(&mut self) {
        tracing::debug!(connection = %self.id, "client reset the connection");
        self.arbitrate(ArbiterEvent::ClientGone);
    }

    fn on_leg_error(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::WouldBlock {
            return;
        }
        tracing::debug!(connection = %self.id, agent = %self.arbiter.owner(), %error, "leg reset");
        self.on_leg_end(true);
    }

    fn on_leg_end(&mut self, reset: bool) {
        self.leg_ended = true;
        match self.up.take_copy().filter(|_| self.to_client == ToClient::Open) {
            Some(client_bytes) => self.begin_again(client_bytes),
            None => self.arbitrate(ArbiterEvent::LegEnded { reset }),
        }
    }

    /// Finds another agent. The leg was idle, and its agent was lost before it sent a byte, so another agent can do the
    /// same handshake from the start.
    fn begin_again(&mut self, client_bytes: Vec<u8>) {
        tracing::info!(connection = %self.id, agent = %self.arbiter.owner(), "no answer on a reused leg");
        self.shared.idle_legs.forget(self.arbiter.owner());
        self.up = Direction::holding(client_bytes);
        self.leg_use = LegUse::Regular;
        let (shared, client, gone) = (self.shared.clone(), self.client_address.ip(), self.arbiter.owner().clone());
        self.finding = Some(Box::pin(async move { find_again(&shared, client, gone).await }));
    }

    fn on_found(&mut self, found: Result<Found, &'static str>) {
        self.finding = None;
        let Found { leg, place, reserved, stopwatch } = match found {
            Ok(found) => found,
            Err(reason) => {
                tracing::info!(connection = %self.id, reason, "no other agent");
                return self.arbitrate(ArbiterEvent::LegEnded { reset: true });
            }
        };
        self.arbiter = Arbiter::new(place.agent().clone());
        self.bulk = reserved.as_ref().map(|place| place.agent().clone());
        self.stopwatch = stopwatch;
        let first = self.id;
        (self.id, self.inputs) = self.shared.table.begin_again(first, self.client_address, place, reserved);
        tracing::info!(connection = %self.id, %first, agent = %self.arbiter.owner(), "connection restarted at another agent");
        if let Some(left) = self.take_leg(leg.stream) {
            tcp::reset_on_close(&left);
        }
        self.begin();
    }

    /// Sends the agent the preface. Returns `false` if the agent is gone.
    fn begin(&mut self) -> bool {
        let kind = Kind::New { bulk: self.bulk.clone() };
        self.open_leg(kind, Epoch(0))
    }

    /// Makes `leg` the owner's leg. Returns the previous one.
    fn take_leg(&mut self, leg: TcpStream) -> Option<TcpStream> {
        self.leg_ended = false;
        self.leg_use = LegUse::Regular;
        if self.from_client == FromClient::EndRelayed {
            self.from_client = FromClient::Ended;
        }
        self.leg.replace(leg)
    }

    fn on_deadline(&mut self) {
        let now = Instant::now();
        if let Some((timer, _)) = self.deadlines.timer.filter(|(_, at)| *at <= now) {
            self.deadlines.timer = None;
            self.arbitrate(ArbiterEvent::Timeout(timer));
        } else if self.deadlines.end_held_until().is_some_and(|at| at <= now) {
            // The FIN goes to the owner's leg as soon as one is relayed to.
            self.deadlines.client_end = EndHeld::LongEnough;
        } else if self.deadlines.linger.is_some_and(|at| at <= now) {
            self.over = true;
        } else if self.deadlines.handshake.is_some_and(|at| at <= now) && self.shared.table.is_established(self.id) {
            self.deadlines.handshake = None;
        } else if let Some(limit) = self.deadlines.limit_reached(now) {
            tracing::info!(connection = %self.id, client = %self.client_address, limit, "connection reset at a time limit");
            self.shared.metrics.count_given_up(limit);
            self.arbitrate(ArbiterEvent::ClientGone);
        }
    }

    fn arbitrate(&mut self, event: ArbiterEvent) {
        self.stopwatch.follow(&event);
        let mut actions = std::mem::take(&mut self.actions);
        self.arbiter.handle(event, &mut actions);
        for action in actions.drain(..) {
            self.carry_out(action);
        }
        self.actions = actions;
    }

    fn carry_out(&mut self, action: ArbiterAction) {
        let connection = self.id;
        match action {
            ArbiterAction::PrepareLeg { target, epoch } => {
                let shared = self.shared.clone();
                self.connecting = Some(Box::pin(async move { (epoch, shared.leg_to(&target, LegChoice::Any).await) }));
            }
            ArbiterAction::Freeze { source, epoch, rx_offset } => {
                self.shared.send(&source, DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset }));
            }
            ArbiterAction::Commit { source, target, epoch, rx_offset, tail_offset } => {
                self.commit(&source, &target, epoch, rx_offset, tail_offset);
            }
            ArbiterAction::Abort { source, target, epoch, reason } => {
                tracing::info!(%connection, %source, %target, %epoch, reason = reason.as_str(), "move aborted");
                self.shared.metrics.count_aborted(reason);
                self.shared.table.not_moved(connection);
                self.connecting = None;
                self.prepared = None;
                self.leg_use = LegUse::Irregular;
                self.send_aborted(&source, epoch, reason);
                self.send_aborted(&target, epoch, reason);
            }
            ArbiterAction::SendAborted { to, epoch, reason } => self.send_aborted(&to, epoch, reason),
            ArbiterAction::SendCommitted { to, epoch } => self.send_committed(&to, epoch),
            ArbiterAction::SendGone { to } => self.shared.send(&to, DispatcherToAgent::Gone(connection)),
            ArbiterAction::FinishClient => {
                self.to_client = ToClient::Finishing;
                self.deadlines.handshake = None;
                self.keep_leg_at_end();
            }
            ArbiterAction::Reset(cause) => self.reset(cause),
        }
    }

    fn commit(&mut self, source: &NodeName, target: &NodeName, epoch: Epoch, rx_offset: u64, tail_offset: u64) {
        tracing::debug!(connection = %self.id, %source, %target, %epoch, "move committed");
        self.shared.metrics.moves_committed.inc();
        self.shared.table.moved(self.id, target);
        let Prepared { leg, .. } = self.prepared.take().expect("an arbiter commits only once the leg is ready");
        // The dispatcher has read all that the source sent, and the source has read all that was written to it. So
        // closing loses nothing. If nothing else was on the leg, another connection may follow.
        let is_clean = self.may_keep_leg_to(source);
        let left = self.take_leg(leg);
        self.open_leg(Kind::Commit { rx_offset, tail_offset }, epoch);
        match left {
            Some(left) if is_clean => self.keep_leg(left, source, epoch, rx_offset),
            _ => self.send_committed(source, epoch),
        }
    }

    /// Whether another connection may follow on the leg of the owner, `agent`, after this connection's streams end
    /// there.
    fn may_keep_leg_to(&self, agent: &NodeName) -> bool {
        self.leg_use == LegUse::Regular
            && !self.leg_ended
            && self.from_client != FromClient::EndRelayed
            && !self.up.begins_with_head()
            && self.shared.keeps_legs_to(agent)
    }

    /// Keeps a leg on which this connection writes nothing more after `rx_offset` of the client's stream.
    fn keep_leg(&self, leg: TcpStream, agent: &NodeName, epoch: Epoch, rx_offset: u64) {
        let kept = LegKept { connection: self.id, epoch, rx_offset };
        if self.shared.send_soon(agent, DispatcherToAgent::LegKept(kept)) {
            self.shared.idle_legs.keep(agent, leg, Instant::now());
        }
    }

    /// Keeps the leg, if it can carry another connection, when the stream to the client is complete. This ends the
    /// client's stream: the agent has announced its end, and reads and drops what was written so far. The relay writes
    /// nothing more.
    fn keep_leg_at_end(&mut self) {
        let owner = self.arbiter.owner();
        if !self.up.is_empty() || !self.may_keep_leg_to(owner) {
            return;
        }
        if let Some(leg) = self.leg.take() {
            self.leg_ended = true;
            self.keep_leg(leg, owner, self.arbiter.tenure(), self.arbiter.rx_relayed());
        }
    }

    /// Puts the preface in front of the bytes for the owner's leg. Returns `false` if the agent is gone.
    fn open_leg(&mut self, kind: Kind, epoch: Epoch) -> bool {
        let preface =
            Preface { kind, connection: self.id, epoch, client: self.client_address, server: self.server_address };
        match self.shared.agents.sign(self.arbiter.owner(), &preface) {
            Ok(preface) => {
                self.up.put_in_front(preface);
                self.write_leg();
                true
            }
            Err(error) => {
                tracing::warn!(connection = %self.id, agent = %self.arbiter.owner(), %error, "cannot sign the preface");
                self.on_leg_end(true);
                false
            }
        }
    }

    fn send_aborted(&self, to: &NodeName, epoch: Epoch, reason: watari_values::AbortReason) {
        self.shared.send(to, DispatcherToAgent::Aborted(Aborted { connection: self.id, epoch, reason }));
    }

    fn send_committed(&self, to: &NodeName, epoch: Epoch) {
        self.shared.send_soon(to, DispatcherToAgent::Committed(Decided { connection: self.id, epoch }));
    }

    fn reset(&mut self, cause: ResetCause) {
        if cause == ResetCause::ClientGone {
            tracing::debug!(connection = %self.id, "connection ended: the client has left");
        } else {
            tracing::info!(
                connection = %self.id, client = %self.client_address, owner = %self.arbiter.owner(),
                cause = cause.as_str(), "connection reset"
            );
        }
        self.shared.metrics.count_reset(cause);
        for leg in self.leg.iter().chain(self.prepared.as_ref().map(|prepared| &prepared.leg)) {
            tcp::reset_on_close(leg);
        }
        self.over = true;
    }

    /// Does what the state requires after any event.
    fn follow_up(&mut self) {
        if self.from_client == FromClient::Ended && self.relays_up() && self.up.is_empty() {
            self.relay_client_end();
        }
        if self.to_client == ToClient::Finishing && self.down.is_empty() {
            self.to_client = ToClient::Finished;
            tcp::finish(&self.client);
            self.deadlines.linger = Some(Instant::now() + self.limits.final_timeout);
        }
        if self.to_client == ToClient::Finished && self.from_client != FromClient::Open {
            self.over = true;
        }
        self.deadlines.follow(self.arbiter.timer(), &self.limits);
    }

    /// Relays the client's FIN. Holds it back for [`END_HELD`] if the leg may be kept without it.
    fn relay_client_end(&mut self) {
        match self.deadlines.client_end {
            EndHeld::Until(_) => return,
            EndHeld::NotYet if self.to_client == ToClient::Open && self.may_keep_leg_to(self.arbiter.owner()) => {
                self.deadlines.client_end = EndHeld::Until(Instant::now() + END_HELD);
                return;
            }
            EndHeld::NotYet | EndHeld::LongEnough => {}
        }
        self.from_client = FromClient::EndRelayed;
        if let Some(leg) = &self.leg {
            tcp::shut_down(leg);
        }
    }

    fn relays_up(&self) -> bool {
        self.arbiter.reads_client() && !self.leg_ended
    }
}

/// Runs also if the relay panics or its thread ends.
impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.table.remove(self.id);
        tracing::debug!(connection = %self.id, "connection ended");
    }
}

impl Deadlines {
    fn first(&self) -> Instant {
        let optional = [self.handshake, self.linger, self.end_held_until(), self.timer.map(|(_, at)| at)];
        optional.into_iter().flatten().fold(self.idle.min(self.lifetime), Instant::min)
    }

    fn end_held_until(&self) -> Option<Instant> {
        match self.client_end {
            EndHeld::Until(at) => Some(at),
            EndHeld::NotYet | EndHeld::LongEnough => None,
        }
    }

    fn touch(&mut self, idle_timeout: Duration) {
        self.idle = Instant::now() + idle_timeout;
    }

    /// Starts, keeps or stops the timer as the arbiter requires.
    fn follow(&mut self, timer: Option<ArbiterTimer>, limits: &Limits) {
        if self.timer.map(|(running, _)| running) == timer {
            return;
        }
        self.timer = timer.map(|timer| {
            let limit = match timer {
                ArbiterTimer::Move => limits.move_timeout,
                ArbiterTimer::Final => limits.final_timeout,
            };
            (timer, Instant::now() + limit)
        });
    }

    fn limit_reached(&self, now: Instant) -> Option<&'static str> {
        if self.handshake.is_some_and(|at| at <= now) {
            Some("handshake_timeout")
        } else if self.idle <= now {
            Some("idle_timeout")
        } else if self.lifetime <= now {
            Some("lifetime")
        } else {
            None
        }
    }
}

/// Waits until the prepared leg is readable. Without one it waits forever.
async fn readable(prepared: Option<&Prepared>) {
    match prepared {
        // The following read returns the error.
        Some(prepared) => drop(prepared.leg.readable().await),
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
