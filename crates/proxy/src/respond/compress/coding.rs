//! The content codings.

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 8878, with a window of 128 KiB.
    Zstd,
    /// RFC 1952.
    Gzip,
}

impl Coding {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }
}
