//! The ends of anchored streams that this agent has. Mirrors `handoff/anchors.rs` and `handoff/anchored_stream.rs` of
//! `crates/agent`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watari_anchor::{Endpoint, SILENT_TICKS_MAX, TICK};
use watari_values::{Epoch, NodeName};
use watari_wire::{AnchoredContent, AnchoredEnd, AnchoredId, AnchoredMessage, AnchoredState};

use super::name;
use crate::message::Message;
use crate::network::{Network, NodeId};
use crate::random::Random;
use crate::sabotage::Sabotage;

pub(crate) struct Anchors {
    network: Network,
    node: NodeId,
    sabotage: Option<Sabotage>,
    /// Streams of a restarted agent have other ids.
    boot: u64,
    begun: Cell<u64>,
    ends: RefCell<BTreeMap<Key, Rc<StreamEnd>>>,
    /// Ends that have moved away, and the ticks for which they are remembered.
    moved: RefCell<BTreeMap<Key, u32>>,
    next_tick: Cell<Duration>,
}

/// Whether the end is that of the anchor, and the stream.
type Key = (bool, AnchoredId);

/// An end of a stream at this agent.
struct StreamEnd {
    key: Key,
    /// The anchor of the stream.
    anchor: NodeName,
    state: RefCell<EndState>,
}

struct EndState {
    endpoint: Endpoint,
    /// The agent with the other end. `None`: no owner has attached to this anchor.
    peer: Option<NodeId>,
    /// The end is about to move. It neither sends nor receives.
    is_frozen: bool,
}

/// An end of a stream. If it is dropped before both directions have ended, the other end fails.
pub(crate) struct AnchoredStream {
    anchors: Rc<Anchors>,
    end: Rc<StreamEnd>,
}

impl Anchors {
    pub(crate) fn new(network: Network, node: NodeId, sabotage: Option<Sabotage>) -> Rc<Self> {
        let boot = network.random(Random::next);
        let (begun, ends, moved, next_tick) = Default::default();
        Rc::new(Self { network, node, sabotage, boot, begun, ends, moved, next_tick })
    }

    /// Begins a stream whose anchor is this agent.
    pub(super) fn begin(self: &Rc<Self>) -> AnchoredStream {
        let id = AnchoredId(self.boot.wrapping_add(self.begun.get()));
        self.begun.set(self.begun.get() + 1);
        self.network.count(|figures| figures.anchored += 1);
        self.enter((true, id), name(self.node), Endpoint::anchor(), None)
    }

    /// Continues a stream as its owner, since the commit of `epoch`.
    pub(super) fn attach(self: &Rc<Self>, epoch: Epoch, state: &AnchoredState) -> AnchoredStream {
        let (endpoint, anchor) = (Endpoint::owner(epoch, state), state.anchor.clone());
        self.network.count(|figures| {
            figures.attached += 1;
            figures.came_back += u64::from(anchor == name(self.node));
        });
        let peer = Some(super::node(&anchor));
        let stream = self.enter((false, state.id), anchor, endpoint, peer);
        self.transmit(&stream.end);
        stream
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.borrow().is_empty()
    }

    pub(crate) fn on_message(&self, from: NodeId, message: &AnchoredMessage) {
        let AnchoredMessage { id, to, content } = message;
        let is_anchor = *to == AnchoredEnd::Anchor;
        let end = self.ends.borrow().get(&(is_anchor, *id)).cloned();
        match end {
            Some(end) => {
                end.state.borrow_mut().receive(from, content);
                self.transmit(&end);
            }
            // The new owner may not have attached yet.
            None if self.has_moved(&(is_anchor, *id)) => {}
            None if *content != AnchoredContent::Reset => self.send(from, !is_anchor, *id, AnchoredContent::Reset),
            None => {}
        }
    }

    fn has_moved(&self, key: &Key) -> bool {
        self.sabotage != Some(Sabotage::MovedOwnerResets) && self.moved.borrow().contains_key(key)
    }

