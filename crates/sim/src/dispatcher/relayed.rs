//! Drives one relay.

use std::collections::VecDeque;
use std::time::Duration;

use watari_handoff::ResetCause;
use watari_relay::{
    Action, ClientRead, Context, Input, LegRead, Relay, Snapshot, Start, Timeouts, UNDELIVERED_LEN_MAX,
};
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName};
use watari_wire::leg::{Kind, Preface};
use watari_wire::{Aborted, Decided, DispatcherToAgent, LegKept};

use super::Ids;
use super::legs::{Leg, Legs};
use crate::agent::{DISPATCHER, client_address, name, node};
use crate::message::Message;
use crate::network::{Network, NodeId, Reset};
use crate::sabotage::Sabotage;
use crate::socket::Socket;

const TIMEOUTS: Timeouts = Timeouts {
    handshake: Duration::from_secs(10),
    idle: Duration::from_mins(1),
    lifetime: Duration::from_hours(1),
    attempt: Duration::from_secs(2),
    end: Duration::from_secs(5),
};

/// The most bytes of one read.
const READ_LEN: usize = 16 * 1024;

/// The longest time to connect a leg, in milliseconds.
const CONNECT_MS_MAX: u64 = 10;

/// A relayed connection.
pub(crate) struct Relayed {
    network: Network,
    sabotage: Option<Sabotage>,
    relay: Relay,
    /// The number of the client.
    number: u64,
    client: Socket,
    /// `None` once the leg is kept for another connection.
    leg: Option<Socket>,
    /// The leg to a target, and when it is connected.
    connecting: Option<(Duration, Socket)>,
    prepared: Option<Socket>,
    /// When the search for another agent ends.
    finding: Option<Duration>,
    /// A preface, or its rest.
    head: Vec<u8>,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    /// All that was read from the client, as long as the relay wants it.
    copy: Option<Vec<u8>>,
    wakes: Duration,
}

/// What a relay can do, if the sockets permit it.
#[derive(Clone, Copy)]
enum Operation {
    ReadClient,
    WriteClient,
    ReadLeg,
    WriteLeg,
    CheckPrepared,
    CheckClient,
}

impl Relayed {
    /// Relays a client to `owner`.
    pub(super) fn start(
        (number, client): (u64, Socket),
        id: ConnectionId,
        (owner, bulk): (NodeId, Option<NodeName>),
        sabotage: Option<Sabotage>,
        legs: &mut Legs,
    ) -> Self {
        let Leg { socket, reused } = legs.take(owner);
        let start = Start { id, owner: name(owner), bulk, read_ahead: 0, reused_leg: reused };
        let network = legs.network.clone();
        let mut relayed = Self {
            relay: Relay::new(start, TIMEOUTS, network.instant()),
            network,
            sabotage,
            number,
            client,
            leg: Some(socket),
            connecting: None,
            prepared: None,
            finding: None,
            head: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            copy: reused.then(Vec::new),
            wakes: Duration::ZERO,
        };
        relayed.carry_out_all(legs);
        relayed
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.relay.id()
    }

    pub(super) fn owner(&self) -> &NodeName {
        self.relay.owner()
    }

    pub(super) fn is_over(&self) -> bool {
        self.relay.is_over()
    }

    pub(super) fn step(&mut self, legs: &mut Legs, ids: &mut Ids) {
        let mut operations = [
            Operation::ReadClient,
            Operation::WriteClient,
            Operation::ReadLeg,
            Operation::WriteLeg,
            Operation::CheckPrepared,
            Operation::CheckClient,
        ];
        loop {
            self.network.random(|random| random.shuffle(&mut operations));
            let mut has_progress = self.check_timers(legs, ids);
            for operation in operations {
                if self.relay.is_over() {
                    return;
                }
                if let Some(input) = self.try_once(operation) {
                    has_progress = true;
                    self.drive(input, legs);
                }
            }
            if !has_progress {
                break;
            }
        }
        self.schedule_wake();
    }

