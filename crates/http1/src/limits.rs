//! Limits on what a peer may send.

/// Limits on heads and trailer sections. They bound the bytes that a caller has to buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest head, and the longest trailer section, in bytes.
    pub head_bytes_max: usize,
    /// The most fields of a head or of a trailer section.
    pub fields_max: usize,
    /// The longest path of a request with its query, in bytes.
    pub target_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { head_bytes_max: 64 << 10, fields_max: 100, target_bytes_max: 16 << 10 }
    }
}

/// The empty lines that may precede a request (RFC 9112, section 2.2, asks for at least one).
pub(crate) const EMPTY_LINES_MAX: usize = 8;

/// The bytes of chunk extensions, and of whitespace in their place, of one message (RFC 9112, section 7.1.1).
pub(crate) const EXTENSION_BYTES_MAX: u32 = 16 << 10;

/// The digits of a chunk size. A size of 64 bits has as many, and leading zeros count.
pub(crate) const SIZE_DIGITS_MAX: u8 = 16;

/// The informational responses to one request.
pub(crate) const INFORMATIONAL_MAX: u8 = 16;
