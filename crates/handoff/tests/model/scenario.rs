//! What a run of the model has, and how often what may go wrong.

/// How long the streams are, who takes part, what may happen.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Agents; the connection is set up with the first. A target is any other than the source.
    pub agents: usize,
    /// Bytes of the client's stream, and of the stream to the client.
    pub rx_len: u64,
    pub tx_len: u64,
    /// The client sends FIN after its stream, and the stream to the client ends only after that.
    pub client_fin: bool,
    /// Timers that end something for good may fire, at any time and any number of times: the wait for a `Final`, fences
    /// and holds that expire.
    pub impatient: bool,
    /// Letters that can have no effect any more are thrown away instead of being kept and delivered: see
    /// [`Cluster::is_dead`](super::cluster::Cluster::is_dead).
    pub drops_dead_letters: bool,
    pub budget: Budget,
    pub sabotage: Option<Sabotage>,
}

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Moves that are proposed.
    pub proposals: u8,
    /// Letters that are lost. A letter that is never delivered is as good as lost, so this adds nothing to safety; it
    /// matters to progress, where every letter can be delivered.
    pub losses: u8,
    /// Letters that are delivered and stay under way.
    pub repeats: u8,
    /// Questions asked again although the first is still under way.
    pub retries: u8,
    /// Nodes that lose all they have; the dispatcher is one of them.
    pub restarts: u8,
    pub client_resets: u8,
    pub leg_failures: u8,
}

/// One way to get the protocol wrong, to see that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// A source that waited long enough takes the connection back by itself.
    SourceThawsByTimeout,
    /// A source takes a decision for that of its present attempt, whatever epoch it names.
    SourceIgnoresEpochs,
    /// An agent that ends its stream says so once, and takes it for heard.
    AgentSaysFinalOnce,
    /// A target seals as soon as it holds the connection.
    TargetSealsWhenHeld,
    /// A dispatcher that suspects the source commits without knowing that the target holds anything.
    DispatcherCommitsOnSuspicion,
    /// A dispatcher commits before it has relayed the source's stream up to the tail.
    DispatcherIgnoresTail,
    /// A dispatcher that commits forgets a byte it had read of the client and not yet relayed.
    DispatcherForgetsWhatItRead,
    /// A dispatcher takes the FIN of a leg for the end of the stream.
    DispatcherTrustsFin,
    /// A late copy of a proposal is answered with `Gone` instead of `Committed` and its epoch.
    DispatcherSaysGoneToLateProposal,
    /// The client's FIN is not replayed on the next leg.
    DispatcherForgetsClientFin,
}

impl Scenario {
    /// One move, and nothing goes wrong.
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

    /// Whether nothing may happen that can cost a connection. Lost, late and repeated letters, legs that fail and moves
    /// that time out cannot.
    pub fn is_harmless(&self) -> bool {
        !self.impatient && self.budget.restarts == 0 && self.budget.client_resets == 0
    }

    pub fn is_sabotaged(&self, by: Sabotage) -> bool {
        self.sabotage == Some(by)
    }
}
