//! The relay's core.

mod change;
mod decisions;
mod snapshot;

use std::collections::VecDeque;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use watari_handoff::{Arbiter, ArbiterEvent, ArbiterTimer, Giving};
use watari_values::{ConnectionId, Epoch, NodeName};
use watari_wire::leg::Kind;

use crate::deadlines::{Deadlines, Reached, Timeouts};
use crate::events::{Action, ClientRead, Context, Input, Interest, LegRead};
use crate::waiting::Waiting;
pub use change::CannotChange;
pub use snapshot::Snapshot;

/// The most bytes that wait for a client while an attempt is undecided. The socket buffers of both ends of a leg hold
/// at most 1 MiB, so a slow client does not keep a source's tail from the dispatcher.
pub const UNDELIVERED_LEN_MAX: usize = 2 << 20;

/// The same while the dispatcher of the connection changes. The agent writes no more meanwhile.
const CHANGING_LEN_MAX: usize = 8 << 20;

/// The most bytes of the copy of what was read. The start of a handshake is much shorter.
const COPY_LEN_MAX: usize = 16 * 1024;

/// The most bytes that are read and discarded after the end: a client may have this many in flight when it learns of
/// the end. The relay does not read more.
const DISCARDED_LEN_MAX: usize = 64 << 20;

/// One relayed connection.
///
/// ```text
///  client's stream     Open ──FIN──▶ Ended ──all is written: FIN on the leg──▶ EndRelayed
///                                      ▲                                           │
///                                      └────────── another owner's leg ────────────┘
///
///  stream to client    Open ──announced, all is read──▶ Finishing ──all is written: FIN──▶ Finished
///
///  owner's leg         Unopened ──first bytes──▶ Regular ──abort──▶ Irregular
///                        any of them ──FIN, reset──▶ Ended
///                        Regular ──the stream to the client is complete──▶ Kept
///                        any ──commit, another agent is found──▶ Regular
///
///  prepared leg        None ──proposal──▶ Connecting ──connected──▶ Ready ──commit──▶ None
///                        any ──failed, ended, abort──▶ None
///
///  over                a reset; both streams have ended; the client does not end its stream in time
/// ```
///
/// The client is read while the arbiter permits it and nothing waits for the leg. The owner's leg is read while nothing
/// waits for the client. While an attempt is undecided, the leg is read also if bytes wait, up to
/// [`UNDELIVERED_LEN_MAX`]: the decision needs all bytes of the source, and must not depend on how fast the client
/// reads. The same holds while the dispatcher changes, when the agent has detached the leg.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Relay<T = Instant> {
    id: ConnectionId,
    arbiter: Arbiter,
    /// The agent that gets the connection after the handshake, if that is another.
    bulk: Option<NodeName>,
    from_client: FromClient,
    to_client: ToClient,
    leg: OwnerLeg,
    prepared: PreparedLeg,
    /// From the client to the owner's leg.
    up: Waiting,
    /// From the owner's leg to the client.
    down: Waiting,
    /// The length of the copy of all bytes read from the client, as long as another agent may need them.
    copied: Option<usize>,
    /// Bytes that were read after the end of the stream to the client.
    discarded: usize,
    timeouts: Timeouts,
    deadlines: Deadlines<T>,
    #[serde(skip)]
    actions: VecDeque<Action>,
    /// The present change of the dispatcher. It does not pass on to another process: the agent is asked again.
    #[serde(skip)]
    giving: Option<Giving>,
    /// The last change, which has failed, until the agent has answered that it writes on the leg again.
    attaching: Option<Giving>,
    /// The number of the last change of the dispatcher.
    changes: u32,
    over: bool,
}

/// How a connection starts.
pub struct Start {
    pub id: ConnectionId,
    pub owner: NodeName,
    /// The agent that gets the connection after the handshake, if that is another.
    pub bulk: Option<NodeName>,
    /// The bytes of the client's stream that were read already.
    pub read_ahead: usize,
    /// Whether the leg has carried another connection. Then the driver keeps a copy of what it reads from the client.
    pub reused_leg: bool,
}

