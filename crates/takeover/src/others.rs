//! The other candidates for an address, by their adverts.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use watari_values::NodeName;
use watari_wire::Advert;

use crate::terms::{Terms, Time};

/// Candidates that are remembered. A hostile dispatcher has only one name.
const OTHERS_MAX: usize = 64;

/// The last advert of each other candidate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Others(BTreeMap<NodeName, (Time, Advert)>);

impl Others {
    /// Notes an advert, and forgets candidates that have been silent for long.
    pub(crate) fn heard(&mut self, from: &NodeName, advert: &Advert, terms: &Terms, now: Time) {
        self.0.retain(|_, (heard, advert)| *heard + memory(terms, advert) > now);
        if self.0.len() < OTHERS_MAX || self.0.contains_key(from) {
            self.0.insert(from.clone(), (now, advert.clone()));
        }
    }

    /// The candidates whose last advert is recent.
    fn recent<'a>(&'a self, terms: &'a Terms, now: Time) -> impl Iterator<Item = (&'a NodeName, &'a (Time, Advert))> {
        self.0.iter().filter(move |(_, (heard, advert))| *heard + memory(terms, advert) > now)
    }

    /// The owner by the latest advert of one.
    pub(crate) fn owner<'a>(&'a self, terms: &'a Terms, now: Time) -> Option<&'a NodeName> {
        let owners = self.recent(terms, now).filter(|(_, (_, advert))| advert.is_owner);
        owners.max_by_key(|(_, (heard, _))| *heard).map(|(name, _)| name)
    }

    /// Whether the candidate is one, and its priority (0: it cannot serve clients).
    pub(crate) fn priority(&self, name: &NodeName, terms: &Terms, now: Time) -> Option<u8> {
        self.recent(terms, now).find(|(other, _)| *other == name).map(|(_, (_, advert))| advert.priority)
    }

    /// The candidate that gets the address if an operator names none: the highest priority, then the first name.
    pub(crate) fn best<'a>(&'a self, terms: &'a Terms, now: Time) -> Option<&'a NodeName> {
        let able = self.recent(terms, now).filter(|(_, (_, advert))| advert.priority > 0);
        able.max_by(|(a, (_, of_a)), (b, (_, of_b))| of_a.priority.cmp(&of_b.priority).then(b.cmp(a)))
            .map(|(name, _)| name)
    }

    /// How many candidates are to ask before `name`, which has this priority.
    pub(crate) fn ahead_of(&self, name: &NodeName, priority: u8, terms: &Terms, now: Time) -> u32 {
        let ahead = |other: &NodeName, advert: &Advert| {
            !advert.is_owner && (advert.priority > priority || advert.priority == priority && other < name)
        };
        let count = self.recent(terms, now).filter(|(other, (_, advert))| ahead(other, advert)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// A candidate with other voters or another lease.
    pub(crate) fn with_other_terms<'a>(&'a self, terms: &'a Terms, now: Time) -> Option<&'a NodeName> {
        let other = self.recent(terms, now).find(|(_, (_, advert))| !terms.are(advert.lease_ms, &advert.voters));
        other.map(|(name, _)| name)
    }
}

/// How long an advert counts.
fn memory(terms: &Terms, advert: &Advert) -> Duration {
    2 * terms.lease.max(Duration::from_millis(advert.lease_ms.into()).min(crate::LEASE_MAX))
}
