//! The registry of live connections.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use watari_addresses::Flow;
use watari_handoff::ArbiterEvent;
use watari_relay::Input;
use watari_values::{ConnectionId, ConnectionStatus, NodeName, StayReason, TlsInfo};
use watari_wire::Established;

use crate::change::giving::ChangeOrder;
use crate::drains::{ASK_AGAIN, Leaver, Leaving};
use crate::scheduler::Place;
use crate::upgrade::{PassedEntry, ToSuccessor};

/// A message to a relay.
#[derive(Debug)]
pub(crate) enum RelayMessage {
    /// For the arbiter. Boxed, because a channel allocates room for 32 messages at once, whatever its limit.
    Arbiter(Box<ArbiterEvent>),
    /// The connection has to pass to a successor of this process.
    PassOn(ToSuccessor),
    /// For the relay. Boxed for the same reason.
    Input(Box<Input>),
    /// The connection has to change its dispatcher.
    Change(Box<ChangeOrder>),
    /// The connection has to end, because its address leaves this node.
    Reset,
}

/// Messages that may wait for one relay. A relay always reads them, and a move has fewer. More mean that a peer floods.
const INBOX_LEN: usize = 32;

/// Finds the relay for a message, and stores the status of each connection.
pub(crate) struct Table {
    boot: u64,
    next: AtomicU64,
    /// Those of a predecessor have its boot number.
    entries: Mutex<HashMap<ConnectionId, Entry>>,
    /// Connections that ended before an agent announced their handshake, with the agent; the last [`ENDED_EARLY_MAX`].
    ended_early: Mutex<VecDeque<(ConnectionId, NodeName)>>,
}

/// How long a connection stays at an agent to which it has moved, and how long it is not asked again, before it moves by
/// itself.
const STAY_MIN: Duration = Duration::from_mins(1);

/// How many such connections are remembered. An announcement arrives within milliseconds, if at all.
const ENDED_EARLY_MAX: usize = 1024;

struct Entry {
    /// The client's connection. Behind a relay, its ends are not those that the client knows.
    flow: Flow,
    inbox: mpsc::Sender<RelayMessage>,
    status: ConnectionStatus,
    /// The slot at the agent that owns the connection.
    place: Place,
    /// The slot at the agent that gets the connection after its handshake.
    reserved: Option<Place>,
    /// When the dispatcher asked the connection to leave its agent.
    asked: Option<Instant>,
    /// When it moved last.
    moved: Option<Instant>,
    /// The bytes of both directions so far, which the relay counts.
    relayed: Arc<AtomicU64>,
    /// `relayed` at the last measurement, and the bytes between the last two.
    measured: u64,
    recently: u64,
}

/// A new connection in the table, as its relay has it.
pub(crate) struct Registered {
    pub(crate) id: ConnectionId,
    pub(crate) inputs: mpsc::Receiver<RelayMessage>,
    /// The relay adds the bytes of both directions.
    pub(crate) relayed: Arc<AtomicU64>,
}

/// What an agent has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) connections: usize,
    /// The bytes that were relayed between the last two measurements.
    pub(crate) bytes: u64,
}

impl Entry {
    /// Whether the handshake is done. A move proves it too, if the announcement was lost.
    fn is_established(&self) -> bool {
        self.status.tls.is_some() || self.status.moves > 0
    }

    /// Whether `agent` owns the connection and its handshake is done.
    fn is_at(&self, agent: &NodeName) -> bool {
        self.status.node == *agent && self.is_established()
    }

    fn was_asked_recently(&self, now: Instant) -> bool {
        self.asked.is_some_and(|asked| now.duration_since(asked) < ASK_AGAIN)
    }
}

impl Table {
    pub(crate) fn new() -> io::Result<Self> {
        let mut boot = [0; 8];
        aws_lc_rs::rand::fill(&mut boot).map_err(|_| io::Error::other("the system gives no random bytes"))?;
        Ok(Self {
            boot: u64::from_ne_bytes(boot),
            next: AtomicU64::new(1),
            entries: Mutex::default(),
            ended_early: Mutex::default(),
        })
    }

