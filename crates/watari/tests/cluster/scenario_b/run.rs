//! A cluster in a mode, clients that come again, and the counts of their handshakes.

use std::fmt;
use std::time::Instant;

use crate::clients::visitors::rustls::FILE_LEN;
use crate::clients::visitors::{Engine, Tally, Visits};
use crate::harness::{Cluster, Content, Plan};

/// How sessions are shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Private,
    Tickets,
    Push,
    Owner,
    /// With the lines of `[agent.sessions]` about the server.
    Redis(&'static str),
}

impl Mode {
    /// A cluster with this mode: handshakes go to the agents strictly in turn, and connections stay there.
    pub(super) fn plan(self, agents: &'static [&'static str]) -> Plan {
        let sessions = match self {
            Self::Private => "mode = \"private\"",
            Self::Tickets => "mode = \"tickets\"",
            Self::Push => "mode = \"push\"",
            Self::Owner => "mode = \"owner\"",
            Self::Redis(lines) => lines,
        };
        let content = Content::Files(&[FILE_LEN]);
        let dispatcher = "handshake = \"round_robin\"\nbulk = \"stay\"";
        Plan { agents: Some(agents), content, dispatcher, sessions, ..Plan::default() }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Private => "private",
            Self::Tickets => "tickets",
            Self::Push => "push",
            Self::Owner => "owner",
            Self::Redis(_) => "redis",
        }
    }
}

/// Sessions of one kind, by one kind of client.
pub(super) struct Run<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) mode: Mode,
    pub(super) engine: Engine,
    pub(super) clients: u32,
    pub(super) visits: Visits,
}

impl Run<'_> {
    /// Makes all visits. Clients and agents must report the same.
    pub(super) fn go(&self) -> Counted {
        let (begin, before) = (Instant::now(), Counted::now(self.cluster));
        let seen = self.engine.visit_in_parallel(self.cluster, self.clients, self.visits);
        let (elapsed, counted) = (begin.elapsed(), Counted::now(self.cluster).since(before));
        println!("{self} | {counted} | {:.1} s", elapsed.as_secs_f64());
        assert_eq!(seen, counted.tally, "clients and agents saw different handshakes");
        counted
    }

    pub(super) fn check_that_nothing_is_needless(&self, counted: Counted) {
        let Visits { sessions, resumptions, .. } = self.visits;
        assert_eq!(counted.tally, Tally { full: sessions, resumed: sessions * resumptions });
        assert_eq!(counted.missed, 0);
        // Two clients in step may each have one of two agents for itself.
        if self.cluster.agents().count() > self.clients as usize {
            assert!(counted.here <= counted.elsewhere + counted.pulled, "agents resumed mostly what was their own");
        }
    }
}

impl fmt::Display for Run<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (engine, kind) = (format!("{:?}", self.engine), self.visits.kind.as_str());
        let (mode, agents) = (self.mode.as_str(), self.cluster.agents().count());
        write!(f, "{engine:7} | {kind:7} | {mode:7} | {agents} agents")
    }
}

/// The counts of all agents.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted {
    pub(super) tally: Tally,
    pub(super) here: i64,
    pub(super) elsewhere: i64,
    pub(super) pulled: i64,
    pub(super) missed: i64,
}

impl Counted {
    fn now(cluster: &Cluster) -> Self {
        let count = |resumed| cluster.count_on_agents("watari_agent_handshakes_total", resumed);
        let handshakes = |resumed| u32::try_from(count(resumed)).unwrap();
        let resumed = |from| cluster.count_on_agents("watari_agent_sessions_resumed_total", from);
        Self {
            tally: Tally { full: handshakes("false"), resumed: handshakes("true") },
            here: resumed("here"),
            elsewhere: resumed("elsewhere"),
            pulled: resumed("pulled"),
            missed: cluster.count_on_agents("watari_agent_sessions_missed_total", ""),
        }
    }

    fn since(self, before: Self) -> Self {
        let Tally { full, resumed } = before.tally;
        Self {
            tally: Tally { full: self.tally.full - full, resumed: self.tally.resumed - resumed },
            here: self.here - before.here,
            elsewhere: self.elsewhere - before.elsewhere,
            pulled: self.pulled - before.pulled,
            missed: self.missed - before.missed,
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tally: Tally { full, resumed }, here, elsewhere, pulled, missed } = self;
        write!(f, "full {full:4} | resumed {resumed:4} | {here:4} here, {elsewhere:4} elsewhere, {pulled:4} pulled")?;
        write!(f, " | missed {missed:4}")
    }
}
