//! Which messages a role may send to another.

use std::collections::BTreeSet;

use watari_values::Role;
use watari_wire::{Message, TakeoverMessage};

/// Whether a node with the roles `from` may send this message to a node with the roles `to`.
///
/// Both ends check: the sender before it sends, the receiver before it acts.
pub(crate) fn allowed(message: &Message, from: &BTreeSet<Role>, to: &BTreeSet<Role>) -> bool {
    let (senders, receivers) = route(message);
    senders.iter().any(|role| from.contains(role)) && receivers.iter().any(|role| to.contains(role))
}

const DISPATCHER: &[Role] = &[Role::Dispatcher];
const AGENT: &[Role] = &[Role::Agent];
/// The roles that vote about service addresses.
const VOTER: &[Role] = &[Role::Dispatcher, Role::Agent];

/// Connection states, sessions and ticket seeds go only from agent to agent: a dispatcher has no secret of a client.
fn route(message: &Message) -> (&'static [Role], &'static [Role]) {
    match message {
        Message::AgentToDispatcher(_) => (AGENT, DISPATCHER),
        Message::DispatcherToAgent(_) => (DISPATCHER, AGENT),
        Message::AgentToAgent(_) => (AGENT, AGENT),
        Message::Takeover(TakeoverMessage::LeaseWanted(_) | TakeoverMessage::LeaseReturned(_)) => (DISPATCHER, VOTER),
        Message::Takeover(TakeoverMessage::LeaseGranted(_) | TakeoverMessage::LeaseRefused(_)) => (VOTER, DISPATCHER),
        Message::DispatcherToDispatcher(_)
        | Message::Takeover(
            TakeoverMessage::Advert(_) | TakeoverMessage::SwitchWanted(_) | TakeoverMessage::Yielded(_),
        ) => (DISPATCHER, DISPATCHER),
    }
}

#[cfg(test)]
mod tests {
    use watari_values::ConnectionId;
    use watari_wire::{
        AgentToAgent, AgentToDispatcher, DispatcherToAgent, LeaseGranted, LeaseNumber, LeaseReturned, Yielded,
    };

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
    fn each_message_has_its_routes() {
        let pairs: Vec<(Role, Role)> = Role::ALL.into_iter().flat_map(|from| Role::ALL.map(|to| (from, to))).collect();
        let routes = |message: Message| {
            let open = |(from, to): &&(Role, Role)| allowed(&message, &BTreeSet::from([*from]), &BTreeSet::from([*to]));
            pairs.iter().filter(open).map(|(from, to)| format!("{from} to {to}")).collect::<Vec<_>>()
        };
        assert_eq!(messages().map(routes), [["agent to dispatcher"], ["dispatcher to agent"], ["agent to agent"]]);
        let (address, lease) = ([192, 0, 2, 1].into(), LeaseNumber { incarnation: 1, round: 2 });
        let to_voter = TakeoverMessage::LeaseReturned(LeaseReturned { address, lease });
        assert_eq!(routes(to_voter.into()), ["dispatcher to dispatcher", "dispatcher to agent"]);
        let of_voter = TakeoverMessage::LeaseGranted(LeaseGranted { address, lease });
        assert_eq!(routes(of_voter.into()), ["dispatcher to dispatcher", "agent to dispatcher"]);
        let between_candidates = TakeoverMessage::Yielded(Yielded { address, lease, by_order: true });
        assert_eq!(routes(between_candidates.into()), ["dispatcher to dispatcher"]);
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
