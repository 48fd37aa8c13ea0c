//! `--expect`: conditions that a run has to meet.
//!
//! ```text
//!   p99<50ms    latency.p999<=0.1s    endings.RESET=0    requests_per_s>=1000    failures<0.1%
//!   by_family.ipv6.endings.NORMAL=2000    by_class.login.tr.p90<5ms    status.5xx=0    tls.resumed>0
//! ```
//!
//! A figure is the path of a number in the JSON of a [`Summary`]. The suffix `_ms` is optional. A bare `p99` or other
//! percentile is that of `latency_ms`. `status.5xx` is the sum of all such statuses. A figure without a measurement
//! (the latency of no request, the share of nothing) meets no condition. Otherwise a server that answers nothing would
//! pass as a fast one.
//!
//! Imports: `summary`.

mod figure;
mod reason;

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::summary::Summary;
use figure::{Figure, Unit};
use reason::Reason;

/// A condition, as in `p99<50ms`.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    text: String,
    figure: Figure,
    comparison: Comparison,
    /// In the figure's own unit: milliseconds, a share of 1, or a plain number.
    limit: f64,
}

/// The result of a condition.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The condition's text, as the caller gave it.
    pub condition: String,
    /// The measured value, in the unit of the JSON; `None` if there is no measurement.
    pub measured: Option<f64>,
    pub met: bool,
    #[serde(skip)]
    unit: Unit,
}

/// Checks a run against conditions, in order.
pub fn check(conditions: &[Condition], summary: &Summary) -> Vec<Outcome> {
    let figures = serde_json::to_value(summary).expect("a summary has no keys but strings");
    conditions.iter().map(|condition| condition.check(&figures)).collect()
}

impl Condition {
    fn check(&self, figures: &serde_json::Value) -> Outcome {
        let measured = self.figure.measure(figures);
        let met = measured.is_some_and(|measured| self.comparison.holds(measured, self.limit));
        Outcome { condition: self.text.clone(), measured, met, unit: self.figure.unit }
    }
}

impl FromStr for Condition {
    type Err = ExpectError;

    fn from_str(text: &str) -> Result<Self, ExpectError> {
        let wrong = |reason| ExpectError { condition: text.to_owned(), reason };
        let at = text.find(['<', '>', '=', '!']).ok_or(wrong(Reason::Comparison))?;
        let (figure, rest) = text.split_at(at);
        let (comparison, value) = Comparison::read(rest).ok_or(wrong(Reason::Comparison))?;
        let figure = figure.trim();
        let figure = Figure::read(figure).ok_or_else(|| wrong(Reason::Figure(figure.to_owned())))?;
        let limit = figure.unit.read(value.trim()).map_err(wrong)?;
        Ok(Self { text: text.to_owned(), figure, comparison, limit })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// `met: p99<50ms (12.345 ms)`
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let met = if self.met { "met" } else { "not met" };
        match self.measured {
            Some(measured) => write!(f, "{met}: {} ({})", self.condition, self.unit.show(measured)),
            None => write!(f, "{met}: {} (nothing was measured)", self.condition),
        }
    }
}

/// A condition does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("condition {condition:?}: {reason}")]
pub struct ExpectError {
    condition: String,
    reason: Reason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Comparison {
    Less,
    AtMost,
    Equal,
    Other,
    AtLeast,
    More,
}

impl Comparison {
    /// Splits a comparison sign off the front.
    fn read(text: &str) -> Option<(Self, &str)> {
        SIGNS.iter().find_map(|(sign, comparison)| Some((*comparison, text.strip_prefix(sign)?)))
    }

    #[expect(clippy::float_cmp, reason = "counts are exact, and a condition may require that a time is equal")]
    fn holds(self, measured: f64, limit: f64) -> bool {
        match self {
            Self::Less => measured < limit,
            Self::AtMost => measured <= limit,
            Self::Equal => measured == limit,
            Self::Other => measured != limit,
            Self::AtLeast => measured >= limit,
            Self::More => measured > limit,
        }
    }
}

/// Longer signs come first.
const SIGNS: [(&str, Comparison); 7] = [
    ("<=", Comparison::AtMost),
    (">=", Comparison::AtLeast),
    ("!=", Comparison::Other),
    ("==", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::More),
    ("=", Comparison::Equal),
];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;
    use crate::summary::tests::summary;

