//! The quantity that a search raises.

use watari_bench_engine::plan::Pace;
use watari_bench_engine::schedule::{Rate, RateError, Schedule, Spacing};

use super::curve::Unit;
use super::judge::Arrivals;

/// The quantity that a search raises. A level is a value of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Quantity {
    /// Requests due per second: an open loop.
    Rate {
        spacing: Spacing,
        /// Maximum number of connections in progress.
        connections_max: usize,
    },
    /// Connections in progress: a closed loop.
    Connections,
}

impl Quantity {
    /// The pace of a level.
    #[allow(clippy::cast_precision_loss, reason = "levels are under 2^53")]
    pub fn pace(self, level: u64) -> Result<Pace, RateError> {
        match self {
            Self::Connections => Ok(Pace::Closed { connections: level as usize }),
            Self::Rate { spacing, connections_max } => {
                let schedule = Schedule::new(Rate::constant(level as f64)?, spacing);
                Ok(Pace::Open { schedule, connections_max })
            }
        }
    }

    pub(super) fn unit(self) -> Unit {
        match self {
            Self::Rate { .. } => Unit::RequestsPerSecond,
            Self::Connections => Unit::Connections,
        }
    }

    pub(super) fn arrivals(self) -> Option<Arrivals> {
        match self {
            Self::Rate { spacing: Spacing::Even, .. } => Some(Arrivals::Even),
            Self::Rate { spacing: Spacing::Poisson { .. }, .. } => Some(Arrivals::Random),
            Self::Connections => None,
        }
    }
}
