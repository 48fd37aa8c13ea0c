//! Questions to origins that several requests wait for (request collapsing).
//!
//! The first request for a key that is not stored leads: it asks the origin. Later ones follow: they wait for the head of
//! its response.
//!
//! ```text
//!              .--> Available: all use the response, while it is filled
//!   asking ----+--> Released: it is not for others; each follower asks by itself
//!              +--> Failed: the origin does not answer, and followers get a failure, too
//!              '--> (the leader is dropped) one of the followers leads
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use tokio::sync::watch;
use watari_cache::{Key, Vary};

use super::fill::Fill;
use super::response_cache::Found;

/// The questions in progress, by the keys of their requests.
#[derive(Debug, Default)]
pub(super) struct Questions(Mutex<HashMap<Key, watch::Receiver<Option<Outcome>>>>);

/// The outcome of a question, for its followers.
#[derive(Debug, Clone)]
pub(super) enum Outcome {
    Available(Available),
    Released,
    /// With the status of the failure.
    Failed(StatusCode),
}

/// A response that can be used before it is stored completely.
#[derive(Debug, Clone)]
pub(super) struct Available {
    /// What it varies by, and the key of its variant.
    pub(super) vary: Vary,
    pub(super) key: Key,
    pub(super) found: Found,
    /// Its content, if that has not arrived completely.
    pub(super) fill: Option<Arc<Fill>>,
}

pub(super) enum Joined {
    Leads(Leader),
    Follows(Follower),
}

/// The right to ask the origin. Dropping it passes the right on to a follower.
pub(super) struct Leader {
    questions: Arc<Questions>,
    key: Key,
    outcome: watch::Sender<Option<Outcome>>,
}

pub(super) struct Follower(watch::Receiver<Option<Outcome>>);

impl Questions {
    pub(super) fn join(self: &Arc<Self>, key: Key) -> Joined {
        match self.lock().entry(key) {
            Slot::Occupied(asking) => Joined::Follows(Follower(asking.get().clone())),
            Slot::Vacant(none) => {
                let (outcome, receiver) = watch::channel(None);
                none.insert(receiver);
                Joined::Leads(Leader { questions: Arc::clone(self), key, outcome })
            }
        }
    }

    /// The number of questions in progress.
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, watch::Receiver<Option<Outcome>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Leader {
    /// Ends the question, for followers until now. Later requests look into the store first.
    pub(super) fn answered(self, outcome: Outcome) {
        self.outcome.send_replace(Some(outcome));
    }

    /// Gives the response to followers, and to later requests until the returned guard is dropped.
    pub(super) fn available(self, available: Available) -> Self {
        self.outcome.send_replace(Some(Outcome::Available(available)));
        self
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.questions.lock().remove(&self.key);
    }
}

impl Follower {
    /// Waits for the outcome. `None`: the leader was dropped without one.
    pub(super) async fn outcome(mut self) -> Option<Outcome> {
        let outcome = self.0.wait_for(Option::is_some).await.ok()?;
        outcome.clone()
    }
}
