//! A simple model of the queue: a list of requests, and a ring of clients for each priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::*;

pub(super) struct Model {
    settings: QueueSettings,
    requests: Vec<Known>,
    rings: BTreeMap<Reverse<u8>, Ring>,
}

#[derive(Default)]
struct Ring {
    clients: Vec<IpAddr>,
    passed_over: u32,
}

#[derive(Clone, Copy)]
struct Known {
    id: AdmissionId,
    rule: usize,
    client: IpAddr,
    waits: bool,
    /// `None`: it waits without a limit.
    deadline: Option<Instant>,
}

impl Model {
    pub(super) fn new(settings: QueueSettings) -> Self {
        Self { settings, requests: Vec::new(), rings: BTreeMap::new() }
    }

    /// Whether `entered`, the queue's decision, is correct. Applies it to the model.
    pub(super) fn enters(&mut self, rule: usize, client: IpAddr, entered: Entered, now: Instant) -> bool {
        let may_wait = |limits: Limits, load: Load| limits.waiting_max.is_none_or(|max| load.waiting < max);
        let may_wait =
            may_wait(self.settings.all, self.load(None)) && may_wait(self.limits(rule), self.load(Some(rule)));
        match entered {
            Entered::Now(id) => {
                let had_room = self.has_room(rule);
                self.requests.push(Known { id, rule, client, waits: false, deadline: None });
                had_room
            }
            Entered::Waiting(id) => {
                let expected = !self.has_room(rule) && may_wait;
                let longest = [self.settings.all.wait_max, self.limits(rule).wait_max].into_iter().flatten().min();
                let deadline = longest.map(|longest| now + longest);
                self.requests.push(Known { id, rule, client, waits: true, deadline });
                self.update_rings();
                expected
            }
            Entered::Refused(_) => !self.has_room(rule) && !may_wait,
        }
    }

    pub(super) fn reconfigure(&mut self, settings: QueueSettings) -> Vec<AdmissionId> {
        for known in &mut self.requests {
            let pattern = self.settings.rules.get(known.rule).map(|rule| &rule.pattern);
            let same = settings.rules.iter().position(|rule| Some(&rule.pattern) == pattern);
            known.rule = same.unwrap_or(settings.rules.len());
        }
        (self.settings, self.rings) = (settings, BTreeMap::new());
        self.update_rings();
        std::iter::from_fn(|| self.begin_one()).collect()
    }

    pub(super) fn leaves(&mut self, id: AdmissionId) -> Option<AdmissionId> {
        self.requests.retain(|known| known.id != id);
        self.update_rings();
        self.begin_one()
    }

    pub(super) fn expire(&mut self, now: Instant) -> Vec<AdmissionId> {
        let is_expired = |known: &&Known| known.deadline.is_some_and(|deadline| deadline <= now);
        let mut expired: Vec<_> = self.requests.iter().filter(is_expired).copied().collect();
        expired.sort_by_key(|known| (known.deadline, known.id));
        let ids: Vec<_> = expired.iter().map(|known| known.id).collect();
        self.requests.retain(|known| !ids.contains(&known.id));
        self.update_rings();
        ids
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.requests.iter().filter_map(|known| known.deadline).min()
    }

    pub(super) fn ids(&self) -> Vec<AdmissionId> {
        self.requests.iter().map(|known| known.id).collect()
    }

    /// The load of one rule, or of all.
    pub(super) fn load(&self, rule: Option<usize>) -> Load {
        let of_rule = || self.requests.iter().filter(|known| rule.is_none_or(|rule| known.rule == rule));
        Load {
            in_progress: of_rule().filter(|known| !known.waits).count(),
            waiting: of_rule().filter(|known| known.waits).count(),
        }
    }

    /// Whether all limits hold.
    pub(super) fn is_within_limits(&self) -> bool {
        let within = |limits: Limits, load: Load| {
            limits.in_progress_max.is_none_or(|max| load.in_progress <= max.get())
                && limits.waiting_max.is_none_or(|max| load.waiting <= max)
        };
        let rules = 0..=self.settings.rules.len();
        rules.into_iter().all(|rule| within(self.limits(rule), self.load(Some(rule))))
            && within(self.settings.all, self.load(None))
    }

    /// Whether no request waits that could begin.
    pub(super) fn conserves_work(&self) -> bool {
        !self.requests.iter().any(|known| known.waits && self.has_room(known.rule))
    }

    fn begin_one(&mut self) -> Option<AdmissionId> {
        let able: Vec<_> =
            self.rings.keys().filter_map(|priority| Some((*priority, self.first_able(*priority)?))).collect();
        let passed_over = |priority: &Reverse<u8>| self.rings[priority].passed_over;
        let most = able.iter().map(|(priority, _)| passed_over(priority)).max()?;
        let overdue = most >= self.settings.one_in.get() - 1;
        let (chosen, first) = *able.iter().find(|(priority, _)| !overdue || passed_over(priority) == most)?;
        for (priority, _) in &able {
            self.rings.get_mut(priority)?.passed_over += 1;
        }
        let ring = self.rings.get_mut(&chosen)?;
        ring.passed_over = 0;
        ring.clients.retain(|client| *client != first.client);
        ring.clients.push(first.client);
        let begins = self.requests.iter_mut().find(|known| known.id == first.id)?;
        (begins.waits, begins.deadline) = (false, None);
        self.update_rings();
        Some(first.id)
    }

    /// The oldest request that could begin, of the first client in the ring that has one.
    fn first_able(&self, priority: Reverse<u8>) -> Option<Known> {
        let able = |client: &IpAddr| {
            let of_client = self.requests.iter().filter(|known| known.client == *client && known.waits);
            let here = of_client.filter(|known| self.priority(known.rule) == priority && self.has_room(known.rule));
            here.min_by_key(|known| known.id).copied()
        };
        self.rings[&priority].clients.iter().find_map(able)
    }

    /// Updates the rings so that they contain exactly the clients that wait.
    fn update_rings(&mut self) {
        let waiting: Vec<_> = self.requests.iter().filter(|known| known.waits).copied().collect();
        for known in &waiting {
            let ring = self.rings.entry(self.priority(known.rule)).or_default();
            if !ring.clients.contains(&known.client) {
                ring.clients.push(known.client);
            }
        }
        let settings = &self.settings;
        for (priority, ring) in &mut self.rings {
            let waits =
                |known: &Known, client| known.client == client && priority_of(settings, known.rule) == *priority;
            ring.clients.retain(|client| waiting.iter().any(|known| waits(known, *client)));
        }
    }

    fn has_room(&self, rule: usize) -> bool {
        let has_room =
            |limits: Limits, load: Load| limits.in_progress_max.is_none_or(|max| load.in_progress < max.get());
        has_room(self.settings.all, self.load(None)) && has_room(self.limits(rule), self.load(Some(rule)))
    }

    fn limits(&self, rule: usize) -> Limits {
        self.settings.rules.get(rule).map_or(Limits::default(), |rule| rule.limits)
    }

    fn priority(&self, rule: usize) -> Reverse<u8> {
        priority_of(&self.settings, rule)
    }
}

fn priority_of(settings: &QueueSettings, rule: usize) -> Reverse<u8> {
    Reverse(settings.rules.get(rule).map_or(settings.priority, |rule| rule.priority))
}
