//! Limits on the frames of an HTTP/2 peer that the h2 crate does not set (RFC 9113, section 10.5).
//!
//! h2 bounds the memory that a peer can use. It also limits the number of CONTINUATION frames, empty DATA frames,
//! streams that are reset before they are accepted, and stream errors. It accepts any number of `WINDOW_UPDATE`,
//! PRIORITY, PING, SETTINGS, `RST_STREAM` and unknown frames: a peer that sends nothing else costs a core.
//!
//! [`Meter`] counts frames in both directions. [`Metered`] is a byte stream that ends with a GOAWAY
//! (`ENHANCE_YOUR_CALM`) when the peer has sent too many. It also makes h2 refuse pseudo-header fields in the trailers
//! of requests.
//!
//! ```text
//!   TLS stream <--> Metered <--> h2
//!                     |
//!                   Meter      reads frame headers (9 bytes each), skips payloads, keeps and copies nothing
//! ```

mod frames;
mod meter;
mod metered;
mod trailers;

pub use meter::{Flood, Meter};
pub use metered::{Metered, Verdict};
