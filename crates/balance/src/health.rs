//! Whether an agent answers when it is asked.

/// How often in a row an agent has to be found otherwise before it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Checks that fail before it is unhealthy.
    pub fall: u32,
    /// Checks that succeed before it is healthy again.
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
    /// Checks in a row that say otherwise.
    contrary: u32,
}

/// What a check has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It was healthy, and is not any more.
    Fell,
    /// It is healthy again.
    Rose,
}

impl Health {
    /// Whether it may be given connections.
    pub fn is_healthy(self) -> bool {
        !self.unhealthy
    }

    /// Takes the outcome of a check.
    pub fn checked(&mut self, succeeded: bool, patience: Patience) -> Option<Change> {
        if succeeded == self.is_healthy() {
            self.contrary = 0;
            return None;
        }
        self.contrary = self.contrary.saturating_add(1);
        let (needed, change) = if succeeded { (patience.rise, Change::Rose) } else { (patience.fall, Change::Fell) };
        if self.contrary < needed {
            return None;
        }
        *self = Self { unhealthy: !succeeded, contrary: 0 };
        Some(change)
    }
}