    /// The time of the next tick, while there are streams.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        (!self.is_empty() || !self.moved.borrow().is_empty()).then(|| self.next_tick.get())
    }

    pub(crate) fn tick(&self) {
        let now = self.network.now();
        if now < self.next_tick.get() {
            return;
        }
        self.next_tick.set(now + TICK);
        self.moved.borrow_mut().retain(|_, ticks_left| {
            *ticks_left -= 1;
            *ticks_left > 0
        });
        let ends: Vec<_> = self.ends.borrow().values().cloned().collect();
        for end in ends {
            {
                let mut state = end.state.borrow_mut();
                if !state.is_frozen {
                    state.endpoint.tick();
                }
            }
            self.transmit(&end);
        }
    }

    /// Sends what the end has to send.
    fn transmit(&self, end: &StreamEnd) {
        let mut state = end.state.borrow_mut();
        let Some(peer) = state.peer.filter(|_| !state.is_frozen) else { return };
        while let Some(content) = state.endpoint.next_message() {
            self.send(peer, !end.key.0, end.key.1, content);
        }
    }

    /// Removes an end that is not used any more. The other end gets a reset, unless both have all, or this end has
    /// moved.
    fn remove(&self, end: &Rc<StreamEnd>) {
        // The end may have come back before it is removed.
        if self.ends.borrow().get(&end.key).is_some_and(|known| Rc::ptr_eq(known, end)) {
            self.ends.borrow_mut().remove(&end.key);
            if end.state.borrow().is_frozen {
                self.moved.borrow_mut().insert(end.key, SILENT_TICKS_MAX);
            }
        }
        let state = end.state.borrow();
        if let Some(peer) = state.peer.filter(|_| !state.is_frozen && !state.endpoint.is_complete()) {
            self.send(peer, !end.key.0, end.key.1, AnchoredContent::Reset);
        }
    }

    fn send(&self, peer: NodeId, to_anchor: bool, id: AnchoredId, content: AnchoredContent) {
        // A process that crashes drops its streams, and sends nothing.
        if self.network.is_down(self.node) {
            return;
        }
        let to = if to_anchor { AnchoredEnd::Anchor } else { AnchoredEnd::Owner };
        self.network.send(self.node, peer, &Message::Anchored(AnchoredMessage { id, to, content }));
    }

    fn enter(self: &Rc<Self>, key: Key, anchor: NodeName, endpoint: Endpoint, peer: Option<NodeId>) -> AnchoredStream {
        let state = RefCell::new(EndState { endpoint, peer, is_frozen: false });
        let end = Rc::new(StreamEnd { key, anchor, state });
        self.ends.borrow_mut().insert(key, end.clone());
        self.moved.borrow_mut().remove(&key);
        AnchoredStream { anchors: self.clone(), end }
    }
}

impl EndState {
    fn receive(&mut self, from: NodeId, content: &AnchoredContent) {
        if self.is_frozen {
            return;
        }
        if let AnchoredContent::Attach { epoch, received } = content {
            if self.endpoint.attach(*epoch, *received) {
                self.peer = Some(from);
            }
        } else if self.peer == Some(from) {
            self.endpoint.handle(content);
        }
    }
}

impl AnchoredStream {
    /// The agent that has the connection to the origin.
    pub(super) fn anchor(&self) -> &NodeName {
        &self.end.anchor
    }

    /// The owner's end as it moves, with these bytes appended to its direction. The stream stops until
    /// [`AnchoredStream::thaw`], and is not used any more if the move succeeds. Of an anchor, the state of the first
    /// owner.
    pub(super) fn export(&self, unwritten: &[u8]) -> AnchoredState {
        let (is_anchor, id) = self.end.key;
        if is_anchor {
            return watari_anchor::first_owner(self.end.anchor.clone(), id);
        }
        let mut state = self.end.state.borrow_mut();
        state.is_frozen = true;
        let mut exported = state.endpoint.export(self.end.anchor.clone(), id, unwritten);
        if self.anchors.sabotage == Some(Sabotage::AnchoredOffsetLost) {
            exported.received = 0;
        }
        exported
    }

    /// Whether the stream can move with a piece that has no room.
    pub(super) fn is_within_window(&self) -> bool {
        self.end.state.borrow().endpoint.is_within_window()
    }

    /// The move was aborted.
    pub(super) fn thaw(&self) {
        self.end.state.borrow_mut().is_frozen = false;
        self.anchors.transmit(&self.end);
    }

    /// Drops what the other end sends. Returns whether the stream has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.end.state.borrow_mut().endpoint.read(&mut [0; 1024]);
        self.anchors.transmit(&self.end);
        self.end.state.borrow().endpoint.failure().is_some()
    }

    /// Ends the direction that this end sends.
    pub(super) fn end(&self) {
        self.end.state.borrow_mut().endpoint.end();
        self.anchors.transmit(&self.end);
    }

    pub(super) fn poll_read_into(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failure() {
            let is_hidden = self.anchors.sabotage == Some(Sabotage::AnchoredFailureIsEnd);
            return Poll::Ready(if is_hidden { Ok(0) } else { Err(error) });
        }
        let read = self.end.state.borrow_mut().endpoint.read(into);
        self.anchors.transmit(&self.end);
        read.map_or(Poll::Pending, |read| Poll::Ready(Ok(read)))
    }

    fn failure(&self) -> Option<io::Error> {
        let failure = self.end.state.borrow().endpoint.failure()?;
        Some(io::Error::new(io::ErrorKind::ConnectionReset, failure))
    }
}

impl AsyncRead for AnchoredStream {
    fn poll_read(self: Pin<&mut Self>, _cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.poll_read_into(buf.initialize_unfilled()).map_ok(|read| buf.advance(read))
    }
}

impl AsyncWrite for AnchoredStream {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Some(error) = self.failure() {
            return Poll::Ready(Err(error));
        }
        let written = self.end.state.borrow_mut().endpoint.write(bytes);
        self.anchors.transmit(&self.end);
        if written == 0 { Poll::Pending } else { Poll::Ready(Ok(written)) }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ready when the other end has everything.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.failure() {
            return Poll::Ready(Err(error));
        }
        self.end();
        if self.end.state.borrow().endpoint.is_sent() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }
}

impl Drop for AnchoredStream {
    fn drop(&mut self) {
        self.anchors.remove(&self.end);
    }
}
