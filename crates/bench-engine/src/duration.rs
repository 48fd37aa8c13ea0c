//! Durations as text in flows and arguments.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use watari_values::duration::{self, InvalidDuration};

use crate::excerpt::excerpt;

/// A duration of at most 1,000 hours: `250us`, `500ms`, `1.5s`, `5m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(Duration);

impl Span {
    pub fn get(self) -> Duration {
        self.0
    }
}

/// The text is not a duration of this length.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSpan {
    #[error(transparent)]
    Invalid(#[from] InvalidDuration),
    #[error("\"{0}\" is more than 1000h")]
    TooLong(String),
}

impl FromStr for Span {
    type Err = NoSpan;

    fn from_str(text: &str) -> Result<Self, NoSpan> {
        let duration = duration::parse(text)?;
        if duration > MAX { Err(NoSpan::TooLong(excerpt(text))) } else { Ok(Self(duration)) }
    }
}

impl TryFrom<String> for Span {
    type Error = NoSpan;

    fn try_from(text: String) -> Result<Self, NoSpan> {
        text.parse()
    }
}

/// Longer than any run, and far from where sums of times overflow.
const MAX: Duration = Duration::from_hours(1000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_bounded() {
        assert_eq!("1000h".parse(), Ok(Span(MAX)));
        assert_eq!("0ms".parse(), Ok(Span(Duration::ZERO)));
        assert_eq!("1001h".parse::<Span>(), Err(NoSpan::TooLong("1001h".to_owned())));
        assert!(matches!("5".parse::<Span>(), Err(NoSpan::Invalid(_))));
    }
}
