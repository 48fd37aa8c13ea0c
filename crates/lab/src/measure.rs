//! Measures: what the figures and ratios of an experiment take out of a trial.
//!
//! A measure is a term, or several with ` + `, ` - `, ` * ` or ` / ` between them, computed from left to right:
//!
//! | term | value |
//! | --- | --- |
//! | `load.rate` | requests of all loads, divided by the seconds from the first one's start to the last one's end |
//! | `load.PATH` | a number of `watari bench`: `requests`, `endings.NORMAL`, `tls.full` and rates are sums, others are means by requests of the loads that have it |
//! | `step.NAME.PATH` | a number in the JSON of a step |
//! | `time.NAME` | the seconds that a step took |
//! | `cpu.HOST` | CPU seconds of a host while steps ran |
//! | `share.HOST` | the same as a percentage of its quota, or of a core |
//! | `peak.HOST`, `peak.HOST.FROM-TO` | the largest CPU use of a second, or of those from a second to another, in the same unit |
//! | `lines.PROCESS` | the number of JSON lines that a process printed |
//! | `lines.PROCESS.KEY.VALUE` | the percentage of those whose member `KEY` is `VALUE` |
//! | a number | itself |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a trial of a variant left behind.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Trial {
    pub steps: BTreeMap<String, StepOutcome>,
    /// JSON lines of the standard outputs of processes.
    pub lines: BTreeMap<String, Vec<Value>>,
    pub hosts: BTreeMap<String, HostUse>,
    /// Of the processor, as repetitions of fixed work in a second. None for a trial of less than a second.
    pub speed: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct StepOutcome {
    /// Seconds from the start of the trial.
    pub started_s: f64,
    pub ended_s: f64,
    pub is_load: bool,
    pub json: Value,
}

/// The CPU use of a host.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct HostUse {
    /// CPU seconds while steps ran.
    pub seconds: f64,
    /// How long steps ran.
    pub elapsed_s: f64,
    /// In cores.
    pub quota: Option<f64>,
    /// Seconds from the start of the trial, and the cores used in the second before.
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("\"{0}\" is not a measure (the documentation of `watari lab` lists them)")]
    Malformed(String),
    #[error("the trial has no {0}")]
    Missing(String),
}

/// What a term takes its value out of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subject<'a> {
    /// All steps with `load = true`.
    Loads,
    Step(&'a str),
    Host(&'a str),
    Process(&'a str),
}

/// The value of a measure.
pub fn value(measure: &str, trial: &Trial) -> Result<f64, Error> {
    parse(measure)?.into_iter().try_fold(0.0, |left, (operator, term)| {
        let right = term.source.value(trial).ok_or_else(|| Error::Missing(term.text.to_owned()))?;
        Ok(match operator {
            Operator::Plus => left + right,
            Operator::Minus => left - right,
            Operator::Times => left * right,
            Operator::Divided => left / right,
        })
    })
}

/// What a measure takes its value out of.
pub fn subjects(measure: &str) -> Result<Vec<Subject<'_>>, Error> {
    Ok(parse(measure)?.into_iter().filter_map(|(_, term)| term.source.subject()).collect())
}

#[derive(Clone, Copy)]
enum Operator {
    Plus,
    Minus,
    Times,
    Divided,
}

struct Term<'a> {
    text: &'a str,
    source: Source<'a>,
}

