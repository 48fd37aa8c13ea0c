//! The dispatcher: a [`Relay`] for each client. The glue mirrors `crates/dispatcher`: `relay.rs`, `direction.rs` and
//! `messages.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use watari_handoff::{ArbiterEvent, Offer, ResetCause};
use watari_relay::{
    Action, ClientRead, Context, DispatcherState, Input, LegRead, Relay, Start, Timeouts, UNDELIVERED_LEN_MAX,
};
use watari_values::{ConnectionId, Epoch, NodeName};
use watari_wire::leg::{Kind, LegSigner, Preface};
use watari_wire::{Aborted, AgentToDispatcher, Decided, DispatcherToAgent, Leave, LegKey};

use crate::agent::{DISPATCHER, name, node};
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

pub(crate) struct Dispatcher {
    network: Network,
    sabotage: Option<Sabotage>,
    /// Which start of the process this is.
    boot: u64,
    signers: BTreeMap<NodeId, LegSigner>,
    relayed: BTreeMap<u64, Relayed>,
    moves: u64,
}

/// The dispatcher keeps no legs for other connections. Every agent announces its handshakes.
struct Facts;

impl DispatcherState for Facts {
    fn keeps_legs_to(&self, _agent: &NodeName) -> bool {
        false
    }

    fn is_established(&self, _connection: ConnectionId) -> bool {
        true
    }
}

/// A relayed connection.
struct Relayed {
    network: Network,
    sabotage: Option<Sabotage>,
    relay: Relay,
    client: Socket,
    leg: Socket,
    /// The leg to a target, and when it is connected.
    connecting: Option<(Duration, Socket)>,
    prepared: Option<Socket>,
    /// A preface, or its rest.
    head: Vec<u8>,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    wakes: Duration,
    commits: u64,
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

impl Dispatcher {
    pub(crate) fn new(network: Network, boot: u64, sabotage: Option<Sabotage>) -> Self {
        Self { network, sabotage, boot, signers: BTreeMap::new(), relayed: BTreeMap::new(), moves: 0 }
    }

    /// The number of committed moves.
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.relayed.is_empty()
    }

    pub(crate) fn set_key(&mut self, agent: NodeId, key: &LegKey) {
        self.signers.insert(agent, LegSigner::new(name(DISPATCHER), &name(agent), key));
    }

    /// Relays a client to one of `agents`. The connection may move to another right after the handshake.
    pub(crate) fn accept(&mut self, client: u64, socket: Socket, agents: &[NodeId]) {
        let pick = |network: &Network| agents[network.random(|random| random.below(agents.len() as u64)) as usize];
        let owner = pick(&self.network);
        let bulk = self.network.random(|random| random.one_in(2)).then(|| name(pick(&self.network)));
        let start = Start {
            id: ConnectionId { boot: self.boot, number: client },
            owner: name(owner),
            bulk,
            read_ahead: 0,
            reused_leg: false,
        };
        let mut leg = self.network.connect(DISPATCHER, owner, client);
        leg.fin_on_close();
        let mut relayed = Relayed {
            relay: Relay::new(start, TIMEOUTS, self.network.instant()),
            network: self.network.clone(),
            sabotage: self.sabotage,
            client: socket,
            leg,
            connecting: None,
            prepared: None,
            head: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            wakes: Duration::ZERO,
            commits: 0,
        };
        relayed.carry_out_all(&self.signers);
        self.relayed.insert(client, relayed);
    }

    /// Asks the owner of some connection to give it to some agent.
    pub(crate) fn order_move(&mut self, agents: &[NodeId]) {
        let random = |end: usize| self.network.random(|random| random.below(end as u64)) as usize;
        let Some(relayed) = self.relayed.values().nth(random(self.relayed.len())) else { return };
        let owner = relayed.relay.owner();
        let target = name(agents[random(agents.len())]);
        if target != *owner {
            let leave = Leave { connection: relayed.relay.id(), target: Some(target), or_end: false };
            self.network.send(DISPATCHER, node(owner), &Message::ToAgent(DispatcherToAgent::Leave(leave)));
        }
    }

