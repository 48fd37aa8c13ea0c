//! All connections in progress.

use std::collections::VecDeque;
use std::ops::AddAssign;

use hashbrown::HashTable;
use watari_packets::{Flags, Segment, Timestamp};

use crate::app::App;
use crate::close::Left;
use crate::connection::{Event, Evicted, Opened, Overdue};
use crate::early::{Early, Waiting};
use crate::ending::Side;
use crate::flow::{Cause, Flow, Stage};
use crate::key::Key;
use crate::lists::Lists;
use crate::settings::Settings;
use crate::wheel::Wheel;

/// Follows connections. Pass each segment to [`Connections::observe`], or only the time to [`Connections::advance`].
/// Then call [`Connections::poll_event`] until it returns `None`.
#[derive(Debug)]
pub struct Connections {
    settings: Settings,
    now: Timestamp,
    flows: Vec<Option<Flow>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    wheel: Wheel,
    classes: Lists,
    early: Early,
    events: VecDeque<Event>,
    counts: Counts,
}

/// Connections and segments that were not followed, or no longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections evicted with an incomplete handshake, or with only one side seen.
    pub evicted: u64,
    /// Segments that would have begun a connection while all held connections were established and seen from both
    /// sides.
    pub untracked: u64,
    /// Segments that belong to no connection and begin none.
    pub stray: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.evicted += other.evicted;
        self.untracked += other.untracked;
        self.stray += other.stray;
    }
}

// Lists of connections, by the order of eviction. If only one side was seen, the connection may be forged: any host can
// send a SYN and an ACK behind it from spoofed addresses.
const OVER: u32 = 0;
const ONE_SIDED: u32 = 1;
const HALF_OPEN: u32 = 2;
const ESTABLISHED: u32 = 3;

