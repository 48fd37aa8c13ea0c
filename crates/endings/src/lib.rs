//! How TCP connections to servers ended, and what that says of the servers: the ENMA state monitor (ANMA paper,
//! chapter 2) as a pure core. It sees what was captured between the two, with what a capture does to it: losses, other
//! orders, copies, cut packets, one direction only.
//!
//! [`Connections`] takes [segments](watari_packets::Segment) and says what happened as [`Event`]s; [`States`] takes those and
//! says what servers are in, as [`Change`]s. Both are driven alike: one call that takes something, then all that it has to say.
//!
//! ```text
//!                    SYN, or a SYN-ACK or RST of nobody's SYN           data or a FIN of nobody's SYN
//!                              │                                                    │
//!                              ▼        the client's ACK, data, a FIN               ▼
//!     ┌──── SYN-ACK ─────▶  Opening  ────────────────────────────────────────────▶ Open ◀──── data, ACK, one FIN ───┐
//!     └────────────────────── │ │                                                   │ │ └───────────────────────────┘
//!       handshake_timeout,    │ │ RST                 RST, the second FIN           │ │ timeout after the request,
//!       eviction              │ │                           ┌───────────────────────┘ │ half_closed_timeout, silence_max
//!                             │ ▼                           ▼                         │
//!                             │ Closing ◀────────────────────                         │
//!                             │   │  └─ life of who seems to have reset ─▶ back       │
//!                             │   │ settle                                            │
//!                             ▼   ▼                                                   ▼
//!                             Over: reported, and what still comes is not heard  ◀────┘
//!                              │ linger, or silence_max if it may go on; or its place is needed, or another connection
//!                              │ begins between the same ends
//!                              ▼
//!                           forgotten
//! ```
//!
//! # Invariants
//!
//! 1. What opened ends: each [`Event::Opened`] is followed by one [`Event::Closed`] or [`Event::Evicted`] of the same server, at
//!    [`Connections::finish`] at the latest. Who is the client does not change once it is said.
//! 2. Who closed first is decided on numbers: who has the other's FIN closed after it, in whatever order the two were
//!    captured. Only where neither had the other's (both closed at once) the order of capture decides; and the server closed
//!    first if even that is the same. A FIN that was not captured shows in what acknowledges it, also where all of its side was
//!    not: an acknowledgment of one more.
//! 3. A FIN before a RST of the same side is its close (a browser's "FIN, RST" is `C_NORMAL`); a RST that answers what comes
//!    after a close changes nothing.
//! 4. A RST counts if it stands between what its receiver has acknowledged and what its sender was seen to have sent
//!    (RFC 9293, section 3.5.3). Up to 64 KiB further on it counts if its sender is not heard for
//!    [`Settings::settle_doubtful`]; any other is forged. A sender that goes on behind its own RST did not send it.
//! 5. A SYN with another number begins another connection; a SYN with the same number, and whatever else comes from ended
//!    connections, does not.
//! 6. Memory is bounded by [`Settings::connections_max`]. What is over goes first, then the oldest established connection of
//!    which one side only was seen, then the oldest whose handshake is not complete, of which there are
//!    [`Settings::half_open_max`] at most, however much room there is; established ones of which both sides were seen are never
//!    given up for others, and where there is nothing else, new ones are not followed. So whoever sends what nobody answers
//!    displaces nobody who was answered; and where one direction only is captured, all is followed while there is room.
//!    [`Connections::counts`] counts both.
//! 7. Time is the time of the latest packet. Nothing waits for a clock.
//! 8. What cannot be seen is not guessed: it is `None`.
//! 9. What was captured up to a millisecond ahead of what it follows, by its numbers, is taken behind it. So the order in which
//!    a capture has packets changes nothing that numbers tell; a RST that acknowledges nothing has none but its own. What
//!    is captured as long ahead of its own SYN waits for that: only then something begins.
//!
//! # Who is the client
//!
//! The sender of a SYN, the receiver of a SYN-ACK. Where neither was seen: who is not the known server
//! ([`Settings::servers`]); else whose data show it, a request or a hello of TLS; else who has the higher port; else who sent first.
//!
//! # Requests
//!
//! Without understanding the data, a request begins where the client sends data after the server did. A connection's
//! requests therefore end with the next one, or with the connection; only clear HTTP/1 shows where an answer ends. An
//! [`Ending`] is that of a connection, however many requests it carried (keep-alive, HTTP/2); each request is an
//! [`Event::Request`].
//!
//! * What the server sent without having any of the request is no answer to it, but the rest of the one before.
//! * `TIMEOUT`: [`Settings::timeout`] after the last octets of a request its answer is not known to be complete. A new
//!   request begins anew. Once it is known to be complete, silence is not the server's, and after [`Settings::silence_max`] the
//!   connection counts as `OPEN`. What then comes of it begins another one, of which the beginning was not seen. What
//!   comes of one that is out of time is not heard, as long as it is not silent for as long.
//! * An answer that is none yet (`100 Continue`) is none, and the rest of a request that is answered already asks for nothing.
//! * A close by one side only is reported when nothing has followed for [`Settings::half_closed_timeout`], as that side's.
//! * The [`Phase`] is what who closed had got by then, by its acknowledgment number: a client that left while the rest was on
//!   its way closed [in the answer](Phase::InAnswer).
//! * Delivered is what was acknowledged: an answer that is known to be whole, or that the server ended by its FIN, or after
//!   which the client closed by a FIN with nothing on its way and its window open.
//! * Behind an upgrade or `CONNECT` there are no requests, and so none is out of time.
//! * In TLS the handshake is no request ([`Phase::BeforeRequest`]), though one that the server leaves without an answer is
//!   overdue, and out of time, like one. Nor is a record as long as an alert, or as a frame that manages a connection of HTTP/2. TLS 1.3 hides the server's tickets; where the client asks together with its last message, they
//!   count as the first octets of the answer.
//! * Of early data the server's first flight counts as the answer.
//! * A half open connection that its client leaves is `OPEN` before the handshake; with nobody's SYN it is `BACKSCATTER`.

mod app;
mod close;
mod connection;
mod connections;
mod early;
mod ending;
mod flow;
mod half;
mod histogram;
mod http;
mod judge;
mod key;
mod lists;
mod sequence;
mod settings;
mod states;
mod tls;
mod turn;
mod wheel;
mod window;
mod zeek;

pub use app::Protocol;
pub use connection::{Connection, Event, Evicted, Opened, Overdue, Request};
pub use connections::{Connections, Counts};
pub use ending::{Ending, Phase, Side};
pub use histogram::Histogram;
pub use http::{Http, Method};
pub use judge::{Evidence, Learner, Profile, Reason, ServerState, Verdict};
pub use settings::{Servers, Settings};
pub use states::{Change, Lately, Server, States};
pub use tls::{Alert, Tls, TlsVersion};
pub use turn::Exchange;
pub use window::{Shares, Tally, Window};
pub use zeek::{ConnState, History};

#[cfg(test)]
mod tests;
