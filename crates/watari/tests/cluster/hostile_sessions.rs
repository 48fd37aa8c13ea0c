//! An agent that sends false messages about sessions.

use watari_values::{SecretBytes, SessionKey};
use watari_wire::{
    AgentToAgent, EpochSecret, KeptSession, Message, SessionFound, SessionGet, SessionMessage, SessionPut,
    SessionSpend, SessionSpent, SessionStored, TicketSeed,
};

use crate::clients::guest::{Guest, name};
use crate::harness::{Cluster, GUEST_AGENT, Plan};
use crate::sessions::{clients, is_known_everywhere, visit};

/// The agent that receives them.
const AGENT: &str = "a1";

fn kept(key: u8, session: &[u8]) -> KeptSession {
    let session = SecretBytes::new(session.to_vec());
    KeptSession { key: SessionKey([key; 32]), session, expires_in_s: u32::MAX, issuer: name(AGENT) }
}

fn seed(id: u8, made: u64, epoch: u32) -> TicketSeed {
    let state = EpochSecret { epoch, secret: SecretBytes::new(vec![id; 32]) };
    TicketSeed { id: [id; 8], made, state: Some(state), keys: Vec::new() }
}

/// Answers without a question, invalid sessions, seeds of the far future; each sent twice.
fn lies() -> Vec<Message> {
    let mut lies = Vec::new();
    for request in [0, 1 << 16, (1 << 16) + 1, u64::MAX] {
        let sessions = vec![kept(1, b"no session"), kept(2, b"")];
        lies.push(Message::from(SessionMessage::Put(SessionPut { request, sessions: sessions.clone() })));
        lies.push(Message::from(SessionMessage::Found(SessionFound { request, sessions })));
        lies.push(Message::from(SessionMessage::Stored(SessionStored { request })));
        lies.push(Message::from(SessionMessage::Get(SessionGet { request, keys: vec![SessionKey([3; 32]); 16] })));
        lies.push(Message::from(SessionMessage::Spend(SessionSpend { request, key: SessionKey([1; 32]) })));
        lies.push(Message::from(SessionMessage::Spent(SessionSpent { request, granted: true })));
    }
    lies.push(Message::from(AgentToAgent::TicketSeeds(vec![seed(1, u64::MAX, 1), seed(2, 0, u32::MAX)])));
    lies.push(Message::from(AgentToAgent::TicketSeedWanted([9; 8])));
    lies
}

/// While it is linked, it is an owner of sessions, but never answers. Clients wait for it, and still resume.
#[test]
fn lies_about_sessions_do_no_harm() {
    for sessions in ["mode = \"owner\"", "mode = \"push\"", "mode = \"tickets\""] {
        let cluster = Cluster::start(&Plan { sessions, ..Plan::default() });
        let before = clients();
        for client in &before {
            assert!(!visit(&cluster, client).resumed);
        }
        let mut liar = Guest::link(&cluster, GUEST_AGENT, cluster.node(AGENT));
        for lie in lies().into_iter().chain(lies()) {
            liar.send(&lie);
        }
        for client in &clients() {
            assert!(!visit(&cluster, client).resumed);
            is_known_everywhere(&cluster, client);
        }
        for client in &before {
            is_known_everywhere(&cluster, client);
        }
        let missed = cluster.count_on_agents("watari_agent_sessions_missed_total", "");
        assert_eq!(missed, 0, "{sessions}");
        drop(liar);
    }
}
