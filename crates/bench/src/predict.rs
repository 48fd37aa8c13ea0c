//! The load of a site, and the servers that it needs: what Nakayama (2003, section 6.1.3) left open.
//!
//! ```text
//!   an access log -> observed --+
//!                               +--> Demand --+
//!   a daily profile -> profile -+             +--> Prediction: load, servers, every assumption
//!                 given, or found by a search -> Sizing
//! ```
//!
//! A prediction is arithmetic on assumptions, so each of them comes with its value and where that is from.

pub mod observed;
pub mod poisson;
pub mod profile;
mod text;

use std::fmt;

use serde::Serialize;

/// The requests that a site gets when most come, before it grows.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// Requests a second, on average over the busiest stretch of each length.
    pub requests_per_s: Busiest,
    /// Bytes a second on average over the busiest minute; `None`: not known.
    pub bytes_per_s: Option<f64>,
    /// What share of the requests begins with a full TLS handshake; `None`: not known.
    pub handshake_share: Option<f64>,
    /// What this is taken from.
    pub assumptions: Vec<Assumption>,
}

/// A figure over the busiest stretches of three lengths; the shorter the stretch, the higher.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Busiest {
    /// Of 3,600 seconds.
    pub hour: f64,
    /// Of 60 seconds.
    pub minute: f64,
    /// Of one second.
    pub second: f64,
}

impl Busiest {
    /// That of one length.
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

/// A stretch of time whose busiest counts.
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

    /// How long it is.
    pub fn seconds(self) -> u32 {
        match self {
            Self::Hour => 3600,
            Self::Minute => 60,
            Self::Second => 1,
        }
    }

    /// As in reports: `hour`, ...
    pub fn name(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Minute => "minute",
            Self::Second => "second",
        }
    }
}

/// What servers take, and how much of that is to be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizing {
    /// Requests a second that one server takes.
    pub capacity: Stated<f64>,
    /// How many times today's load there will be.
    pub growth: Stated<f64>,
    /// What share of its capacity a server keeps free.
    pub headroom: Stated<f64>,
    /// How many servers may be missing.
    pub redundancy: Stated<u32>,
    /// The servers shall take the busiest of these.
    pub peak: Stated<Window>,
}

/// A value, and where it is from.
#[derive(Clone, Debug, PartialEq)]
pub struct Stated<T> {
    /// The value.
    pub value: T,
    /// Where it is from: `--growth`, `default`, `measured`, the name of a file.
    pub source: String,
}

impl<T> Stated<T> {
    /// Puts the two together.
    pub fn new(value: T, source: impl Into<String>) -> Self {
        Self { value, source: source.into() }
    }
}

/// Something that the prediction takes for granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Assumption {
    /// What is taken for granted.
    pub what: String,
    /// Its value, with its unit.
    pub value: String,
    /// Where that is from.
    pub source: String,
}

impl Assumption {
    /// Puts the three together.
    pub fn new(what: &str, value: impl fmt::Display, source: &str) -> Self {
        Self { what: what.into(), value: value.to_string(), source: source.into() }
    }
}

/// The load that there will be, and the servers that it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Requests a second, grown.
    pub requests_per_s: Busiest,
    /// Bytes a second in the busiest minute, grown; `None`: not known.
    pub bytes_per_s: Option<f64>,
    /// Full TLS handshakes a second at the peak; `None`: not known.
    pub handshakes_per_s: Option<f64>,
    /// The load that the servers are counted for, requests a second.
    pub peak_per_s: f64,
    /// Requests a second that one server shall take at most.
    pub usable_per_s: f64,
    /// How many servers the load keeps busy.
    pub serving: u64,
    /// How many more there are for those that may be missing.
    pub spare: u32,
    /// All servers.
    pub servers: u64,
    /// What all of this rests on.
    pub assumptions: Vec<Assumption>,
}

/// Sizing of which nothing follows, which whoever stated it is to blame for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum SizingError {
    /// A server takes nothing, or no number.
    #[error("the capacity of a server is a number of requests a second over 0, not {0}")]
    Capacity(f64),
    /// Less than nothing, or no number.
    #[error("growth is a factor over 0, such as 1.5 for half as much again, not {0}")]
    Growth(f64),
    /// All is kept free.
    #[error("headroom is a share from 0 to under 1, such as 0.3, not {0}")]
    Headroom(f64),
}

impl Prediction {
    /// From the load of today to the servers of tomorrow.
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
    /// Whether anything follows of it.
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
            ("the servers shall take", format!("the busiest {}", peak.value.name()), &peak.source),
        ];
        let stated = stated.into_iter().map(|(what, value, source)| Assumption::new(what, value, source));
        stated.chain(MODEL.iter().map(|(what, value)| Assumption::new(what, value, "model"))).collect()
    }
}

/// What the arithmetic itself takes for granted.
const MODEL: [(&str, &str); 2] = [
    ("several servers take", "as many times what one takes: nothing behind them runs short"),
    ("requests of the capacity", "cost a server what the site's cost it"),
];

/// How many servers it takes. A load that is over a whole number of servers only by an error of rounding takes no further one.
#[allow(clippy::cast_sign_loss, reason = "both are positive")]
fn servers(peak_per_s: f64, usable_per_s: f64) -> u64 {
    ((peak_per_s / usable_per_s * (1.0 - ROUNDING)).ceil() as u64).max(1)
}

const ROUNDING: f64 = 1e-12;

#[cfg(test)]
mod tests;
