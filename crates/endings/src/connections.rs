//! All connections that are in progress.

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

/// Follows connections. Give it each segment with [`Connections::observe`], or the time alone with
/// [`Connections::advance`], and then take what there is from [`Connections::poll_event`] until it says nothing.
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

/// What was not followed, or was given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections given up with their handshake incomplete, or with one side only seen.
    pub evicted: u64,
    /// Segments that would have begun a connection, which was not followed, because all that are held are established, and both of
    /// their sides were seen.
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

// Lists of connections, by what may be given up first. One of which one side only was seen may be nobody's: anyone can send
// a SYN and an ACK behind it from addresses of others.
const OVER: u32 = 0;
const ONE_SIDED: u32 = 1;
const HALF_OPEN: u32 = 2;
const ESTABLISHED: u32 = 3;

impl Connections {
    /// None yet.
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

    /// Takes a segment. It may have been captured out of order; time is that of the latest.
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

    /// Time has come to `now`, as far as packets show.
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

    /// The next of what there is to say.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Nothing more is seen: all connections are reported as they are.
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

    /// What was not followed.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// How many connections have not ended.
    pub fn open(&self) -> u32 {
        self.classes.len(ONE_SIDED) + self.classes.len(HALF_OPEN) + self.classes.len(ESTABLISHED)
    }

    /// Takes a segment between the ends of a connection that is held. False if it is none of it.
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
            // Another connection's.
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
        // Nothing else makes it one of another list.
        let is_first = flow.half(side).packets == 1;
        if (is_first || stage != flow.stage) && self.classes.list(id) != Some(class(flow)) {
            self.classes.push(class(flow), id);
        }
        self.wheel.set_soon(id, at);
    }

    /// What a segment follows is still to come.
    fn hold(&mut self, id: u32, source_is_first: bool, segment: &Segment<'_>) {
        let Some(flow) = flow_mut(&mut self.flows, id) else { return };
        flow.early += 1;
        self.early.hold(id, source_is_first, segment);
        self.release_due();
    }

    /// Goes on with connections of which segments have waited for long enough, or too many.
    fn release_due(&mut self) {
        while let Some(id) = self.early.due(self.now) {
            self.release(id, true);
        }
    }

    fn waits(&self, id: u32) -> bool {
        flow(&self.flows, id).is_some_and(|flow| flow.early > 0)
    }

    /// Goes on with segments of a connection that were ahead: with those that are no more, or with all.
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

    /// Another connection, of which this is the first that was captured. Its SYN may be still to come.
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

    /// One that was ahead begins with this segment, if there is room.
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

    /// It has begun, with this segment.
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

    /// Who sends a segment of no known connection; `None` if it begins none.
    fn sender(&self, segment: &Segment<'_>) -> Option<Side> {
        let has = |flag| segment.flags.contains(flag);
        match (has(Flags::SYN), has(Flags::RST)) {
            (true, false) if has(Flags::ACK) => Some(Side::Server),
            (true, false) => Some(Side::Client),
            (true, true) => None,
            // Acknowledgments alone are the rest of something.
            (false, false) if segment.len == 0 && !has(Flags::FIN) => None,
            _ => Some(self.settings.servers.sender(segment.source, segment.destination, App::speaker(segment.data))),
        }
    }

    /// Gives up what may be given up for another connection: what is over, then the oldest of which one side only was seen,
    /// then the oldest half open one, of which there are not too many whatever else there is.
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
            // Who acknowledges has got an answer, seen or not.
            let is_answered = flow.is_established || !flow.is_knocking();
            let was_overdue = flow.is_knock_overdue;
            self.events.push_back(Event::Evicted(Evicted { server, at: self.now, is_answered, was_overdue }));
        }
        self.forget(id);
    }

    /// Times that are over count, though the wheel is not that exact.
    fn catch_up(&mut self, id: u32) {
        let is_due = |flow: &Flow| flow.stage != Stage::Over && flow.due(&self.settings).0 < self.now;
        if flow(&self.flows, id).is_some_and(is_due) {
            self.look_at(id);
            self.catch_up(id);
        }
    }

    /// It has come up.
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

    /// Says how a connection ended, and keeps it for what may still come.
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
        // In place: it is not small.
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

/// The list that one belongs to that is not over.
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
