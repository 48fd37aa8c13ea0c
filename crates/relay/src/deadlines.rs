//! The time limits of a connection.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use watari_handoff::ArbiterTimer;

/// How long the limits are. They do not change during a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// From the start until the agent announces that the handshake is done.
    pub handshake: Duration,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// The longest lifetime.
    pub lifetime: Duration,
    /// From the proposal of a move to the decision.
    pub attempt: Duration,
    /// From the end of the owner's leg to the announcement of the end of its stream. Also from the end of the stream
    /// to the client to the end of the client's stream.
    pub end: Duration,
}

/// The running limits: when they are reached, or for another process the times that are left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deadlines<T = Instant> {
    pub(crate) handshake: Option<T>,
    idle: T,
    lifetime: T,
    /// The arbiter's timer.
    timer: Option<(ArbiterTimer, T)>,
    pub(crate) client_end: EndHeld<T>,
    /// When the relay stops to wait for the client's end.
    pub(crate) linger: Option<T>,
    /// When the agent is asked again to write on its leg, after a change of the dispatcher that has failed.
    pub(crate) attach: Option<T>,
}

/// Whether the client's FIN is held back for the agent to end the stream. This happens once per connection, not once
/// per agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EndHeld<T = Instant> {
    NotYet,
    Until(T),
    LongEnough,
}

/// A deadline that was reached.
pub(crate) enum Reached {
    Arbiter(ArbiterTimer),
    ClientEnd,
    Linger,
    Attach,
    Handshake,
    /// The idle timeout or the lifetime, by its name.
    Limit(&'static str),
}

impl<T> Deadlines<T> {
    /// The same limits with each time changed by `change`.
    pub(crate) fn map<U>(self, change: impl Fn(T) -> U) -> Deadlines<U> {
        Deadlines {
            handshake: self.handshake.map(&change),
            idle: change(self.idle),
            lifetime: change(self.lifetime),
            timer: self.timer.map(|(timer, at)| (timer, change(at))),
            client_end: match self.client_end {
                EndHeld::NotYet => EndHeld::NotYet,
                EndHeld::Until(at) => EndHeld::Until(change(at)),
                EndHeld::LongEnough => EndHeld::LongEnough,
            },
            linger: self.linger.map(&change),
            attach: self.attach.map(change),
        }
    }
}

impl Deadlines<Duration> {
    /// The longest time that is left.
    pub(crate) fn longest(&self) -> Duration {
        let held = match self.client_end {
            EndHeld::Until(left) => Some(left),
            EndHeld::NotYet | EndHeld::LongEnough => None,
        };
        let optional = [self.handshake, self.linger, self.attach, held, self.timer.map(|(_, left)| left)];
        optional.into_iter().flatten().fold(self.idle.max(self.lifetime), Duration::max)
    }
}

impl Deadlines {
    pub(crate) fn start(timeouts: &Timeouts, now: Instant) -> Self {
        Self {
            handshake: Some(now + timeouts.handshake),
            idle: now + timeouts.idle,
            lifetime: now + timeouts.lifetime,
            timer: None,
            client_end: EndHeld::NotYet,
            linger: None,
            attach: None,
        }
    }

    pub(crate) fn first(&self) -> Instant {
        let optional = [self.handshake, self.linger, self.attach, self.end_held_until(), self.timer.map(|(_, at)| at)];
        optional.into_iter().flatten().fold(self.idle.min(self.lifetime), Instant::min)
    }

    fn end_held_until(&self) -> Option<Instant> {
        match self.client_end {
            EndHeld::Until(at) => Some(at),
            EndHeld::NotYet | EndHeld::LongEnough => None,
        }
    }

    /// Restarts the idle timeout.
    pub(crate) fn touch(&mut self, timeouts: &Timeouts, now: Instant) {
        self.idle = now + timeouts.idle;
    }

    /// Starts, keeps or stops the timer as the arbiter requires.
    pub(crate) fn follow(&mut self, timer: Option<ArbiterTimer>, timeouts: &Timeouts, now: Instant) {
        if self.timer.map(|(running, _)| running) == timer {
            return;
        }
        self.timer = timer.map(|timer| {
            let limit = match timer {
                ArbiterTimer::Move => timeouts.attempt,
                ArbiterTimer::Final => timeouts.end,
            };
            (timer, now + limit)
        });
    }

    /// Takes the first deadline that was reached, if there is one.
    pub(crate) fn reached(&mut self, now: Instant) -> Option<Reached> {
        let is_reached = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if let Some((timer, _)) = self.timer.filter(|(_, at)| *at <= now) {
            self.timer = None;
            Some(Reached::Arbiter(timer))
        } else if is_reached(self.end_held_until()) {
            self.client_end = EndHeld::LongEnough;
            Some(Reached::ClientEnd)
        } else if is_reached(self.linger) {
            Some(Reached::Linger)
        } else if is_reached(self.attach) {
            self.attach = None;
            Some(Reached::Attach)
        } else if is_reached(self.handshake) {
            self.handshake = None;
            Some(Reached::Handshake)
        } else if self.idle <= now {
            Some(Reached::Limit("idle_timeout"))
        } else if self.lifetime <= now {
            Some(Reached::Limit("lifetime"))
        } else {
            None
        }
    }
}
