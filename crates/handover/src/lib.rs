//! Continues a running download from another origin. The client does not notice (Doi and Goto, "HTTP session handover",
//! 2008).
//!
//! A proxy relays the response of origin A. In the middle of it, the proxy requests the rest from origin B, as one
//! closed range, and B's bytes follow A's. The paper does not say how to verify that both origins have the same bytes.
//! Here they must prove it in one of these ways:
//!
//! * by a strong validator,
//! * by a digest, or
//! * by repeating bytes that the client already has, if the operator declares the origins equal.
//!
//! ```text
//!   head of A            Transfer::of ---------> Stays: this response cannot move, with the reason
//!     |                       | Transfer
//!   bytes of A           Transfer::delivered
//!     |                       |
//!     |                  Transfer::continuation -> Continuation::request: the request for B
//!     |                       |
//!   head of B            Continuation::accept --> Refusal: B cannot continue, with the reason; A may, or C
//!     |                       | Seam
//!   A is canceled             |  when Seam::owed is 0, or A has failed
//!     |                       |
//!   bytes of B           Seam::take ------------> SeamError: B's bytes are not those of A
//!     |                       |
//!   end of B             Transfer::is_complete, or continue elsewhere, or close so that the client sees the cut
//! ```
//!
//! The crate has no I/O: heads and pieces of bodies are arguments. The caller gives the client the bytes that
//! [`Transfer::delivered`] has taken and those that [`Seam::take`] returns, in that order, and nothing else.
//!
//! A [`governor`] decides which transfers move, and when.
//!
//! **Invariant:** for any responses of origins, the bytes that reach the client are the beginning of one
//! representation. If they are not all of it, the transfer is not complete, and the client can detect that from the
//! `Content-Length` it got. This holds as far as validators, lengths and repeated bytes differ. If an origin gives
//! other bytes the same strong validator, only a difference in the repeated bytes reveals it.

mod continuation;
mod digests;
mod fields;
pub mod governor;
mod offer;
mod refusal;
mod seam;
mod stays;
mod tail;
mod validators;

pub use continuation::Continuation;
pub use offer::{Equality, TooLong, Transfer, TransferConditions};
pub use refusal::Refusal;
pub use seam::{Seam, SeamError};
pub use stays::Stays;
