//! How TCP connections to servers ended, and the states of servers that follow from that: the ENMA state monitor (ANMA
//! paper, chapter 2) as a pure core. Its input are captured packets, with the faults of a capture: losses, reordering,
//! duplicates, truncated packets, one direction only.
//!
//! [`Connections`] takes [segments](watari_packets::Segment) and returns [`Event`]s. [`States`] takes events and
//! returns [`Change`]s of servers' states. Both are driven alike: one call with an input, then polls until there is no
//! output left.
//!
//! ```text
//!                    SYN, or a SYN-ACK or RST without a SYN             data or a FIN without a SYN
//!                              │                                                    │
//!                              ▼        the client's ACK, data, a FIN               ▼
//!     ┌──── SYN-ACK ─────▶  Opening  ────────────────────────────────────────────▶ Open ◀──── data, ACK, one FIN ───┐
//!     └────────────────────── │ │                                                   │ │ └───────────────────────────┘
//!       handshake_timeout,    │ │ RST                 RST, the second FIN           │ │ timeout after the request,
//!       eviction              │ │                           ┌───────────────────────┘ │ half_closed_timeout,
//!                             │ ▼                           ▼                         │ silence_max
//!                             │ Closing ◀────────────────────                         │
//!                             │   │  └─ the RST's sender sends on ─▶ back             │
//!                             │   │ settle                                            │
//!                             ▼   ▼                                                   ▼
//!                             Over: reported, and later segments are ignored     ◀────┘
//!                              │ linger, or silence_max if it may go on; or its slot is needed, or another connection
//!                              │ begins between the same ends
//!                              ▼
//!                           forgotten
//! ```
//!
//! # Invariants
//!
//! 1. Each [`Event::Opened`] is followed by one [`Event::Closed`] or [`Event::Evicted`] of the same server, at
//!    [`Connections::finish`] at the latest. The client that `Opened` names does not change.
//! 2. Sequence numbers decide which side closed first: a side that had the other's FIN closed after it, in any order of
//!    capture. Only if neither had the other's FIN (both closed at once), the order of capture decides. If that is the
//!    same too, the server closed first. A FIN that was not captured shows in its acknowledgment, which is one higher
//!    than the data. This holds also if nothing of its side was captured.
//! 3. A FIN before a RST of the same side is that side's close (a browser's "FIN, RST" is `C_NORMAL`). A RST that
//!    answers segments after a close changes nothing.
//! 4. A RST counts if its sequence number is between what its receiver has acknowledged and what its sender was seen to
//!    have sent (RFC 9293, section 3.5.3). Up to 64 KiB beyond that, it counts if its sender sends nothing more for
//!    [`Settings::settle_doubtful`]. Any other RST is forged. A side that sends on after its own RST did not send that
//!    RST.
//! 5. A SYN with another sequence number begins another connection. A SYN with the same number, and other segments of
//!    ended connections, do not.
//! 6. [`Settings::connections_max`] bounds memory. For a new connection, the monitor drops the first of these that
//!    exists: a connection that is over; the oldest established connection of which only one side was seen; the oldest
//!    whose handshake is not complete. At most [`Settings::half_open_max`] connections have an incomplete handshake,
//!    even if there is room for more. An established connection of which both sides were seen is never dropped for
//!    another; if only such are left, new ones are not followed. So a flood of unanswered segments displaces no
//!    answered connection. If only one direction is captured, all connections are followed while there is room.
//!    [`Connections::counts`] counts evicted connections and those not followed.
//! 7. Time is the time of the latest packet. Nothing reads a clock.
//! 8. Values that a capture does not show are not guessed: they are `None`.
//! 9. A segment that was captured up to 1 ms ahead of what it follows by its numbers is processed after it. So the
//!    order of packets in a capture changes nothing that numbers decide. A RST without an acknowledgment is ordered by
//!    its sequence number only. A segment captured that long ahead of its connection's SYN waits for it: the connection
//!    begins with the SYN.
//!
//! # Client and server
//!
//! The client is the sender of a SYN, or the receiver of a SYN-ACK. If neither was seen, the first of these rules that
//! applies decides:
//!
//! * The side that is not the known server ([`Settings::servers`]) is the client.
//! * A request or a TLS hello shows its sender's side.
//! * The side with the higher port is the client.
//! * The side that sent first is the client.
//!
//! # Requests
//!
//! Without parsing the data, a request begins where the client sends data after the server did. So a request ends with
//! the next one, or with the connection; only clear HTTP/1 shows where an answer ends. An [`Ending`] belongs to a
//! connection, with any number of requests (keep-alive, HTTP/2). Each request is an [`Event::Request`].
//!
//! * Data that the server sent before it had any of the request belong to the previous answer.
//! * `TIMEOUT`: the answer is not known to be complete [`Settings::timeout`] after the last octets of its request.
//!   Another request restarts this time. Once the answer is known to be complete, the server is not to blame for
//!   silence, and the connection counts as `OPEN` after [`Settings::silence_max`]. Later packets of an `OPEN`
//!   connection begin another one, whose beginning was not seen. Packets of a connection that ended by `TIMEOUT` are
//!   ignored until it has been silent for [`Settings::silence_max`].
//! * An interim response (`100 Continue`) is not an answer. The rest of a request that is already answered is not a
//!   request.
//! * A close by one side only is reported as that side's when nothing has followed for
//!   [`Settings::half_closed_timeout`].
//! * The [`Phase`] is how far the side that closed was, by its acknowledgment number. A client that left while the
//!   rest of the answer was on its way closed [in the answer](Phase::InAnswer).
//! * An answer is delivered if the client acknowledged it, and one of these holds: it is known to be complete; the
//!   server ended it by its FIN; the client then closed by a FIN with no data on their way and its window open.
//! * After an upgrade or `CONNECT` there are no requests, so none times out.
//! * The TLS handshake is not a request ([`Phase::BeforeRequest`]), but it becomes overdue and times out like one if
//!   the server does not answer it. A record as long as an alert, or as a frame that manages an HTTP/2 connection, is
//!   not a request either. TLS 1.3 hides the server's tickets. If the client sends a request together with its last
//!   handshake message, the tickets count as the first octets of the answer.
//! * With early data, the server's first flight counts as the answer.
//! * A half-open connection whose client does not complete the handshake is `OPEN` before the handshake. Without a SYN
//!   in the capture it is `BACKSCATTER`.

mod app;
mod close;
mod connection;
mod connections;
mod ending;
mod half;
mod histogram;
mod http;
mod judge;
mod key;
mod lists;
mod reorder;
mod sequence;
mod settings;
mod states;
mod tls;
mod tracked;
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
pub use states::{Change, Server, States};
pub use tls::{Alert, Tls, TlsVersion};
pub use turn::Exchange;
pub use window::{Lately, Shares, Tally, Window};
pub use zeek::{ConnState, History};

#[cfg(test)]
mod tests;