/// The state of the client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum FromClient {
    Open,
    /// The client sent FIN.
    Ended,
    /// The relay has shut down the owner's leg. A new owner's leg is shut down again.
    EndRelayed,
}

/// The state of the stream to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum ToClient {
    Open,
    /// Complete, except for the bytes that wait.
    Finishing,
    /// The relay has sent the client FIN.
    Finished,
}

/// The state of the owner's leg, and whether another connection may follow on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum OwnerLeg {
    /// An idle leg that is used again. The relay writes its preface together with the client's first bytes.
    Unopened,
    /// Only regular relaying: another connection may follow.
    Regular,
    /// An attempt to move was aborted: no other connection may follow.
    Irregular,
    /// The agent has ended or reset the leg.
    Ended,
    /// The stream to the client is complete, and another connection has the leg.
    Kept,
}

/// The leg to the target of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum PreparedLeg {
    None,
    Connecting(Epoch),
    Ready(Epoch),
}

impl Relay {
    /// A relay between a client and its first leg. Its first actions are pending.
    pub fn new(start: Start, timeouts: Timeouts, now: Instant) -> Self {
        let Start { id, owner, bulk, read_ahead, reused_leg } = start;
        let leg = if reused_leg && read_ahead == 0 { OwnerLeg::Unopened } else { OwnerLeg::Regular };
        let mut relay = Self {
            id,
            arbiter: Arbiter::new(owner),
            bulk,
            from_client: FromClient::Open,
            to_client: ToClient::Open,
            leg,
            prepared: PreparedLeg::None,
            up: Waiting::holding(read_ahead),
            down: Waiting::default(),
            copied: reused_leg.then_some(read_ahead),
            discarded: 0,
            deadlines: Deadlines::start(&timeouts, now),
            timeouts,
            actions: VecDeque::new(),
            giving: None,
            attaching: None,
            changes: 0,
            over: false,
        };
        if leg == OwnerLeg::Regular {
            relay.begin();
        }
        relay
    }

    pub fn id(&self) -> ConnectionId {
        self.id
    }

    /// The agent that owns the connection.
    pub fn owner(&self) -> &NodeName {
        self.arbiter.owner()
    }

    /// Whether the connection is over.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// When to call [`Relay::handle`] with [`Input::Deadline`].
    pub fn timeout(&self) -> Instant {
        self.deadlines.first()
    }

    /// The numbers of bytes that wait for the owner's leg and for the client.
    pub fn waiting(&self) -> (u64, u64) {
        (self.up.len(), self.down.len())
    }

    /// What the driver waits for.
    pub fn interest(&self) -> Interest {
        let client_open = self.from_client == FromClient::Open;
        let relays_up = self.relays_up();
        let client_read = match (relays_up && self.up.is_empty(), self.to_client) {
            _ if !client_open => None,
            (true, _) if self.leg == OwnerLeg::Unopened => Some(ClientRead::Hold),
            (true, _) => Some(ClientRead::Pass),
            (false, ToClient::Finished) => Some(ClientRead::Discard),
            (false, ToClient::Open | ToClient::Finishing) => None,
        };
        Interest {
            client_read,
            client_write: !self.down.is_empty(),
            client_reset: client_read.is_none(),
            leg_read: self.leg_read(),
            leg_write: relays_up && !self.up.is_empty(),
        }
    }

    /// The most bytes that may wait for the client when more are read.
    fn undelivered_len_max(&self) -> u64 {
        if self.arbiter.is_moving() {
            UNDELIVERED_LEN_MAX as u64
        } else if self.giving.is_some_and(Giving::is_detached) {
            // What waits came from this agent before, and from legs of earlier changes, if the client reads nothing.
            CHANGING_LEN_MAX as u64
        } else {
            0
        }
    }

    fn leg_read(&self) -> Option<LegRead> {
        if self.leg_is_over() {
            None
        } else if self.down.is_empty() {
            Some(LegRead::Pass)
        } else {
            let room = self.undelivered_len_max().saturating_sub(self.down.len());
            (room > 0).then_some(LegRead::Hold(room as usize))
        }
    }

