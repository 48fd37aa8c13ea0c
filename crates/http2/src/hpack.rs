//! Compression of header fields (HPACK, RFC 7541).
//!
//! ```text
//!   block of a HEADERS frame --> Decoder --> Name, value      HeaderName, HeaderValue --> encode --> block
//!                                  |
//!                                dynamic table: state of the connection
//! ```
//!
//! The encoder uses no dynamic table, so it has no state. If the peer reduces the size of its table, the next block has to
//! begin with [`encode::NO_DYNAMIC_TABLE`].

mod decoder;
pub(crate) mod encode;
mod huffman;
mod integer;
mod static_table;

pub(crate) use decoder::{Decoder, ENTRY_LEN, Name};

#[cfg(test)]
mod tests;
