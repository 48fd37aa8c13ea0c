//! Which messages a role may send to another.

use std::collections::BTreeSet;

use watari_values::Role;
use watari_wire::Message;

/// Whether a node with the roles `from` may send this message to a node with the roles `to`.
///
/// Both ends check: the sender before it sends, the receiver before it acts.
pub(crate) fn allowed(message: &Message, from: &BTreeSet<Role>, to: &BTreeSet<Role>) -> bool {
    let (sender, receiver) = route(message);
    from.contains(&sender) && to.contains(&receiver)
}

/// Connection states, sessions and ticket seeds go only from agent to agent: a dispatcher has no secret of a client.
fn route(message: &Message) -> (Role, Role) {
    match message {
        Message::AgentToDispatcher(_) => (Role::Agent, Role::Dispatcher),
        Message::DispatcherToAgent(_) => (Role::Dispatcher, Role::Agent),
        Message::AgentToAgent(_) => (Role::Agent, Role::Agent),
    }
}

#[cfg(test)]
mod tests {
    use watari_values::ConnectionId;
    use watari_wire::{AgentToAgent, AgentToDispatcher, DispatcherToAgent};

    use super::*;

    /// One message of each direction.
    fn messages() -> [Message; 3] {
        [
            AgentToDispatcher::Draining.into(),
            DispatcherToAgent::Gone(ConnectionId { boot: 1, number: 2 }).into(),
            AgentToAgent::TicketSeedWanted([1; 8]).into(),
        ]
    }

    /// Checked for each pair of single roles.
    #[test]
    fn each_direction_has_one_route() {
        let pairs: Vec<(Role, Role)> = Role::ALL.into_iter().flat_map(|from| Role::ALL.map(|to| (from, to))).collect();
        let routes = |message: Message| {
            let open = |(from, to): &&(Role, Role)| allowed(&message, &BTreeSet::from([*from]), &BTreeSet::from([*to]));
            pairs.iter().filter(open).map(|(from, to)| format!("{from} to {to}")).collect::<Vec<_>>()
        };
        assert_eq!(messages().map(routes), [["agent to dispatcher"], ["dispatcher to agent"], ["agent to agent"]]);
    }

    #[test]
    fn a_node_of_both_roles_may_say_what_either_may() {
        let (both, agent) = (BTreeSet::from(Role::ALL), BTreeSet::from([Role::Agent]));
        let [to_dispatcher, to_agent, between_agents] = messages();
        assert!(allowed(&to_agent, &both, &agent));
        assert!(allowed(&between_agents, &both, &agent));
        assert!(allowed(&to_dispatcher, &agent, &both));
        assert!(!allowed(&to_dispatcher, &both, &agent));
    }

    #[test]
    fn a_node_without_roles_may_say_nothing() {
        let (none, all) = (BTreeSet::new(), BTreeSet::from(Role::ALL));
        assert!(messages().iter().all(|message| !allowed(message, &none, &all) && !allowed(message, &all, &none)));
    }
}
