//! What Watari asks of the operating system: TCP options, accepting.

mod accept;
pub mod tcp;

pub use accept::accept_until;
