//! What is known of the resources that were asked for lately: whether their transfers could go on elsewhere, and where.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Limited};
use tokio::sync::Semaphore;
use watari_handover::governor::{Availability, OriginId, ResourceId};
use watari_handover::{Continuation, Refusal, Stays, Transfer};

use crate::client::Client;
use crate::origin::Outcome;
use crate::pool::Pool;
use crate::request::Repeatable;
use crate::transfers::Resource;

/// Those of a pool. The ones that were not asked for the longest are forgotten first.
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

/// What is known of one.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) name: String,
    /// Why its transfers stay where they are, if they do.
    pub(crate) stays: Option<Stays>,
    /// What origins answered that were asked for it last: `None`, the same.
    pub(crate) elsewhere: HashMap<OriginId, Option<&'static str>>,
}

/// How many are known.
const KNOWN_MAX: usize = 256;
/// Origins are not asked again before.
const COMPARED_AGAIN: Duration = Duration::from_mins(1);
/// How many resources are compared at the same time.
const COMPARISONS_MAX: usize = 4;
/// What is read of an answer to a comparison, in bytes.
const PROBED_MAX: usize = 1024;

impl Default for Resources {
    fn default() -> Self {
        Self { recent: Mutex::default(), comparisons: Arc::new(Semaphore::new(COMPARISONS_MAX)) }
    }
}

impl Resources {
    /// A response has begun, of which this is to be said.
    pub(crate) fn note(&self, resource: &Resource, stays: Option<Stays>) {
        let now = Instant::now();
        let mut recent = self.recent();
        if !recent.contains_key(&resource.id()) {
            make_room(&mut recent);
        }
        let known = || Known { name: resource.name().to_owned(), stays, elsewhere: HashMap::new() };
        let entry = recent.entry(resource.id()).or_insert_with(|| Entry { known: known(), asked: now, compared: None });
        (entry.known.stays, entry.asked) = (stays, now);
    }

    /// All that is known, the latest first.
    pub(crate) fn all(&self) -> Vec<Known> {
        let recent = self.recent();
        let mut all: Vec<_> = recent.values().collect();
        all.sort_by_key(|entry| std::cmp::Reverse(entry.asked));
        all.into_iter().map(|entry| entry.known.clone()).collect()
    }

    /// Whether origins should be asked for it now; if so, the caller does.
    fn is_due(&self, resource: ResourceId) -> bool {
        let now = Instant::now();
        let mut recent = self.recent();
        let Some(entry) = recent.get_mut(&resource) else { return false };
        let due = entry.compared.is_none_or(|compared| now.duration_since(compared) >= COMPARED_AGAIN);
        if due {
            entry.compared = Some(now);
        }
        due
    }

    /// An origin was asked for it: why it could not go on there, if so.
    pub(crate) fn learn(&self, resource: ResourceId, origin: OriginId, difference: Option<&'static str>) {
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

/// Asks the other origins for one byte of what is being transferred, unless that was done a short while ago: so it is known
/// beforehand where the transfer could go on.
pub(crate) fn compare(
    pool: &Arc<Pool>,
    transfer: &Transfer,
    resource: &Resource,
    at: OriginId,
    request: &Repeatable,
    client: &Client,
) {
    if pool.origins().len() < 2 {
        return;
    }
    let Ok(permit) = Arc::clone(&pool.resources().comparisons).try_acquire_owned() else { return };
    let Ok(probe) = transfer.probe() else { return };
    if !pool.resources().is_due(resource.id()) {
        return;
    }
    let others: Vec<_> = pool.views().into_iter().filter(|origin| origin.id != at).collect();
    let (pool, resource) = (Arc::clone(pool), resource.id());
    let (mut request, client) = (request.clone(), client.clone());
    probe.request(&mut request.headers);
    tokio::spawn(async move {
        for origin in others.iter().filter(|origin| origin.availability != Availability::Down) {
            let answer = ask(&pool, origin.id, &probe, &request, &client).await;
            // One that does not answer may do so when it is needed.
            if matches!(answer, Ok(Err(_))) {
                pool.transfers().refused(resource, origin.id);
            }
            let difference = match answer {
                Ok(same) => same.err().map(Refusal::as_str),
                Err(reason) => Some(reason),
            };
            pool.resources().learn(resource, origin.id, difference);
        }
        drop(permit);
    });
}

/// Whether it has the same; or why it does not answer.
async fn ask(
    pool: &Pool,
    origin: OriginId,
    probe: &Continuation,
    request: &Repeatable,
    client: &Client,
) -> Result<Result<(), Refusal>, &'static str> {
    match pool.origin(origin).exchange(request.request(), None, Some(request), client).await {
        Outcome::Answered(response) => {
            let same = probe.accept(response.status(), response.headers());
            if same.is_ok() {
                // It is short, and the connection can be used again.
                let _ = Limited::new(response.into_body(), PROBED_MAX).collect().await;
            }
            Ok(same.map(drop))
        }
        Outcome::Untouched(_, failure) | Outcome::Failed(failure) => Err(failure.reason()),
    }
}
