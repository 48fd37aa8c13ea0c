//! The requests that wait, by priority.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::line::{Line, Next};
use super::settings::QueueSettings;

/// One line for each priority.
#[derive(Debug)]
pub(super) struct Lines {
    /// The highest priority first.
    by_priority: BTreeMap<Reverse<u8>, Line>,
    /// The priority of each rule, and then that of requests that match no rule.
    priorities: Vec<Reverse<u8>>,
    /// See [`QueueSettings::one_in`].
    one_in: u32,
}

impl Lines {
    pub(super) fn new(settings: &QueueSettings) -> Self {
        let priorities = settings.rules.iter().map(|rule| rule.priority).chain([settings.priority]);
        let priorities: Vec<_> = priorities.map(Reverse).collect();
        let by_priority = priorities.iter().map(|priority| (*priority, Line::default())).collect();
        Self { by_priority, priorities, one_in: settings.one_in.get() }
    }

    pub(super) fn push(&mut self, who: Next) {
        self.line_of(who.rule).push(who);
    }

    pub(super) fn remove(&mut self, who: Next) {
        self.line_of(who.rule).remove(who);
    }

    /// Selects the next request among those whose rules have a free slot, and counts its client's turn.
    pub(super) fn take_next(&mut self, can_begin: impl Fn(usize) -> bool) -> Option<Next> {
        let (chosen, next) = self.next(&can_begin)?;
        for (priority, line) in &mut self.by_priority {
            if *priority == chosen {
                line.takes_turn(next.client);
            } else if line.next(&can_begin).is_some() {
                line.passed_over = line.passed_over.saturating_add(1);
            }
        }
        Some(next)
    }

    /// The highest priority goes first, unless other lines have been passed over `one_in - 1` times or more. Of those,
    /// the line that was passed over most often goes first, and of equal ones the one of the highest priority.
    fn next(&self, can_begin: impl Fn(usize) -> bool) -> Option<(Reverse<u8>, Next)> {
        let able =
            || self.by_priority.iter().filter_map(|(priority, line)| Some((*priority, line, line.next(&can_begin)?)));
        let overdue = able().filter(|(_, line, _)| line.passed_over >= self.one_in - 1);
        let most = overdue.max_by_key(|(priority, line, _)| (line.passed_over, Reverse(*priority)));
        most.or_else(|| able().next()).map(|(priority, _, next)| (priority, next))
    }

    fn line_of(&mut self, rule: usize) -> &mut Line {
        self.by_priority.entry(self.priorities[rule]).or_default()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_priority.values().all(Line::is_empty)
    }
}
