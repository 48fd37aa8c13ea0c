//! The roles that run in a node.

use std::io;

use watari_agent::Agent;
use watari_dispatcher::Dispatcher;

/// The roles that run in this node.
#[derive(Clone)]
pub(super) struct Roles {
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) agent: Option<Agent>,
}

impl Roles {
    /// Has the agent accept legs, if there is one.
    pub(super) async fn accept_legs(&self) -> io::Result<()> {
        match &self.agent {
            Some(agent) => agent.accept().await,
            None => Ok(()),
        }
    }
}
