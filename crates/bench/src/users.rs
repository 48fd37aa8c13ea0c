//! The users of the standby paper (standby, "What it measures").
//!
//! A user asks once, waits, asks again, waits, and asks a last time. All his waits are of one length: 5, 10, 30 or 60 s, in equal shares
//! of the users. Requests begin at a fixed rate: those of returning users when their waits end, and for what these leave of the rate new
//! users begin. After some time no new users begin, and only waits end.
//!
//! [`Users`] decides who asks when. It has no clock and sends nothing:
//!
//! ```text
//!   next(now) -> Ask(visit)       send its request at once, and go on asking what is next
//!             -> Wait(time)       nothing until then, or until an answer comes
//!             -> WaitForAnswers   nothing until an answer comes
//!             -> Done
//!   answered(visit, now)          its answer came, or it failed: his wait begins
//! ```
//!
//! A request that fails is followed by the wait like any other: what is asked of a server does not depend on how well it answers.

mod settings;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

pub use self::settings::{Count, Settings, SettingsError};

/// Who asks when.
#[derive(Debug)]
pub struct Users {
    settings: Settings,
    /// Which one this is of several that share the load.
    index: u64,
    of: u64,
    /// Users that have begun.
    begun: u64,
    /// Requests that have begun.
    asked: u64,
    /// Requests whose answers have not come.
    in_progress: u64,
    waiting: BinaryHeap<Reverse<Visit>>,
}

/// One request of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Visit {
    /// When it is due, from the start of the run.
    pub due: Duration,
    /// Whose it is: numbered in the order in which users begin.
    pub user: u64,
    /// Which of his requests it is, from 0.
    pub request: u32,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Send this request.
    Ask(Visit),
    /// Nothing before this time, from the start of the run, unless an answer comes.
    Wait(Duration),
    /// Nothing unless an answer comes.
    WaitForAnswers,
    /// Nothing any more.
    Done,
}

impl Users {
    /// All users.
    pub fn new(settings: Settings) -> Self {
        Self::share(settings, 0, 1)
    }

    /// The users with the numbers `index`, `index + of`, ..., so that `of` threads can share the load: each begins every `of`-th
    /// request, and the rate is held by each for its share.
    pub fn share(settings: Settings, index: u64, of: u64) -> Self {
        Self { settings, index, of, begun: 0, asked: 0, in_progress: 0, waiting: BinaryHeap::new() }
    }

    /// What is to be done at `now`, counted from the start of the run. Requests come in the order in which they are due, however late
    /// this is called.
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

    /// The answer to a visit came at `now`, or it failed then. True if the user will come again.
    pub fn answered(&mut self, visit: Visit, now: Duration) -> bool {
        self.in_progress -= 1;
        let comes_again = visit.request + 1 < self.settings.requests();
        if comes_again {
            let due = now.saturating_add(self.settings.waits().of(visit.user));
            self.waiting.push(Reverse(Visit { due, request: visit.request + 1, ..visit }));
        }
        comes_again
    }

    /// Users that have begun.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// When the next new user is due: computed from what has been counted so far, so that nothing adds up over hours.
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
