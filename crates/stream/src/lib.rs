//! An async byte stream over the record layer.
//!
//! [`TlsStream`] implements [`AsyncRead`] and [`AsyncWrite`] for plaintext over any stream of records. Between any two
//! polls it can be taken apart into [`Parts`]. These can be assembled into the same stream again, on another connection
//! to the same peer or on another machine. No byte is lost, repeated or reordered.
//!
//! * Reading opens records in the buffer they were received in. [`AsyncBufRead`] reads without a copy.
//! * Writing seals at once. It sends when [`OUTPUT_LEN_MAX`] bytes are waiting, or on a flush, like
//!   [`BufWriter`](tokio::io::BufWriter).
//! * An idle stream holds no buffers.
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
