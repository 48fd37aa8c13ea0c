//! Faults of answers, and the requests that each applies to.

use std::time::Duration;

use crate::request::Asked;

/// The requests that a [`Fault`] applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// All requests, with HEAD and [probes](crate::Asked::is_probe).
    Always,
    /// Each GET that is not a probe.
    Transfer,
    /// Each GET without a range.
    Whole,
    /// Each GET for a range that is not a probe.
    Ranged,
}

/// A fault of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// 200 and the whole content.
    Everything,
    /// `Accept-Ranges: none`, and the whole content.
    NoRanges,
    /// The whole content, if the range is open (`bytes=5-`).
    NoOpenRanges,
    /// Another range than requested, with a correct `Content-Range`: its ends are this many bytes later (earlier, if
    /// negative).
    OtherRange {
        /// How much later the first byte is, in bytes.
        first: i64,
        /// How much later the last byte is, in bytes.
        last: i64,
    },
    /// Another range than in its `Content-Range`: one byte too early.
    Shifted,
    /// `Content-Range: items 5-9/10`.
    OtherUnit,
    /// 206 without a `Content-Range`.
    NoContentRange,
    /// `Content-Range` with a total of one more.
    OtherTotal,
    /// `Content-Range` with the total `*`.
    UnknownTotal,
    /// `multipart/byteranges`, with one part.
    Multipart,
    /// 416.
    Unsatisfiable,
    /// Other validators.
    OtherValidators,
    /// A weak tag, and no date.
    WeakTag,
    /// Neither an entity tag nor a date.
    NoValidators,
    /// Other bytes with the same validators.
    OtherBytes,
    /// The same validators; only the first requested byte differs.
    OtherFirstByte,
    /// The same validators; only the last requested byte differs.
    OtherLastByte,
    /// The content was replaced: it has another length, and validators of its own.
    Replaced {
        /// How much longer the new content is, in bytes; may be negative.
        longer: i64,
    },
    /// `Content-Encoding: gzip`, which was not requested.
    Gzip,
    /// Chunks instead of a length.
    Chunked,
    /// A FIN after half of the body.
    Short,
    /// More bytes than announced.
    Long,
    /// Another answer: this status, with a short text. Redirects lead to `/elsewhere`.
    Status(u16),
    /// Bytes that are not HTTP.
    Garbage,
    /// A head with endless fields.
    EndlessHead,
    /// Early hints before the answer.
    Interim,
    /// Two different lengths.
    TwoLengths,
    /// A length, and chunks.
    LengthAndChunks,
    /// A field that continues in the next line (RFC 9112, section 5.2).
    FoldedField,
    /// The body in small pieces.
    Drip {
        /// Length of a piece, in bytes.
        bytes: usize,
        /// The time between two pieces.
        every: Duration,
    },
    /// After some bytes of the body, one byte at a time.
    Crawl {
        /// Offset in the body, in bytes.
        after: u64,
        /// The time between two bytes.
        every: Duration,
    },
    /// Sends nothing more after some bytes of the body. The connection stays open.
    Stall {
        /// Offset in the body, in bytes.
        after: u64,
    },
    /// A FIN after some bytes of the body.
    Fin {
        /// Offset in the body, in bytes.
        after: u64,
    },
    /// A RST after some bytes of the body. If the other side reads none for seconds, it loses some of them.
    Reset {
        /// Offset in the body, in bytes.
        after: u64,
    },
    /// A RST after some bytes of the body. All connections end with it, and the origin accepts no more.
    Death {
        /// Offset in this body, in bytes.
        after: u64,
    },
    /// Accepts no connection, at any [`Moment`].
    Refuses,
}

impl Moment {
    pub(crate) fn is_at(self, asked: &Asked) -> bool {
        let transfer = asked.method == "GET" && !asked.is_probe();
        let ranged = asked.field("range").is_some();
        match self {
            Self::Always => true,
            Self::Transfer => transfer,
            Self::Whole => transfer && !ranged,
            Self::Ranged => transfer && ranged,
        }
    }
}
