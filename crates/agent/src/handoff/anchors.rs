//! The ends of anchored streams that this agent has: as an anchor, and as an owner (crate `watari_anchor`). It has both
//! ends of a stream whose client's connection has come back.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use watari_anchor::{Endpoint, SILENT_TICKS_MAX};
use watari_values::{Epoch, NodeName};
use watari_wire::{AgentToAgent, AnchoredContent, AnchoredEnd, AnchoredId, AnchoredMessage, AnchoredState};

use super::anchored_stream::AnchoredStream;
use crate::node::peers::Peers;

pub(crate) struct Anchors {
    peers: Peers,
    /// A random number, so that the streams of a restarted agent have other ids.
    boot: u64,
    /// The number of streams so far.
    begun: AtomicU64,
    ends: Mutex<HashMap<Key, Arc<StreamEnd>>>,
    /// Ends that have moved away, and the ticks for which they are remembered.
    moved: Mutex<HashMap<Key, u32>>,
}

type Key = (AnchoredEnd, AnchoredId);

/// An end of a stream at this agent.
pub(super) struct StreamEnd {
    key: Key,
    /// The anchor of the stream.
    pub(super) anchor: NodeName,
    state: Mutex<EndState>,
}

pub(super) struct EndState {
    pub(super) endpoint: Endpoint,
    /// The agent with the other end. `None`: no owner has attached to this anchor.
    peer: Option<NodeName>,
    /// The end is about to move. It neither sends nor receives.
    is_frozen: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl Anchors {
    pub(crate) fn new(peers: Peers) -> Self {
        Self {
            peers,
            boot: RandomState::new().hash_one(()),
            begun: AtomicU64::default(),
            ends: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// Begins a stream whose anchor is this agent.
    pub(crate) fn begin(self: &Arc<Self>) -> AnchoredStream {
        let id = AnchoredId(self.boot.wrapping_add(self.begun.fetch_add(1, Ordering::Relaxed)));
        self.enter(AnchoredEnd::Anchor, id, self.peers.name().clone(), Endpoint::anchor(), None)
    }

    /// Continues a stream as its owner, since the commit of `epoch`.
    pub(crate) fn attach(self: &Arc<Self>, epoch: Epoch, state: &AnchoredState) -> AnchoredStream {
        let (endpoint, anchor) = (Endpoint::owner(epoch, state), state.anchor.clone());
        let stream = self.enter(AnchoredEnd::Owner, state.id, anchor.clone(), endpoint, Some(anchor));
        self.transmit(stream.end());
        stream
    }

    /// The number of streams whose anchor is this agent.
    pub(crate) fn len(&self) -> usize {
        self.ends().keys().filter(|(end, _)| *end == AnchoredEnd::Anchor).count()
    }

    /// Whether the end that gets the message is in this process, or was until just now.
    pub(crate) fn has_end_for(&self, message: &AnchoredMessage) -> bool {
        let end = (message.to, message.id);
        self.ends().contains_key(&end) || self.moved().contains_key(&end)
    }

    pub(crate) fn on_message(&self, from: &NodeName, message: &AnchoredMessage) {
        let AnchoredMessage { id, to, content } = message;
        let end = self.ends().get(&(*to, *id)).cloned();
        match end {
            Some(end) => {
                end.state().receive(from, content);
                self.transmit(&end);
            }
            // The new owner may not have attached yet. A reset would end its stream.
            None if self.moved().contains_key(&(*to, *id)) => {}
            None if *content != AnchoredContent::Reset => self.send(from, other(*to), *id, AnchoredContent::Reset),
            None => {}
        }
    }

    /// Called every [`watari_anchor::TICK`].
    pub(crate) fn tick(&self) {
        self.moved().retain(|_, ticks_left| {
            *ticks_left -= 1;
            *ticks_left > 0
        });
        let ends: Vec<_> = self.ends().values().cloned().collect();
        for end in ends {
            end.state().tick();
            self.transmit(&end);
        }
    }

    /// Tells all owners that this anchor is about to end.
    pub(crate) fn give_up(&self) {
        let ends: Vec<_> = self.ends().values().filter(|end| end.key.0 == AnchoredEnd::Anchor).cloned().collect();
        for end in ends {
            self.reset(&end);
        }
    }

    /// Sends what the end has to send.
    pub(super) fn transmit(&self, end: &StreamEnd) {
        let mut state = end.state();
        let Some(peer) = state.peer.clone().filter(|_| !state.is_frozen) else { return };
        while let Some(content) = state.endpoint.next_message() {
            let message = AnchoredMessage { id: end.key.1, to: other(end.key.0), content };
            // What cannot be sent now is sent again after a tick.
            self.peers.send_bulk(&peer, AgentToAgent::Anchored(message));
        }
    }

    /// Removes an end that is not used any more. The other end is told, unless both have all, or this end has moved.
    pub(super) fn remove(&self, end: &Arc<StreamEnd>) {
        let (has_moved, is_complete) = {
            let state = end.state();
            (state.is_frozen, state.endpoint.is_complete())
        };
        {
            let mut ends = self.ends();
            // The end may have come back before it is removed.
            if ends.get(&end.key).is_some_and(|known| Arc::ptr_eq(known, end)) {
                ends.remove(&end.key);
                if has_moved {
                    self.moved().insert(end.key, SILENT_TICKS_MAX);
                }
            }
        }
        if !has_moved && !is_complete {
            self.reset(end);
        }
    }

    fn reset(&self, end: &StreamEnd) {
        let peer = end.state().peer.clone();
        if let Some(peer) = peer {
            self.send(&peer, other(end.key.0), end.key.1, AnchoredContent::Reset);
        }
    }

    fn send(&self, peer: &NodeName, to: AnchoredEnd, id: AnchoredId, content: AnchoredContent) {
        self.peers.send(peer, AgentToAgent::Anchored(AnchoredMessage { id, to, content }));
    }

    fn enter(
        self: &Arc<Self>,
        end: AnchoredEnd,
        id: AnchoredId,
        anchor: NodeName,
        endpoint: Endpoint,
        peer: Option<NodeName>,
    ) -> AnchoredStream {
        let state = EndState { endpoint, peer, is_frozen: false, reader: None, writer: None };
        let end = Arc::new(StreamEnd { key: (end, id), anchor, state: Mutex::new(state) });
        {
            let mut ends = self.ends();
            ends.insert(end.key, end.clone());
            self.moved().remove(&end.key);
        }
        AnchoredStream::new(self.clone(), end)
    }

    fn moved(&self) -> MutexGuard<'_, HashMap<Key, u32>> {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<Key, Arc<StreamEnd>>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamEnd {
    pub(super) fn state(&self) -> MutexGuard<'_, EndState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's end as it moves, with these bytes appended to its direction. It is frozen until
    /// [`StreamEnd::thaw`]. Of an anchor, the state of the first owner.
    pub(super) fn export(&self, unwritten: &[u8]) -> AnchoredState {
        let mut state = self.state();
        if self.key.0 == AnchoredEnd::Anchor {
            return watari_anchor::first_owner(self.anchor.clone(), self.key.1);
        }
        state.is_frozen = true;
        state.endpoint.export(self.anchor.clone(), self.key.1, unwritten)
    }

    pub(super) fn thaw(&self) {
        self.state().is_frozen = false;
    }
}

impl EndState {
    fn receive(&mut self, from: &NodeName, content: &AnchoredContent) {
        if self.is_frozen {
            return;
        }
        if let AnchoredContent::Attach { epoch, received } = content {
            if self.endpoint.attach(*epoch, *received) {
                self.peer = Some(from.clone());
            }
        } else if self.peer.as_ref() == Some(from) {
            self.endpoint.handle(content);
        }
        self.wake();
    }

    fn tick(&mut self) {
        if !self.is_frozen {
            self.endpoint.tick();
            self.wake();
        }
    }

    /// Wakes the tasks that can go on.
    fn wake(&mut self) {
        let has_failed = self.endpoint.failure().is_some();
        if has_failed || self.endpoint.is_readable() {
            self.reader.take().into_iter().for_each(Waker::wake);
        }
        if has_failed || self.endpoint.room() > 0 || self.endpoint.is_sent() {
            self.writer.take().into_iter().for_each(Waker::wake);
        }
    }
}

fn other(end: AnchoredEnd) -> AnchoredEnd {
    match end {
        AnchoredEnd::Anchor => AnchoredEnd::Owner,
        AnchoredEnd::Owner => AnchoredEnd::Anchor,
    }
}

#[cfg(test)]
mod tests;