    pub(crate) fn on_message(&mut self, from: NodeId, message: &AgentToDispatcher) {
        let from_name = name(from);
        let (connection, event, is_asked) = match message.clone() {
            AgentToDispatcher::Propose(m) => {
                let (epoch, rx_offset, tail_offset, digest) = (m.epoch, m.rx_offset, m.tail_offset, m.digest);
                let offer = Offer { target: m.target, epoch, rx_offset, tail_offset, digest };
                (m.connection, ArbiterEvent::Proposed { from: from_name, offer }, true)
            }
            AgentToDispatcher::Held(m) => {
                let (epoch, rx_offset, tail_offset, digest) = (m.epoch, m.rx_offset, m.tail_offset, m.digest);
                let offer = Offer { target: from_name, epoch, rx_offset, tail_offset, digest };
                (m.connection, ArbiterEvent::Held(offer), true)
            }
            AgentToDispatcher::Refused(m) => {
                (m.connection, ArbiterEvent::Refused { from: from_name, epoch: m.epoch, reason: m.reason }, false)
            }
            AgentToDispatcher::Cancel(m) => {
                (m.connection, ArbiterEvent::Cancelled { from: from_name, epoch: m.epoch, reason: m.reason }, false)
            }
            AgentToDispatcher::Final(m) => {
                let (epoch, tx_offset) = (m.epoch, m.tx_offset);
                (m.connection, ArbiterEvent::Final { from: from_name, epoch, tx_offset }, false)
            }
            _ => return,
        };
        let relayed = self.relayed.get_mut(&connection.number).filter(|relayed| relayed.relay.id() == connection);
        match relayed {
            Some(relayed) => {
                relayed.drive(Input::Agent(Box::new(event.clone())), &self.signers);
                if let (Some(Sabotage::CommitWithoutHeld), ArbiterEvent::Proposed { offer, .. }) =
                    (self.sabotage, event)
                {
                    relayed.drive(Input::Agent(Box::new(ArbiterEvent::Held(offer))), &self.signers);
                }
            }
            None if is_asked => {
                let gone = Message::ToAgent(DispatcherToAgent::Gone(connection));
                self.network.send(DISPATCHER, from, &gone);
            }
            None => {}
        }
    }

    /// Continues all connections as far as possible.
    pub(crate) fn step(&mut self) {
        for relayed in self.relayed.values_mut() {
            relayed.step(&self.signers);
        }
        let moves = &mut self.moves;
        self.relayed.retain(|_, relayed| {
            *moves += std::mem::take(&mut relayed.commits);
            !relayed.relay.is_over()
        });
    }
}

