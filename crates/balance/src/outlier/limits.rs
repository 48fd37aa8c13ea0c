//! The conditions and durations of ejections.

use std::time::Duration;

/// The conditions and durations of ejections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlierLimits {
    /// Consecutive failures that eject an origin. 0: disabled.
    pub in_a_row: u32,
    /// The time for which requests count in the percentage of failures.
    pub window: Duration,
    /// An origin is ejected if its percentage of failures in the window exceeds that of all others together by more
    /// than this. 100 or more: disabled.
    pub excess_percent: u32,
    /// The minimum of requests in the window, of the origin and of all others, for a comparison of percentages.
    pub requests_min: u32,
    /// The duration of the first ejection. Each further one is longer by the same amount.
    pub ejection: Duration,
    /// The longest ejection.
    pub ejection_max: Duration,
    /// An origin is forgiven one ejection for each period of this length after its readmission.
    pub forgive_after: Duration,
    /// The percentage of origins that may be ejected at a time. One may always be.
    pub ejected_percent_max: u32,
}

impl Default for OutlierLimits {
    fn default() -> Self {
        Self {
            in_a_row: 5,
            window: Duration::from_secs(30),
            excess_percent: 50,
            requests_min: 20,
            ejection: Duration::from_secs(5),
            ejection_max: Duration::from_mins(5),
            forgive_after: Duration::from_mins(1),
            ejected_percent_max: 50,
        }
    }
}