    /// The next action, until there is none. Actions are few, so their memory is freed with the last.
    pub fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        if action.is_none() && self.actions.capacity() > 0 {
            self.actions = VecDeque::new();
        }
        action
    }

    /// Handles one input.
    pub fn handle(&mut self, input: Input, cx: Context<'_>) {
        if self.over {
            return;
        }
        match input {
            Input::PassedUp { read: 0, .. } => self.from_client = FromClient::Ended,
            Input::PassedUp { read, written } => {
                self.on_read_from_client(read);
                self.on_written_to_leg(written, cx);
            }
            Input::HeldUp(read) => self.open_with_first_bytes(read),
            Input::Discarded(read) => self.on_discarded(read),
            Input::WrittenToLeg { written, preface_left } => {
                self.up.preface = preface_left;
                self.on_written_to_leg(written, cx);
            }
            Input::PassedDown { read: 0, .. } => self.on_leg_end(false, cx),
            Input::PassedDown { read, written } => self.on_passed_down(read, written, cx),
            Input::WrittenToClient(written) => self.on_written_to_client(written, cx),
            Input::ClientReset => self.arbitrate(ArbiterEvent::ClientGone, cx),
            Input::LegReset => self.on_leg_end(true, cx),
            Input::Connected { ok } => self.on_connected(ok, cx),
            Input::PreparedEnded => self.on_prepared_ended(cx),
            // The agent may be about to answer. Or its host is gone, and no reset will ever arrive.
            Input::OwnerLost if self.copied.is_some() => self.on_leg_end(true, cx),
            Input::OwnerLost => {}
            Input::Agent(event) => self.on_message(*event, cx),
            Input::Found { id, owner, bulk } => self.on_found(id, owner, bulk),
            Input::NotFound => self.arbitrate(ArbiterEvent::LegEnded { reset: true }, cx),
            Input::Deadline => self.on_deadline(cx),
            Input::ChangeDispatcher { to } => self.change_dispatcher(to, cx),
            Input::LegDetached { from, number, tx_offset } => self.on_detached(&from, number, tx_offset, cx),
            Input::ChangeFailed => self.on_change_failed(cx),
            Input::LegAttached { from, number } => self.on_attached(&from, number),
        }
        self.follow_up(cx);
    }

    fn on_read_from_client(&mut self, read: usize) {
        self.up.read(read);
        match &mut self.copied {
            Some(len) if *len + read <= COPY_LEN_MAX => *len += read,
            _ => self.drop_copy(),
        }
    }

    fn drop_copy(&mut self) {
        if self.copied.take().is_some() {
            self.actions.push_back(Action::DropCopy);
        }
    }

    /// Opens an idle leg that is used again. The preface and the client's first bytes take one write here, and one read
    /// at the agent.
    fn open_with_first_bytes(&mut self, read: usize) {
        if read == 0 {
            self.from_client = FromClient::Ended;
        }
        self.on_read_from_client(read);
        self.leg = OwnerLeg::Regular;
        self.begin();
    }

    fn on_written_to_leg(&mut self, written: usize, cx: Context<'_>) {
        self.up.wrote(written);
        self.deadlines.touch(&self.timeouts, cx.now);
        self.arbitrate(ArbiterEvent::RelayedRx(written as u64), cx);
    }

    fn on_passed_down(&mut self, read: usize, written: usize, cx: Context<'_>) {
        self.down.read(read);
        self.drop_copy();
        self.on_written_to_client(written, cx);
        self.arbitrate(ArbiterEvent::RelayedTx(read as u64), cx);
        self.on_relayed_while_changing(cx);
    }

    fn on_written_to_client(&mut self, written: usize, cx: Context<'_>) {
        self.down.wrote(written);
        self.deadlines.touch(&self.timeouts, cx.now);
    }

    /// Counts what the client still sends. The relay waits for the client's end, because an early close would send a
    /// reset that overtakes the last bytes to the client.
    fn on_discarded(&mut self, read: usize) {
        if read == 0 {
            self.from_client = FromClient::Ended;
        }
        self.discarded += read;
        // A close with unread input resets the connection.
        self.over |= self.discarded > DISCARDED_LEN_MAX;
    }

    fn on_leg_end(&mut self, reset: bool, cx: Context<'_>) {
        self.leg = OwnerLeg::Ended;
        match self.copied {
            Some(copied) if self.to_client == ToClient::Open => self.begin_again(copied),
            _ => {
                self.drop_copy();
                self.arbitrate(ArbiterEvent::LegEnded { reset }, cx);
            }
        }
    }

    /// Finds another agent. The leg was idle, and its agent was lost before it sent a byte, so another agent can do the
    /// same handshake from the start.
    fn begin_again(&mut self, copied: usize) {
        self.copied = None;
        self.up = Waiting::holding(copied);
        self.actions.push_back(Action::BeginAgain);
    }

    fn on_found(&mut self, id: ConnectionId, owner: NodeName, bulk: Option<NodeName>) {
        (self.id, self.arbiter, self.bulk) = (id, Arbiter::new(owner), bulk);
        self.stop_attaching();
        self.take_leg();
        self.begin();
    }

    /// Opens the first owner's leg.
    fn begin(&mut self) {
        self.up.preface = true;
        self.actions.push_back(Action::OpenLeg { kind: Kind::New { bulk: self.bulk.clone() }, epoch: Epoch(0) });
    }

    /// Another leg is the owner's leg.
    fn take_leg(&mut self) {
        self.leg = OwnerLeg::Regular;
        if self.from_client == FromClient::EndRelayed {
            self.from_client = FromClient::Ended;
        }
    }

    fn on_connected(&mut self, ok: bool, cx: Context<'_>) {
        let PreparedLeg::Connecting(epoch) = self.prepared else { return };
        if ok {
            self.prepared = PreparedLeg::Ready(epoch);
            self.arbitrate(ArbiterEvent::LegReady(epoch), cx);
        } else {
            self.prepared = PreparedLeg::None;
            self.arbitrate(ArbiterEvent::LegFailed(epoch), cx);
        }
    }

    /// A target that closes its leg cannot get the connection. It is better to find this before the decision.
    fn on_prepared_ended(&mut self, cx: Context<'_>) {
        let PreparedLeg::Ready(epoch) = self.prepared else { return };
        self.prepared = PreparedLeg::None;
        self.arbitrate(ArbiterEvent::LegFailed(epoch), cx);
    }

    fn on_message(&mut self, event: ArbiterEvent, cx: Context<'_>) {
        // An agent that proposes a move has done the handshake, even if its announcement was lost.
        if matches!(&event, ArbiterEvent::Proposed { from, .. } if from == self.arbiter.owner()) {
            self.deadlines.handshake = None;
            self.drop_copy();
        }
        self.arbitrate(event, cx);
        if self.giving.is_some() {
            // An agent does not give the connection away meanwhile.
            self.arbitrate(ArbiterEvent::Timeout(ArbiterTimer::Move), cx);
        }
    }

    fn on_deadline(&mut self, cx: Context<'_>) {
        let limit = match self.deadlines.reached(cx.now) {
            Some(Reached::Arbiter(timer)) => return self.arbitrate(ArbiterEvent::Timeout(timer), cx),
            // The FIN goes to the owner's leg as soon as one is relayed to.
            Some(Reached::ClientEnd) | None => return,
            Some(Reached::Attach) => return self.attach(cx),
            Some(Reached::Linger) => {
                self.over = true;
                return;
            }
            Some(Reached::Handshake) if cx.dispatcher.is_established(self.id) => return,
            Some(Reached::Handshake) => "handshake_timeout",
            Some(Reached::Limit(limit)) => limit,
        };
        self.actions.push_back(Action::LimitReached(limit));
        self.arbitrate(ArbiterEvent::ClientGone, cx);
    }

    fn relays_up(&self) -> bool {
        self.arbiter.reads_client() && !self.leg_is_over()
    }

    fn leg_is_over(&self) -> bool {
        matches!(self.leg, OwnerLeg::Ended | OwnerLeg::Kept)
    }
}

#[cfg(test)]
mod tests;
