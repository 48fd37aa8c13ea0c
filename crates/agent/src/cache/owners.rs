//! Which agent owns the key of a cached response, and connections to it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use watari_balance::{Candidate, by_key};
use watari_cache::Key;
use watari_mesh::Mesh;
use watari_proxy::{AgentStream, NextOwners, Owners};
use watari_values::NodeName;

use super::purges::PurgeExchange;

/// The linked agents and this one, as owners of keys.
pub(crate) struct LinkedOwners {
    pub(crate) name: NodeName,
    pub(crate) mesh: Mesh,
    pub(crate) exchange: Arc<PurgeExchange>,
}

impl Owners for LinkedOwners {
    /// By rendezvous hashing: all agents with the same links select the same owner.
    fn owner(&self, key: &Key, is_away: &dyn Fn(&NodeName) -> bool) -> Option<NodeName> {
        let linked = self.exchange.linked().into_iter().filter(|agent| !is_away(agent));
        let candidates: Vec<_> = linked.chain([self.name.clone()]).map(Candidate::new).collect();
        select(key, &candidates).filter(|owner| *owner != self.name)
    }

    fn next_owners(&self) -> NextOwners {
        let others: Vec<_> = self.exchange.linked().into_iter().map(Candidate::new).collect();
        let mut all = others.clone();
        all.push(Candidate::new(self.name.clone()));
        let name = self.name.clone();
        Box::new(move |key| select(key, &others).filter(|_| select(key, &all).as_ref() == Some(&name)))
    }

    fn connect(&self, agent: &NodeName) -> Pin<Box<dyn Future<Output = io::Result<AgentStream>> + Send + '_>> {
        let agent = agent.clone();
        Box::pin(async move {
            let stream = self.mesh.dial_http(&agent).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as AgentStream)
        })
    }
}

fn select(key: &Key, candidates: &[Candidate<NodeName>]) -> Option<NodeName> {
    by_key(&key.0, candidates).map(|owner| owner.name.clone())
}
