//! Drains agents: asks their connections to leave, at a limited rate per second and a limited number at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use watari_values::NodeName;
use watari_wire::{DispatcherToAgent, Leave};

use crate::drains::{Drains, Leaver, Leaving};
use crate::shared::DispatcherShared;

/// The interval between requests, while some connections are about to leave. It is short, because agents work off all
/// moves of an interval at once, and the clients' own requests wait for them.
const ASK: Duration = Duration::from_millis(1);

/// How much later than planned the requests of an interval may come and still be made up for: a busy machine must not
/// lower the rate.
const LATE_MAX: Duration = Duration::from_millis(20);

/// The interval between searches of the whole table, and between requests while all remaining connections have reported
/// why they stay, or none remain.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long no connection is asked while no agent can take it, although another one is configured. It may be about to
/// start.
const TARGET_MAX: Duration = Duration::from_secs(5);

/// Connections of one agent that may be about to leave at a time: enough to keep both agents busy, and no more than a
/// target can hold.
const LEAVING_MAX: usize = 256;

/// Asks connections to leave draining agents, until `shutdown`.
pub(crate) async fn run(shared: Arc<DispatcherShared>, shutdown: CancellationToken) {
    let drains = &shared.agents.drains;
    let mut searches: HashMap<NodeName, Search> = HashMap::new();
    let ask = |agent: &NodeName, max| {
        searches.retain(|searched, _| drains.contains(searched));
        searches.entry(agent.clone()).or_default().ask_some(&shared, agent, max)
    };
    tokio::select! {
        () = empty(drains, || shared.agents.settings().config.limits.drain_rate, ask) => {}
        () = shutdown.cancelled() => {}
    }
}

/// Calls `ask` for connections of draining agents, for at most `rate()` connections per second over all agents. Waits
/// while no agent is being drained. The second argument of `ask` is the most that it may ask. It returns how many
/// connections it asked, and how many others are about to leave.
async fn empty(drains: &Drains, rate: impl Fn() -> u32, mut ask: impl FnMut(&NodeName, usize) -> (usize, usize)) {
    let mut pace = Pace::new(Instant::now());
    loop {
        let draining = drains.all();
        if draining.is_empty() {
            drains.begun.notified().await;
            continue;
        }
        let mut is_busy = false;
        for agent in &draining {
            let allowed = pace.allowed(rate(), Instant::now());
            let (asked, about_to) = ask(agent, allowed);
            pace.take(asked);
            is_busy |= asked > 0 || about_to > 0 || allowed == 0;
        }
        tokio::select! {
            () = tokio::time::sleep(if is_busy { ASK } else { LOOK_AGAIN }) => {}
            () = drains.begun.notified() => {}
        }
    }
}

/// What one agent still has, as the last search found it.
#[derive(Default)]
struct Search {
    leaving: Leaving,
    searched: Option<Instant>,
    /// Since when there has been no target.
    without_target: Option<Instant>,
}

impl Search {
    /// Asks at most `max` connections of `agent`. Returns the numbers as [`empty`] needs them.
    fn ask_some(&mut self, shared: &DispatcherShared, agent: &NodeName, max: usize) -> (usize, usize) {
        let now = Instant::now();
        if self.waits_for_target(shared.agents.hopes_for_target(agent), now) {
            return (0, 0);
        }
        let is_due = self.searched.is_none_or(|searched| now.duration_since(searched) >= LOOK_AGAIN);
        if self.leaving.found.is_empty() && is_due {
            shared.table.find_leavers(agent, &mut self.leaving, now);
            self.searched = Some(now);
        }
        let leavers = shared.table.leavers(agent, &mut self.leaving, LEAVING_MAX, max, now);
        for Leaver { id, client } in &leavers {
            let target = shared.agents.successor(*client);
            shared.send(agent, DispatcherToAgent::Leave(Leave { connection: *id, target, or_end: true }));
        }
        (leavers.len(), self.leaving.about_to.len() - leavers.len())
    }

    /// Whether to wait, because there is no target yet. Without one, connections end.
    fn waits_for_target(&mut self, hopes_for_target: bool, now: Instant) -> bool {
        if !hopes_for_target {
            self.without_target = None;
            return false;
        }
        now.duration_since(*self.without_target.get_or_insert(now)) < TARGET_MAX
    }
}

/// How many connections may be asked at a point in time (a token bucket).
struct Pace {
    allowed: f64,
    at: Instant,
}

impl Pace {
    fn new(now: Instant) -> Self {
        Self { allowed: 0.0, at: now }
    }

    /// Returns the allowance. Unused allowance accumulates for at most [`LATE_MAX`], plus one connection.
    fn allowed(&mut self, per_s: u32, now: Instant) -> usize {
        let per_s = f64::from(per_s);
        let most = per_s * LATE_MAX.as_secs_f64() + 1.0;
        self.allowed = (self.allowed + (now - self.at).as_secs_f64() * per_s).min(most);
        self.at = now;
        #[expect(clippy::cast_sign_loss, reason = "`allowed` is never below 0")]
        let whole = self.allowed as usize;
        whole
    }

    fn take(&mut self, asked: usize) {
        self.allowed -= u32::try_from(asked).map_or(self.allowed, f64::from);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::drains::AskedBy;

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// The time until `connections` connections were asked, if all of them leave at once.
    async fn time_to_empty(connections: usize, rate: u32) -> Duration {
        let (drains, begin) = (Drains::default(), Instant::now());
        drains.begin(&name("a1"), AskedBy::Operator);
        let mut left = connections;
        let mut last = begin;
        let ask = |agent: &NodeName, max: usize| {
            assert_eq!(*agent, name("a1"));
            let asked = left.min(max);
            left -= asked;
            if asked > 0 {
                last = Instant::now();
            }
            (asked, 0)
        };
        let emptied = empty(&drains, || rate, ask);
        assert!(tokio::time::timeout(Duration::from_mins(1), emptied).await.is_err());
        assert_eq!(left, 0);
        last - begin
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_asked_at_the_rate_that_was_set() {
        for (connections, rate, seconds) in [(8_000, 2_000, 4.0), (100, 10, 10.0), (30, 1, 30.0)] {
            let took = time_to_empty(connections, rate).await.as_secs_f64();
            assert!((seconds * 0.98..seconds * 1.1).contains(&took), "{connections} at {rate}/s took {took} s");
        }
    }

    #[test]
    fn a_target_is_waited_for_a_while_each_time_that_there_is_none() {
        let (mut search, start) = (Search::default(), Instant::now());
        let mut waits = |hopes, ms| search.waits_for_target(hopes, start + Duration::from_millis(ms));
        assert!(!waits(false, 0));
        assert!(waits(true, 10_000) && waits(true, 14_900));
        assert!(!waits(true, 15_000) && !waits(true, 60_000));
        assert!(!waits(false, 60_001));
        assert!(waits(true, 60_002));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_looked_for_until_a_drain_begins() {
        let (drains, mut asked) = (Drains::default(), 0);
        let ask = |_: &NodeName, _| {
            asked += 1;
            (0, 0)
        };
        let drain = async {
            tokio::time::sleep(Duration::from_hours(1)).await;
            drains.begin(&name("a1"), AskedBy::Operator);
            tokio::time::sleep(LOOK_AGAIN / 2).await;
            drains.end(&name("a1"));
            tokio::time::sleep(Duration::from_hours(1)).await;
        };
        tokio::select! {
            () = empty(&drains, || 1, ask) => {}
            () = drain => {}
        }
        assert_eq!(asked, 1);
    }
}
