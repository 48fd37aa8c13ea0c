//! Sessions that belong to a cluster: whichever node established one, every other resumes it.
//!
//! * [`Ring`]: the keys of tickets, which all nodes have in common and nobody hands out.
//! * [`Store`]: the sessions that a node keeps.
//! * [`Exchange`]: who keeps which session, and how it gets there and back.
//!
//! Nothing here opens a socket, reads a clock or draws randomness: time, bytes and random bytes are arguments. What
//! comes from clients and from other nodes is parsed as hostile input.

mod exchange;
mod ring;
mod store;

pub use exchange::{
    Action, Exchange, ExchangeCounters, FoundSession, GetId, Now, Outcome, PENDING_MAX, Placement, PutId, Source,
    SpendId, Verdict,
};
pub use ring::{Dated, NotOpened, RANDOM_LEN, Ring, RingSettings, TooManySeeds};
pub use store::{Session, Store};
