//! Errors in one line of an access list.

use crate::excerpt::excerpt;

/// A line does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A required column is missing.
    #[error("no {what}: a line is SOURCE URI TLS [key=value ...]")]
    Missing {
        /// The column's name.
        what: &'static str,
    },
    /// The first column is not an address.
    #[error("{text:?} is not a source address; - stands for any")]
    Source { text: String },
    /// The second column is not a valid URI.
    #[error("{text:?} is neither a path (/index.html) nor an http:// or https:// URI without user and fragment")]
    Uri { text: String },
    /// The third column is neither 0 nor 1.
    #[error("TLS is 0 or 1, not {text:?}")]
    Tls { text: String },
    /// The URI's scheme contradicts the TLS column.
    #[error("the URI's scheme and the TLS column contradict each other")]
    Contradiction,
    /// Not a `key=value` with a known key.
    #[error("{text:?} is not an option: the options are method=, header=, body=, weight=, status=, sha256= and class=")]
    Option { text: String },
    /// A key other than `header` is repeated.
    #[error("{key}= is set twice")]
    Twice { key: String },
    /// A value is not valid for its key.
    #[error("{key}={value:?} is not {wanted}")]
    Value {
        key: String,
        value: String,
        /// A description of valid values.
        wanted: &'static str,
    },
    /// Quotes do not close, or text stands before or after them.
    #[error(
        "the quotes of {text:?} do not match: write key=\"value\", with \\\" and \\\\ for a quote and a backslash inside"
    )]
    Quotes { text: String },
    /// Longer than `LINE_BYTES_MAX`.
    #[error("longer than {LINE_BYTES_MAX} bytes")]
    TooLong,
    /// The line is not UTF-8.
    #[error("not UTF-8")]
    NotUtf8,
}

impl LineError {
    pub(super) fn option(text: &str) -> Self {
        Self::Option { text: excerpt(text) }
    }

    pub(super) fn quotes(text: &str) -> Self {
        Self::Quotes { text: excerpt(text) }
    }
}

pub(super) const LINE_BYTES_MAX: usize = 64 * 1024;
