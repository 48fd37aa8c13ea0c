//! What messages and new legs change about the leg of a connection.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use watari_handoff::AgentLeg;
use watari_values::{ConnectionId, DispatcherChange, Epoch, NodeName};

use super::{Carried, CurrentDispatcher};

/// The part of a leg that other tasks reach. There is one for each connection, so it is small.
pub(super) struct LegControl {
    id: ConnectionId,
    tenure: Epoch,
    dispatcher: CurrentDispatcher,
    /// Bytes of the client's stream that were read. Only the connection's task adds to it.
    received: AtomicU64,
    /// Whether the connection's task has to look at the state before it reads or writes. Changes under the lock.
    has_news: AtomicBool,
    state: Mutex<LegState>,
}

pub(super) struct LegState {
    pub(super) agent_leg: AgentLeg,
    /// Bytes of the stream to the client that were written.
    pub(super) sent: u64,
    /// Legs that the connection's task has not taken yet.
    pub(super) arrived: Vec<Continued>,
    /// The offset of the first byte on the newest leg. 0 without a change.
    rx_offset: u64,
    pub(super) has_failed: bool,
    /// Whether the leg is about to pass to a successor of this process.
    pub(super) is_passing: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

/// A leg with a preface that continues a connection (`Kind::Continue`).
pub(crate) struct Continued {
    pub(crate) stream: TcpStream,
    pub(crate) change: DispatcherChange,
    pub(crate) tenure: Epoch,
    pub(crate) rx_offset: u64,
    pub(crate) tx_offset: u64,
    /// The bytes that followed the preface.
    pub(crate) surplus: Vec<u8>,
}

/// The reason that a leg does not continue its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ContinueRefusal {
    #[error("the connection is not at this agent")]
    NotHere,
    #[error("the connection does not wait for a leg of this dispatcher")]
    NotAwaited,
    #[error("the dispatcher continues at other offsets than this agent: bytes were lost")]
    Offsets,
}

impl ContinueRefusal {
    /// The reason as a metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::NotHere | Self::NotAwaited => "not_awaited",
            Self::Offsets => "offsets",
        }
    }
}

impl LegControl {
    pub(super) fn new(carried: Carried) -> Self {
        let Carried { id, tenure, dispatcher, change, received, sent } = carried;
        let state = LegState {
            agent_leg: AgentLeg::after(change),
            sent,
            arrived: Vec::new(),
            rx_offset: 0,
            has_failed: false,
            is_passing: false,
            reader: None,
            writer: None,
        };
        let (received, has_news) = (AtomicU64::new(received), AtomicBool::new(false));
        Self { id, tenure, dispatcher, received, has_news, state: Mutex::new(state) }
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.id
    }

    #[cfg(test)]
    pub(super) fn dispatcher(&self) -> CurrentDispatcher {
        self.dispatcher.clone()
    }

    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(super) fn count_received(&self, read: usize) {
        self.received.store(self.received() + read as u64, Ordering::Relaxed);
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LegState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets whether the connection's task has to look at `state`.
    pub(super) fn note(&self, state: &LegState) {
        self.has_news.store(!state.is_settled(), Ordering::Release);
    }

    /// Detaches the leg, as its dispatcher asks. If the request is to be answered, returns the bytes of the stream to the
    /// client that were written, and whether it is the first one of this change.
    pub(super) fn on_detach(&self, from: &NodeName, number: u32, to: &NodeName) -> Option<(u64, bool)> {
        let mut state = self.lock();
        let is_first = number > state.agent_leg.last();
        let answers =
            self.dispatcher.is(from) && !state.has_failed && !state.is_passing && state.agent_leg.on_detach(number, to);
        self.note(&state);
        answers.then_some((state.sent, is_first))
    }

    /// The dispatcher goes on by itself. Returns whether to answer: also a repeated order, unless another request came.
    pub(super) fn on_attach(&self, from: &NodeName, number: u32) -> bool {
        let mut state = self.lock();
        if !self.dispatcher.is(from) || state.has_failed {
            return false;
        }
        if state.agent_leg.on_attach(number) {
            self.note(&state);
            state.wake();
        }
        state.agent_leg.last() == number
    }

    /// Replaces the leg, if this one is awaited. Otherwise returns it.
    pub(super) fn on_continue(&self, from: &NodeName, leg: Continued) -> Result<(), (ContinueRefusal, Continued)> {
        let mut state = self.lock();
        let mut agent_leg = state.agent_leg.clone();
        let is_awaited = leg.tenure == self.tenure && agent_leg.on_continue(leg.change.number, from);
        if !is_awaited || state.has_failed {
            return Err((ContinueRefusal::NotAwaited, leg));
        }
        if leg.tx_offset != state.sent || leg.rx_offset < self.received().max(state.rx_offset) {
            return Err((ContinueRefusal::Offsets, leg));
        }
        self.dispatcher.change(from.clone());
        (state.agent_leg, state.rx_offset) = (agent_leg, leg.rx_offset);
        state.arrived.push(leg);
        self.note(&state);
        state.wake();
        Ok(())
    }

    /// Fails the leg, if it is still detached by this change.
    pub(super) fn expire(&self, number: u32) -> bool {
        let is_late = {
            let state = self.lock();
            !state.agent_leg.may_write() && state.agent_leg.last() == number
        };
        if is_late {
            self.fail();
        }
        is_late
    }

    pub(super) fn fail(&self) {
        let mut state = self.lock();
        state.has_failed = true;
        state.arrived.clear();
        self.note(&state);
        state.wake();
    }
}

impl LegState {
    /// Whether there is something that the connection's task has not taken.
    pub(super) fn has_come(&self) -> bool {
        self.has_failed || !self.arrived.is_empty()
    }

    /// Whether no change is in progress, as far as other tasks take part in it.
    pub(super) fn is_settled(&self) -> bool {
        !self.has_come() && self.agent_leg.may_write()
    }

    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
}

/// Wakes the task of `cx` at the next change.
pub(super) fn wait(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) if waker.will_wake(cx.waker()) => {}
        _ => *slot = Some(cx.waker().clone()),
    }
}
