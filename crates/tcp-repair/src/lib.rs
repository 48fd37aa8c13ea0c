//! An established TCP connection as a value, which another machine turns into a live socket again. (`TCP_REPAIR`,
//! tcp(7); in Linux `net/ipv4/tcp.c`, `tcp_input.c`, `tcp_output.c`.)
//!
//! The service address moves with the connection, so the client notices a pause and nothing else. Machine A has the
//! connection, machine B gets it:
//!
//! ```text
//!          A                                     B
//!          |                                     |
//!   Frozen::freeze ------- State::encode ------> | State::decode
//!          |                                     | State::restore   silent, needs no address
//!          | <---------- it is restored -------- |
//!   the address goes                             |
//!   Frozen::discard        silent                |
//!          | ---------- the address is free ---> |
//!          |                               the address comes, announcements
//!          |                                     | Restored::release   a window probe, and what is unsent
//! ```
//!
//! Until [`Frozen::discard`], A can go on with [`Frozen::thaw`], and B drops its [`Restored`] without a trace. After
//! `discard`, only B has the connection. At any moment, one machine at most may have it live: the caller sees to that.
//!
//! # Packets while the connection stands still
//! This crate stores no packets. A socket filter drops those for a frozen or restored socket, and the sender repeats
//! them. The caller has to prevent what a filter of a socket cannot:
//!
//! * From `discard` on, A has no socket, and would answer the client's packets with RST. So the address must be gone, or
//!   its packets must not leave A. The gate of `watari_addresses` does that.
//! * The same holds for B from the moment it has the address until `restore`. If `restore` comes first, there is no
//!   such time.
//! * A timer of A can repeat segments until `discard`, with later timestamps than B begins with. If one of them reaches
//!   the client, the client drops B's first segments (PAWS: RFC 7323, section 5.3). So the gate has to be closed from
//!   `freeze` on.
//!
//! # Pauses
//! After [`Restored::release`], a Linux client answers the window probe at once, and a download goes on without a timer.
//! There are three exceptions:
//!
//! * The client's own packets that were dropped: its kernel repeats them, after 200 ms or later if no later packet of it
//!   arrives (retransmission timeout; a tail loss probe may be sooner). So the time from `freeze` to `release` should be
//!   as short as possible.
//! * More than 10 segments were on their way, and the connection moves twice within 500 ms: Linux does not answer the
//!   second probe (`tcp_invalid_ratelimit`). The timeout of B's kernel is 1 to 3 s, because it has measured no round
//!   trip.
//! * More than 10 segments were on their way, and the network has lost them: the same timeout.
//!
//! # What moves
//! Connections in state ESTABLISHED, over IPv4 and IPv6, with or without window scaling, SACK and timestamps. The
//! unread and the unacknowledged bytes move, and so do windows, buffer sizes, and the limit of segments.
//!
//! What does not move:
//!
//! * Half-closed connections ([`FreezeError::State`]). The kernel can restore neither a received FIN nor its position.
//!   Programs that do it inject a forged FIN by a raw socket. The owner closes such a connection as usual.
//! * Urgent data, link-local addresses, queues longer than [`QUEUE_LEN_MAX`] ([`FreezeError`]).
//! * Segments that arrived out of order: the client sends them again, although they were acknowledged selectively
//!   (RFC 2018, section 8).
//! * Measurements: round-trip time, congestion window, loss recovery, the client's last timestamp.
//! * Options of the socket: the owner sets keepalive, timeouts, linger and congestion control again, on [`Restored`].
//!   `TCP_NODELAY` is on.
//! * TLS of the kernel, MPTCP, TCP-AO and MD5 signatures. Watari uses none of them, and this crate does not look for
//!   them.
//!
//! # Privileges
//! `CAP_NET_ADMIN` in the user namespace that owns the network namespace. For buffers beyond `net.core.wmem_max` and
//! `rmem_max`, in the initial user namespace.

mod freeze;
mod options;
mod restore;
mod state;

pub use freeze::{FreezeError, Frozen, NotFrozen, TcpState};
pub use restore::{Live, RestoreError, Restored};
pub use state::{DecodeError, ENCODED_LEN_MAX, QUEUE_LEN_MAX, State};
