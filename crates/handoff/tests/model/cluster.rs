//! The model's state: one connection, its dispatcher, the agents, the messages in transit, and an observer.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use watari_handoff::{Arbiter, Source, Target};
use watari_values::{AbortReason, Epoch, NodeName};

use super::scenario::{Budget, Scenario};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// The dispatcher's state of the connection. `None` once it is over there, or the dispatcher has lost it.
    pub dispatcher: Option<Dispatcher>,
    pub agents: Vec<Agent>,
    /// A multiset, kept sorted.
    pub network: Vec<Letter>,
    pub client: Client,
    pub observer: Observer,
    pub budget: Budget,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dispatcher {
    pub arbiter: Arbiter,
    /// The leg to the owner.
    pub leg: Leg,
    /// The attempt for which the dispatcher connects a leg.
    pub preparing: Option<Epoch>,
}

/// A leg keeps order. Bytes are numbers in their stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Leg {
    pub agent: usize,
    /// The epoch in its preface.
    pub tenure: Epoch,
    /// In transit to the agent: `down.0..down.1`, and FIN after that.
    pub down: (u64, u64),
    pub down_fin: bool,
    /// In transit to the dispatcher.
    pub up: (u64, u64),
    /// The agent has not read the preface yet. The preface has the start offsets of both streams.
    pub preface: bool,
    pub closed: Option<Closed>,
    /// The dispatcher has noticed that the leg is closed.
    pub seen_closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Closed {
    Fin,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Agent {
    /// The connection, if this agent serves it or has fenced it.
    pub served: Option<Served>,
    pub held: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    pub source: Source,
    pub tenure: Epoch,
    pub payload: Payload,
    /// Bytes read of the client's stream. Those after `payload.opened` are unopened.
    pub read: u64,
    /// Sealed bytes that were written to the kernel.
    pub written: u64,
    /// The offset up to which it reads while fenced.
    pub read_to: u64,
    /// It has ended its stream and announced that.
    pub finished: bool,
}

/// The state that is shipped: the end of the opened bytes, and of the sealed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Payload {
    pub opened: u64,
    pub sealed: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    pub target: Target,
    pub payload: Payload,
    pub rx_offset: u64,
    pub tail_offset: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Client {
    /// Bytes that the client has sent, and that the dispatcher has read and relayed to a leg. Bytes in between count as
    /// not yet sent.
    pub sent: u64,
    pub fin: bool,
    pub received: u64,
    pub end: Option<End>,
}

/// The end of the connection, as the client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Clean,
    Reset,
    ResetByClient,
}

/// The records of an omniscient observer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Observer {
    /// The first unused nonce. One record is one byte.
    pub next_nonce: u64,
    /// The first byte of the client's stream that was never opened.
    pub next_opened: u64,
    /// The last refusal that the dispatcher received.
    pub refused: Option<(usize, Epoch)>,
    pub wrongs: BTreeSet<Wrong>,
}

