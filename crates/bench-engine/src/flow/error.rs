//! Errors in a flow's file.

use std::io;
use std::path::PathBuf;

use super::names::NameError;
use super::take::SourceError;
use super::template::TemplateError;
use super::walk::Unfit;
use crate::shares::SharesError;

/// A flow cannot be read from its file.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The file cannot be read.
    #[error("{}: {cause}", file.display())]
    Unreadable { file: PathBuf, cause: io::Error },
    /// The file is longer than 1 MiB.
    #[error("{}: a flow has at most 1 MiB", file.display())]
    TooLong { file: PathBuf },
    /// The file's content is invalid.
    #[error("{}:{line}: {problem}", file.display())]
    Wrong {
        /// The flow's file.
        file: PathBuf,
        /// Line number, from 1.
        line: usize,
        problem: Problem,
    },
}

/// A problem in one line of a flow.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML, or has other keys or types than a flow.
    #[error("{0}")]
    Toml(String),
    /// Too few or too many steps.
    #[error("a flow has 1 to {0} steps")]
    Steps(usize),
    /// A step's name is empty, too long or not printable.
    #[error("a step's name is printable and has 1 to 64 characters")]
    StepName,
    /// Not an HTTP method.
    #[error("\"{0}\" is not a method")]
    Method(String),
    /// Not a name of a header field.
    #[error("\"{0}\" is not the name of a header field")]
    HeaderName(String),
    /// A header field that the connection sets itself.
    #[error("\"{0}\" is set by the client itself")]
    HeaderOwned(String),
    /// The text of a header field contains control characters.
    #[error("a header field has no line breaks or other control characters")]
    HeaderValue,
    /// Both `body` and `body_file`.
    #[error("either body or body_file, not both")]
    TwoBodies,
    /// A body file cannot be read.
    #[error("{}: {cause}", file.display())]
    BodyUnreadable { file: PathBuf, cause: io::Error },
    /// A body file is longer than 16 MiB.
    #[error("{}: a body has at most 16 MiB", file.display())]
    BodyTooLong { file: PathBuf },
    /// Not an HTTP status.
    #[error("a status is 200 to 599")]
    Status,
    /// None or several of the sources of a value.
    #[error("a value is taken from one of header, cookie, regex, json")]
    Take,
    /// The source of a value is invalid.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The name of a value is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A URI is invalid.
    #[error(transparent)]
    Uri(#[from] Unfit),
    /// A text with placeholders is invalid.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// None or several of the kinds of think time.
    #[error("a think time is one of uniform, shares, exponential")]
    Think,
    /// A list of `shares` is invalid.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// The two ends of a `uniform` time are in the wrong order.
    #[error("the shorter time comes first")]
    Backwards,
    /// Too many repetitions.
    #[error("a step is repeated at most {0} times")]
    Repeat(u32),
    /// Not a probability.
    #[error("a probability is above 0 and at most 1")]
    Probability,
}