enum Source<'a> {
    Number(f64),
    Load(&'a str),
    Step { name: &'a str, path: &'a str },
    Time(&'a str),
    Cpu(&'a str),
    Share(&'a str),
    Peak { host: &'a str, span: (f64, f64) },
    Lines { process: &'a str, having: Option<(&'a str, &'a str)> },
}

/// The terms of a measure, each with the operator before it. The first one is added to 0.
fn parse(measure: &str) -> Result<Vec<(Operator, Term<'_>)>, Error> {
    let malformed = || Error::Malformed(measure.to_owned());
    let mut words = measure.split_whitespace();
    let mut terms = vec![(Operator::Plus, Term::parse(words.next().ok_or_else(malformed)?)?)];
    while let Some(word) = words.next() {
        let operator = match word {
            "+" => Operator::Plus,
            "-" => Operator::Minus,
            "*" => Operator::Times,
            "/" => Operator::Divided,
            _ => return Err(malformed()),
        };
        terms.push((operator, Term::parse(words.next().ok_or_else(malformed)?)?));
    }
    Ok(terms)
}

impl<'a> Term<'a> {
    fn parse(text: &'a str) -> Result<Self, Error> {
        let source = text.parse().ok().map(Source::Number).or_else(|| Source::parse(text));
        source.map(|source| Self { text, source }).ok_or_else(|| Error::Malformed(text.to_owned()))
    }
}

impl<'a> Source<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let (name, path) = rest.split_once('.').map_or((rest, None), |(name, path)| (name, Some(path)));
        Some(match kind {
            "load" => Self::Load(rest),
            "step" => Self::Step { name, path: path? },
            "time" => Self::Time(rest),
            "cpu" => Self::Cpu(rest),
            "share" => Self::Share(rest),
            "peak" => Self::Peak { host: name, span: path.map_or(Some((0.0, f64::INFINITY)), span)? },
            "lines" => match path {
                Some(path) => Self::Lines { process: name, having: Some(path.split_once('.')?) },
                None => Self::Lines { process: name, having: None },
            },
            _ => return None,
        })
    }

    fn subject(&self) -> Option<Subject<'a>> {
        Some(match self {
            Self::Number(_) => return None,
            Self::Load(_) => Subject::Loads,
            Self::Step { name, .. } | Self::Time(name) => Subject::Step(name),
            Self::Cpu(host) | Self::Share(host) | Self::Peak { host, .. } => Subject::Host(host),
            Self::Lines { process, .. } => Subject::Process(process),
        })
    }

    fn value(&self, trial: &Trial) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Load(path) => load(path, trial),
            Self::Step { name, path } => number(&trial.steps.get(*name)?.json, path),
            Self::Time(step) => trial.steps.get(*step).map(|step| step.ended_s - step.started_s),
            Self::Cpu(host) => trial.hosts.get(*host).map(|host| host.seconds),
            Self::Share(host) => trial.hosts.get(*host)?.share(),
            Self::Peak { host, span } => trial.hosts.get(*host)?.peak(*span),
            Self::Lines { process, having } => lines(trial.lines.get(*process)?, *having),
        }
    }
}