/// Violations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Wrong {
    /// A nonce was used twice, or skipped.
    Nonce,
    /// A byte from the client, or its FIN, was lost, repeated or misplaced.
    RxOrder,
    /// A byte to the client was lost, repeated or misplaced.
    TxOrder,
    /// An incomplete stream ended cleanly.
    Truncation,
    /// A target was committed although the dispatcher had received its refusal.
    Refuser,
    /// The client was reset although the owner's leg was intact.
    NeedlessReset,
    /// A message classified as dead had an effect.
    DeadLetter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Letter {
    ToDispatcher { from: usize, said: Said },
    ToAgent { to: usize, message: AgentMessage },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Said {
    Propose { epoch: Epoch, target: usize, rx_offset: u64, tail_offset: u64 },
    Held { epoch: Epoch, rx_offset: u64, tail_offset: u64 },
    Refused { epoch: Epoch, reason: AbortReason },
    Cancel { epoch: Epoch, reason: AbortReason },
    Final { epoch: Epoch, tx_offset: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AgentMessage {
    Freeze { epoch: Epoch, rx_offset: u64 },
    Committed(Epoch),
    Aborted(Epoch, AbortReason),
    Gone,
    Ship { epoch: Epoch, payload: Payload, rx_offset: u64, tail_offset: u64 },
    Rest { epoch: Epoch, from_offset: u64, to_offset: u64 },
}

static NAMES: LazyLock<[NodeName; 3]> =
    LazyLock::new(|| ["a", "b", "c"].map(|name| NodeName::new(name).expect("a letter is a name")));

pub fn name(agent: usize) -> NodeName {
    NAMES[agent].clone()
}

pub fn index(name: &NodeName) -> usize {
    NAMES.iter().position(|other| other == name).expect("every name is made by `name`")
}

impl Cluster {
    /// The state after the first agent has done the handshake.
    pub fn new(scenario: &Scenario) -> Self {
        let nothing = Payload { opened: 0, sealed: 0 };
        let mut agents = vec![Agent::default(); scenario.agents];
        agents[0].served = Some(Served::new(Epoch(0), nothing, 0, 0, scenario));
        let dispatcher =
            Dispatcher { arbiter: Arbiter::new(name(0)), leg: Leg::new(0, Epoch(0), 0, 0), preparing: None };
        Self {
            dispatcher: Some(dispatcher),
            agents,
            network: Vec::new(),
            client: Client::default(),
            observer: Observer::default(),
            budget: scenario.budget,
        }
    }

    /// The leg at which this agent serves or has fenced the connection, while it is open at both ends.
    pub fn leg_of(&self, agent: usize) -> Option<&Leg> {
        self.leg_kept_for(agent).filter(|leg| !leg.preface && leg.closed.is_none())
    }

    /// The same, while the dispatcher has not closed it.
    pub fn leg_kept_for(&self, agent: usize) -> Option<&Leg> {
        let tenure = self.agents[agent].served.as_ref()?.tenure;
        let leg = &self.dispatcher.as_ref()?.leg;
        (leg.agent == agent && leg.tenure == tenure).then_some(leg)
    }

    /// Whether a message between the agent and the dispatcher is in transit.
    pub fn is_talking_with_dispatcher(&self, agent: usize) -> bool {
        self.network.iter().any(|letter| match letter {
            Letter::ToAgent { message: AgentMessage::Ship { .. } | AgentMessage::Rest { .. }, .. } => false,
            Letter::ToAgent { to: party, .. } | Letter::ToDispatcher { from: party, .. } => *party == agent,
        })
    }

    /// Whether this message can have no effect any more, now or later, because its receiver is past the attempt. That
    /// this is true is a separate property. It is checked in scenarios that deliver dead messages.
    pub fn is_dead(&self, letter: &Letter) -> bool {
        let Letter::ToAgent { to, message } = letter else { return false };
        let Agent { served, held } = &self.agents[*to];
        let is_fenced = |in_epoch: Epoch| {
            served.as_ref().is_some_and(|served| !served.source.is_serving() && served.source.epoch() == in_epoch)
        };
        let may_hold = |epoch: Epoch| {
            held.as_ref().is_some_and(|held| held.target.epoch() == epoch) || self.is_shipping_to(*to, Some(epoch))
        };
        match message {
            AgentMessage::Freeze { epoch, .. } | AgentMessage::Committed(epoch) => !is_fenced(*epoch),
            AgentMessage::Aborted(epoch, _) => !is_fenced(*epoch) && !may_hold(*epoch),
            AgentMessage::Rest { epoch, .. } => !may_hold(*epoch),
            AgentMessage::Gone => served.is_none() && held.is_none() && !self.is_shipping_to(*to, None),
            AgentMessage::Ship { .. } => false,
        }
    }

    /// Whether a `Ship` is in transit to this agent. `None`: of any epoch.
    fn is_shipping_to(&self, agent: usize, wanted: Option<Epoch>) -> bool {
        self.network.iter().any(|letter| match letter {
            Letter::ToAgent { to, message: AgentMessage::Ship { epoch, .. } } => {
                *to == agent && wanted.is_none_or(|wanted| wanted == *epoch)
            }
            _ => false,
        })
    }
}

impl Leg {
    pub fn new(agent: usize, tenure: Epoch, rx_offset: u64, tail_offset: u64) -> Self {
        Self {
            agent,
            tenure,
            down: (rx_offset, rx_offset),
            down_fin: false,
            up: (tail_offset, tail_offset),
            preface: tenure > Epoch(0),
            closed: None,
            seen_closed: false,
        }
    }
}

impl Observer {
    pub fn note_if(&mut self, happened: bool, wrong: Wrong) {
        if happened {
            self.wrongs.insert(wrong);
        }
    }
}

impl Agent {
    pub fn may_seal(&self) -> bool {
        self.served.as_ref().is_some_and(Served::is_serving)
    }

    pub fn is_empty(&self) -> bool {
        self.served.is_none() && self.held.is_none()
    }
}

impl Served {
    pub fn new(tenure: Epoch, payload: Payload, read: u64, written: u64, scenario: &Scenario) -> Self {
        let source = Source::new(tenure, scenario.rx_len);
        Self { source, tenure, payload, read, written, read_to: read, finished: false }
    }

    pub fn is_serving(&self) -> bool {
        self.source.is_serving() && !self.finished
    }
}