    fn check_timers(&mut self, legs: &mut Legs, ids: &mut Ids) -> bool {
        let now = self.network.now();
        if self.connecting.as_ref().is_some_and(|(at, _)| *at <= now) {
            self.prepared = self.connecting.take().map(|(_, leg)| leg);
            self.drive(Input::Connected { ok: true }, legs);
            return true;
        }
        if self.finding.take_if(|at| *at <= now).is_some() {
            self.end_search(legs, ids);
            return true;
        }
        if self.relay.timeout() <= self.network.instant() {
            self.drive(Input::Deadline, legs);
            return true;
        }
        false
    }

    fn schedule_wake(&mut self) {
        let now = self.network.now();
        let timeout = self.network.since_start(self.relay.timeout());
        let others = [self.finding, self.connecting.as_ref().map(|(at, _)| *at)];
        let first = others.into_iter().flatten().fold(timeout, Duration::min);
        if self.wakes <= now || first < self.wakes {
            self.wakes = first;
            self.network.wake_in(DISPATCHER, first.saturating_sub(now));
        }
    }

    /// Does one operation, if the relay wants it and it does not block.
    fn try_once(&mut self, operation: Operation) -> Option<Input> {
        let wanted = self.relay.interest();
        match operation {
            Operation::ReadClient => self.read_client(wanted.client_read?),
            Operation::WriteClient if wanted.client_write => match self.write_down() {
                Ok(0) => None,
                Ok(written) => Some(Input::WrittenToClient(written)),
                Err(Reset) => Some(Input::ClientReset),
            },
            Operation::ReadLeg => {
                let waits = self.sabotage == Some(Sabotage::MoveWaitsForClient);
                self.read_leg(wanted.leg_read.filter(|how| !waits || *how == LegRead::Pass)?)
            }
            Operation::WriteLeg if wanted.leg_write => self.write_leg(),
            Operation::CheckPrepared => {
                let _ended_or_misbehaves = self.prepared.as_ref()?.read(1)?;
                self.prepared = None;
                Some(Input::PreparedEnded)
            }
            Operation::CheckClient if wanted.client_reset => self.client.is_reset().then_some(Input::ClientReset),
            Operation::WriteClient | Operation::WriteLeg | Operation::CheckClient => None,
        }
    }

    fn read_client(&mut self, how: ClientRead) -> Option<Input> {
        let read = match self.client.read(READ_LEN)? {
            Ok(read) => read,
            Err(Reset) => return Some(Input::ClientReset),
        };
        match how {
            ClientRead::Pass if read.is_empty() => Some(Input::PassedUp { read: 0, written: 0 }),
            ClientRead::Pass => {
                // An error of the leg is found by the next read.
                let written = self.leg.as_ref()?.write(&read).unwrap_or(0);
                self.up.extend(&read[written..]);
                self.copy.iter_mut().for_each(|copy| copy.extend(&read));
                Some(Input::PassedUp { read: read.len(), written })
            }
            ClientRead::Hold => {
                self.up.extend(&read);
                self.copy.iter_mut().for_each(|copy| copy.extend(&read));
                Some(Input::HeldUp(read.len()))
            }
            ClientRead::Discard => Some(Input::Discarded(read.len())),
        }
    }

    fn read_leg(&mut self, how: LegRead) -> Option<Input> {
        let max = if let LegRead::Hold(max) = how { max.min(READ_LEN) } else { READ_LEN };
        let read = match self.leg.as_ref()?.read(max)? {
            Ok(read) => read,
            Err(Reset) => return Some(Input::LegReset),
        };
        self.down.extend(&read);
        let written = if how == LegRead::Pass { self.write_down().unwrap_or(0) } else { 0 };
        if self.down.len() > UNDELIVERED_LEN_MAX {
            self.network.violation(format!("{} bytes wait for a client", self.down.len()));
        }
        Some(Input::PassedDown { read: read.len(), written })
    }

