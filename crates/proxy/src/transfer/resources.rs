//! Recently requested resources: whether their transfers could continue elsewhere, and at which origins.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use watari_handover::Stays;
use watari_handover::governor::{OriginId, ResourceId};

use crate::transfer::running::Resource;

/// The resources of a pool. The one that was not requested for the longest time is removed first.
#[derive(Debug)]
pub(crate) struct Resources {
    recent: Mutex<HashMap<ResourceId, Entry>>,
    comparisons: Arc<Semaphore>,
}

#[derive(Debug)]
struct Entry {
    known: Known,
    asked: Instant,
    compared: Option<Instant>,
}

/// The state of one resource.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) name: String,
    /// Why its transfers cannot move.
    pub(crate) stays: Option<Stays>,
    /// The last results at other origins. `None`: the origin has the same.
    pub(crate) elsewhere: HashMap<OriginId, Option<&'static str>>,
}

/// The maximum number of resources.
const KNOWN_MAX: usize = 256;
/// The time until a resource is compared again.
const COMPARED_AGAIN: Duration = Duration::from_mins(1);
/// The maximum number of resources that are compared at the same time.
const COMPARISONS_MAX: usize = 4;

impl Default for Resources {
    fn default() -> Self {
        Self { recent: Mutex::default(), comparisons: Arc::new(Semaphore::new(COMPARISONS_MAX)) }
    }
}

impl Resources {
    /// Registers a resource when a response has begun, with the reason if it cannot move.
    pub(super) fn note(&self, resource: &Resource, stays: Option<Stays>) {
        let now = Instant::now();
        let mut recent = self.recent();
        if !recent.contains_key(&resource.id()) {
            make_room(&mut recent);
        }
        let known = || Known { name: resource.name().to_owned(), stays, elsewhere: HashMap::new() };
        let entry = recent.entry(resource.id()).or_insert_with(|| Entry { known: known(), asked: now, compared: None });
        (entry.known.stays, entry.asked) = (stays, now);
    }

    /// All resources, the latest first.
    pub(crate) fn all(&self) -> Vec<Known> {
        let recent = self.recent();
        let mut all: Vec<_> = recent.values().collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.asked));
        all.into_iter().map(|entry| entry.known.clone()).collect()
    }

    /// The permit to compare one more resource.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.comparisons).try_acquire_owned().ok()
    }

    /// Whether a comparison is due. If so, the caller makes it.
    pub(super) fn is_due(&self, resource: ResourceId) -> bool {
        let now = Instant::now();
        let mut recent = self.recent();
        let Some(entry) = recent.get_mut(&resource) else { return false };
        let due = entry.compared.is_none_or(|compared| now.duration_since(compared) >= COMPARED_AGAIN);
        if due {
            entry.compared = Some(now);
        }
        due
    }

    /// Stores the result of an origin: `difference` is why the transfer could not continue there.
    pub(super) fn learn(&self, resource: ResourceId, origin: OriginId, difference: Option<&'static str>) {
        if let Some(entry) = self.recent().get_mut(&resource) {
            entry.known.elsewhere.insert(origin, difference);
        }
    }

    fn recent(&self) -> MutexGuard<'_, HashMap<ResourceId, Entry>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_room(recent: &mut HashMap<ResourceId, Entry>) {
    if recent.len() >= KNOWN_MAX
        && let Some(eldest) = recent.iter().min_by_key(|(_, entry)| entry.asked).map(|(id, _)| *id)
    {
        recent.remove(&eldest);
    }
}
