//! Finds the number of a summary that a condition names.

use std::ops::Add;
use std::time::Duration;

use serde_json::{Map, Value};
use watari_bench_engine::tally::Tally;

use super::reason::Reason;
use crate::summary::{Run, Summary};

/// The path of a number in a summary's JSON.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Figure {
    /// The keys of the path, from the outermost.
    keys: Vec<String>,
    pub(super) unit: Unit,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milliseconds,
    /// A share of 1.
    Share,
    Plain,
}

impl Figure {
    /// Finds a figure by its path; `None` if no summary has such a number.
    pub(super) fn read(path: &str) -> Option<Self> {
        let empty = Summary::new(Run::default(), Duration::ZERO, &Tally::new([].into()));
        let template = serde_json::to_value(empty).expect("a summary has no keys but strings");
        let keys = find(template.as_object()?, path)?;
        let unit = Unit::of(&keys);
        Some(Self { keys, unit })
    }

    /// The figure of a run; `None` if it was not measured.
    pub(super) fn measure(&self, figures: &Value) -> Option<f64> {
        let (last, parents) = self.keys.split_last()?;
        let parent = parents.iter().try_fold(figures, |value, key| value.get(key))?;
        let base = match self.unit {
            Unit::Milliseconds => parent.get("count"),
            Unit::Share => parent.get("requests"),
            Unit::Plain => None,
        };
        if base.is_some_and(|count| count == 0) {
            return None;
        }
        match parent.get(last) {
            Some(value) => value.as_f64(),
            None => Some(family_of_statuses(parent.as_object()?, last)),
        }
    }
}

impl Unit {
    fn of(keys: &[String]) -> Self {
        let in_milliseconds = keys.iter().any(|key| key.ends_with("_ms"));
        match keys.last().map(String::as_str) {
            Some("failures") => Self::Share,
            Some(last) if in_milliseconds && last != "count" => Self::Milliseconds,
            _ => Self::Plain,
        }
    }

    /// Parses a limit in this unit.
    pub(super) fn read(self, text: &str) -> Result<f64, Reason> {
        let owned = || text.to_owned();
        match self {
            Self::Milliseconds => scaled(text, &TIMES).ok_or_else(|| Reason::Time(owned())),
            Self::Share => scaled(text, &SHARES).ok_or_else(|| Reason::Share(owned())),
            Self::Plain => number(text).ok_or_else(|| Reason::Number(owned())),
        }
    }

    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => format!("{value:.3} ms"),
            Self::Share => format!("{:.4}%", value * 100.0),
            Self::Plain if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Plain => format!("{value:.1}"),
        }
    }
}

/// Looks a path up in the summary of an empty run, which has all keys except those that depend on the run.
fn find(template: &Map<String, Value>, path: &str) -> Option<Vec<String>> {
    let latency = template.get("latency_ms").and_then(Value::as_object);
    if latency.is_some_and(|figures| figures.contains_key(path)) {
        return Some(vec!["latency_ms".to_owned(), path.to_owned()]);
    }
    template.iter().find_map(|(key, value)| {
        let mut names = [key.as_str(), key.strip_suffix("_ms").unwrap_or(key)].into_iter();
        names.find_map(|name| {
            let rest = path.strip_prefix(name)?;
            let found = if rest.is_empty() {
                value.is_number().then(Vec::new)
            } else {
                within(template, key, rest.strip_prefix('.')?)
            };
            found.map(|keys| std::iter::once(key.clone()).chain(keys).collect())
        })
    })
}

/// Looks the rest of a path up under a key.
fn within(template: &Map<String, Value>, key: &str, rest: &str) -> Option<Vec<String>> {
    let inner = template.get(key)?.as_object()?;
    match key {
        "by_class" => within_class(template, rest),
        "status" => is_status(rest).then(|| vec![rest.to_owned()]),
        _ if inner.is_empty() => Some(vec![rest.to_owned()]),
        _ => find(inner, rest),
    }
}

/// Separate, because names of classes may contain dots.
fn within_class(template: &Map<String, Value>, rest: &str) -> Option<Vec<String>> {
    let part = template.get("by_family")?.get("ipv4")?.as_object()?;
    rest.match_indices('.').find_map(|(dot, _)| {
        let keys = find(part, &rest[dot + 1..])?;
        Some(std::iter::once(rest[..dot].to_owned()).chain(keys).collect())
    })
}

/// `404` or `4xx`.
fn is_status(text: &str) -> bool {
    let rest = text.strip_prefix(['1', '2', '3', '4', '5']);
    rest.is_some_and(|rest| rest == "xx" || rest.len() == 2 && rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The sum of `4xx`. A missing status counts 0. An empty `sum` of floats would be -0.
fn family_of_statuses(counts: &Map<String, Value>, key: &str) -> f64 {
    let Some(digit) = key.strip_suffix("xx") else { return 0.0 };
    counts
        .iter()
        .filter(|(status, _)| status.starts_with(digit))
        .filter_map(|(_, count)| count.as_f64())
        .fold(0.0, f64::add)
}

/// Parses a number with one of the suffixes, and multiplies it by the suffix' factor.
fn scaled(text: &str, suffixes: &[(&str, f64)]) -> Option<f64> {
    suffixes.iter().find_map(|(suffix, factor)| Some(number(text.strip_suffix(suffix)?.trim_end())? * factor))
}

fn number(text: &str) -> Option<f64> {
    text.parse().ok().filter(|number: &f64| number.is_finite() && number.is_sign_positive())
}

const TIMES: [(&str, f64); 5] = [("ms", 1.0), ("us", 1e-3), ("µs", 1e-3), ("ns", 1e-6), ("s", 1e3)];
const SHARES: [(&str, f64); 2] = [("%", 0.01), ("", 1.0)];
