//! TLS sessions of a cluster: each node can resume a session that another node established.
//!
//! * [`Ring`]: the ticket keys. All nodes derive the same ones, and no node issues them.
//! * [`Store`]: the sessions that one node stores.
//! * [`Exchange`]: selects the nodes that store a session, sends it there, and finds it again.
//!
//! Nothing here opens a socket, reads a clock or draws randomness: time, bytes and random bytes are arguments. Data
//! from clients and from other nodes is parsed as hostile input.

mod exchange;
mod ring;
mod store;

pub use exchange::{
    Action, Answer, Exchange, ExchangeCounters, FoundSession, GetId, Message, Now, Outcome, PENDING_MAX, Placement,
    PutId, Request, SESSION_LEN_MAX, SESSIONS_MAX, SentSession, Source, SpendId, Verdict,
};
pub use ring::{Dated, EpochSecret, NotOpened, RANDOM_LEN, Ring, RingSettings, SEEDS_MAX, TicketSeed, TooManySeeds};
pub use store::{Session, Store};
