//! The network: virtual time, the queue of events, TCP connections and messages between nodes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::figures::Figures;
use crate::message::Message;
use crate::random::{Random, mix};
use crate::socket::Socket;

/// The bytes in one direction of a TCP connection, in both kernels and on the way. Small, so that backpressure is
/// frequent.
const CAPACITY: usize = 48 * 1024;

/// A node of the simulation. 0 is the dispatcher, then come agents, origins and clients.
pub(crate) type NodeId = usize;

/// What happens at a point in time.
pub(crate) enum Event {
    /// A node looks at its sockets and timers.
    Wake(NodeId),
    /// A message arrives.
    Message { from: NodeId, to: NodeId, message: Box<Message> },
    /// A TCP connection arrives at a listener. `client` is the number of the client, or that of no client for a leg.
    Accept { at: NodeId, socket: Socket, client: u64 },
    /// A segment arrives at one end of a TCP connection.
    Segment { end: EndId, segment: Segment },
    /// The plan of the run does something.
    Disturb(Disturbance),
}

/// Faults and orders of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// Asks the owner of some connection to give it away.
    Move,
    /// Asks an agent to give all its connections away.
    Drain(NodeId),
    Crash(NodeId),
    Restart(NodeId),
    /// A new process of the dispatcher gets all connections.
    Upgrade,
    /// The node does nothing until then.
    Stall(NodeId, Duration),
    /// No message passes between two nodes until then.
    Partition(NodeId, NodeId, Duration),
    /// The client of this number resets its connection.
    Vanish(usize),
}

pub(crate) enum Segment {
    Bytes(Vec<u8>),
    Fin,
    Reset,
}

/// One end of a TCP connection: its number, and 0 for the end that connected or 1 for the other.
pub(crate) type EndId = (u64, usize);

/// One end as its kernel has it.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "each holds independently of the others")]
struct End {
    node: NodeId,
    inbox: VecDeque<u8>,
    /// Bytes on the way here.
    in_flight: usize,
    /// The arrival of the last segment sent here.
    last_arrival: Duration,
    fin: bool,
    reset: bool,
    closed: bool,
    /// The other end waits for room here.
    peer_waits: bool,
}

/// Chances of a message, one in so many. 0 is never.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// The longest delay, in milliseconds. Different delays reorder messages.
    pub(crate) delay_ms_max: u64,
    /// Messages arrive in order, no node stalls, and no link is cut: every attempt is decided in time.
    pub(crate) are_calm: bool,
}

/// The network, shared by all nodes and sockets of a run.
#[derive(Clone)]
pub(crate) struct Network(Rc<RefCell<State>>);

struct State {
    start: Instant,
    now: Duration,
    queue: BTreeMap<(Duration, u64), Event>,
    events: u64,
    random: Random,
    links: Links,
    tcp: BTreeMap<EndId, End>,
    connections: u64,
    partitions: BTreeMap<(NodeId, NodeId), Duration>,
    /// The arrival of the last message from one node at another.
    arrivals: BTreeMap<(NodeId, NodeId), Duration>,
    down: BTreeSet<NodeId>,
    violations: Vec<String>,
    trace: Trace,
    figures: Figures,
}

/// A digest of all that happened, and its text if it is wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    pub digest: u64,
    pub lines: Option<Vec<String>>,
}

impl Network {
    pub(crate) fn new(seed: u64, links: Links, traced: bool) -> Self {
        Self(Rc::new(RefCell::new(State {
            start: Instant::now(),
            now: Duration::ZERO,
            queue: BTreeMap::new(),
            events: 0,
            random: Random::new(seed),
            links,
            tcp: BTreeMap::new(),
            connections: 0,
            partitions: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            down: BTreeSet::new(),
            violations: Vec::new(),
            trace: Trace { digest: 0, lines: traced.then(Vec::new) },
            figures: Figures::default(),
        })))
    }

