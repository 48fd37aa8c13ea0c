//! One end of an anchored stream.

use std::time::Duration;

use watari_values::{Epoch, NodeName, SecretBytes};
use watari_wire::{AnchoredContent, AnchoredId, AnchoredState};

use crate::incoming::{Incoming, Received};
use crate::outgoing::Outgoing;

/// The interval at which [`Endpoint::tick`] is called.
pub const TICK: Duration = Duration::from_millis(500);

/// An end that hears nothing of the other for this many ticks has failed: 30 s, like a held connection.
pub const SILENT_TICKS_MAX: u32 = 60;

/// The ticks after which an end that hears nothing asks whether the other end still exists.
const QUESTION_TICKS: u32 = 10;

/// One end of a stream.
#[derive(Debug)]
pub struct Endpoint {
    outgoing: Outgoing,
    incoming: Incoming,
    /// The epoch of the owner. `None`: no owner has attached to this anchor.
    owner: Option<Epoch>,
    /// The owner has to attach, until the anchor answers.
    is_attaching: bool,
    is_attach_due: bool,
    /// A message on progress that is due.
    due: Option<Progress>,
    /// Ticks since the last message of the other end.
    silent_ticks: u32,
    /// The acknowledged bytes at the last tick, if others were outstanding.
    outstanding_from: Option<u64>,
    /// Ticks for which the same bytes have been outstanding.
    stuck_ticks: u32,
    /// A gap was reported, and no byte has come since.
    has_gap: bool,
    failure: Option<Failure>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    is_question: bool,
    is_answer: bool,
}

/// The state of a new stream's owner.
pub fn first_owner(anchor: NodeName, id: AnchoredId) -> AnchoredState {
    Endpoint::anchor().export(anchor, id, &[])
}

/// Why a stream cannot continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("the other agent has given the stream up")]
    Reset,
    #[error("the other agent does not answer")]
    Silent,
    #[error("the other agent acknowledges bytes that were not sent")]
    Impossible,
}

impl Endpoint {
    /// The anchor's end of a new stream, for which no owner has attached.
    pub fn anchor() -> Self {
        Self::new(Outgoing::default(), Incoming::default(), None)
    }

    /// The owner's end, since the commit of `epoch`.
    pub fn owner(epoch: Epoch, state: &AnchoredState) -> Self {
        let outgoing = Outgoing::import(state.acknowledged, state.unacknowledged.as_slice(), state.is_ended);
        Self {
            is_attaching: true,
            is_attach_due: true,
            ..Self::new(outgoing, Incoming::import(state.received), Some(epoch))
        }
    }

    fn new(outgoing: Outgoing, incoming: Incoming, owner: Option<Epoch>) -> Self {
        Self {
            outgoing,
            incoming,
            owner,
            is_attaching: false,
            is_attach_due: false,
            due: None,
            silent_ticks: 0,
            outstanding_from: None,
            stuck_ticks: 0,
            has_gap: false,
            failure: None,
        }
    }

    /// The owner's end as it moves, with these bytes appended to its direction. Nothing may be read or handled after
    /// this, unless the move is aborted.
    pub fn export(&self, anchor: NodeName, id: AnchoredId, unwritten: &[u8]) -> AnchoredState {
        let (acknowledged, mut kept, is_ended) = self.outgoing.export();
        kept.extend_from_slice(unwritten);
        let unacknowledged = SecretBytes::new(kept);
        AnchoredState { anchor, id, received: self.incoming.consumed(), acknowledged, unacknowledged, is_ended }
    }

    /// Why the stream cannot continue, if so.
    pub fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// The number of bytes that can be written now.
    pub fn room(&self) -> usize {
        self.outgoing.room()
    }

    /// Whether the end can move with another piece that has no room: it holds no more than the window. A piece that came
    /// with the last move may exceed it, until the other end has taken some bytes.
    pub fn is_within_window(&self) -> bool {
        self.outgoing.is_within_window()
    }