    fn write_down(&mut self) -> Result<usize, Reset> {
        let written = self.client.write(self.down.make_contiguous())?;
        self.down.drain(..written);
        Ok(written)
    }

    fn write_leg(&mut self) -> Option<Input> {
        let before = self.head.len();
        let leg = self.leg.as_ref()?;
        let Ok(taken) = leg.write(&self.head) else { return Some(Input::LegReset) };
        self.head.drain(..taken);
        let preface_left = !self.head.is_empty();
        let written = if preface_left { 0 } else { leg.write(self.up.make_contiguous()).unwrap_or(0) };
        self.up.drain(..written);
        (written > 0 || before > self.head.len()).then_some(Input::WrittenToLeg { written, preface_left })
    }

    pub(super) fn drive(&mut self, input: Input, legs: &mut Legs) {
        self.handle(input, legs);
        self.carry_out_all(legs);
    }

    fn handle(&mut self, input: Input, legs: &Legs) {
        self.relay.handle(input, Context { now: self.network.instant(), dispatcher: legs });
    }

    fn carry_out_all(&mut self, legs: &mut Legs) {
        while let Some(action) = self.relay.poll_action() {
            self.network.note(|| format!("relay {}: {action:?}", self.relay.id()));
            self.carry_out(action, legs);
        }
        let waiting = (self.up.len() as u64, self.down.len() as u64);
        if !self.relay.is_over() && self.sabotage.is_none() && waiting != self.relay.waiting() {
            self.network.violation(format!("{waiting:?} bytes wait, and the relay counts {:?}", self.relay.waiting()));
        }
    }

    fn carry_out(&mut self, action: Action, legs: &mut Legs) {
        let connection = self.relay.id();
        match action {
            Action::OpenLeg { kind, epoch } => self.open_leg(kind, epoch, legs),
            Action::PrepareLeg { target } => {
                let Leg { socket, reused } = legs.take(node(&target));
                let delay = self.network.random(|random| random.millis(0..CONNECT_MS_MAX));
                let delay = if reused { Duration::ZERO } else { delay };
                self.connecting = Some((self.network.now() + delay, socket));
            }
            Action::Commit { source, epoch, preface, kept, .. } => {
                let is_undelivered = !self.down.is_empty();
                self.network.count(|figures| {
                    figures.moves += 1;
                    figures.undelivered += u64::from(is_undelivered);
                });
                self.break_streams();
                legs.established.insert(connection);
                let prepared = self.prepared.take().expect("a relay commits only once the leg is ready");
                let left = self.leg.replace(prepared);
                self.open_leg(preface, epoch, legs);
                if let (Some(left), Some(kept)) = (left, kept) {
                    self.keep_leg(left, node(&source), kept, legs);
                } else {
                    let committed = DispatcherToAgent::Committed(Decided { connection, epoch });
                    self.network.send(DISPATCHER, node(&source), &Message::ToAgent(committed));
                }
            }
            Action::Abort { source, target, epoch, reason } => {
                self.network.count(|figures| figures.aborted += 1);
                let has_room = self.down.len() < UNDELIVERED_LEN_MAX;
                if reason == AbortReason::Timeout && self.network.is_calm() && has_room {
                    self.network.violation(format!("a move of {connection} was not decided in time"));
                }
                self.connecting = None;
                self.prepared = None;
                for agent in [source, target] {
                    let aborted = DispatcherToAgent::Aborted(Aborted { connection, epoch, reason });
                    self.network.send(DISPATCHER, node(&agent), &Message::ToAgent(aborted));
                }
            }
            Action::Send { to, message } | Action::SendSoon { to, message } => {
                self.network.send(DISPATCHER, node(&to), &Message::ToAgent(message));
            }
            Action::KeepLeg { agent, kept } => {
                if let Some(leg) = self.leg.take() {
                    self.keep_leg(leg, node(&agent), kept, legs);
                }
            }
            Action::DropCopy => self.copy = None,
            Action::BeginAgain => {
                legs.forget(node(self.relay.owner()));
                self.up = self.copy.take().unwrap_or_default().into();
                self.head = Vec::new();
                let delay = self.network.random(|random| random.millis(0..CONNECT_MS_MAX));
                self.finding = Some(self.network.now() + delay);
            }
            Action::ShutDownLeg => self.leg.iter().for_each(Socket::shut_down),
            Action::FinishClient => {
                self.client.fin_on_close();
                self.client.shut_down();
            }
            Action::Reset(ResetCause::OwnerLost) if self.sabotage == Some(Sabotage::LegEndIsCleanEnd) => {
                self.client.fin_on_close();
            }
            Action::Reset(_) => {
                self.leg.iter_mut().chain(&mut self.prepared).for_each(Socket::reset_on_close);
            }
            // Its reset follows. Where no node fails, no client may be cut.
            Action::LimitReached(_) => {}
        }
    }

