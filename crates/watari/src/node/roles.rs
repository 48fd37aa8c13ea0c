//! The roles that run in a node.

use watari_agent::Agent;
use watari_dispatcher::Dispatcher;

/// The roles that run in this node.
#[derive(Clone)]
pub(super) struct Roles {
    pub(super) dispatcher: Option<Dispatcher>,
    pub(super) agent: Option<Agent>,
}
