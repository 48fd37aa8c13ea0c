//! An assumed day of a site that has no log yet.
//!
//! ```toml
//! # Either visits, and how they spread over the hours of a day (in any unit: only proportions count) ...
//! visits_per_day = 50_000
//! pages_per_visit = 6
//! requests_per_page = 20
//! hourly_shares = [1, 1, 1, 1, 1, 2, 4, 6, 8, 8, 8, 9, 9, 8, 8, 7, 7, 7, 6, 6, 5, 4, 3, 2]
//! # ... or the requests of each hour.
//! # requests_per_hour = [...]
//!
//! # All of these are optional.
//! peak_factor = 1.5                # the busiest day relative to this one
//! bytes_per_request = 12_000
//! handshakes_per_visit = 1         # full TLS handshakes; with visits only
//! ```
//!
//! Pages arrive at random (a Poisson process of the busiest hour's rate), and all requests of a page arrive in one
//! second.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;

use super::poisson::{self, fullest};
use super::{Assumption, Busiest, Demand, Stated, Window};

/// A validated profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    day: Day,
    requests_per_page: f64,
    peak_factor: f64,
    bytes_per_request: Option<f64>,
    handshake_share: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Day {
    Visits { visits: f64, pages: f64, busiest_share: f64 },
    Hours { busiest: f64 },
}

/// The profile is invalid. Its author is at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ProfileError {
    name: String,
    /// Line number, from 1; `None`: the error has no single line.
    line: Option<usize>,
    what: String,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, line, what } = self;
        match line {
            Some(line) => write!(f, "{name}:{line}: {what}"),
            None => write!(f, "{name}: {what}"),
        }
    }
}

impl Profile {
    /// Parses a profile. `name` names its file in errors.
    pub fn parse(name: &str, text: &str) -> Result<Self, ProfileError> {
        let fault = |span: Option<Range<usize>>, what: &str| ProfileError {
            name: name.into(),
            line: span.map(|span| line_of(text, span.start)),
            what: what.into(),
        };
        let raw: Raw = toml::from_str(text).map_err(|error| fault(error.span(), error.message()))?;
        let profile = raw.check(name).map_err(|what| fault(None, what))?;
        if profile.busiest_hour() > poisson::MEAN_MAX {
            return Err(fault(None, "an hour has too many requests"));
        }
        Ok(profile)
    }

    /// The load of the busiest hour. With probability `quantile` no second and no minute of it exceeds the result.
    ///
    /// # Panics
    /// Unless `quantile.value` is over 0 and under 1.
    pub fn demand(&self, quantile: &Stated<f64>) -> Demand {
        let requests_per_s = Busiest {
            hour: self.busiest(Window::Hour, quantile.value),
            minute: self.busiest(Window::Minute, quantile.value),
            second: self.busiest(Window::Second, quantile.value),
        };
        Demand {
            requests_per_s,
            bytes_per_s: self.bytes_per_request.map(|bytes| bytes * requests_per_s.minute),
            handshake_share: self.handshake_share,
            assumptions: self.assumptions(quantile),
        }
    }

    /// Requests in the busiest hour of the busiest day.
    fn busiest_hour(&self) -> f64 {
        let requests = match self.day {
            Day::Visits { visits, pages, busiest_share } => visits * pages * self.requests_per_page * busiest_share,
            Day::Hours { busiest } => busiest,
        };
        requests * self.peak_factor
    }

    /// Requests a second in the busiest window within the busiest hour.
    #[allow(clippy::cast_precision_loss, reason = "under 2^53")]
    fn busiest(&self, window: Window, quantile: f64) -> f64 {
        let seconds = window.seconds();
        let windows = Window::Hour.seconds() / seconds;
        let pages = self.busiest_hour() / self.requests_per_page / f64::from(windows);
        fullest(pages, windows, quantile) as f64 * self.requests_per_page / f64::from(seconds)
    }

