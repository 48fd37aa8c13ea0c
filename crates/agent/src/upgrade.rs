//! An upgrade in place: a new process of this node, the *successor*, goes on with the connections of this one.
//!
//! A connection passes in the form in which it moves to another agent, and with its leg. The leg stays open, and so the
//! dispatcher and the client notice nothing. The states of a connection, and the process that owns it:
//!
//! | state | owner | ends with |
//! | --- | --- | --- |
//! | asked ([`Order::PassOn`]) | this process, which serves it | idle; prepared; stays for now |
//! | within a response | this process; the successor prepares the rest ([`AgentToAgent::Prepare`], to this node) | prepared, refused: stays until its next request |
//! | standing ([`ToSuccessor`]) | this process, fenced: it opens, seals, reads and writes nothing | taken, dropped: goes on here |
//! | restored ([`Restored`]) | this process; the successor touches nothing | started after the successor has confirmed it |
//! | taken | the successor | |
//!
//! What cannot pass at the moment stays in this process and passes later: a connection in its handshake, within an
//! upload, or within a response that cannot be continued. HTTP/2 connections, tunnels and streams of events end here, and
//! so do the ends of anchored streams. Meanwhile the successor has the links of this node and accepts its legs. Messages
//! about these connections ([`OtherProcesses`]), and legs that continue them ([`LegsForPredecessor`]), go through it.
//!
//! [`Order::PassOn`]: crate::handoff::registry::Order::PassOn
//! [`ToSuccessor`]: crate::handoff::passing::ToSuccessor
//! [`OtherProcesses`]: crate::node::other_process::OtherProcesses
//! [`LegsForPredecessor`]: crate::leg::LegsForPredecessor

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use watari_values::{NodeName, SecretBytes};
use watari_wire::frame::Frame;
use watari_wire::leg::ExportedLegKey;
use watari_wire::{AgentToAgent, Message};

use crate::accept::legs::Legs;
use crate::connection::preparations::Continuation;
use crate::handoff::passing::{Passed, PassedConnection, Passing, RestoreError, Shipped, encode};
use crate::handoff::registry::{Ending, Undecided};
use crate::leg::ForwardedLeg;
use crate::node::other_process::Addressed;
use crate::sessions::stored::PassedSession;
use crate::{Agent, AgentShared};

/// Connections that stand still and wait to be taken.
const PASSING_MAX: usize = 64;

/// How long [`PassingOn::next`] waits for another connection that was asked. Most stand still at once.
const NEXT_MAX: Duration = Duration::from_millis(2);

/// How long moves to this agent may take that are undecided when the upgrade begins, and prefaces on legs of members.
const SETTLE_MAX: Duration = Duration::from_secs(5);
const PREFACES_MAX: Duration = Duration::from_secs(1);
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// How long the successor waits for its site when it prepares responses. The previous process goes on with those that
/// take longer, and asks again.
const PREPARE_MAX: Duration = Duration::from_millis(500);

/// Messages of the predecessor that wait for a link. Further ones are dropped, as if they had been lost on the network.
const UNSENT_MAX: usize = 4096;

/// The bytes of the sessions in one state.
const SESSIONS_LEN_MAX: usize = 4 << 20;

/// The agent cannot pass its connections on now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotPass {
    #[error("{0} connections that move to this agent are undecided: upgrade again later")]
    Undecided(usize),
}

/// A state of the agent besides its connections.
#[derive(Debug, Serialize, Deserialize)]
enum PassedState {
    Seeds(Vec<watari_wire::TicketSeed>),
    /// The keys for prefaces that dispatchers have signed for this process.
    LegKeys(u32, Vec<ExportedLegKey>),
    Sessions(Vec<PassedSession>),
}

/// What a successor answers.
#[derive(Serialize, Deserialize)]
struct ForPredecessor {
    messages: SecretBytes,
    /// Each has a socket.
    legs: Vec<ForwardedLeg>,
}

impl Agent {
    /// Begins to pass connections to a successor of this process. Before, waits until no move to this agent is undecided,
    /// and so legs must still be accepted. The caller stops that before it asks for [`PassingOn::states`].
    pub async fn begin_to_pass_on(&self) -> Result<PassingOn, CannotPass> {
        self.shared.settle().await?;
        Ok(PassingOn::begin(&self.shared, self.accepting.legs()))
    }

    /// The predecessor of this process has ended.
    pub fn end_taking_over(&self) {
        self.shared.peers.other_processes().end_predecessor();
        self.shared.legs_for_predecessor.end();
    }

