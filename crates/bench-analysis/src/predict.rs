//! Predicts the load of a site and the number of servers that it needs: the open point of Nakayama (2003, section
//! 6.1.3).
//!
//! ```text
//!   an access log -> observed --+
//!                               +--> Demand --+
//!   a daily profile -> profile -+             +--> Prediction: load, servers, every assumption
//!                 given, or found by a search -> Sizing
//! ```
//!
//! A prediction is arithmetic on assumptions, so it lists each of them with its value and the source of the value.
//!
//! Imports: `access_log`.

pub mod observed;
pub mod poisson;
pub mod profile;
pub mod site;
mod text;

use std::fmt;

use serde::Serialize;

/// The requests of a site at its busiest, before growth.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Requests a second, as the mean of the busiest window of each length.
    pub requests_per_s: Busiest,
    /// Bytes a second, as the mean of the busiest minute; `None`: unknown.
    pub bytes_per_s: Option<f64>,
    /// The share of requests that begin with a full TLS handshake; `None`: unknown.
    pub handshake_share: Option<f64>,
    /// The assumptions behind these figures.
    pub assumptions: Vec<Assumption>,
}

impl Demand {
    /// The same load with this share of requests that begin with a full TLS handshake.
    #[must_use]
    pub fn with_handshake_share(self, share: &Stated<f64>) -> Self {
        let value = format!("{:.1} %", 100.0 * share.value);
        let assumption = Assumption::new("requests with a full handshake", value, &share.source);
        let assumptions = self.assumptions.into_iter().chain([assumption]).collect();
        Self { handshake_share: Some(share.value), assumptions, ..self }
    }
}

/// A figure in the busiest windows of three lengths. Shorter windows have higher values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Busiest {
    /// In 3,600 seconds.
    pub hour: f64,
    /// In 60 seconds.
    pub minute: f64,
    /// In one second.
    pub second: f64,
}

impl Busiest {
    /// The value of one window length.
    pub fn of(&self, window: Window) -> f64 {
        match window {
            Window::Hour => self.hour,
            Window::Minute => self.minute,
            Window::Second => self.second,
        }
    }

    fn times(self, factor: f64) -> Self {
        Self { hour: self.hour * factor, minute: self.minute * factor, second: self.second * factor }
    }
}

/// The length of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// 3,600 seconds.
    Hour,
    /// 60 seconds.
    Minute,
    /// One second.
    Second,
}

impl Window {
    /// From the longest to the shortest.
    pub const ALL: [Self; 3] = [Self::Hour, Self::Minute, Self::Second];

    pub fn seconds(self) -> u32 {
        match self {
            Self::Hour => 3600,
            Self::Minute => 60,
            Self::Second => 1,
        }
    }

    /// Its name in reports: `hour`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Minute => "minute",
            Self::Second => "second",
        }
    }
}

/// The capacity of servers, and how much of it to use.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// Capacity of one server in requests a second.
    pub capacity: Stated<f64>,
    /// Factor from today's load to the future load.
    pub growth: Stated<f64>,
    /// Share of its capacity that a server keeps free, from 0 to under 1.
    pub headroom: Stated<f64>,
    /// Number of servers that may be missing.
    pub redundancy: Stated<u32>,
    /// The servers must carry the busiest window of this length.
    pub peak: Stated<Window>,
}

/// A value and its source.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated<T> {
    pub value: T,
    /// `--growth`, `default`, `measured`, or the name of a file.
    pub source: String,
}

impl<T> Stated<T> {
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }
}

/// An assumption of the prediction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assumption {
    /// The quantity that is assumed.
    pub what: String,
    /// Its value, with its unit.
    pub value: String,
    /// The source of the value.
    pub source: String,
}

impl Assumption {
    pub fn new(what: &str, value: impl fmt::Display, source: &str) -> Self {
        Self { what: what.into(), value: value.to_string(), source: source.into() }
    }
}