fn span(text: &str) -> Option<(f64, f64)> {
    let (from, to) = text.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

impl HostUse {
    /// The percentage of the quota, or of a core, in the steps.
    fn share(&self) -> Option<f64> {
        (self.elapsed_s > 0.0).then(|| 100.0 * self.seconds / self.elapsed_s / self.quota.unwrap_or(1.0))
    }

    fn peak(&self, (from, to): (f64, f64)) -> Option<f64> {
        let within = self.points.iter().filter(|(second, _)| (from..=to).contains(second));
        within.map(|(_, cores)| 100.0 * cores / self.quota.unwrap_or(1.0)).reduce(f64::max)
    }
}

fn load(path: &str, trial: &Trial) -> Option<f64> {
    let loads: Vec<_> = trial.steps.values().filter(|step| step.is_load).collect();
    let requests: Vec<f64> = loads.iter().map(|load| number(&load.json, "requests")).collect::<Option<_>>()?;
    let total: f64 = requests.iter().sum();
    if path == "rate" {
        let started = loads.iter().map(|load| load.started_s).reduce(f64::min)?;
        let ended = loads.iter().map(|load| load.started_s + load_seconds(load)).reduce(f64::max)?;
        return Some(total / (ended - started));
    }
    let is_ending = path.starts_with("endings.");
    let values =
        loads.iter().zip(&requests).filter_map(|(load, requests)| Some((number(&load.json, path)?, *requests)));
    let values: Vec<_> = values.collect();
    // An ending that no request had is not in the JSON, and no time is in that of a load without a success.
    if loads.is_empty() || (values.is_empty() && !is_ending) {
        return None;
    }
    let is_sum = path == "requests" || path.ends_with("_per_s") || is_ending || path.starts_with("tls.");
    if is_sum {
        return Some(values.iter().map(|(value, _)| value).sum());
    }
    let of: f64 = values.iter().map(|(_, requests)| requests).sum();
    Some(values.iter().map(|(value, requests)| value * requests).sum::<f64>() / of)
}

/// The time of a load's own measurement, without the start of its process.
fn load_seconds(load: &StepOutcome) -> f64 {
    number(&load.json, "seconds").unwrap_or(load.ended_s - load.started_s)
}

/// The number of lines, or the percentage of those whose member has a value.
fn lines(lines: &[Value], having: Option<(&str, &str)>) -> Option<f64> {
    let Some((key, value)) = having else { return Some(count(lines.len())) };
    let has_value = |line: &&Value| match &line[key] {
        Value::String(text) => text == value,
        // Numbers, and true or false.
        other => serde_json::from_str(value).is_ok_and(|value: Value| *other == value),
    };
    let matching = lines.iter().filter(has_value).count();
    (!lines.is_empty()).then(|| 100.0 * count(matching) / count(lines.len()))
}

/// A number of lines. Up to 2^53 it is exact.
#[allow(clippy::cast_precision_loss, reason = "no run prints so many lines")]
fn count(lines: usize) -> f64 {
    lines as f64
}

/// The number at a path such as `latency_ms.p99`, or `0.bulk_s` in a list.
fn number(json: &Value, path: &str) -> Option<f64> {
    let found = path.split('.').try_fold(json, |value, part| match part.parse::<usize>() {
        Ok(index) if value.is_array() => value.get(index),
        _ => value.get(part),
    });
    found?.as_f64()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn load(started_s: f64, seconds: f64, requests: u64, mean: f64) -> StepOutcome {
        let json = json!({"requests": requests, "seconds": seconds, "tls": {"full": requests / 2},
            "endings": {"NORMAL": requests}, "tc_ms": {"mean": mean}});
        StepOutcome { started_s, ended_s: started_s + seconds + 0.5, is_load: true, json }
    }

    fn trial() -> Trial {
        let points = vec![(1.0, 0.1), (2.0, 0.4), (3.0, 0.2)];
        let host = HostUse { seconds: 2.0, elapsed_s: 8.0, quota: Some(0.5), points };
        Trial {
            steps: [("one".to_owned(), load(0.0, 10.0, 100, 4.0)), ("two".to_owned(), load(5.0, 15.0, 300, 8.0))]
                .into(),
            lines: [(
                "watch".to_owned(),
                vec![json!({"ending": "S_NORMAL", "status": 200}), json!({"ending": "C_RESET"})],
            )]
            .into(),
            hosts: [("a".to_owned(), host)].into(),
            speed: Some(900.0),
        }
    }

    #[track_caller]
    fn check(measure: &str, expected: f64) {
        let value = value(measure, &trial()).unwrap();
        assert!((value - expected).abs() < 1e-9, "{measure} is {value}, not {expected}");
    }

    #[test]
    fn the_rate_is_that_of_all_loads_together() {
        check("load.rate", 400.0 / 20.0);
    }

    #[test]
    fn counts_are_sums_and_times_are_weighted_means() {
        check("load.requests", 400.0);
        check("load.tls.full", 200.0);
        check("load.endings.RESET", 0.0);
        check("load.tc_ms.mean", 7.0);
        check("step.one.tc_ms.mean", 4.0);
        check("time.two", 15.5);
    }

    #[test]
    fn cpu_use_is_relative_to_the_quota() {
        check("cpu.a", 2.0);
        check("share.a", 50.0);
        check("peak.a", 80.0);
        check("peak.a.2.5-9", 40.0);
    }

    #[test]
    fn lines_are_counted() {
        check("lines.watch", 2.0);
        check("lines.watch.ending.S_NORMAL", 50.0);
        check("lines.watch.ending.TIMEOUT", 0.0);
    }

    #[test]
    fn terms_are_computed_from_left_to_right() {
        check("cpu.a + 1 / load.requests * 1000", 7.5);
    }

    #[test]
    fn a_measure_names_its_subjects() {
        let measure = "load.rate / step.one.seconds + time.two * cpu.a - peak.b.0-3 + lines.watch.status.200 * 100";
        let expected = [
            Subject::Loads,
            Subject::Step("one"),
            Subject::Step("two"),
            Subject::Host("a"),
            Subject::Host("b"),
            Subject::Process("watch"),
        ];
        assert_eq!(subjects(measure).unwrap(), expected);
        for malformed in ["", "rate", "step.one", "peak.a.3", "lines.watch.status", "cpu.a +", "cpu.a cpu.b"] {
            assert!(matches!(subjects(malformed), Err(Error::Malformed(_))), "{malformed}");
        }
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        assert_eq!(value("cpu.b", &trial()), Err(Error::Missing("cpu.b".to_owned())));
        assert_eq!(value("load.no.such", &trial()), Err(Error::Missing("load.no.such".to_owned())));
        assert_eq!(value("nonsense", &trial()), Err(Error::Malformed("nonsense".to_owned())));
        assert_eq!(value("cpu.a % 2", &trial()), Err(Error::Malformed("cpu.a % 2".to_owned())));
    }
}
