//! Which agent owns the key of a cached response, and connections to it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use watari_balance::{Candidate, by_key};
use watari_cache::Key;
use watari_mesh::Mesh;
use watari_proxy::{AgentStream, Owners};
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
        select(key, linked.chain([self.name.clone()])).filter(|owner| *owner != self.name)
    }

    fn successor(&self, key: &Key) -> Option<NodeName> {
        let is_own = self.owner(key, &|_| false).is_none();
        select(key, self.exchange.linked()).filter(|_| is_own)
    }

    fn connect(&self, agent: &NodeName) -> Pin<Box<dyn Future<Output = io::Result<AgentStream>> + Send + '_>> {
        let agent = agent.clone();
        Box::pin(async move {
            let stream = self.mesh.dial_http(&agent).await.map_err(io::Error::other)?;
            Ok(Box::new(stream) as AgentStream)
        })
    }
}

fn select(key: &Key, agents: impl IntoIterator<Item = NodeName>) -> Option<NodeName> {
    let candidates: Vec<_> = agents.into_iter().map(Candidate::new).collect();
    by_key(&key.0, &candidates).map(|owner| owner.name.clone())
}
