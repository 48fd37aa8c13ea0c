//! Sessions that belong to a cluster: whichever node established one, every other resumes it.
//!
//! * [`Ring`]: the keys of tickets, which all nodes have in common and nobody hands out.
//!
//! Nothing here opens a socket, reads a clock or draws randomness: time, bytes and random bytes are arguments. What comes from
//! clients and from other nodes is parsed as hostile input.

mod ring;

pub use ring::{Dated, NotOpened, RANDOM_LEN, Ring, RingSettings, TooManySeeds};
