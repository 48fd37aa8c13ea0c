//! The messages of `watari_session` as messages of the mesh, and back.

use watari_session::{Answer, EpochSecret, Message, Request, SentSession, TicketSeed};
use watari_wire::{
    KeptSession, SessionFound, SessionGet, SessionMessage, SessionPut, SessionSpend, SessionSpent, SessionStored,
};

// A message that `watari_session` makes is never too long for a frame.
const _: () = assert!(
    watari_session::SESSIONS_MAX <= watari_wire::SESSIONS_MAX
        && watari_session::SESSION_LEN_MAX <= watari_wire::SESSION_LEN_MAX
        && watari_session::SEEDS_MAX <= watari_wire::TICKET_SEEDS_MAX
);

/// The mesh message of a message about stored sessions.
pub fn session_message_to_wire(message: Message) -> SessionMessage {
    match message {
        Message::Request(request, Request::Put(sessions)) => {
            let sessions = sessions.into_iter().map(session_to_wire).collect();
            SessionMessage::Put(SessionPut { request, sessions })
        }
        Message::Request(request, Request::Get(keys)) => SessionMessage::Get(SessionGet { request, keys }),
        Message::Request(request, Request::Spend(key)) => SessionMessage::Spend(SessionSpend { request, key }),
        Message::Answer(request, Answer::Stored) => SessionMessage::Stored(SessionStored { request }),
        Message::Answer(request, Answer::Found(sessions)) => {
            let sessions = sessions.into_iter().map(session_to_wire).collect();
            SessionMessage::Found(SessionFound { request, sessions })
        }
        Message::Answer(request, Answer::Spent { granted }) => SessionMessage::Spent(SessionSpent { request, granted }),
    }
}

/// The message about stored sessions in a mesh message.
pub(crate) fn session_message_from_wire(message: SessionMessage) -> Message {
    match message {
        SessionMessage::Put(put) => {
            let sessions = put.sessions.into_iter().map(session_from_wire).collect();
            Message::Request(put.request, Request::Put(sessions))
        }
        SessionMessage::Get(get) => Message::Request(get.request, Request::Get(get.keys)),
        SessionMessage::Spend(spend) => Message::Request(spend.request, Request::Spend(spend.key)),
        SessionMessage::Stored(stored) => Message::Answer(stored.request, Answer::Stored),
        SessionMessage::Found(found) => {
            let sessions = found.sessions.into_iter().map(session_from_wire).collect();
            Message::Answer(found.request, Answer::Found(sessions))
        }
        SessionMessage::Spent(spent) => Message::Answer(spent.request, Answer::Spent { granted: spent.granted }),
    }
}

/// The mesh form of ticket seeds.
pub fn ticket_seeds_to_wire(seeds: Vec<TicketSeed>) -> Vec<watari_wire::TicketSeed> {
    let secret = |EpochSecret { epoch, secret }| watari_wire::EpochSecret { epoch, secret };
    let seeds = seeds.into_iter().map(|TicketSeed { id, made, state, keys }| watari_wire::TicketSeed {
        id,
        made,
        state: state.map(secret),
        keys: keys.into_iter().map(secret).collect(),
    });
    seeds.collect()
}

pub(super) fn ticket_seeds_from_wire(seeds: Vec<watari_wire::TicketSeed>) -> Vec<TicketSeed> {
    let secret = |watari_wire::EpochSecret { epoch, secret }| EpochSecret { epoch, secret };
    let seeds = seeds.into_iter().map(|watari_wire::TicketSeed { id, made, state, keys }| TicketSeed {
        id,
        made,
        state: state.map(secret),
        keys: keys.into_iter().map(secret).collect(),
    });
    seeds.collect()
}

fn session_to_wire(SentSession { key, secret, expires_in_s, issuer }: SentSession) -> KeptSession {
    KeptSession { key, session: secret, expires_in_s, issuer }
}

fn session_from_wire(KeptSession { key, session, expires_in_s, issuer }: KeptSession) -> SentSession {
    SentSession { key, secret: session, expires_in_s, issuer }
}
