//! The health of agents, by checks.

/// The numbers of consecutive checks that change the health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthThresholds {
    /// Failed checks in a row after which a healthy agent is unhealthy.
    pub fall: u32,
    /// Successful checks in a row after which an unhealthy agent is healthy.
    pub rise: u32,
}

/// The health of an agent, as checks show it.
///
/// ```text
///              `fall` failures in a row
///   healthy ------------------------------> unhealthy
///           <------------------------------
///              `rise` successes in a row
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    unhealthy: bool,
    /// Checks in a row whose outcome contradicts the present health.
    contrary: u32,
}

/// A change of health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// The agent became unhealthy.
    Fell,
    /// The agent became healthy again.
    Rose,
}

impl Health {
    /// Whether the agent may get connections.
    pub fn is_healthy(self) -> bool {
        !self.unhealthy
    }

    /// Counts the outcome of a check. Returns the change, if it causes one.
    pub fn checked(&mut self, succeeded: bool, thresholds: HealthThresholds) -> Option<Change> {
        if succeeded == self.is_healthy() {
            self.contrary = 0;
            return None;
        }
        self.contrary = self.contrary.saturating_add(1);
        let (needed, change) =
            if succeeded { (thresholds.rise, Change::Rose) } else { (thresholds.fall, Change::Fell) };
        if self.contrary < needed {
            return None;
        }
        *self = Self { unhealthy: !succeeded, contrary: 0 };
        Some(change)
    }
}
