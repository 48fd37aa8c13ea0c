//! Keys of stored TLS sessions, and ids of the seeds of ticket keys.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The key of a stored TLS session: a digest of its id and of its policy id. Neither can be derived from the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionKey(pub [u8; 32]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionKey({:08x}..)", u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]))
    }
}

/// The id of a seed, from which ticket keys are derived.
pub type TicketSeedId = [u8; 8];