    fn keep_leg(&mut self, leg: Socket, agent: NodeId, kept: LegKept, legs: &mut Legs) {
        self.network.send(DISPATCHER, agent, &Message::ToAgent(DispatcherToAgent::LegKept(kept)));
        legs.keep(agent, leg);
    }

    /// Continues in another process: the relay travels as bytes, the sockets and what waits beside it.
    pub(super) fn pass_on(&mut self, legs: &mut Legs) {
        if self.connecting.take().is_some() {
            self.drive(Input::Connected { ok: false }, legs);
        }
        if self.relay.is_over() {
            return;
        }
        let now = self.network.instant();
        let Some(snapshot) = self.relay.snapshot(now) else {
            return self.network.violation(format!("connection {} cannot pass on", self.relay.id()));
        };
        let encoded = postcard::to_stdvec(&snapshot).expect("a snapshot can be encoded");
        let decoded: Snapshot = postcard::from_bytes(&encoded).expect("it is what was encoded");
        self.relay = Relay::restore(decoded, now);
        self.network.count(|figures| figures.passed_on += 1);
        if self.sabotage == Some(Sabotage::UpgradeLosesBytes) {
            self.down.iter_mut().for_each(|byte| *byte = 0);
        }
    }

    /// Another agent takes the connection from its start, on a new leg.
    fn end_search(&mut self, legs: &mut Legs, ids: &mut Ids) {
        let gone = node(self.relay.owner());
        let (Some(owner), Some(bulk)) = (legs.pick(Some(gone)), legs.pick(None)) else {
            return self.drive(Input::NotFound, legs);
        };
        let (id, bulk) = (ids.next(), Some(name(bulk)));
        if let Some(mut left) = self.leg.replace(legs.connect(owner).socket) {
            left.reset_on_close();
        }
        self.network.count(|figures| figures.begun_again += 1);
        self.drive(Input::Found { id, owner: name(owner), bulk }, legs);
    }

    fn open_leg(&mut self, kind: Kind, epoch: Epoch, legs: &mut Legs) {
        let (connection, address) = (self.relay.id(), client_address(self.number));
        let preface = Preface { kind, connection, epoch, client: address, server: address };
        match legs.sign(node(self.relay.owner()), &preface) {
            Some(preface) => {
                self.head = preface;
                if let Some(input) = self.write_leg() {
                    self.handle(input, legs);
                }
            }
            None => self.handle(Input::LegReset, legs),
        }
    }

    /// The broken dispatchers: bytes that wait do not outlive the leg.
    fn break_streams(&mut self) {
        match self.sabotage {
            Some(Sabotage::UndeliveredDropped) => self.down.iter_mut().for_each(|byte| *byte = 0),
            Some(Sabotage::ClientBytesDropped) => self.up.iter_mut().for_each(|byte| *byte = 0),
            _ => {}
        }
    }
}