    /// Adds a connection of `client`, with its `flow`, a `place` at its first agent, and possibly one
    /// `reserved` at its next.
    pub(crate) fn insert(&self, client: SocketAddr, flow: Flow, place: Place, reserved: Option<Place>) -> Registered {
        let node = place.agent();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let id = ConnectionId { boot: self.boot, number };
        let status = ConnectionStatus {
            id,
            client,
            tls: None,
            handshake_node: node.clone(),
            node: node.clone(),
            moves: 0,
            stays: None,
        };
        self.add(status, flow, place, reserved)
    }

    /// Adds a connection of this process's predecessor, with its `places`: at its owner, and at its next agent.
    pub(crate) fn restore(
        &self,
        id: ConnectionId,
        (client, flow): (SocketAddr, Flow),
        passed: PassedEntry,
        (place, reserved): (Place, Option<Place>),
    ) -> Registered {
        let PassedEntry { tls, handshake_node, node, moves, stays, reserved: _ } = passed;
        self.add(ConnectionStatus { id, client, tls, handshake_node, node, moves, stays }, flow, place, reserved)
    }

    fn add(&self, status: ConnectionStatus, flow: Flow, place: Place, reserved: Option<Place>) -> Registered {
        let id = status.id;
        let (inbox, inputs) = mpsc::channel(INBOX_LEN);
        let relayed = Arc::<AtomicU64>::default();
        let counted = relayed.clone();
        let (asked, moved, measured, recently) = (None, None, 0, 0);
        let entry = Entry { flow, inbox, status, place, reserved, asked, moved, relayed: counted, measured, recently };
        self.entries().insert(id, entry);
        Registered { id, inputs, relayed }
    }

    /// The entry of a connection, for a successor of this process.
    pub(crate) fn entry(&self, id: ConnectionId) -> Option<PassedEntry> {
        let entries = self.entries();
        let Entry { status, reserved, .. } = entries.get(&id)?;
        let ConnectionStatus { tls, handshake_node, node, moves, stays, .. } = status.clone();
        let reserved = reserved.as_ref().map(|place| place.agent().clone());
        Some(PassedEntry { tls, handshake_node, node, moves, stays, reserved })
    }

