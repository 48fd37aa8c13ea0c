//! Encodes blocks of header fields, without a dynamic table.

use http::{HeaderName, HeaderValue, StatusCode};

use super::{huffman, integer, static_table};

/// Tells the peer's decoder that it needs no dynamic table (RFC 7541, sections 4.2 and 6.3).
pub(crate) const NO_DYNAMIC_TABLE: u8 = 0x20;

/// Flags of the first octet (RFC 7541, section 6).
const INDEXED: u8 = 0x80;
const NEVER_INDEXED: u8 = 0x10;

pub(crate) fn status(status: StatusCode, out: &mut Vec<u8>) {
    if let Some(index) = static_table::index_of_status(status.as_u16()) {
        integer::encode(index, 7, INDEXED, out);
    } else {
        integer::encode(static_table::FIRST_STATUS, 4, 0, out);
        string(status.as_str().as_bytes(), out);
    }
}

pub(crate) fn field(name: &HeaderName, value: &HeaderValue, out: &mut Vec<u8>) {
    let flags = if value.is_sensitive() { NEVER_INDEXED } else { 0 };
    if let Some(index) = static_table::index_of(name) {
        integer::encode(index, 4, flags, out);
    } else {
        out.push(flags);
        string(name.as_str().as_bytes(), out);
    }
    string(value.as_bytes(), out);
}

/// RFC 7541, section 5.2.
fn string(text: &[u8], out: &mut Vec<u8>) {
    let len = huffman::encoded_len(text);
    if len < text.len() {
        integer::encode(len, 7, 0x80, out);
        huffman::encode(text, out);
    } else {
        integer::encode(text.len(), 7, 0, out);
        out.extend_from_slice(text);
    }
}