    /// The time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.0.borrow().now
    }

    /// The time as cores take it.
    pub(crate) fn instant(&self) -> Instant {
        let state = self.0.borrow();
        state.start + state.now
    }

    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at - self.0.borrow().start
    }

    pub(crate) fn random<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.0.borrow_mut().random)
    }

    /// Takes the next event, and sets the time.
    pub(crate) fn next(&self) -> Option<Event> {
        let mut state = self.0.borrow_mut();
        let ((at, _), event) = state.queue.pop_first()?;
        state.now = at;
        Some(event)
    }

    pub(crate) fn schedule(&self, at: Duration, event: Event) {
        self.0.borrow_mut().schedule(at, event);
    }

    pub(crate) fn wake_in(&self, node: NodeId, delay: Duration) {
        let mut state = self.0.borrow_mut();
        let at = state.now + delay;
        state.schedule(at, Event::Wake(node));
    }

    /// Records what happened.
    pub(crate) fn note(&self, line: impl FnOnce() -> String) {
        let mut state = self.0.borrow_mut();
        let line = format!("{:>12.6} {}", state.now.as_secs_f64(), line());
        let trace = &mut state.trace;
        trace.digest = line.bytes().fold(trace.digest, |digest, byte| mix(digest ^ u64::from(byte)));
        if let Some(lines) = &mut trace.lines {
            lines.push(line);
        }
    }

    pub(crate) fn count(&self, add: impl FnOnce(&mut Figures)) {
        add(&mut self.0.borrow_mut().figures);
    }

    pub(crate) fn figures(&self) -> Figures {
        self.0.borrow().figures
    }

    /// Records that an invariant does not hold.
    pub(crate) fn violation(&self, what: String) {
        self.note(|| format!("VIOLATION: {what}"));
        self.0.borrow_mut().violations.push(what);
    }

    pub(crate) fn violations(&self) -> Vec<String> {
        self.0.borrow().violations.clone()
    }

    pub(crate) fn take_trace(&self) -> Trace {
        std::mem::take(&mut self.0.borrow_mut().trace)
    }

    pub(crate) fn set_down(&self, node: NodeId, down: bool) {
        let mut state = self.0.borrow_mut();
        if down {
            state.down.insert(node)
        } else {
            state.down.remove(&node)
        };
    }

    pub(crate) fn is_down(&self, node: NodeId) -> bool {
        self.0.borrow().down.contains(&node)
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.0.borrow().links.are_calm
    }

    pub(crate) fn partition(&self, a: NodeId, b: NodeId, until: Duration) {
        self.0.borrow_mut().partitions.insert((a.min(b), a.max(b)), until);
    }

    /// Sends a message, which may get lost, late or repeated.
    pub(crate) fn send(&self, from: NodeId, to: NodeId, message: &Message) {
        let mut text = String::new();
        let _ = write!(text, "{from} -> {to} {message}");
        let copies = self.0.borrow_mut().copies(from, to);
        self.note(|| format!("{text} x{}", copies.len()));
        for at in copies {
            self.schedule(at, Event::Message { from, to, message: Box::new(message.clone()) });
        }
    }

    /// Opens a TCP connection. Returns the near end. The far end arrives at `to`.
    pub(crate) fn connect(&self, from: NodeId, to: NodeId, client: u64) -> Socket {
        let mut state = self.0.borrow_mut();
        state.connections += 1;
        let number = state.connections;
        for (side, node) in [from, to].into_iter().enumerate() {
            state.tcp.insert((number, side), End { node, ..End::default() });
        }
        let at = state.now + state.delay();
        drop(state);
        let [near, far] = [0, 1].map(|side| Socket::new(self.clone(), (number, side)));
        self.schedule(at, Event::Accept { at: to, socket: far, client });
        near
    }

    /// A segment arrives.
    pub(crate) fn arrive(&self, end: EndId, segment: Segment) -> Option<NodeId> {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let to = state.tcp.get_mut(&end)?;
        match segment {
            Segment::Bytes(bytes) => {
                to.in_flight -= bytes.len();
                // Nothing reads here any more, so the kernel resets the sender.
                if to.closed && !to.reset {
                    to.reset = true;
                    state.transmit(peer(end), Segment::Reset);
                    return None;
                }
                to.inbox.extend(bytes);
            }
            Segment::Fin => to.fin = true,
            Segment::Reset => {
                to.reset = true;
                to.inbox.clear();
            }
        }
        let node = to.node;
        Some(node)
    }

    /// `None`: it would block. 0 bytes: the stream has ended.
    pub(crate) fn read(&self, end: EndId, max: usize) -> Option<Result<Vec<u8>, Reset>> {
        let mut state = self.0.borrow_mut();
        let state = &mut *state;
        let own = state.tcp.get_mut(&end).expect("an end lasts as long as its socket");
        if own.reset {
            return Some(Err(Reset));
        }
        if own.inbox.is_empty() {
            return own.fin.then(|| Ok(Vec::new()));
        }
        let read = take_front(&mut own.inbox, max);
        if std::mem::take(&mut own.peer_waits) {
            let node = state.tcp[&peer(end)].node;
            let at = state.now + state.delay();
            state.schedule(at, Event::Wake(node));
        }
        Some(Ok(read))
    }

    pub(crate) fn is_reset(&self, end: EndId) -> bool {
        self.0.borrow().tcp.get(&end).is_some_and(|own| own.reset)
    }

    /// Returns the number of bytes taken. 0: it would block.
    pub(crate) fn write(&self, end: EndId, bytes: &[u8]) -> Result<usize, Reset> {
        let mut state = self.0.borrow_mut();
        if state.tcp[&end].reset {
            return Err(Reset);
        }
        let to = state.tcp.get_mut(&peer(end)).expect("both ends last as long as one");
        let room = CAPACITY.saturating_sub(to.inbox.len() + to.in_flight);
        let taken = room.min(bytes.len());
        to.peer_waits |= taken < bytes.len();
        if taken > 0 {
            to.in_flight += taken;
            state.transmit(peer(end), Segment::Bytes(bytes[..taken].to_vec()));
        }
        Ok(taken)
    }

    pub(crate) fn shut_down(&self, end: EndId) {
        self.0.borrow_mut().transmit(peer(end), Segment::Fin);
    }

    /// Closes an end, by a reset or by a FIN.
    pub(crate) fn close(&self, end: EndId, by_reset: bool) {
        let mut state = self.0.borrow_mut();
        let Some(own) = state.tcp.get_mut(&end) else { return };
        own.closed = true;
        let unread = !own.inbox.is_empty();
        own.inbox.clear();
        if own.reset {
            return;
        }
        let by_reset = by_reset || unread;
        own.reset |= by_reset;
        state.transmit(peer(end), if by_reset { Segment::Reset } else { Segment::Fin });
    }
}

