//! Durations as text in configuration and arguments.

use std::time::Duration;

use serde::Deserialize;

/// A duration written as a number, possibly with a fraction, and a unit: `250us`, `500ms`, `1.5s`, `5m`, `2h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(Duration);

impl Span {
    pub fn get(self) -> Duration {
        self.0
    }
}

/// The text is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a duration up to 1000h, such as 500ms, 1.5s, 5m or 2h")]
pub struct NoSpan(String);

impl std::str::FromStr for Span {
    type Err = NoSpan;

    fn from_str(text: &str) -> Result<Self, NoSpan> {
        seconds(text)
            .filter(|seconds| *seconds <= SECONDS_MAX)
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .map(Self)
            .ok_or_else(|| NoSpan(text.chars().take(SHOWN_MAX).collect()))
    }
}

impl TryFrom<String> for Span {
    type Error = NoSpan;

    fn try_from(text: String) -> Result<Self, NoSpan> {
        text.parse()
    }
}

/// Accepts only digits and a point. `f64` would also parse `inf`, `1e9` and `-0`, which are errors here.
fn seconds(text: &str) -> Option<f64> {
    let length = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    let (number, unit) = text.split_at(length);
    let (_, unit_s) = UNITS_S.iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * unit_s)
}

const UNITS_S: [(&str, f64); 5] = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
/// 1,000 hours: longer than any run, and far from where sums of times overflow.
const SECONDS_MAX: f64 = 3_600_000.0;
/// How much of a wrong text the error quotes, in characters.
const SHOWN_MAX: usize = 40;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lengths_of_time_are_read() {
        let cases = [("250us", 250), ("0ms", 0), ("500ms", 500_000), ("1.5s", 1_500_000), ("5m", 300_000_000)];
        for (text, us) in cases {
            assert_eq!(text.parse::<Span>().unwrap().get(), Duration::from_micros(us), "{text}");
        }
        assert_eq!("1000h".parse::<Span>().unwrap().get(), Duration::from_hours(1000));
    }

    #[test]
    fn what_is_no_length_of_time_is_refused() {
        for text in ["", "s", "5", "5 s", "-1s", "+1s", "1e3s", "infs", "nans", "1.2.3s", ".s", "5d", "1001h", "５s"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }
}