    fn assumptions(&self, quantile: &Stated<f64>) -> Vec<Assumption> {
        let stated = |what: &str, value: f64| Assumption::new(what, value, &self.name);
        let mut all = match self.day {
            Day::Visits { visits, pages, busiest_share } => vec![
                stated("visits a day", visits),
                stated("pages a visit", pages),
                stated("requests a page", self.requests_per_page),
                Assumption::new("the busiest hour has", format!("{:.1} % of a day", 100.0 * busiest_share), &self.name),
            ],
            Day::Hours { busiest } => {
                vec![stated("requests of the busiest hour", busiest), stated("requests a page", self.requests_per_page)]
            }
        };
        all.push(stated("the busiest day has, times a stated one", self.peak_factor));
        all.extend(self.bytes_per_request.map(|bytes| stated("bytes a request", bytes)));
        let quantile_shown = format!("with probability {}", quantile.value);
        all.push(Assumption::new("no second is over the peak", quantile_shown, &quantile.source));
        all.extend(MODEL.iter().map(|(what, value)| Assumption::new(what, value, "model")));
        all
    }
}

const MODEL: [(&str, &str); 2] = [
    ("pages arrive", "at random, independent of each other (Poisson)"),
    ("requests of a page come", "within a second"),
];

/// The file before its parts are checked against each other.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    visits_per_day: Option<Number>,
    pages_per_visit: Option<Number>,
    requests_per_page: Option<Number>,
    hourly_shares: Option<Hours>,
    requests_per_hour: Option<Hours>,
    peak_factor: Option<Number>,
    bytes_per_request: Option<Number>,
    handshakes_per_visit: Option<Number>,
}

impl Raw {
    fn check(self, name: &str) -> Result<Profile, &'static str> {
        let requests_per_page = self.requests_per_page.map_or(1.0, |number| number.0);
        let day = self.day()?;
        let handshake_share = match (&day, self.handshakes_per_visit) {
            (Day::Visits { pages, .. }, Some(handshakes)) => Some(handshakes.0 / (pages * requests_per_page)),
            (Day::Hours { .. }, Some(_)) => return Err("handshakes_per_visit needs visits_per_day"),
            (_, None) => None,
        };
        if handshake_share.is_some_and(|share| share > 1.0) {
            return Err("a visit has more full handshakes than requests");
        }
        Ok(Profile {
            name: name.into(),
            day,
            requests_per_page,
            peak_factor: self.peak_factor.map_or(1.0, |number| number.0),
            bytes_per_request: self.bytes_per_request.map(|number| number.0),
            handshake_share,
        })
    }

    fn day(&self) -> Result<Day, &'static str> {
        match (&self.visits_per_day, &self.pages_per_visit, &self.hourly_shares, &self.requests_per_hour) {
            (Some(visits), Some(pages), Some(shares), None) => {
                Ok(Day::Visits { visits: visits.0, pages: pages.0, busiest_share: shares.busiest() / shares.sum() })
            }
            (None, None, None, Some(hours)) => Ok(Day::Hours { busiest: hours.busiest() }),
            _ => Err("either visits_per_day, pages_per_visit and hourly_shares are stated, or requests_per_hour"),
        }
    }
}

/// A finite number over 0.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
struct Number(f64);

impl TryFrom<f64> for Number {
    type Error = &'static str;

    fn try_from(number: f64) -> Result<Self, Self::Error> {
        if number > 0.0 && number.is_finite() { Ok(Self(number)) } else { Err("not a number over 0") }
    }
}

/// A number for each hour of a day, none under 0, not all 0.
#[derive(Deserialize)]
#[serde(try_from = "Vec<f64>")]
struct Hours([f64; 24]);

impl TryFrom<Vec<f64>> for Hours {
    type Error = String;

    fn try_from(numbers: Vec<f64>) -> Result<Self, Self::Error> {
        let hours = <[f64; 24]>::try_from(numbers)
            .map_err(|numbers| format!("24 numbers are needed, one for each hour of a day, not {}", numbers.len()))?;
        let is_share = |number: &f64| *number >= 0.0 && number.is_finite();
        let hours = Self(hours);
        if hours.0.iter().all(is_share) && hours.sum() > 0.0 && hours.sum().is_finite() {
            Ok(hours)
        } else {
            Err("the numbers of the hours are 0 or more, and not all 0".into())
        }
    }
}

impl Hours {
    fn sum(&self) -> f64 {
        self.0.iter().sum()
    }

    fn busiest(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }
}

/// The number of the line, from 1, that contains a byte.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
