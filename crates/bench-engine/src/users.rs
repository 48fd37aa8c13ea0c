//! The users of the standby paper (standby, "What it measures").
//!
//! A user sends a request, waits, sends a second one, waits, and sends a last one. All waits of a user have the same
//! length: 5, 10, 30 or 60 s, in equal shares of the users. Requests begin at a fixed rate. Returning users send theirs
//! when their waits end. New users begin for the rest of the rate. After the configured duration no new users begin,
//! and only waits end.
//!
//! [`Users`] decides which user sends a request when. It has no clock and sends nothing:
//!
//! ```text
//!   next(now) -> Ask(visit)       send this request now, and call next() again
//!             -> Wait(time)       call next() at this time, or when a response arrives
//!             -> WaitForAnswers   call next() when a response arrives
//!             -> Done
//!   answered(visit, now)          its response arrived, or it failed: the user's wait begins
//! ```
//!
//! A user waits after a failed request as after any other, so that the load does not depend on how well the server
//! responds.
//!
//! Imports: `shares`, for the waits of users.

mod settings;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub use self::settings::{Count, Settings, SettingsError};

/// Decides which user sends a request when.
#[derive(Debug)]
pub struct Users {
    settings: Settings,
    /// The number of this share among the `of` shares of the load.
    index: u64,
    of: u64,
    /// Users that have begun.
    begun: u64,
    /// Requests that have begun.
    asked: u64,
    /// Requests without a response so far.
    in_progress: u64,
    waiting: BinaryHeap<Reverse<Visit>>,
}

/// One request of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    /// When the request is due, from the start of the run.
    pub due: Duration,
    /// The number of the user, in the order in which users begin.
    pub user: u64,
    /// The number of the request among those of the user, from 0.
    pub request: u32,
}

/// The next action of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this request.
    Ask(Visit),
    /// Wait until this time from the start of the run, or until a response arrives.
    Wait(Duration),
    /// Wait until a response arrives.
    WaitForAnswers,
    /// All users have finished.
    Done,
}

impl Users {
    pub fn new(settings: Settings) -> Self {
        Self::share(settings, 0, 1)
    }

    /// The users `index`, `index + of`, `index + 2 * of` and so on, so that `of` threads can share the load. Each
    /// thread begins every `of`-th request, and maintains the rate of its share.
    pub fn share(settings: Settings, index: u64, of: u64) -> Self {
        Self { settings, index, of, begun: 0, asked: 0, in_progress: 0, waiting: BinaryHeap::new() }
    }

    /// The action at `now`, counted from the start of the run. Requests are returned in the order in which they are
    /// due, however late this is called.
    pub fn next(&mut self, now: Duration) -> Next {
        let returning = self.waiting.peek().map(|Reverse(visit)| visit.due);
        let newcomer = self.newcomer_due();
        match (returning, newcomer) {
            (Some(due), _) if due <= now && newcomer.is_none_or(|newcomer| due <= newcomer) => self.ask_again(),
            (_, Some(due)) if due <= now => self.ask_first(due),
            (Some(one), Some(other)) => Next::Wait(one.min(other)),
            (Some(due), None) | (None, Some(due)) => Next::Wait(due),
            (None, None) if self.in_progress > 0 => Next::WaitForAnswers,
            (None, None) => Next::Done,
        }
    }

    /// The response to a visit arrived at `now`, or the visit failed. Returns true if the user will send another
    /// request.
    pub fn answered(&mut self, visit: Visit, now: Duration) -> bool {
        self.in_progress -= 1;
        let comes_again = visit.request + 1 < self.settings.requests();
        if comes_again {
            let due = now.saturating_add(self.settings.waits().of(visit.user));
            self.waiting.push(Reverse(Visit { due, request: visit.request + 1, ..visit }));
        }
        comes_again
    }

    /// Number of users that have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// When the next new user is due. It is computed from the counts so far, so that errors do not add up over hours.
    #[allow(clippy::cast_precision_loss, reason = "no run counts to 2^53")]
    fn newcomer_due(&self) -> Option<Duration> {
        let counted = match self.settings.count() {
            Count::Requests => self.asked,
            Count::Users => self.begun,
        };
        let due = (counted * self.of + self.index) as f64 / self.settings.rate();
        Some(Duration::from_secs_f64(due)).filter(|due| *due < self.settings.duration())
    }

    fn ask_first(&mut self, due: Duration) -> Next {
        let user = self.begun * self.of + self.index;
        self.begun += 1;
        self.ask(Visit { due, user, request: 0 })
    }

    fn ask_again(&mut self) -> Next {
        match self.waiting.pop() {
            Some(Reverse(visit)) => self.ask(visit),
            None => Next::WaitForAnswers,
        }
    }

    fn ask(&mut self, visit: Visit) -> Next {
        self.asked += 1;
        self.in_progress += 1;
        Next::Ask(visit)
    }
}

#[cfg(test)]
mod tests;
