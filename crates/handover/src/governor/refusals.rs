//! Origins that have refused to continue a resource.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::governor::views::{OriginId, ResourceId};

/// The maximum number of entries. A new one beyond it replaces the oldest. More would be of no use to a site with this
/// many resources that cannot move.
const COUNT_MAX: usize = 4096;

/// Refusals of the last while.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    seen: HashMap<(ResourceId, OriginId), Instant>,
}

impl Refusals {
    pub(crate) fn note(&mut self, resource: ResourceId, origin: OriginId, now: Instant) {
        self.seen.insert((resource, origin), now);
        if self.seen.len() > COUNT_MAX {
            let eldest = self.seen.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            eldest.map(|key| self.seen.remove(&key));
        }
    }

    pub(crate) fn has(&self, resource: ResourceId, origin: OriginId) -> bool {
        self.seen.contains_key(&(resource, origin))
    }

    /// Removes refusals older than `memory`.
    pub(crate) fn forget(&mut self, now: Instant, memory: Duration) {
        self.seen.retain(|_, at| now.saturating_duration_since(*at) < memory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_forgotten_after_a_while_or_for_others() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut refusals = Refusals::default();
        for number in 0..=COUNT_MAX as u64 {
            refusals.note(ResourceId(number), OriginId(1), at(number));
        }
        let has = |refusals: &Refusals, number| refusals.has(ResourceId(number), OriginId(1));
        assert!(!has(&refusals, 0) && has(&refusals, 1));
        assert!(!refusals.has(ResourceId(1), OriginId(2)));
        refusals.forget(at(1001), Duration::from_secs(1));
        assert!(!has(&refusals, 1) && has(&refusals, 2));
    }
}