    /// Whether a predecessor of this process still serves connections.
    pub fn has_predecessor(&self) -> bool {
        self.shared.peers.other_processes().has_predecessor()
    }

    /// A connection that the predecessor of this process passed on. It stands still until it is started.
    pub fn restore(&self, state: &[u8], sockets: Vec<OwnedFd>) -> Result<Restored, RestoreError> {
        self.shared.restore(self.accepting.legs(), state, sockets)
    }

    /// Takes over a state of [`PassingOn::states`].
    pub fn take_state(&self, state: &[u8]) -> Result<(), RestoreError> {
        self.shared.take_state(state)
    }

    /// Handles messages of the predecessor ([`PassingOn::messages`]), and returns the answer for it
    /// ([`PassingOn::handle`]): messages, and legs that continue its connections. There are at most
    /// [`FORWARDED_LEGS_MAX`](crate::FORWARDED_LEGS_MAX) sockets.
    pub async fn exchange(&self, messages: &[u8]) -> Result<(SecretBytes, Vec<OwnedFd>), RestoreError> {
        self.shared.exchange(messages).await
    }
}

/// Passes all connections to a successor. If it is dropped before [`PassingOn::finish`], this process goes on.
pub struct PassingOn {
    shared: Arc<AgentShared>,
    legs: Arc<Legs>,
    passing: mpsc::Receiver<Passing>,
    undecided: Undecided,
    /// Keys that the successor has.
    given_up: Option<(u32, Vec<ExportedLegKey>)>,
    is_finished: bool,
}

impl PassingOn {
    pub(crate) fn begin(shared: &Arc<AgentShared>, legs: &Arc<Legs>) -> Self {
        let (to, passing) = mpsc::channel(PASSING_MAX);
        shared.to_successor.set(Some(to));
        shared.peers.other_processes().begin_successor();
        let (shared, legs) = (shared.clone(), legs.clone());
        Self { shared, legs, passing, undecided: Undecided::default(), given_up: None, is_finished: false }
    }

    /// The next connections to pass, at most `max`. They stand still until they are taken or dropped. Empty: none can
    /// pass at the moment.
    pub async fn next(&mut self, max: usize) -> Vec<Passing> {
        let mut left = self.shared.registry.not_passing();
        left.truncate(max);
        self.shared.registry.pass_on(&left, &self.undecided);
        let mut batch = Vec::new();
        while batch.len() < max
            && let Ok(Some(passing)) = timeout(NEXT_MAX, self.passing.recv()).await
        {
            batch.push(passing);
            if batch.len() >= left.len() && self.passing.is_empty() {
                break;
            }
        }
        batch
    }

    /// Whether there are messages for the successor.
    pub fn has_messages(&self) -> bool {
        self.shared.peers.other_processes().has_for_successor()
    }

    /// The messages for the successor. They may be none.
    pub fn messages(&self) -> SecretBytes {
        encode_messages(&self.shared.peers.other_processes().take_for_successor())
    }

    /// Handles an answer of the successor ([`Agent::exchange`]). Returns the number of its messages and legs.
    pub fn handle(&self, answer: &[u8], sockets: Vec<OwnedFd>) -> Result<usize, RestoreError> {
        let ForPredecessor { messages, legs } = postcard::from_bytes(answer).map_err(|_| RestoreError::Form)?;
        if legs.len() != sockets.len() {
            return Err(RestoreError::Form);
        }
        let messages = decode_messages(messages.as_slice())?;
        for (from, message) in &messages {
            self.shared.on_message(from, message);
        }
        let count = messages.len() + legs.len();
        for (leg, socket) in legs.into_iter().zip(sockets) {
            let dispatcher = leg.dispatcher.clone();
            self.legs.go_on_at(&dispatcher, leg.on(socket));
        }
        Ok(count)
    }

    /// The number of connections that were not asked to pass yet.
    pub fn not_asked(&self) -> usize {
        self.shared.registry.not_passing().len()
    }

    /// Whether no connection is left that could pass now.
    pub fn is_settled(&self) -> bool {
        self.undecided.is_decided() && self.shared.registry.not_passing().is_empty() && self.passing.is_empty()
    }

    /// The number of connections here, and of those to origins whose clients' connections have moved.
    pub fn left(&self) -> usize {
        self.shared.slots.taken() + self.shared.anchors.len()
    }