    /// Takes as many of the bytes as there is room for. Returns their number.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.outgoing.write(bytes)
    }

    /// Ends the direction that this end sends.
    pub fn end(&mut self) {
        self.outgoing.end();
    }

    /// Whether the other end has all that this one has sent, and the end.
    pub fn is_sent(&self) -> bool {
        self.outgoing.is_complete()
    }

    /// Takes received bytes, as many as there are and fit. Returns their number: 0 at the end. `None`: there are no
    /// bytes yet.
    pub fn read(&mut self, into: &mut [u8]) -> Option<usize> {
        let read = self.incoming.read(into);
        if self.incoming.is_announcement_due() {
            self.due.get_or_insert_default();
        }
        read
    }

    /// Whether there is something to read, or the end.
    pub fn is_readable(&self) -> bool {
        self.incoming.is_readable()
    }

    /// Whether both directions have ended, and nothing is missing at either end.
    pub fn is_complete(&self) -> bool {
        self.outgoing.is_complete() && self.incoming.is_complete()
    }

    /// A later owner attaches to this anchor. Returns whether it is the owner now.
    pub fn attach(&mut self, epoch: Epoch, received: u64) -> bool {
        let is_new = self.owner.is_none_or(|owner| owner < epoch);
        if !is_new && self.owner != Some(epoch) {
            return false;
        }
        self.owner = Some(epoch);
        self.silent_ticks = 0;
        self.acknowledged(received);
        if is_new {
            self.outgoing.rewind(received);
            self.has_gap = false;
        }
        self.due.get_or_insert_default().is_answer = true;
        true
    }

    /// Handles a message of the other end. The caller has checked that it is.
    pub fn handle(&mut self, content: &AnchoredContent) {
        self.silent_ticks = 0;
        match content {
            AnchoredContent::Attach { epoch, received } => {
                self.attach(*epoch, *received);
            }
            AnchoredContent::Data { offset, bytes, is_last } => {
                self.is_attaching = false;
                self.on_data(*offset, bytes.as_slice(), *is_last);
            }
            AnchoredContent::Progress { received, consumed, is_question, is_answer } => {
                self.is_attaching = false;
                self.acknowledged(*consumed);
                if *is_answer {
                    self.outgoing.rewind(*received);
                }
                if *is_question {
                    self.due.get_or_insert_default().is_answer = true;
                }
            }
            AnchoredContent::Reset => self.on_reset(),
        }
    }

    fn on_data(&mut self, offset: u64, bytes: &[u8], is_last: bool) {
        match self.incoming.receive(offset, bytes, is_last) {
            Received::New => self.has_gap = false,
            Received::Known => {
                self.due.get_or_insert_default();
            }
            // One answer makes the other end send all again.
            Received::AfterGap if !self.has_gap => {
                self.has_gap = true;
                self.due.get_or_insert_default().is_answer = true;
            }
            Received::AfterGap | Received::TooMuch => {}
        }
    }

    fn acknowledged(&mut self, consumed: u64) {
        if !self.outgoing.acknowledge(consumed) {
            self.failure = Some(Failure::Impossible);
        }
    }

    /// The other end may have finished, and its last acknowledgement was lost.
    fn on_reset(&mut self) {
        if self.incoming.is_ended() && self.outgoing.is_end_sent() {
            self.outgoing.acknowledge_all();
        } else {
            self.failure = Some(Failure::Reset);
        }
    }

    /// Called every [`TICK`]. Makes up for messages that were lost.
    pub fn tick(&mut self) {
        self.silent_ticks = self.silent_ticks.saturating_add(1);
        if self.silent_ticks > SILENT_TICKS_MAX {
            self.failure = Some(Failure::Silent);
        }
        let outstanding_from = self.outgoing.outstanding_from();
        let is_stuck = outstanding_from.is_some() && outstanding_from == self.outstanding_from;
        self.stuck_ticks = if is_stuck { self.stuck_ticks.saturating_add(1) } else { 0 };
        self.outstanding_from = outstanding_from;
        // Seldom if the other end only cannot pass the bytes on.
        let asks_for_bytes = self.stuck_ticks.is_power_of_two() && self.stuck_ticks < QUESTION_TICKS;
        let asks_for_life = [self.stuck_ticks, self.silent_ticks].map(|ticks| ticks > 0 && ticks % QUESTION_TICKS == 0);
        let is_question = asks_for_bytes || asks_for_life.contains(&true);
        if is_question || self.incoming.is_unannounced() {
            self.due.get_or_insert_default().is_question |= is_question;
        }
        self.has_gap = false;
        self.is_attach_due = self.is_attaching;
    }

    /// The message to send now, if there is one. An anchor sends nothing before an owner has attached.
    pub fn next_message(&mut self) -> Option<AnchoredContent> {
        let epoch = self.owner.filter(|_| self.failure.is_none())?;
        if std::mem::take(&mut self.is_attach_due) {
            return Some(AnchoredContent::Attach { epoch, received: self.incoming.received() });
        }
        if let Some(Progress { is_question, is_answer }) = self.due.take() {
            self.incoming.announce();
            let (received, consumed) = (self.incoming.received(), self.incoming.consumed());
            return Some(AnchoredContent::Progress { received, consumed, is_question, is_answer });
        }
        self.outgoing.next_data()
    }
}
