//! A connection of a client: it reads requests, asks a [`Service`] for responses and writes them.
//!
//! [`Http2Connection`] is one of HTTP/2, described in its module. The rest is about HTTP/1:
//!
//! ```text
//!              a head is complete                 the response begins
//!   Idle --------------------------> Answering ------------------------> Responding
//!    ^  a part of a head may have come   |                                  |
//!    |                                   | the request is refused           |
//!    |                                   '---------------.                  |
//!    |  all is flushed, and the request was read         v   the body ends  |
//!    '------------------------------------------------ Ending <-------------'
//!                                                        |
//!                                                        '---> End: the connection closes, or is a tunnel
//! ```
//!
//! * [`Connection`] runs above a stream of plaintext ([`Plaintext`]): in an agent that is TLS over a leg, in tests and
//!   simulations a pipe in memory. It opens no socket and reads no clock. `http1` has the rules of the protocol.
//! * **Drive contract:** the owner calls [`Connection::poll`] until it returns pending, whenever the task is woken. When
//!   it is ready, the owner takes the connection apart. Nothing is lost by polling too often.
//! * The connection reads no further than the current request needs, so pipelined requests wait in the stream. It does
//!   read ahead into an empty stream, to notice a client that goes away.
//! * **State as a value:** [`Connection::into_parts`] takes a connection apart at any time. What is left besides the
//!   stream is the state of the protocol (`watari_http1::Server`, which can be exported), bytes that the stream has not
//!   taken and, within a response, the rest of its body. [`Connection::departure`] says what it needs to continue
//!   elsewhere:
//!
//!   | phase | needs |
//!   | --- | --- |
//!   | Idle, Ending | its parts |
//!   | Responding, the rest is at most [`REST_LEN_MAX`] bytes and has been read | its parts |
//!   | Responding, the response can continue ([`Resume`]) | its parts, and the rest from the other site |
//!   | any other | it stays until the response has ended, or until the request's content has come |
//! * An idle connection holds no buffer.
//! * [`leaving`] decides when a connection that has to move does so, and what its target has to prepare.

mod connection;
mod content;
mod http2;
mod interim;
pub mod leaving;
mod outgoing;
mod resume;

pub use connection::{Broken, Connection, Departure, End, Pace, Parts, Plaintext, REST_LEN_MAX, Responding, Service};
pub use content::{Content, Incomplete};
pub use http2::{Http2Connection, Http2End, STREAMS_MAX};
pub use interim::{Interim, InterimSender};
pub use resume::{CannotResume, Part, Resume};