    /// The ids of all connections.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        self.entries().keys().copied().collect()
    }

    pub(crate) fn contains(&self, id: ConnectionId) -> bool {
        self.entries().contains_key(&id)
    }

    /// The ids of the connections at `address`.
    pub(crate) fn ids_at(&self, address: IpAddr) -> Vec<ConnectionId> {
        self.ids_where(|flow| flow.server.ip() == address)
    }

    /// The ids of the connections whose flow is meant.
    pub(crate) fn ids_where(&self, is_meant: impl Fn(&Flow) -> bool) -> Vec<ConnectionId> {
        let entries = self.entries();
        entries.iter().filter(|(_, entry)| is_meant(&entry.flow)).map(|(id, _)| *id).collect()
    }

    /// Looks at the flows of all connections.
    pub(crate) fn for_each_flow(&self, look: impl FnMut(&Flow)) {
        self.entries().values().map(|entry| &entry.flow).for_each(look);
    }

    /// The client's connection.
    pub(crate) fn flow(&self, id: ConnectionId) -> Option<Flow> {
        self.entries().get(&id).map(|entry| entry.flow)
    }

    /// Sends a message to the connection's relay. Returns `false` if there is no such connection. If the inbox is full,
    /// the message is dropped.
    pub(crate) fn message(&self, id: ConnectionId, message: RelayMessage) -> bool {
        let entries = self.entries();
        let Some(entry) = entries.get(&id) else { return false };
        if entry.inbox.try_send(message).is_err() {
            tracing::debug!(connection = %id, "message dropped: the connection is ending, or its inbox is full");
        }
        true
    }

    /// Sends a message to the relays of the connections at `address`. Returns how many there are.
    pub(crate) fn message_all_at(&self, address: IpAddr, message: impl Fn() -> RelayMessage) -> usize {
        let entries = self.entries();
        let mut count = 0;
        for entry in entries.values().filter(|entry| entry.flow.server.ip() == address) {
            // A full inbox has messages of a flood.
            let _ = entry.inbox.try_send(message());
            count += 1;
        }
        count
    }

    /// Asks these connections to pass to a successor of this process. One whose inbox is full can be asked again.
    pub(crate) fn pass_on(&self, ids: &[ConnectionId], to: &ToSuccessor) {
        let entries = self.entries();
        for entry in ids.iter().filter_map(|id| entries.get(id)) {
            let _ = entry.inbox.try_send(RelayMessage::PassOn(to.clone()));
        }
    }

    pub(crate) fn remove(&self, id: ConnectionId) {
        let Some(entry) = self.entries().remove(&id) else { return };
        if !entry.is_established() {
            let mut early = self.ended_early();
            if early.len() == ENDED_EARLY_MAX {
                early.pop_front();
            }
            early.push_back((id, entry.status.handshake_node));
        }
    }

    /// Sends `event` to the connection's relay. Returns `false` if there is no such connection. If the inbox is full,
    /// the event is dropped, as if it had been lost on the network.
    pub(crate) fn send(&self, id: ConnectionId, event: ArbiterEvent) -> bool {
        self.message(id, RelayMessage::Arbiter(Box::new(event)))
    }

    /// Reports the loss of the link to all connections whose handshake `agent` is doing.
    pub(crate) fn owner_lost(&self, agent: &NodeName) {
        let begun = |entry: &&Entry| entry.status.node == *agent && !entry.is_established();
        for entry in self.entries().values().filter(begun) {
            // If its inbox is full, an agent has already answered.
            let _ = entry.inbox.try_send(RelayMessage::Input(Box::new(Input::OwnerLost)));
        }
    }

    /// Records the result of a handshake, once, from the agent that did it or from the current owner.
    pub(crate) fn establish(&self, from: &NodeName, established: &Established) -> bool {
        let id = established.connection;
        if self.establish_early(from, id) {
            return true;
        }
        match self.entries().get_mut(&id).map(|entry| &mut entry.status) {
            Some(status) if [&status.handshake_node, &status.node].contains(&from) && status.tls.is_none() => {
                status.tls = Some(established.tls.clone());
                true
            }
            _ => false,
        }
    }

    /// The same for a connection that is already over: agents send announcements together with other messages.
    fn establish_early(&self, from: &NodeName, id: ConnectionId) -> bool {
        let mut early = self.ended_early();
        let at = early.iter().position(|(ended, agent)| *ended == id && agent == from);
        at.and_then(|at| early.remove(at)).is_some()
    }

    /// Replaces the connection `id`, whose agent was lost before it answered, by one with a new id. The second attempt
    /// may be at the same agent and has the same tenure. Only the id separates it from late messages about the first.
    pub(crate) fn begin_again(
        &self,
        id: ConnectionId,
        (client, flow): (SocketAddr, Flow),
        place: Place,
        reserved: Option<Place>,
    ) -> Registered {
        self.remove(id);
        self.insert(client, flow, place, reserved)
    }

    /// Records that the connection has moved to `to`.
    pub(crate) fn moved(&self, id: ConnectionId, to: &NodeName) {
        if let Some(entry) = self.entries().get_mut(&id) {
            entry.status.node = to.clone();
            entry.status.moves += 1;
            let reserved = entry.reserved.take().filter(|place| place.agent() == to);
            entry.place = reserved.unwrap_or_else(|| entry.place.elsewhere(to));
            entry.status.stays = None;
            entry.asked = None;
            entry.moved = Some(Instant::now());
        }
    }

    /// Records that a move did not happen. The connection frees its reserved slot.
    pub(crate) fn not_moved(&self, id: ConnectionId) {
        if let Some(entry) = self.entries().get_mut(&id) {
            entry.reserved = None;
        }
    }

    /// Records why a connection that was asked to leave has not left yet, as its owner reports.
    pub(crate) fn stays(&self, from: &NodeName, id: ConnectionId, reason: StayReason) {
        let mut entries = self.entries();
        let entry = entries.get_mut(&id).filter(|entry| entry.status.node == *from);
        if let Some(entry) = entry {
            entry.status.stays = Some(reason);
        }
    }

    /// Whether the handshake is done. The relay asks at the timeout, because a notification would wake its thread.
    pub(crate) fn is_established(&self, id: ConnectionId) -> bool {
        self.entries().get(&id).is_some_and(Entry::is_established)
    }

    /// The owner of the connection. `None` before the handshake is done.
    pub(crate) fn owner(&self, id: ConnectionId) -> Option<NodeName> {
        let entries = self.entries();
        let entry = entries.get(&id).filter(|entry| entry.is_established())?;
        Some(entry.status.node.clone())
    }

    /// Records that the connection was asked to leave.
    pub(crate) fn asked(&self, id: ConnectionId, now: Instant) {
        if let Some(entry) = self.entries().get_mut(&id) {
            entry.asked = Some(now);
            entry.status.stays = None;
        }
    }

    /// Adds the connections of `agent` to `leaving` that were not asked recently: those that may be asked now. Reads the
    /// whole table. A connection that reported a reason to stay is asked again after [`ASK_AGAIN`], like one that has not
    /// answered.
    pub(crate) fn find_leavers(&self, agent: &NodeName, leaving: &mut Leaving, now: Instant) {
        let entries = self.entries();
        let may_be_asked = entries.values().filter(|entry| entry.is_at(agent) && !entry.was_asked_recently(now));
        leaving.found.extend(may_be_asked.map(|entry| entry.status.id));
    }

    /// Asks at most `asked_max` of the connections that were found to leave now, so that at most `max` are about to leave.
    /// A connection that reported a reason to stay does not count as about to leave.
    pub(crate) fn leavers(
        &self,
        agent: &NodeName,
        leaving: &mut Leaving,
        max: usize,
        asked_max: usize,
        now: Instant,
    ) -> Vec<Leaver> {
        let mut entries = self.entries();
        leaving.about_to.retain(|id| {
            let entry = entries.get(id).filter(|entry| entry.is_at(agent));
            entry.is_some_and(|entry| entry.status.stays.is_none() && entry.was_asked_recently(now))
        });
        let room = asked_max.min(max.saturating_sub(leaving.about_to.len()));
        let mut leavers = Vec::new();
        while leavers.len() < room
            && let Some(id) = leaving.found.pop()
        {
            let entry = entries.get_mut(&id).filter(|entry| entry.is_at(agent));
            if let Some(entry) = entry.filter(|entry| !entry.was_asked_recently(now)) {
                entry.asked = Some(now);
                leavers.push(Leaver { id, client: entry.status.client.ip() });
            }
        }
        leaving.about_to.extend(leavers.iter().map(|leaver| leaver.id));
        leavers
    }

    /// Measures what each agent has. The bytes are those since the last call.
    pub(crate) fn loads(&self) -> HashMap<NodeName, Owned> {
        let mut loads: HashMap<NodeName, Owned> = HashMap::new();
        for entry in self.entries().values_mut() {
            let relayed = entry.relayed.load(Ordering::Relaxed);
            entry.recently = relayed - std::mem::replace(&mut entry.measured, relayed);
            let owned = loads.entry(entry.status.node.clone()).or_default();
            owned.connections += 1;
            owned.bytes += entry.recently;
        }
        loads
    }

    /// Selects at most `max` connections of `agent` that may move now, and records that they are asked to leave. Those
    /// with HTTP/2 cannot move, and would only use up the moves that are allowed. With `bytes`, selects those with most
    /// bytes at the last measurement, of about so many bytes in all.
    pub(crate) fn movers(&self, agent: &NodeName, max: usize, bytes: Option<u64>, now: Instant) -> Vec<ConnectionId> {
        let mut entries = self.entries();
        let may_move = |entry: &&mut Entry| {
            entry.is_at(agent)
                && !entry.status.tls.as_ref().is_some_and(TlsInfo::is_http2)
                && entry.moved.is_none_or(|moved| now.duration_since(moved) >= STAY_MIN)
                && entry.asked.is_none_or(|asked| now.duration_since(asked) >= STAY_MIN)
        };
        let mut movers: Vec<_> = entries.values_mut().filter(may_move).collect();
        if let Some(mut left) = bytes {
            movers.sort_by_key(|entry| std::cmp::Reverse(entry.recently));
            movers.retain(|entry| {
                // Half as much again: of connections with the same load, each may have a little more than its part of
                // `left`, which is half of the excess.
                let fits = (1..=left + left / 2).contains(&entry.recently);
                left = left.saturating_sub(if fits { entry.recently } else { 0 });
                fits
            });
        }
        movers.truncate(max);
        let ask = |entry: &mut Entry| {
            entry.asked = Some(now);
            entry.status.stays = None;
            entry.status.id
        };
        movers.into_iter().map(ask).collect()
    }

    pub(crate) fn statuses(&self) -> Vec<ConnectionStatus> {
        let mut statuses: Vec<_> = self.entries().values().map(|entry| entry.status.clone()).collect();
        statuses.sort_by_key(|status| status.id);
        statuses
    }

    pub(crate) fn connections_by_node(&self) -> HashMap<NodeName, usize> {
        let mut owned = HashMap::new();
        for entry in self.entries().values() {
            *owned.entry(entry.status.node.clone()).or_default() += 1;
        }
        owned
    }

    fn ended_early(&self) -> MutexGuard<'_, VecDeque<(ConnectionId, NodeName)>> {
        self.ended_early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<ConnectionId, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::Ipv4Addr;

    use watari_values::Epoch;

    use super::*;
    use crate::scheduler::Scheduler;

    const FLOW: Flow = {
        let end = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 443);
        Flow { client: end, server: end }
    };

    /// The second attempt may be at the same agent, with the same tenure.
    #[test]
    fn messages_about_the_first_attempt_do_not_reach_the_second() {
        let (table, scheduler) = (Table::new().unwrap(), Arc::<Scheduler>::default());
        let (agent, client) = (NodeName::new("a1").unwrap(), SocketAddr::from(([192, 0, 2, 1], 1000)));
        let Registered { id: first, inputs: mut of_first, .. } =
            table.insert(client, FLOW, scheduler.place(&agent), None);
        let again = table.begin_again(first, (client, FLOW), scheduler.place(&agent), None);
        let Registered { id: second, inputs: mut of_second, .. } = again;
        assert_ne!(first, second);
        let end = || ArbiterEvent::Final { from: agent.clone(), epoch: Epoch(0), tx_offset: 7 };
        assert!(!table.send(first, end()));
        assert!(of_first.try_recv().is_err() && of_second.try_recv().is_err());
        assert!(table.send(second, end()));
        assert!(matches!(of_second.try_recv(), Ok(RelayMessage::Arbiter(event)) if *event == end()));
        let listed: Vec<_> = table.statuses().iter().map(|status| status.id).collect();
        assert_eq!((listed, scheduler.connections(&agent)), (vec![second], 1));
    }

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    /// A table with connections of `a1`, which have relayed these bytes.
    fn table_of(bytes: &[u64]) -> (Table, Vec<ConnectionId>) {
        let (table, scheduler) = (Table::new().unwrap(), Arc::<Scheduler>::default());
        let client = SocketAddr::from(([192, 0, 2, 1], 1000));
        let ids = bytes.iter().map(|bytes| {
            let Registered { id, relayed, .. } = table.insert(client, FLOW, scheduler.place(&name("a0")), None);
            relayed.store(*bytes, Ordering::Relaxed);
            table.moved(id, &name("a1"));
            id
        });
        let ids = ids.collect();
        (table, ids)
    }

    #[test]
    fn loads_are_those_since_the_last_measurement() {
        let (table, ids) = table_of(&[10, 20]);
        assert_eq!(table.loads(), HashMap::from([(name("a1"), Owned { connections: 2, bytes: 30 })]));
        table.moved(ids[0], &name("a2"));
        let idle = Owned { connections: 1, bytes: 0 };
        assert_eq!(table.loads(), HashMap::from([(name("a1"), idle), (name("a2"), idle)]));
    }

    #[test]
    fn a_connection_stays_for_a_while_after_a_move_and_an_order() {
        let (table, ids) = table_of(&[0, 0, 0]);
        let moved = Instant::now();
        assert!(table.movers(&name("a1"), 9, None, moved).is_empty(), "they have just moved");
        let later = moved + 2 * STAY_MIN;
        let first = table.movers(&name("a1"), 2, None, later);
        let second = table.movers(&name("a1"), 9, None, later + Duration::from_secs(1));
        assert_eq!((first.len(), second.len()), (2, 1));
        let mut all = [first, second].concat();
        all.sort_unstable();
        assert_eq!(all, ids);
        assert!(table.movers(&name("a1"), 9, None, later + STAY_MIN / 2).is_empty(), "all were asked");
        assert!(table.movers(&name("a0"), 9, None, later).is_empty(), "they are not there");
    }

    #[test]
    fn connections_with_http2_are_not_asked_to_move() {
        let (table, ids) = table_of(&[0; 3]);
        for (connection, alpn) in ids.iter().copied().zip(["h2", "http/1.1", ""]) {
            let alpn = alpn.as_bytes().to_vec();
            let tls = TlsInfo { version: 0x0304, suite: 0x1301, alpn, server_name: None, resumed: false };
            table.establish(&name("a1"), &Established { connection, tls });
        }
        let mut movers = table.movers(&name("a1"), 9, None, Instant::now() + 2 * STAY_MIN);
        movers.sort_unstable();
        assert_eq!(movers, ids[1..]);
    }

    #[test]
    fn few_connections_are_about_to_leave_at_a_time() {
        let (table, ids) = table_of(&[0; 5]);
        let (agent, mut leaving, now) = (name("a1"), Leaving::default(), Instant::now());
        let ask = |leaving: &mut Leaving, asked_max: usize, now: Instant| -> Vec<ConnectionId> {
            table.leavers(&agent, leaving, 3, asked_max, now).into_iter().map(|leaver| leaver.id).collect()
        };
        assert!(ask(&mut leaving, 9, now).is_empty(), "none was found");
        table.find_leavers(&agent, &mut leaving, now);
        let first = [ask(&mut leaving, 2, now), ask(&mut leaving, 9, now)].concat();
        assert_eq!((first.len(), leaving.about_to.len()), (3, 3));
        // One leaves, one stays, one ends. The last two are asked.
        table.moved(first[0], &name("a2"));
        table.stays(&agent, first[1], StayReason::InRequest);
        table.remove(first[2]);
        let second = ask(&mut leaving, 9, now);
        assert_eq!(second.len(), 2);
        assert!(ids.iter().all(|id| first.contains(id) || second.contains(id)));
        table.find_leavers(&agent, &mut leaving, now);
        assert!(leaving.found.is_empty(), "all were asked");
        // The one that stays and those that have not answered are asked again.
        let later = now + ASK_AGAIN;
        table.find_leavers(&agent, &mut leaving, later);
        let mut third = ask(&mut leaving, 9, later);
        third.sort_unstable();
        let mut expected = [vec![first[1]], second].concat();
        expected.sort_unstable();
        assert_eq!(third, expected);
    }

    #[test]
    fn a_connection_that_left_after_it_was_found_is_not_asked() {
        let (table, ids) = table_of(&[0; 2]);
        let (agent, mut leaving, now) = (name("a1"), Leaving::default(), Instant::now());
        table.find_leavers(&agent, &mut leaving, now);
        table.moved(ids[0], &name("a2"));
        let leavers = table.leavers(&agent, &mut leaving, 9, 9, now);
        assert_eq!(leavers.iter().map(|leaver| leaver.id).collect::<Vec<_>>(), [ids[1]]);
    }

    #[test]
    fn the_busiest_connections_that_fit_move() {
        let (table, ids) = table_of(&[0, 50, 400, 100, 30]);
        table.loads();
        let later = Instant::now() + 2 * STAY_MIN;
        assert_eq!(table.movers(&name("a1"), 2, Some(200), later), [ids[3], ids[1]]);
        let (table, _) = table_of(&[100; 4]);
        table.loads();
        assert_eq!(table.movers(&name("a1"), 1, Some(90), later).len(), 1, "all have the same load");
    }
}