/// The future load, and the servers that it needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Requests a second, with growth.
    pub requests_per_s: Busiest,
    /// Bytes a second in the busiest minute, with growth; `None`: unknown.
    pub bytes_per_s: Option<f64>,
    /// Full TLS handshakes a second at the peak; `None`: unknown.
    pub handshakes_per_s: Option<f64>,
    /// The load that determines the number of servers, in requests a second.
    pub peak_per_s: f64,
    /// Usable capacity of one server, in requests a second.
    pub usable_per_s: f64,
    /// Number of servers that carry the load.
    pub serving: u64,
    /// Number of servers that may be missing.
    pub spare: u32,
    /// `serving + spare`.
    pub servers: u64,
    /// All assumptions of the prediction.
    pub assumptions: Vec<Assumption>,
}

/// The sizing is invalid. The caller is at fault.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SizingError {
    /// The capacity of a server is not a positive number.
    #[error("the capacity of a server is a number of requests a second over 0, not {0}")]
    Capacity(f64),
    /// Growth is not a positive number.
    #[error("growth is a factor over 0, such as 1.5 for half as much again, not {0}")]
    Growth(f64),
    /// Headroom is not from 0 to under 1.
    #[error("headroom is a share from 0 to under 1, such as 0.3, not {0}")]
    Headroom(f64),
}

impl Prediction {
    /// Computes the future load and number of servers.
    pub fn new(demand: &Demand, sizing: &Sizing) -> Result<Self, SizingError> {
        sizing.check()?;
        let requests_per_s = demand.requests_per_s.times(sizing.growth.value);
        let peak_per_s = requests_per_s.of(sizing.peak.value);
        let usable_per_s = sizing.capacity.value * (1.0 - sizing.headroom.value);
        let serving = servers(peak_per_s, usable_per_s);
        let spare = sizing.redundancy.value;
        Ok(Self {
            requests_per_s,
            bytes_per_s: demand.bytes_per_s.map(|bytes| bytes * sizing.growth.value),
            handshakes_per_s: demand.handshake_share.map(|share| share * peak_per_s),
            peak_per_s,
            usable_per_s,
            serving,
            spare,
            servers: serving.saturating_add(spare.into()),
            assumptions: demand.assumptions.iter().cloned().chain(sizing.assumptions()).collect(),
        })
    }
}

impl Sizing {
    /// Validates the ranges of capacity, growth and headroom.
    pub fn check(&self) -> Result<(), SizingError> {
        let is_positive = |value: f64| value > 0.0 && value.is_finite();
        let Self { capacity, growth, headroom, .. } = self;
        if !is_positive(capacity.value) {
            return Err(SizingError::Capacity(capacity.value));
        }
        if !is_positive(growth.value) {
            return Err(SizingError::Growth(growth.value));
        }
        if !(0.0..1.0).contains(&headroom.value) {
            return Err(SizingError::Headroom(headroom.value));
        }
        Ok(())
    }

    fn assumptions(&self) -> Vec<Assumption> {
        let Self { capacity, growth, headroom, redundancy, peak } = self;
        let stated = [
            ("one server takes", format!("{:.1} requests/s", capacity.value), &capacity.source),
            ("growth", format!("x {}", growth.value), &growth.source),
            ("each server keeps free", format!("{:.0} %", 100.0 * headroom.value), &headroom.source),
            ("servers that may be missing", redundancy.value.to_string(), &redundancy.source),
            ("the servers must take", format!("the busiest {}", peak.value.name()), &peak.source),
        ];
        let stated = stated.into_iter().map(|(what, value, source)| Assumption::new(what, value, source));
        stated.chain(MODEL.iter().map(|(what, value)| Assumption::new(what, value, "model"))).collect()
    }
}

/// The assumptions of the arithmetic itself.
const MODEL: [(&str, &str); 2] = [
    ("several servers take", "in proportion to their number: nothing behind them is a bottleneck"),
    ("requests of the capacity", "cost a server as much as those of the site"),
];

/// The number of servers. Rounding errors do not add a server.
#[allow(clippy::cast_sign_loss, reason = "both are positive")]
fn servers(peak_per_s: f64, usable_per_s: f64) -> u64 {
    ((peak_per_s / usable_per_s * (1.0 - ROUNDING)).ceil() as u64).max(1)
}

const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests;