    #[test]
    fn every_kind_of_figure_is_compared() {
        for met in [
            "p99<401ms",
            "p99 <= 0.4s",
            "latency.p999>=400ms",
            "latency_ms.max=400ms",
            "wait.mean>199999us",
            "endings.RESET=1",
            "endings.LOCAL==0",
            "requests!=4",
            "requests_per_s>=1.5",
            "failures<=40%",
            "failures>0.39",
            "status.200=5",
            "status.2xx=5",
            "status.5xx=0",
            "tls.resumed>0",
            "tls.suites.TLS_AES_128_GCM_SHA256=2",
            "tls.suites.TLS_AES_256_GCM_SHA384=0",
            "by_family.ipv6.endings.NORMAL=1",
            "by_family.ipv4.p50<1s",
            "by_class.image.endings.TIMEOUT=1",
            "by_tls.full.tr.p90<36ms",
            "connections.endings.RESET=1",
            "connections.handshake.mean=20ms",
            "schedule_error.p99<1ms",
            "unfinished=2",
        ] {
            let outcome = outcome(met);
            assert!(outcome.met, "{outcome}");
        }
    }

    #[test]
    fn what_is_not_met_is_said_with_what_was_measured() {
        assert_eq!(outcome("p99<50ms").to_string(), "not met: p99<50ms (400.000 ms)");
        assert_eq!(outcome("failures<0.1%").to_string(), "not met: failures<0.1% (40.0000%)");
        assert_eq!(outcome("endings.RESET=0").to_string(), "not met: endings.RESET=0 (1)");
        assert_eq!(outcome("status.5xx=0").to_string(), "met: status.5xx=0 (0)");
        assert_eq!(outcome("requests_per_s>1").to_string(), "met: requests_per_s>1 (1.5)");
    }

    #[test]
    fn what_was_not_measured_meets_nothing() {
        for condition in ["by_tls.resumed.p99<50ms", "by_tls.resumed.failures<1%", "by_class.none.requests=0"] {
            assert_eq!(outcome(condition).to_string(), format!("not met: {condition} (nothing was measured)"));
        }
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        let cases = [
            ("p99", "condition \"p99\": no comparison; expected FIGURE, one of"),
            ("p99!50ms", "condition \"p99!50ms\": no comparison"),
            ("p98<50ms", "condition \"p98<50ms\": \"p98\" is not a figure; figures are"),
            ("latency<50ms", "condition \"latency<50ms\": \"latency\" is not a figure"),
            ("series.points=1", "condition \"series.points=1\": \"series.points\" is not a figure"),
            ("status.6xx=1", "condition \"status.6xx=1\": \"status.6xx\" is not a figure"),
            ("by_class.page=1", "condition \"by_class.page=1\": \"by_class.page\" is not a figure"),
            ("<1", "condition \"<1\": \"\" is not a figure"),
            ("p99<50", "condition \"p99<50\": \"50\" is not a time such as 50ms, 0.1s or 800us"),
            ("p99<-1ms", "condition \"p99<-1ms\": \"-1ms\" is not a time"),
            ("failures<nan", "condition \"failures<nan\": \"nan\" is not a share"),
            ("requests>5ms", "condition \"requests>5ms\": \"5ms\" is not a number"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<Condition>().unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_understood_or_refused(text in "[a-z0-9_.<>=!%é-]{0,40}") {
            let _ = text.parse::<Condition>();
        }

        #[test]
        fn comparisons_are_those_of_numbers(limit in 0_u32..10) {
            let figures = serde_json::json!({"requests": 5});
            for (sign, holds) in [("<", 5 < limit), ("<=", 5 <= limit), ("=", 5 == limit), (">", 5 > limit), (">=", 5 >= limit)] {
                let condition: Condition = format!("requests{sign}{limit}").parse().unwrap();
                prop_assert_eq!(condition.check(&figures).met, holds);
            }
        }
    }

    fn outcome(condition: &str) -> Outcome {
        check(&[condition.parse().unwrap()], &summary()).remove(0)
    }
}