    /// What else passes, for [`Agent::take_state`](crate::Agent::take_state). From now on, this process accepts no
    /// prefaces, and approves no uses of sessions.
    pub async fn states(&mut self) -> Vec<SecretBytes> {
        let deadline = Instant::now() + PREFACES_MAX;
        while self.legs.without_preface() > 0 && Instant::now() < deadline {
            sleep(LOOK_INTERVAL).await;
        }
        let (next_id, keys) = self.shared.keys.give_up();
        self.given_up = Some((next_id, keys.clone()));
        let states = [PassedState::Seeds(self.shared.sessions.seeds()), PassedState::LegKeys(next_id, keys)];
        let sessions = in_parts(self.shared.sessions.give_up().await).into_iter().map(PassedState::Sessions);
        states.into_iter().chain(sessions).filter_map(|state| encode(&state).ok()).collect()
    }

    /// The successor has the links of this node. This process goes on to pass connections, and ends those that cannot
    /// pass when their requests have ended.
    pub fn finish(&mut self) {
        self.is_finished = true;
        self.shared.peers.other_processes().hand_over_links();
        // The dispatchers may have lost what was sent at the end of the links.
        for dispatcher in self.shared.registry.dispatchers() {
            self.shared.registry.announce_all(&dispatcher);
        }
        self.end_others();
    }

    /// Ends connections that can never pass when their requests have ended, also those that have come since the last
    /// call.
    pub fn end_others(&self) {
        self.shared.registry.end(Ending::Others);
    }

    /// The successor takes nothing more. Ends all connections when their requests have ended.
    pub fn end_all(&self) {
        self.shared.to_successor.set(None);
        self.shared.registry.end(Ending::All);
    }
}

impl Drop for PassingOn {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let shared = &self.shared;
        shared.to_successor.set(None);
        shared.peers.other_processes().end_successor();
        shared.registry.stay();
        if let Some((next_id, keys)) = self.given_up.take() {
            shared.keys.take_over(next_id, keys);
            shared.sessions.keep();
        }
        shared.pause_moves(false);
    }
}

/// A connection of the predecessor, which stands still until [`Restored::start`].
pub struct Restored {
    legs: Arc<Legs>,
    leg: std::net::TcpStream,
    passed: Box<Passed>,
    response: Option<Box<Continuation>>,
}

impl Restored {
    /// Goes on with the connection.
    pub fn start(self) {
        let Self { legs, leg, passed, response } = self;
        legs.go_on(leg, passed, response);
    }
}

impl AgentShared {
    /// Refuses connections that move here, or takes them again.
    fn pause_moves(&self, is_paused: bool) {
        self.arrivals.pause(is_paused);
        self.preparations.pause(is_paused);
    }

