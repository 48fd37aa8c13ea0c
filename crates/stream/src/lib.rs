//! An async byte stream over the record layer.
//!
//! [`TlsStream`] is an [`AsyncRead`] and [`AsyncWrite`] of plaintext over any stream of records. It can be taken apart at
//! any time, between any two polls, into [`Parts`] from which the same stream can be made again, on another connection
//! to the same peer or on another machine: no byte is lost, repeated or reordered.
//!
//! * Reading opens records in the buffer they were received in; through [`AsyncBufRead`] nothing is copied.
//! * Writing seals at once and sends when [`OUTPUT_LEN_MAX`] bytes are waiting or on a flush, as a
//!   [`BufWriter`](tokio::io::BufWriter) does.
//! * A stream with nothing to do holds no buffers.
//!
//! [`AsyncRead`]: tokio::io::AsyncRead
//! [`AsyncWrite`]: tokio::io::AsyncWrite
//! [`AsyncBufRead`]: tokio::io::AsyncBufRead

mod input;
mod output;
mod stream;

pub use input::INPUT_LEN;
pub use output::OUTPUT_LEN_MAX;
pub use stream::{Parts, ReadEnd, TlsStream};
