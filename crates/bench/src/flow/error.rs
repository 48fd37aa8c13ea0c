//! What can be wrong with a flow's file.

use std::io;
use std::path::PathBuf;

use super::{NameError, SourceError, TemplateError, Unfit};
use crate::shares::SharesError;

/// A flow cannot be read from its file.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// The system does not give it.
    #[error("{}: {cause}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is longer than a flow may be.
    #[error("{}: a flow has at most 1 MiB", file.display())]
    TooLong {
        /// The file.
        file: PathBuf,
    },
    /// What it says cannot be done.
    #[error("{}:{line}: {problem}", file.display())]
    Wrong {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        problem: Problem,
    },
}

/// What is wrong in some line.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The file is no TOML, or of another shape than flows are.
    #[error("{0}")]
    Toml(String),
    /// Too few steps, or too many.
    #[error("a flow has 1 to {0} steps")]
    Steps(usize),
    /// A step's name is no good.
    #[error("a step's name is printable and has 1 to 64 characters")]
    StepName,
    /// No method of HTTP.
    #[error("\"{0}\" is no method")]
    Method(String),
    /// No name of a header field.
    #[error("\"{0}\" is no name of a header field")]
    HeaderName(String),
    /// A header field that the connection needs for itself.
    #[error("\"{0}\" is set by what sends the request")]
    HeaderOwned(String),
    /// The text of a header field breaks out of its line.
    #[error("a header field has no line breaks or other control characters")]
    HeaderValue,
    /// Both kinds of body.
    #[error("either body or body_file, not both")]
    TwoBodies,
    /// A body's file cannot be read.
    #[error("{}: {cause}", file.display())]
    BodyUnreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A body's file is too long.
    #[error("{}: a body has at most 16 MiB", file.display())]
    BodyTooLong {
        /// The file.
        file: PathBuf,
    },
    /// No status of HTTP.
    #[error("a status is 200 to 599")]
    Status,
    /// None or several of the ways to take a value.
    #[error("a value is taken from one of header, cookie, regex, json")]
    Take,
    /// A value that cannot be taken.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A name that cannot be given.
    #[error(transparent)]
    Name(#[from] NameError),
    /// A URI that leads nowhere.
    #[error(transparent)]
    Uri(#[from] Unfit),
    /// A text whose values cannot be put in.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// None or several of the ways to think.
    #[error("a think time is one of uniform, shares, exponential")]
    Think,
    /// A list of times that cannot be shared.
    #[error(transparent)]
    Shares(#[from] SharesError),
    /// The two ends of a uniform time are the wrong way round.
    #[error("the shorter time comes first")]
    Backwards,
    /// Too often.
    #[error("a step is repeated at most {0} times")]
    Repeat(u32),
    /// No probability.
    #[error("a probability is above 0 and at most 1")]
    Probability,
}
