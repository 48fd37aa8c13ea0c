//! The statuses that count as success.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Statuses that count as success. A complete response with another status ends NORMAL, and its request counts as
/// failed. By default 200 to 399: 4xx and 5xx are failures (RFC 9110, section 15).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u16, u16)>", into = "Vec<(u16, u16)>")]
pub struct OkStatus(Vec<RangeInclusive<u16>>);

/// The text is not a list of statuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a list of statuses from 200 to 599, such as 200-399,404")]
pub struct BadOkStatus(String);

impl OkStatus {
    /// Whether a response of this status counts as success.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }
}

impl Default for OkStatus {
    fn default() -> Self {
        Self(vec![200..=399])
    }
}

impl FromStr for OkStatus {
    type Err = BadOkStatus;

    /// Parses a list such as `200-399,404`.
    fn from_str(text: &str) -> Result<Self, BadOkStatus> {
        let range = |part: &str| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
        };
        let ranges = text.split(',').map(range).collect::<Option<Vec<_>>>();
        ranges.and_then(|ranges| Self::try_from(ranges).ok()).ok_or_else(|| BadOkStatus(text.to_owned()))
    }
}

impl TryFrom<Vec<(u16, u16)>> for OkStatus {
    type Error = BadOkStatus;

    fn try_from(ranges: Vec<(u16, u16)>) -> Result<Self, BadOkStatus> {
        let possible = |(from, to): &(u16, u16)| (200..600).contains(from) && (200..600).contains(to) && from <= to;
        if ranges.is_empty() || ranges.len() > RANGES_MAX || !ranges.iter().all(possible) {
            return Err(BadOkStatus(format!("{ranges:?}")));
        }
        Ok(Self(ranges.into_iter().map(|(from, to)| from..=to).collect()))
    }
}

impl From<OkStatus> for Vec<(u16, u16)> {
    fn from(ok: OkStatus) -> Self {
        ok.0.into_iter().map(RangeInclusive::into_inner).collect()
    }
}

impl fmt::Display for OkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            let (from, to) = (range.start(), range.end());
            if from == to { write!(f, "{comma}{from}")? } else { write!(f, "{comma}{from}-{to}")? }
        }
        Ok(())
    }
}

/// The number of statuses, which limits the number of disjoint ranges.
const RANGES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        let ok: OkStatus = "200-399,404".parse().unwrap();
        assert_eq!(
            [200, 304, 399, 400, 404, 500].map(|status| ok.contains(status)),
            [true, true, true, false, true, false]
        );
        assert_eq!(ok.to_string(), "200-399,404");
        assert_eq!(OkStatus::default().to_string(), "200-399");
        for text in ["", "abc", "399-200", "100", "600", "200-", "200,,300"] {
            assert!(text.parse::<OkStatus>().is_err(), "{text}");
        }
    }
}
