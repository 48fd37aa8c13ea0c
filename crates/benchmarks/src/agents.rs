//! An agent and its peers at the same work.

use crate::failure::Failure;
use crate::measure::{Samples, interleaved};
use crate::report::{Report, Row, Unit};
use crate::servers::Server;

/// A server at the same work, and the largest permitted ratio of the agent's CPU time to its.
pub(crate) struct Peer<'a> {
    pub(crate) name: &'static str,
    pub(crate) server: &'a Server,
    pub(crate) target: Option<f64>,
}

/// A kind of work for an agent behind a dispatcher, and for its peers.
pub(crate) struct Work<'a> {
    pub(crate) what: &'static str,
    pub(crate) unit: Unit,
    pub(crate) peers: &'a [Peer<'a>],
    pub(crate) cost: &'a dyn Fn(&Server) -> Result<Vec<f64>, Failure>,
}

impl Work<'_> {
    /// Compares the agent's own process with the peers. `watari` is a dispatcher and the agent.
    pub(crate) fn compare(&self, watari: &Server, rounds: usize, report: &mut Report) -> Result<(), Failure> {
        eprintln!("{} ..", self.what);
        let servers: Vec<&Server> = [watari].into_iter().chain(self.peers.iter().map(|peer| peer.server)).collect();
        let costs = interleaved(rounds, &servers, |server| (self.cost)(server))?;
        for (peer, costs_of_peer) in self.peers.iter().zip(&costs[1..]) {
            let agent = Samples::of(&costs[0], |costs| costs[1]);
            let theirs = Samples::of(costs_of_peer, |costs| costs[0]);
            let what = format!("{}: agent", self.what);
            report.add(Row::against(what, self.unit, agent, peer.name, theirs, peer.target));
        }
        Ok(())
    }
}
