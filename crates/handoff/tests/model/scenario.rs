//! The parameters of a run of the model, and the numbers of faults.

/// The lengths of the streams, the agents, and the possible faults.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The number of agents. The first one does the handshake. Any agent except the source can be a target.
    pub agents: usize,
    /// Bytes of the client's stream.
    pub rx_len: u64,
    pub tx_len: u64,
    /// The client sends FIN after its stream. The stream to the client ends only after that.
    pub client_fin: bool,
    /// Timers that end something for good may fire at any time and any number of times: the wait for a `Final`, and the
    /// expiry of fences and holds.
    pub impatient: bool,
    /// Messages that can have no effect any more are dropped instead of delivered: see
    /// [`Cluster::is_dead`](super::cluster::Cluster::is_dead).
    pub drops_dead_letters: bool,
    pub budget: Budget,
    pub sabotage: Option<Sabotage>,
}

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Proposed moves.
    pub proposals: u8,
    /// Lost messages. A message that is never delivered counts as lost anyway, so this adds nothing to safety. It
    /// matters to progress, where every message can be delivered.
    pub losses: u8,
    /// Messages that are delivered and stay in transit.
    pub repeats: u8,
    /// Requests that are repeated although the first is still in transit.
    pub retries: u8,
    /// Nodes that lose all their state. The dispatcher is one of them.
    pub restarts: u8,
    pub client_resets: u8,
    pub leg_failures: u8,
}

/// One error in the protocol, to check that the model detects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// After a timeout, a source takes the connection back by itself.
    SourceThawsByTimeout,
    /// A source applies any decision to its present attempt, for any epoch in the message.
    SourceIgnoresEpochs,
    /// An agent announces the end of its stream once, without repeats.
    AgentSaysFinalOnce,
    /// A target seals as soon as it holds the connection.
    TargetSealsWhenHeld,
    /// A dispatcher that suspects the source commits without a report that the target holds the connection.
    DispatcherCommitsOnSuspicion,
    /// A dispatcher commits before it has relayed the source's stream up to the tail.
    DispatcherIgnoresTail,
    /// A dispatcher that commits loses a byte that it had read from the client and not yet relayed.
    DispatcherForgetsWhatItRead,
    /// A dispatcher takes the FIN of a leg for the end of the stream.
    DispatcherTrustsFin,
    /// A dispatcher answers a late copy of a proposal with `Gone` instead of `Committed` and its epoch.
    DispatcherSaysGoneToLateProposal,
    /// A dispatcher does not replay the client's FIN on the next leg.
    DispatcherForgetsClientFin,
}

impl Scenario {
    /// One move without faults.
    pub const CALM: Self = Self {
        agents: 2,
        rx_len: 1,
        tx_len: 1,
        client_fin: false,
        impatient: false,
        drops_dead_letters: false,
        budget: Budget {
            proposals: 1,
            losses: 0,
            repeats: 0,
            retries: 0,
            restarts: 0,
            client_resets: 0,
            leg_failures: 0,
        },
        sabotage: None,
    };

    /// Whether no event can cost a connection. Lost, late and repeated messages, failed legs and timeouts of moves
    /// cannot.
    pub fn is_harmless(&self) -> bool {
        !self.impatient && self.budget.restarts == 0 && self.budget.client_resets == 0
    }

    pub fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.sabotage == Some(by)
    }
}
