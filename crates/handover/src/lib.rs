//! A running download goes on at another origin, and the client notices nothing (Doi and Goto, "HTTP session handover",
//! 2008).
//!
//! A proxy relays the response of origin A. In the middle of it the rest is asked of origin B, as one closed range, and
//! B's bytes follow A's. The paper leaves open how to know that both origins hold the same bytes; here they have to
//! prove it, by a strong validator, a digest or, where the operator says that they are equal, by repeating what the
//! client already has.
//!
//! ```text
//!   head of A            Transfer::of ---------> Stays: this response cannot move, and why
//!     |                       | Transfer
//!   bytes of A           Transfer::delivered
//!     |                       |
//!     |                  Transfer::continuation -> Continuation::request: what B is asked
//!     |                       |
//!   head of B            Continuation::accept --> Refusal: B cannot go on, and why; A may, or C
//!     |                       | Seam
//!   A is given up             |  when Seam::owed says 0, or A has failed
//!     |                       |
//!   bytes of B           Seam::take ------------> SeamError: B's bytes are not those of A
//!     |                       |
//!   end of B             Transfer::is_complete, or go on elsewhere, or close so that the client can tell
//! ```
//!
//! Pure: heads and pieces of bodies are arguments, and there is no socket. Who drives this gives the client what
//! [`Transfer::delivered`] has taken and what [`Seam::take`] returns, in that order, and nothing else.
//!
//! Which transfers move, and when, is decided by a [`governor`].
//!
//! **Invariant:** whatever origins answer, the bytes that reach the client are the beginning of one representation, and
//! if they are not all of it, the transfer is not complete, and the client can tell by the `Content-Length` that it was
//! promised. That holds as far as validators, lengths and repeated bytes can tell: against an origin that gives other
//! bytes the same strong validator, only the repeated bytes help, if they differ there.

mod continuation;
mod digests;
mod fields;
pub mod governor;
mod offer;
mod seam;
mod stays;
mod tail;
mod validators;

pub use continuation::{Continuation, Refusal};
pub use offer::{Equality, Terms, TooLong, Transfer};
pub use seam::{Seam, SeamError};
pub use stays::Stays;