impl Connections {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Timestamp(0),
            flows: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            wheel: Wheel::new(),
            classes: Lists::new(4),
            early: Early::default(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a segment, which may have been captured out of order. Time is that of the latest segment.
    pub fn observe(&mut self, segment: &Segment<'_>) {
        self.advance(segment.time);
        let (key, source_is_first) = Key::new(segment.source, segment.destination);
        let hash = key.hash(self.settings.seed);
        let flows = &self.flows;
        let found = self.index.find(hash, |id| flow(flows, *id).is_some_and(|flow| flow.key == key)).copied();
        if found.is_none_or(|id| !self.go_on(id, source_is_first, segment)) {
            self.begin(key, hash, source_is_first, segment);
        }
    }

    /// Advances packet time to `now`.
    pub fn advance(&mut self, now: Timestamp) {
        if now <= self.now {
            return;
        }
        self.now = now;
        self.release_due();
        if !self.wheel.is_behind(now) {
            return;
        }
        while let Some(id) = self.wheel.due(now) {
            self.look_at(id);
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the input: all connections are reported as they are.
    pub fn finish(&mut self) {
        while let Some(id) = self.early.first() {
            self.release(id, true);
        }
        for id in 0..self.flows.len() as u32 {
            self.catch_up(id);
            self.report(id, Left::Cut);
            self.forget(id);
        }
    }

    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Connections that have not ended.
    pub fn open(&self) -> u32 {
        self.classes.len(ONE_SIDED) + self.classes.len(HALF_OPEN) + self.classes.len(ESTABLISHED)
    }

    /// Takes a segment between the ends of a held connection. False if the segment does not belong to it.
    fn go_on(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) -> bool {
        let Some(flow) = flow(&self.flows, id) else { return false };
        if self.settings.timeout < segment.time.since(flow.started) {
            self.catch_up(id);
        }
        let Some(flow) = self::flow(&self.flows, id) else { return false };
        let side = flow.side(source_is_first);
        if flow.is_early(side, segment) {
            self.hold(id, source_is_first, segment);
            return true;
        }
        if flow.stage == Stage::Ahead {
            if self.early.any(id, |it| it.follows(source_is_first, segment)) {
                self.start(id, source_is_first, segment);
                self.release(id, false);
                return true;
            }
            // The segment belongs to another connection.
            self.release(id, true);
            return self.go_on(id, source_is_first, segment);
        }
        if flow.is_left_behind(side, segment) {
            self.release(id, true);
            self.report(id, Left::Silent);
            self.forget(id);
            return false;
        }
        self.see(id, side, segment);
        if self.waits(id) {
            self.release(id, false);
        }
        true
    }

    fn see(&mut self, id: u32, side: Side, segment: &Segment<'_>) {
        let Some(flow) = flow_mut(&mut self.flows, id) else { return };
        let stage = flow.stage;
        if stage == Stage::Over {
            if flow.see_rest(side, segment) {
                let (at, _) = flow.due(&self.settings);
                self.classes.push(OVER, id);
                self.wheel.set_soon(id, at);
            }
            return;
        }
        if !flow.see(side, segment, &mut self.events) {
            return;
        }
        let (at, _) = flow.due(&self.settings);
        // Only these two can change the list that it belongs to.
        let is_first = flow.half(side).packets == 1;
        if (is_first || stage != flow.stage) && self.classes.list(id) != Some(class(flow)) {
            self.classes.push(class(flow), id);
        }
        self.wheel.set_soon(id, at);
    }

    /// Keeps a segment until the one that it follows arrives.
    fn hold(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let Some(flow) = flow_mut(&mut self.flows, id) else { return };
        flow.early += 1;
        self.early.hold(id, source_is_first, segment);
        self.release_due();
    }

    /// Releases the segments of connections that have waited long enough, or that are too many.
    fn release_due(&mut self) {
        while let Some(id) = self.early.due(self.now) {
            self.release(id, true);
        }
    }

    fn waits(&self, id: u32) -> bool {
        flow(&self.flows, id).is_some_and(|flow| flow.early > 0)
    }

    /// Processes held segments of a connection: those that are no longer ahead, or all.
    fn release(&mut self, id: u32, all: bool) {
        if flow(&self.flows, id).is_some_and(|flow| flow.stage == Stage::Ahead) {
            if !all {
                return;
            }
            let first = self.early.take(id, Waiting::is_answer_to_syn);
            let Some(first) = first.or_else(|| self.early.take(id, |_| true)) else { return };
            if let Some(flow) = flow_mut(&mut self.flows, id) {
                flow.early -= 1;
            }
            self.start(id, first.source_is_first, &first.segment());
        }
        while let Some(flow) = flow(&self.flows, id).filter(|flow| flow.early > 0) {
            let is_next = |it: &Waiting| all || !flow.is_early(flow.side(it.source_is_first), &it.segment());
            let Some(next) = self.early.take(id, is_next) else { return };
            let side = flow.side(next.source_is_first);
            if let Some(flow) = flow_mut(&mut self.flows, id) {
                flow.early -= 1;
            }
            self.see(id, side, &next.segment());
        }
    }

    /// Begins a connection with its first captured segment. Its SYN may still come.
    fn begin(&mut self, key: Key, hash: u64, source_is_first: bool, segment: &Segment<'_>) {
        let Some(sender) = self.sender(segment) else {
            self.counts.stray += 1;
            return;
        };
        let ahead = Flow::ahead(key, segment.time);
        if ahead.is_early(sender, segment) {
            let id = self.place(hash, ahead);
            self.hold(id, source_is_first, segment);
        } else if self.make_room() {
            let id = self.place(hash, Flow::new(key, source_is_first == (sender == Side::Client), segment));
            self.opened(id, sender, segment);
        } else {
            self.counts.untracked += 1;
        }
    }

    /// Begins a connection whose segments were held, with this segment, if there is room.
    fn start(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let sender = self.sender(segment).filter(|_| self.make_room());
        let (Some(sender), Some(ahead)) = (sender, flow_mut(&mut self.flows, id)) else {
            self.counts.untracked += 1;
            self.forget(id);
            return;
        };
        let early = ahead.early;
        *ahead = Flow::new(ahead.key, source_is_first == (sender == Side::Client), segment);
        ahead.early = early;
        self.opened(id, sender, segment);
    }

    fn place(&mut self, hash: u64, flow: Flow) -> u32 {
        let id = self.free.pop().unwrap_or(self.flows.len() as u32);
        if self.flows.len() == id as usize {
            self.flows.push(None);
        }
        self.flows[id as usize] = Some(flow);
        let (flows, seed) = (&self.flows, self.settings.seed);
        self.index.insert_unique(hash, id, |id| self::flow(flows, *id).map_or(0, |flow| flow.key.hash(seed)));
        id
    }

    /// Reports the begin of a connection and takes its first segment.
    fn opened(&mut self, id: u32, sender: Side, segment: &Segment<'_>) {
        let Some(flow) = flow_mut(&mut self.flows, id) else { return };
        if sender == Side::Server {
            flow.flip();
        }
        let opened = Opened { client: flow.end(Side::Client), server: flow.end(Side::Server), at: segment.time };
        self.classes.push(class(flow), id);
        self.events.push_back(Event::Opened(opened));
        self.see(id, sender, segment);
        if let Some(flow) = self::flow(&self.flows, id) {
            self.wheel.set(id, flow.due(&self.settings).0);
        }
    }

    /// The side that sends a segment of no known connection; `None` if the segment begins none.
    fn sender(&self, segment: &Segment<'_>) -> Option<Side> {
        let has = |flag| segment.flags.contains(flag);
        match (has(Flags::SYN), has(Flags::RST)) {
            (true, false) if has(Flags::ACK) => Some(Side::Server),
            (true, false) => Some(Side::Client),
            (true, true) => None,
            // An acknowledgment without data belongs to an earlier connection.
            (false, false) if segment.len == 0 && !has(Flags::FIN) => None,
            _ => Some(self.settings.servers.sender(segment.source, segment.destination, App::speaker(segment.data))),
        }
    }

    /// Makes room for another connection. It drops the first of these that exists: one that is over, the oldest of
    /// which only one side was seen, the oldest half-open one. It also keeps the number of half-open ones below its own
    /// limit.
    fn make_room(&mut self) -> bool {
        if self.classes.len(HALF_OPEN) >= self.settings.half_open_max
            && let Some(id) = self.classes.first(HALF_OPEN)
        {
            self.evict(id);
        }
        if self.open() + self.classes.len(OVER) < self.settings.connections_max {
            return true;
        }
        if let Some(id) = self.classes.first(OVER) {
            self.forget(id);
        } else if let Some(id) = self.classes.first(ONE_SIDED).or_else(|| self.classes.first(HALF_OPEN)) {
            self.evict(id);
        } else {
            return false;
        }
        true
    }

    fn evict(&mut self, id: u32) {
        if let Some(flow) = flow(&self.flows, id) {
            self.counts.evicted += 1;
            let server = flow.end(Side::Server);
            // A client that acknowledges has got an answer, seen or not.
            let is_answered = flow.is_established || !flow.is_knocking();
            let was_overdue = flow.is_knock_overdue;
            self.events.push_back(Event::Evicted(Evicted { server, at: self.now, is_answered, was_overdue }));
        }
        self.forget(id);
    }

    /// Processes timeouts that have passed; the timing wheel is less exact.
    fn catch_up(&mut self, id: u32) {
        let is_due = |flow: &Flow| flow.stage != Stage::Over && flow.due(&self.settings).0 < self.now;
        if flow(&self.flows, id).is_some_and(is_due) {
            self.look_at(id);
            self.catch_up(id);
        }
    }

    /// Processes a connection that the timing wheel returned.
    fn look_at(&mut self, id: u32) {
        let Some(flow) = flow_mut(&mut self.flows, id) else { return };
        let (at, cause) = flow.due(&self.settings);
        if self.now < at {
            self.wheel.set(id, at);
            return;
        }
        match cause {
            Cause::KnockOverdue | Cause::RequestOverdue => {
                let is_knock = cause == Cause::KnockOverdue;
                let since = if is_knock { flow.started } else { flow.waits_since().unwrap_or(at) };
                flow.is_knock_overdue |= is_knock;
                flow.turn.is_overdue |= !is_knock;
                let (client, server) = (flow.end(Side::Client), flow.end(Side::Server));
                self.events.push_back(Event::Overdue(Overdue { client, server, since, at, is_knock }));
                let (at, _) = flow.due(&self.settings);
                self.wheel.set(id, at);
            }
            Cause::Timeout => self.report_at(id, Left::Timeout, at),
            Cause::End => self.report(id, Left::Silent),
            Cause::Forget => self.forget(id),
        }
    }

    fn report(&mut self, id: u32, left: Left) {
        self.report_at(id, left, self.now);
    }

    /// Reports how a connection ended, and keeps its entry for late segments.
    fn report_at(&mut self, id: u32, left: Left, at: Timestamp) {
        let Some(flow) = flow_mut(&mut self.flows, id).filter(|flow| flow.stage != Stage::Over) else { return };
        let connection = flow.conclude(left, at, &self.settings);
        flow.tell_last(&mut self.events);
        flow.bury(self.now);
        self.events.push_back(Event::Closed(Box::new(connection)));
        let (at, _) = flow.due(&self.settings);
        if at <= self.now {
            self.forget(id);
            return;
        }
        self.classes.push(OVER, id);
        self.wheel.set(id, at);
        if self.settings.over_max < self.classes.len(OVER)
            && let Some(oldest) = self.classes.first(OVER)
        {
            self.forget(oldest);
        }
    }

    fn forget(&mut self, id: u32) {
        let Some(flow) = flow(&self.flows, id) else { return };
        let (hash, has_early) = (flow.key.hash(self.settings.seed), flow.early > 0);
        // Writes in place, because a `Flow` is large.
        self.flows[id as usize] = None;
        if has_early {
            while self.early.take(id, |_| true).is_some() {}
        }
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.wheel.remove(id);
        self.classes.remove(id);
        self.free.push(id);
    }
}

/// The list of a connection that is not over.
const fn class(flow: &Flow) -> u32 {
    match (flow.is_established, flow.is_one_sided()) {
        (false, _) => HALF_OPEN,
        (true, true) => ONE_SIDED,
        (true, false) => ESTABLISHED,
    }
}

fn flow(flows: &[Option<Flow>], id: u32) -> Option<&Flow> {
    flows.get(id as usize)?.as_ref()
}

fn flow_mut(flows: &mut [Option<Flow>], id: u32) -> Option<&mut Flow> {
    flows.get_mut(id as usize)?.as_mut()
}