    /// Refuses connections that move here from now on, and waits until none is undecided.
    pub(crate) async fn settle(&self) -> Result<(), CannotPass> {
        self.pause_moves(true);
        let deadline = Instant::now() + SETTLE_MAX;
        while self.arrivals.len() > 0 {
            if Instant::now() >= deadline {
                self.pause_moves(false);
                return Err(CannotPass::Undecided(self.arrivals.len()));
            }
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Makes the connection of `state`.
    pub(crate) fn restore(
        &self,
        legs: &Arc<Legs>,
        state: &[u8],
        sockets: Vec<OwnedFd>,
    ) -> Result<Restored, RestoreError> {
        let leg = sockets.into_iter().next().ok_or(RestoreError::Form)?.into();
        let passed = PassedConnection::decode(state)?;
        let response = match &passed.shipped {
            Shipped::Between(_) => None,
            Shipped::InResponse(shipped) => {
                let response = self.preparations.take(self.peers.name(), shipped);
                Some(Box::new(response.map_err(|cause| RestoreError::Response(cause.to_string()))?))
            }
        };
        Ok(Restored { legs: legs.clone(), leg, passed: Box::new(passed.into_passed()?), response })
    }

    pub(crate) fn take_state(&self, state: &[u8]) -> Result<(), RestoreError> {
        match postcard::from_bytes(state).map_err(|_| RestoreError::Form)? {
            PassedState::Seeds(seeds) => self.sessions.take_over_seeds(seeds),
            PassedState::LegKeys(next_id, keys) => {
                if !self.keys.take_over(next_id, keys) {
                    return Err(RestoreError::Form);
                }
            }
            PassedState::Sessions(sessions) => self.sessions.take_over(sessions),
        }
        Ok(())
    }

    /// Handles messages of the predecessor, and returns those for it. Waits for the site where it prepares responses.
    pub(crate) async fn exchange(
        self: &Arc<Self>,
        messages: &[u8],
    ) -> Result<(SecretBytes, Vec<OwnedFd>), RestoreError> {
        let own = self.peers.name();
        let mut questions = 0;
        for (to, message) in decode_messages(messages)? {
            if let (true, Message::AgentToAgent(AgentToAgent::Prepare(prepare))) = (to == *own, &message) {
                questions += 1;
                self.preparations.on_prepare(own, prepare);
            } else {
                self.send_for_predecessor(to, message);
            }
        }
        let messages = self.peers.other_processes().take_for_predecessor(questions, PREPARE_MAX).await;
        let (legs, sockets) = self.legs_for_predecessor.take();
        let answer = ForPredecessor { messages: encode_messages(&messages), legs };
        Ok((encode(&answer).map_err(|_| RestoreError::Form)?, sockets))
    }

    /// Sends a message of the predecessor, when there is a link.
    fn send_for_predecessor(&self, to: NodeName, message: Message) {
        let mut unsent = self.unsent();
        // Messages stay in order.
        let waits = unsent.iter().any(|(node, _)| *node == to);
        if self.peers.other_processes().has_no_links() || !waits && self.peers.is_up(&to) {
            self.peers.send(&to, message);
        } else if unsent.len() < UNSENT_MAX {
            unsent.push((to, message));
        }
    }

    /// There is a link to `peer`.
    pub(crate) fn send_unsent(&self, peer: &NodeName) {
        for (to, message) in self.unsent().extract_if(.., |(to, _)| to == peer) {
            self.peers.send(&to, message);
        }
    }
}

/// Divides sessions so that no part exceeds [`SESSIONS_LEN_MAX`] by more than one session.
fn in_parts(sessions: Vec<PassedSession>) -> Vec<Vec<PassedSession>> {
    let (mut parts, mut len): (Vec<Vec<PassedSession>>, usize) = (Vec::new(), SESSIONS_LEN_MAX);
    for session in sessions {
        if len >= SESSIONS_LEN_MAX {
            parts.push(Vec::new());
            len = 0;
        }
        len += session.len();
        if let Some(part) = parts.last_mut() {
            part.push(session);
        }
    }
    parts
}

/// The form of messages between the processes: frames of the mesh, each with the node that gets it or has sent it.
fn encode_messages(messages: &[Addressed]) -> SecretBytes {
    let frame = |message: &Message| {
        let mut frame = Vec::with_capacity(watari_wire::frame::encoded_len(message));
        watari_wire::frame::encode(message, &mut frame).ok()?;
        Some(SecretBytes::new(frame))
    };
    let frames: Vec<_> = messages.iter().filter_map(|(node, message)| Some((node.clone(), frame(message)?))).collect();
    encode(&frames).unwrap_or_else(|_| SecretBytes::new(Vec::new()))
}

fn decode_messages(messages: &[u8]) -> Result<Vec<Addressed>, RestoreError> {
    let frames: Vec<(NodeName, SecretBytes)> = postcard::from_bytes(messages).map_err(|_| RestoreError::Form)?;
    let message = |(node, frame): (NodeName, SecretBytes)| match watari_wire::frame::decode(frame.as_slice()) {
        Ok(Some((Frame::Message(message), _))) => Ok((node, message)),
        _ => Err(RestoreError::Form),
    };
    frames.into_iter().map(message).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use watari_values::ConnectionId;
    use watari_wire::{AgentToDispatcher, DispatcherToAgent, Final};

    use super::*;
    use crate::handoff::testing::name;

    #[test]
    fn messages_come_back_and_damaged_ones_are_refused() {
        let connection = ConnectionId { boot: 1, number: 2 };
        let epoch = watari_values::Epoch(3);
        let end = AgentToDispatcher::Final(Final { connection, epoch, tx_offset: 4 });
        let messages = [(name("d"), end.into()), (name("a"), DispatcherToAgent::Gone(connection).into())];
        let encoded = encode_messages(&messages);
        assert_eq!(decode_messages(encoded.as_slice()).unwrap(), messages);
        let bytes = encoded.as_slice();
        for at in 0..bytes.len() {
            assert!(decode_messages(&bytes[..at]).is_err());
            let mut damaged = bytes.to_vec();
            damaged[at] ^= 0xff;
            // Refused or not, it does no harm.
            let _ = decode_messages(&damaged);
        }
        assert!(decode_messages(encode_messages(&[]).as_slice()).unwrap().is_empty());
    }
}
