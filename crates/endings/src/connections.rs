//! All connections in progress.

use std::collections::VecDeque;
use std::ops::AddAssign;

use hashbrown::HashTable;
use watari_packets::{Flags, Segment, Timestamp};

use crate::app::App;
use crate::close::Left;
use crate::connection::{Event, Evicted, Opened, Overdue};
use crate::ending::Side;
use crate::key::Key;
use crate::lists::Lists;
use crate::reorder::{ReorderBuffer, Waiting};
use crate::settings::Settings;
use crate::tracked::{Cause, Stage, TrackedConnection};
use crate::wheel::Wheel;

/// Follows connections. Pass each segment to [`Connections::observe`], or only the time to [`Connections::advance`].
/// Then call [`Connections::poll_event`] until it returns `None`.
#[derive(Debug)]
pub struct Connections {
    settings: Settings,
    now: Timestamp,
    slots: Vec<Option<TrackedConnection>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    wheel: Wheel,
    classes: Lists,
    reorder: ReorderBuffer,
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
            slots: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            wheel: Wheel::new(),
            classes: Lists::new(4),
            reorder: ReorderBuffer::default(),
            events: VecDeque::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a segment, which may have been captured out of order. Time is that of the latest segment.
    pub fn observe(&mut self, segment: &Segment<'_>) {
        self.advance(segment.time);
        let (key, source_is_first) = Key::new(segment.source, segment.destination);
        let hash = key.hash(self.settings.seed);
        let slots = &self.slots;
        let found = self.index.find(hash, |id| tracked(slots, *id).is_some_and(|tracked| tracked.key == key)).copied();
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
        while let Some(id) = self.reorder.first() {
            self.release(id, true);
        }
        for id in 0..self.slots.len() as u32 {
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
        let Some(tracked) = tracked(&self.slots, id) else { return false };
        if self.settings.timeout < segment.time.since(tracked.started) {
            self.catch_up(id);
        }
        let Some(tracked) = self::tracked(&self.slots, id) else { return false };
        let side = tracked.side(source_is_first);
        if tracked.is_early(side, segment) {
            self.hold(id, source_is_first, segment);
            return true;
        }
        if tracked.stage == Stage::Ahead {
            if self.reorder.any(id, |it| it.follows(source_is_first, segment)) {
                self.start(id, source_is_first, segment);
                self.release(id, false);
                return true;
            }
            // The segment belongs to another connection.
            self.release(id, true);
            return self.go_on(id, source_is_first, segment);
        }
        if tracked.is_left_behind(side, segment) {
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
        let Some(tracked) = tracked_mut(&mut self.slots, id) else { return };
        let stage = tracked.stage;
        if stage == Stage::Over {
            if tracked.see_rest(side, segment) {
                let (at, _) = tracked.due(&self.settings);
                self.classes.push(OVER, id);
                self.wheel.set_soon(id, at);
            }
            return;
        }
        if !tracked.see(side, segment, &mut self.events) {
            return;
        }
        let (at, _) = tracked.due(&self.settings);
        // Only these two can change the list that it belongs to.
        let is_first = tracked.half(side).packets == 1;
        if (is_first || stage != tracked.stage) && self.classes.list(id) != Some(class(tracked)) {
            self.classes.push(class(tracked), id);
        }
        self.wheel.set_soon(id, at);
    }

    /// Keeps a segment until the one that it follows arrives.
    fn hold(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let Some(tracked) = tracked_mut(&mut self.slots, id) else { return };
        tracked.held += 1;
        self.reorder.hold(id, source_is_first, segment);
        self.release_due();
    }

    /// Releases the segments of connections that have waited long enough, or that are too many.
    fn release_due(&mut self) {
        while let Some(id) = self.reorder.due(self.now) {
            self.release(id, true);
        }
    }

    fn waits(&self, id: u32) -> bool {
        tracked(&self.slots, id).is_some_and(|tracked| tracked.held > 0)
    }

    /// Processes held segments of a connection: those that are no longer ahead, or all.
    fn release(&mut self, id: u32, all: bool) {
        if tracked(&self.slots, id).is_some_and(|tracked| tracked.stage == Stage::Ahead) {
            if !all {
                return;
            }
            let first = self.reorder.take(id, Waiting::is_answer_to_syn);
            let Some(first) = first.or_else(|| self.reorder.take(id, |_| true)) else { return };
            if let Some(tracked) = tracked_mut(&mut self.slots, id) {
                tracked.held -= 1;
            }
            self.start(id, first.source_is_first, &first.segment());
        }
        while let Some(tracked) = tracked(&self.slots, id).filter(|tracked| tracked.held > 0) {
            let is_next = |it: &Waiting| all || !tracked.is_early(tracked.side(it.source_is_first), &it.segment());
            let Some(next) = self.reorder.take(id, is_next) else { return };
            let side = tracked.side(next.source_is_first);
            if let Some(tracked) = tracked_mut(&mut self.slots, id) {
                tracked.held -= 1;
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
        let ahead = TrackedConnection::ahead(key, segment.time);
        if ahead.is_early(sender, segment) {
            let id = self.place(hash, ahead);
            self.hold(id, source_is_first, segment);
        } else if self.make_room() {
            let id =
                self.place(hash, TrackedConnection::new(key, source_is_first == (sender == Side::Client), segment));
            self.opened(id, sender, segment);
        } else {
            self.counts.untracked += 1;
        }
    }

    /// Begins a connection whose segments were held, with this segment, if there is room.
    fn start(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let sender = self.sender(segment).filter(|_| self.make_room());
        let (Some(sender), Some(ahead)) = (sender, tracked_mut(&mut self.slots, id)) else {
            self.counts.untracked += 1;
            self.forget(id);
            return;
        };
        let held = ahead.held;
        *ahead = TrackedConnection::new(ahead.key, source_is_first == (sender == Side::Client), segment);
        ahead.held = held;
        self.opened(id, sender, segment);
    }

    fn place(&mut self, hash: u64, tracked: TrackedConnection) -> u32 {
        let id = self.free.pop().unwrap_or(self.slots.len() as u32);
        if self.slots.len() == id as usize {
            self.slots.push(None);
        }
        self.slots[id as usize] = Some(tracked);
        let (slots, seed) = (&self.slots, self.settings.seed);
        self.index.insert_unique(hash, id, |id| self::tracked(slots, *id).map_or(0, |tracked| tracked.key.hash(seed)));
        id
    }

    /// Reports the begin of a connection and takes its first segment.
    fn opened(&mut self, id: u32, sender: Side, segment: &Segment<'_>) {
        let Some(tracked) = tracked_mut(&mut self.slots, id) else { return };
        if sender == Side::Server {
            tracked.flip();
        }
        let opened = Opened { client: tracked.end(Side::Client), server: tracked.end(Side::Server), at: segment.time };
        self.classes.push(class(tracked), id);
        self.events.push_back(Event::Opened(opened));
        self.see(id, sender, segment);
        if let Some(tracked) = self::tracked(&self.slots, id) {
            self.wheel.set(id, tracked.due(&self.settings).0);
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
        if let Some(tracked) = tracked(&self.slots, id) {
            self.counts.evicted += 1;
            let server = tracked.end(Side::Server);
            // A client that acknowledges has got an answer, seen or not.
            let is_answered = tracked.is_established || !tracked.is_connecting();
            let was_overdue = tracked.is_connect_overdue;
            self.events.push_back(Event::Evicted(Evicted { server, at: self.now, is_answered, was_overdue }));
        }
        self.forget(id);
    }

    /// Processes timeouts that have passed; the timing wheel is less exact.
    fn catch_up(&mut self, id: u32) {
        let is_due =
            |tracked: &TrackedConnection| tracked.stage != Stage::Over && tracked.due(&self.settings).0 < self.now;
        if tracked(&self.slots, id).is_some_and(is_due) {
            self.look_at(id);
            self.catch_up(id);
        }
    }

    /// Processes a connection that the timing wheel returned.
    fn look_at(&mut self, id: u32) {
        let Some(tracked) = tracked_mut(&mut self.slots, id) else { return };
        let (at, cause) = tracked.due(&self.settings);
        if self.now < at {
            self.wheel.set(id, at);
            return;
        }
        match cause {
            Cause::ConnectOverdue | Cause::RequestOverdue => {
                let is_connect = cause == Cause::ConnectOverdue;
                let since = if is_connect { tracked.started } else { tracked.waits_since().unwrap_or(at) };
                tracked.is_connect_overdue |= is_connect;
                tracked.turn.is_overdue |= !is_connect;
                let (client, server) = (tracked.end(Side::Client), tracked.end(Side::Server));
                self.events.push_back(Event::Overdue(Overdue { client, server, since, at, is_connect }));
                let (at, _) = tracked.due(&self.settings);
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
        let Some(tracked) = tracked_mut(&mut self.slots, id).filter(|tracked| tracked.stage != Stage::Over) else {
            return;
        };
        let connection = tracked.conclude(left, at, &self.settings);
        tracked.tell_last(&mut self.events);
        tracked.bury(self.now);
        self.events.push_back(Event::Closed(Box::new(connection)));
        let (at, _) = tracked.due(&self.settings);
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
        let Some(tracked) = tracked(&self.slots, id) else { return };
        let (hash, has_held) = (tracked.key.hash(self.settings.seed), tracked.held > 0);
        // Writes in place, because a `TrackedConnection` is large.
        self.slots[id as usize] = None;
        if has_held {
            while self.reorder.take(id, |_| true).is_some() {}
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
const fn class(tracked: &TrackedConnection) -> u32 {
    match (tracked.is_established, tracked.is_one_sided()) {
        (false, _) => HALF_OPEN,
        (true, true) => ONE_SIDED,
        (true, false) => ESTABLISHED,
    }
}

fn tracked(slots: &[Option<TrackedConnection>], id: u32) -> Option<&TrackedConnection> {
    slots.get(id as usize)?.as_ref()
}

fn tracked_mut(slots: &mut [Option<TrackedConnection>], id: u32) -> Option<&mut TrackedConnection> {
    slots.get_mut(id as usize)?.as_mut()
}