impl Relayed {
    fn step(&mut self, signers: &BTreeMap<NodeId, LegSigner>) {
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
            let mut has_progress = self.check_timers(signers);
            for operation in operations {
                if self.relay.is_over() {
                    return;
                }
                if let Some(input) = self.try_once(operation) {
                    has_progress = true;
                    self.drive(input, signers);
                }
            }
            if !has_progress {
                break;
            }
        }
        self.schedule_wake();
    }

    fn check_timers(&mut self, signers: &BTreeMap<NodeId, LegSigner>) -> bool {
        let now = self.network.now();
        if self.connecting.as_ref().is_some_and(|(at, _)| *at <= now) {
            self.prepared = self.connecting.take().map(|(_, leg)| leg);
            self.drive(Input::Connected { ok: true }, signers);
            return true;
        }
        if self.relay.timeout() <= self.network.instant() {
            self.drive(Input::Deadline, signers);
            return true;
        }
        false
    }

    fn schedule_wake(&mut self) {
        let now = self.network.now();
        let timeout = self.network.since_start(self.relay.timeout());
        let first = self.connecting.as_ref().map_or(timeout, |(at, _)| timeout.min(*at));
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
            Operation::ReadLeg => self.read_leg(wanted.leg_read?),
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
                let written = self.leg.write(&read).unwrap_or(0);
                self.up.extend(&read[written..]);
                Some(Input::PassedUp { read: read.len(), written })
            }
            ClientRead::Hold => {
                self.up.extend(&read);
                Some(Input::HeldUp(read.len()))
            }
            ClientRead::Discard => Some(Input::Discarded(read.len())),
        }
    }

    fn read_leg(&mut self, how: LegRead) -> Option<Input> {
        let max = if let LegRead::Hold(max) = how { max.min(READ_LEN) } else { READ_LEN };
        let read = match self.leg.read(max)? {
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
        let Ok(taken) = self.leg.write(&self.head) else { return Some(Input::LegReset) };
        self.head.drain(..taken);
        let preface_left = !self.head.is_empty();
        let written = if preface_left { 0 } else { self.leg.write(self.up.make_contiguous()).unwrap_or(0) };
        self.up.drain(..written);
        (written > 0 || before > self.head.len()).then_some(Input::WrittenToLeg { written, preface_left })
    }

    fn drive(&mut self, input: Input, signers: &BTreeMap<NodeId, LegSigner>) {
        self.handle(input);
        self.carry_out_all(signers);
    }

    fn handle(&mut self, input: Input) {
        self.relay.handle(input, Context { now: self.network.instant(), dispatcher: &Facts });
    }

    fn carry_out_all(&mut self, signers: &BTreeMap<NodeId, LegSigner>) {
        while let Some(action) = self.relay.poll_action() {
            self.network.note(|| format!("relay {}: {action:?}", self.relay.id()));
            self.carry_out(action, signers);
        }
        let waiting = (self.up.len() as u64, self.down.len() as u64);
        if !self.relay.is_over() && self.sabotage.is_none() && waiting != self.relay.waiting() {
            self.network.violation(format!("{waiting:?} bytes wait, and the relay counts {:?}", self.relay.waiting()));
        }
    }

    fn carry_out(&mut self, action: Action, signers: &BTreeMap<NodeId, LegSigner>) {
        let connection = self.relay.id();
        match action {
            Action::OpenLeg { kind, epoch } => self.open_leg(kind, epoch, signers),
            Action::PrepareLeg { target } => {
                let mut leg = self.network.connect(DISPATCHER, node(&target), connection.number);
                leg.fin_on_close();
                let delay = self.network.random(|random| random.millis(0..CONNECT_MS_MAX));
                self.connecting = Some((self.network.now() + delay, leg));
            }
            Action::Commit { source, epoch, preface, .. } => {
                self.commits += 1;
                self.break_streams();
                self.leg = self.prepared.take().expect("a relay commits only once the leg is ready");
                self.open_leg(preface, epoch, signers);
                let committed = DispatcherToAgent::Committed(Decided { connection, epoch });
                self.network.send(DISPATCHER, node(&source), &Message::ToAgent(committed));
            }
            Action::Abort { source, target, epoch, reason } => {
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
            Action::ShutDownLeg => self.leg.shut_down(),
            Action::FinishClient => {
                self.client.fin_on_close();
                self.client.shut_down();
            }
            Action::Reset(ResetCause::OwnerLost) if self.sabotage == Some(Sabotage::LegEndIsCleanEnd) => {
                self.client.fin_on_close();
            }
            Action::Reset(_) => {
                self.leg.reset_on_close();
                if let Some(prepared) = &mut self.prepared {
                    prepared.reset_on_close();
                }
            }
            Action::LimitReached(limit) => self.network.violation(format!("{connection} has reached the {limit}")),
            Action::DropCopy | Action::BeginAgain | Action::KeepLeg { .. } => {
                self.network.violation(format!("{connection}: legs are not used again here"));
            }
        }
    }

    fn open_leg(&mut self, kind: Kind, epoch: Epoch, signers: &BTreeMap<NodeId, LegSigner>) {
        let address = ([192, 0, 2, 1], 443).into();
        let preface = Preface { kind, connection: self.relay.id(), epoch, client: address, server: address };
        match signers.get(&node(self.relay.owner())) {
            Some(signer) => {
                self.head = signer.sign(&preface);
                if let Some(input) = self.write_leg() {
                    self.handle(input);
                }
            }
            None => self.handle(Input::LegReset),
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
