//! Finds the purges that match an entry.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

use super::Purge;

/// The number of the last purge of each text.
#[derive(Debug, Default)]
pub(super) struct Index {
    everything: u64,
    urls: HashMap<Box<str>, u64>,
    prefixes: BTreeMap<Box<[u8]>, u64>,
    groups: HashMap<Box<str>, u64>,
    host_groups: HashMap<Box<str>, u64>,
}

impl Index {
    /// Whether a purge with a number greater than `since` matches the entry.
    pub(super) fn affects(&self, since: u64, url: &str, host: &str, groups: &[Box<str>]) -> bool {
        let is_later = |number: &u64| *number > since;
        is_later(&self.everything)
            || self.urls.get(url).is_some_and(is_later)
            || groups.iter().any(|group| self.groups.get(group).is_some_and(is_later))
            || (!self.host_groups.is_empty() && self.affects_host_groups(since, host, groups))
            || self.affects_prefixes(since, url.as_bytes())
    }

    /// `number` is greater than all before.
    pub(super) fn insert(&mut self, purge: &Purge, number: u64) {
        match purge {
            Purge::Everything => self.purge_everything(number),
            Purge::Url(text) => drop(self.urls.insert(text.clone(), number)),
            Purge::Prefix(text) => drop(self.prefixes.insert(text.as_bytes().into(), number)),
            Purge::Group(text) => drop(self.groups.insert(text.clone(), number)),
            Purge::HostGroup(text) => drop(self.host_groups.insert(text.clone(), number)),
        }
    }

    /// Purges everything that was requested before the purge with this number was learned.
    pub(super) fn purge_everything(&mut self, number: u64) {
        if number > self.everything {
            self.everything = number;
            for texts in [&mut self.urls, &mut self.groups, &mut self.host_groups] {
                texts.retain(|_, later| *later > number);
            }
            self.prefixes.retain(|_, later| *later > number);
        }
    }

    pub(super) fn everything(&self) -> u64 {
        self.everything
    }

    fn affects_host_groups(&self, since: u64, host: &str, groups: &[Box<str>]) -> bool {
        let mut text = format!("{host} ");
        groups.iter().any(|group| {
            text.truncate(host.len() + 1);
            text.push_str(group);
            self.host_groups.get(text.as_str()).is_some_and(|number| *number > since)
        })
    }

    /// Visits the prefixes of `url`, from the longest on. A prefix of `url` sorts before it. If the last text up to a
    /// bound is none, then the prefixes that remain are not longer than what it has in common with `url`.
    fn affects_prefixes(&self, since: u64, url: &[u8]) -> bool {
        let mut bound = Bound::Included(url);
        loop {
            let Some((text, number)) = self.prefixes.range::<[u8], _>((Bound::Unbounded, bound)).next_back() else {
                return false;
            };
            let common = text.iter().zip(url).take_while(|(one, other)| one == other).count();
            let is_prefix = common == text.len();
            if is_prefix && *number > since {
                return true;
            }
            bound = if is_prefix { Bound::Excluded(&url[..common]) } else { Bound::Included(&url[..common]) };
        }
    }
}
