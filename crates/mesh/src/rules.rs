//! Which message kinds a role may send to another.

use std::collections::BTreeSet;

use watari_values::Role;
use watari_wire::MessageKind;

/// Whether a node with the roles `from` may send a message of this kind to a node with the roles `to`.
///
/// Both ends check: the sender before it sends, the receiver before it acts.
pub(crate) fn allowed(kind: MessageKind, from: &BTreeSet<Role>, to: &BTreeSet<Role>) -> bool {
    let (sender, receiver) = route(kind);
    from.contains(&sender) && to.contains(&receiver)
}

/// Connection states, sessions and ticket seeds go only from agent to agent: a dispatcher has no secret of a client.
fn route(kind: MessageKind) -> (Role, Role) {
    use MessageKind as Kind;
    match kind {
        Kind::Ship
        | Kind::Rest
        | Kind::TicketSeeds
        | Kind::TicketSeedWanted
        | Kind::SessionPut
        | Kind::SessionStored
        | Kind::SessionGet
        | Kind::SessionFound
        | Kind::SessionSpend
        | Kind::SessionSpent => (Role::Agent, Role::Agent),
        Kind::LegKey
        | Kind::Established
        | Kind::Propose
        | Kind::Held
        | Kind::Refused
        | Kind::Cancel
        | Kind::Final
        | Kind::Stays
        | Kind::Tunnel
        | Kind::Draining => (Role::Agent, Role::Dispatcher),
        Kind::Freeze | Kind::Committed | Kind::LegKept | Kind::Aborted | Kind::Gone | Kind::Leave => {
            (Role::Dispatcher, Role::Agent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The route of every kind, checked for each pair of single roles.
    #[test]
    fn each_kind_has_one_route() {
        let pairs: Vec<(Role, Role)> = Role::ALL.into_iter().flat_map(|from| Role::ALL.map(|to| (from, to))).collect();
        let routes = |kind: MessageKind| {
            let open = |(from, to): &&(Role, Role)| allowed(kind, &BTreeSet::from([*from]), &BTreeSet::from([*to]));
            let names = pairs.iter().filter(open).map(|(from, to)| format!(" {from} to {to}"));
            format!("{}:{}", kind.as_str(), names.collect::<String>())
        };
        let expected = [
            "leg_key: agent to dispatcher",
            "established: agent to dispatcher",
            "propose: agent to dispatcher",
            "freeze: dispatcher to agent",
            "ship: agent to agent",
            "rest: agent to agent",
            "held: agent to dispatcher",
            "refused: agent to dispatcher",
            "cancel: agent to dispatcher",
            "committed: dispatcher to agent",
            "aborted: dispatcher to agent",
            "gone: dispatcher to agent",
            "final: agent to dispatcher",
            "leave: dispatcher to agent",
            "stays: agent to dispatcher",
            "draining: agent to dispatcher",
            "leg_kept: dispatcher to agent",
            "ticket_seeds: agent to agent",
            "ticket_seed_wanted: agent to agent",
            "session_put: agent to agent",
            "session_stored: agent to agent",
            "session_get: agent to agent",
            "session_found: agent to agent",
            "session_spend: agent to agent",
            "session_spent: agent to agent",
            "tunnel: agent to dispatcher",
        ];
        assert_eq!(MessageKind::ALL.map(routes), expected);
    }

    #[test]
    fn a_node_of_both_roles_may_say_what_either_may() {
        let (both, agent) = (BTreeSet::from(Role::ALL), BTreeSet::from([Role::Agent]));
        assert!(allowed(MessageKind::Freeze, &both, &agent));
        assert!(allowed(MessageKind::Ship, &both, &agent));
        assert!(allowed(MessageKind::Held, &agent, &both));
        assert!(!allowed(MessageKind::Held, &both, &agent));
    }

    #[test]
    fn a_node_without_roles_may_say_nothing() {
        let (none, all) = (BTreeSet::new(), BTreeSet::from(Role::ALL));
        assert!(MessageKind::ALL.iter().all(|kind| !allowed(*kind, &none, &all) && !allowed(*kind, &all, &none)));
    }
}