/// The connection was reset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reset;

fn take_front(bytes: &mut VecDeque<u8>, max: usize) -> Vec<u8> {
    let len = max.min(bytes.len());
    let (first, second) = bytes.as_slices();
    let of_first = first.len().min(len);
    let taken = [&first[..of_first], &second[..len - of_first]].concat();
    bytes.drain(..len);
    taken
}

fn peer((number, side): EndId) -> EndId {
    (number, 1 - side)
}

impl State {
    fn schedule(&mut self, at: Duration, event: Event) {
        self.events += 1;
        self.queue.insert((at, self.events), event);
    }

    fn delay(&mut self) -> Duration {
        // Most take a fraction of a millisecond.
        let max = if self.random.one_in(16) { 20 } else { 1 };
        self.random.millis(0..max)
    }

    /// Segments of one connection arrive in order.
    fn transmit(&mut self, to: EndId, segment: Segment) {
        let at = self.now + self.delay();
        let end = self.tcp.get_mut(&to).expect("both ends last as long as one");
        end.last_arrival = end.last_arrival.max(at);
        let at = end.last_arrival;
        self.schedule(at, Event::Segment { end: to, segment });
    }

    /// When the copies of a message arrive.
    fn copies(&mut self, from: NodeId, to: NodeId) -> Vec<Duration> {
        let is_cut = self.partitions.get(&(from.min(to), from.max(to))).is_some_and(|until| *until > self.now);
        let Links { lost, repeated, delay_ms_max, are_calm } = self.links;
        if is_cut || (lost > 0 && self.random.one_in(lost)) {
            return Vec::new();
        }
        let copies = if repeated > 0 && self.random.one_in(repeated) { 2 } else { 1 };
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let max = if self.random.one_in(4) { delay_ms_max } else { 1 };
            let last = self.arrivals.entry((from, to)).or_default();
            let at = self.now + self.random.millis(0..max);
            *last = if are_calm { at.max(*last) } else { at };
            arrivals.push(*last);
        }
        arrivals
    }
}
