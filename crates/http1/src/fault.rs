//! Why a message is refused, by the side at fault.

use http::StatusCode;

use crate::state::STATE_LEN;

/// The client's fault: its request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// RFC 9112, section 3.
    #[error("The request line is malformed.")]
    RequestLine,
    /// RFC 9112, section 2.3.
    #[error("Only HTTP/1.1 and HTTP/1.0 are supported on this connection.")]
    Version,
    /// RFC 9112, section 5.
    #[error("A field line is malformed.")]
    FieldLine,
    /// RFC 9112, section 2.2.
    #[error("A line of the head has no valid end.")]
    LineEnd,
    /// RFC 9112, section 2.2.
    #[error("Too many empty lines precede the request.")]
    EmptyLines,
    /// RFC 9112, section 3.2.
    #[error("The request must name exactly one host.")]
    Host,
    /// RFC 9110, sections 9.3.6 and 9.3.8; RFC 9113, section 11.6.
    #[error("This method is not implemented.")]
    Method,
    /// RFC 9110, section 4.2.
    #[error("The scheme of the target must be https.")]
    Scheme,
    /// RFC 9112, section 3.2.
    #[error("The target is not valid for this method.")]
    Target,
    /// RFC 9110, section 8.6.
    #[error("The Content-Length must be a number.")]
    Length,
    /// RFC 9112, section 6.1.
    #[error("The transfer coding chunked must be applied only once.")]
    Chunked,
    /// RFC 9112, section 6.1.
    #[error("The only supported transfer coding is chunked.")]
    Coding,
    /// RFC 9112, section 6.3, rule 4: the end of the content cannot be found.
    #[error("The last transfer coding must be chunked.")]
    LastCoding,
    /// RFC 9112, section 6.1.
    #[error("HTTP/1.0 has no transfer codings.")]
    CodingVersion,
    /// RFC 6585, section 5.
    #[error("The head of the request is too long.")]
    HeadLen,
    /// RFC 6585, section 5.
    #[error("The request has too many header fields.")]
    Fields,
    /// RFC 9110, section 15.5.15.
    #[error("The target is too long.")]
    TargetLen,
}

impl RequestFault {
    /// The status of the response. Its text is the fault itself.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Method | Self::Coding => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::HeadLen | Self::Fields => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TargetLen => StatusCode::URI_TOO_LONG,
            Self::RequestLine
            | Self::FieldLine
            | Self::LineEnd
            | Self::EmptyLines
            | Self::Host
            | Self::Scheme
            | Self::Target
            | Self::Length
            | Self::Chunked
            | Self::LastCoding
            | Self::CodingVersion => StatusCode::BAD_REQUEST,
        }
    }
}

/// The server's fault: its response is refused, and the connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResponseFault {
    /// RFC 9112, section 4.
    #[error("the status line is malformed")]
    StatusLine,
    /// RFC 9112, section 2.3.
    #[error("the response is neither HTTP/1.1 nor HTTP/1.0")]
    Version,
    /// RFC 9112, section 5.
    #[error("a field line is malformed")]
    FieldLine,
    /// RFC 9112, section 2.2.
    #[error("a line of the head has no valid end")]
    LineEnd,
    /// RFC 9112, section 6.3.
    #[error("the Content-Length is not a number")]
    Length,
    /// RFC 9112, section 6.3: response splitting becomes possible.
    #[error("the response has several values of Content-Length that differ")]
    Lengths,
    /// RFC 9112, section 6.3: response splitting becomes possible.
    #[error("the response has a Content-Length and a Transfer-Encoding")]
    LengthAndCoding,
    /// RFC 9112, section 6.1: only `chunked` was accepted.
    #[error("the response has a transfer coding other than chunked")]
    Coding,
    /// RFC 9112, section 6.1.
    #[error("an HTTP/1.0 response has a transfer coding")]
    CodingVersion,
    /// RFC 9110, section 15: a status below 100.
    #[error("the status is invalid")]
    Status,
    /// RFC 9110, section 15.2.2.
    #[error("the server switches to a protocol that was not requested")]
    Upgrade,
    #[error("the server sent too many informational responses")]
    Informational,
    #[error("the head of the response is too long")]
    HeadLen,
    #[error("the response has too many header fields")]
    Fields,
    /// RFC 9112, section 9.2.
    #[error("the server sent bytes without a request")]
    Unsolicited,
}

/// The sender's fault: the framing of content is malformed. The connection cannot be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentFault {
    /// RFC 9112, section 7.1.
    #[error("A chunk size is malformed.")]
    ChunkSize,
    /// RFC 9112, section 7.1: a size above 64 bits.
    #[error("A chunk is too long.")]
    ChunkLen,
    /// RFC 9112, section 7.1.1.
    #[error("A chunk extension is malformed.")]
    Extension,
    /// RFC 9112, section 7.1.1.
    #[error("The chunk extensions are too long.")]
    ExtensionLen,
    /// RFC 9112, section 7.1: CR LF follows the size and the data of a chunk.
    #[error("A chunk has no valid end.")]
    ChunkEnd,
    /// RFC 9112, section 7.1.2.
    #[error("A trailer field is malformed.")]
    TrailerField,
    /// RFC 9112, section 7.1.2.
    #[error("The trailer section is too long.")]
    TrailerLen,
}

/// The peer's or the network's fault: the connection ended within a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Truncated {
    /// RFC 9112, section 8: before or within its head.
    #[error("the connection ended before the head was complete")]
    Head,
    /// RFC 9112, section 8: within its content.
    #[error("the connection ended before the content was complete")]
    Content,
}

/// The caller's fault: it sends what the state of the connection does not allow. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    #[error("no message of this kind is due")]
    NotDue,
    #[error("the peer did not request an upgrade")]
    Upgrade,
    #[error("the status does not fit this call")]
    Status,
    #[error("the Content-Length differs from the length of the content")]
    LengthDiffers,
    #[error("the Content-Length is not a number")]
    InvalidLength,
    /// The connection has to be closed: the peer waits for the rest.
    #[error("the content is shorter than its Content-Length")]
    TooShort,
    #[error("the content is longer than its Content-Length")]
    TooLong,
    #[error("the method ends at a proxy and cannot be sent")]
    Method,
    #[error("the request names no host, or several")]
    Host,
}

/// The exporter's fault: bytes are no state of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    #[error("the state has {0} bytes, not {STATE_LEN}")]
    Len(usize),
    #[error("the format {0} of the state is not known")]
    UnknownFormat(u8),
    /// With the name of the field.
    #[error("the state is impossible: {0}")]
    Impossible(&'static str),
}
