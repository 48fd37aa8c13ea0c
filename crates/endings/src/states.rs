//! The states of all watched servers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::Timestamp;

use crate::connection::Event;
use crate::judge::{self, Evidence, Profile, ServerJudge, ServerState, Verdict};
use crate::window::{Lately, Shares, Tally, Window};

/// Follows the states of servers. Pass it events and the time, then call [`States::poll`] until it returns `None`.
#[derive(Debug)]
pub struct States {
    profile: Profile,
    servers_max: usize,
    servers: BTreeMap<SocketAddr, Server>,
    /// Servers that never answered anything and were never anything but idle. New servers replace them.
    silent: BTreeSet<SocketAddr>,
    changes: VecDeque<Change>,
    /// The current second, since the Unix epoch.
    now_s: u64,
    unwatched: u64,
}

/// A server changed its state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    pub server: SocketAddr,
    /// The state until [`Verdict::since`].
    pub before: ServerState,
    /// The new state.
    pub verdict: Verdict,
}

/// A watched server.
#[derive(Debug)]
pub struct Server {
    window: Window,
    judge: ServerJudge,
    open: u32,
}

impl Server {
    /// The short span. It decides no state: displays show rates over its complete seconds.
    pub const SHORT_SPAN: Duration = Duration::from_secs(10);
    /// The least time that is held. It includes the latest seconds, which are not complete.
    const HELD_MIN: Duration = Duration::from_secs(12);

    pub fn total(&self, lately: Lately) -> Tally {
        self.window.total(lately as usize)
    }

    pub const fn window(&self) -> &Window {
        &self.window
    }

    pub fn state(&self) -> ServerState {
        self.judge.state()
    }

    pub const fn verdict(&self) -> Option<&Verdict> {
        self.judge.verdict()
    }

    /// The evidence of its state: first that of the verdict, then the latest measurement.
    pub const fn evidence(&self) -> Option<&Evidence> {
        self.judge.evidence()
    }

    /// X, Y and Z of what ended lately; while it is stopped, of what ended since then.
    pub fn shares(&self, lately: Lately) -> Option<Shares> {
        let all = self.total(lately).shares();
        self.verdict().map_or(all, |verdict| judge::shares(verdict, &self.window, lately, all))
    }

    /// The state that the latest measurements show, whether it has lasted for [`Profile::hold`] or not. `None` if too
    /// little happened.
    pub fn seems(&self, profile: &Profile) -> Option<(ServerState, Evidence)> {
        profile.judge(self.state(), &self.total(Lately::Span), &self.total(Lately::StoppedSpan))
    }

    /// Connections that have not ended.
    pub const fn open(&self) -> u32 {
        self.open
    }
}

impl States {
    /// Watches up to `servers_max` servers. Servers that never answered anything, such as closed ports, give way to
    /// others. Events of further servers are only counted.
    pub const fn new(profile: Profile, servers_max: usize) -> Self {
        Self {
            profile,
            servers_max,
            servers: BTreeMap::new(),
            silent: BTreeSet::new(),
            changes: VecDeque::new(),
            now_s: 0,
            unwatched: 0,
        }
    }

    /// Takes an event.
    pub fn handle(&mut self, event: &Event) {
        if let Some((at, tally)) = Tally::of(event) {
            self.add(event.server(), at, &tally);
        }
    }

    /// Adds the counts of a server for the second of `at`, as [`Tally::of`] counts them.
    pub fn add(&mut self, server: SocketAddr, at: Timestamp, tally: &Tally) {
        if *tally == Tally::default() {
            return;
        }
        if !self.servers.contains_key(&server) {
            if self.servers.len() >= self.servers_max {
                self.unwatched += 1;
                let Some(silent) = self.silent.pop_first() else { return };
                self.servers.remove(&silent);
            }
            self.silent.insert(server);
        }
        if tally.is_alive() {
            self.silent.remove(&server);
        }
        let server = self.servers.entry(server).or_insert_with(|| Server::new(&self.profile));
        server.open = server.open.saturating_add(tally.opened).saturating_sub(tally.closed());
        server.window.add(at, tally);
    }

    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Advances time to `now`. Servers are judged once a second. After a silence, it judges the seconds until all
    /// servers are idle, and the latest ones.
    pub fn advance(&mut self, now: Timestamp) {
        let now_s = now.0 / 1_000_000_000;
        if now_s <= self.now_s {
            return;
        }
        let Profile { span, stopped_span, hold, .. } = &self.profile;
        let silence_s = span.max(stopped_span).as_secs() + hold.as_secs() + 1;
        let silent = now_s.min(self.now_s + silence_s);
        let latest = now_s.saturating_sub(hold.as_secs()).max(silent + 1);
        let first = std::mem::replace(&mut self.now_s, now_s) + 1;
        for second in (first..=silent).chain(latest..=now_s) {
            self.judge(Timestamp(second.saturating_mul(1_000_000_000)));
        }
    }

    /// The clock was set back to `now`. The held seconds are dropped. Servers keep their state until later events
    /// decide another.
    pub fn set_back(&mut self, now: Timestamp) {
        self.now_s = now.0 / 1_000_000_000;
        for server in self.servers.values_mut() {
            server.window = Server::new(&self.profile).window;
            server.judge.set_back();
        }
    }

    /// Sets the open connections of all servers to 0: their ends will not be reported.
    pub fn forget_open(&mut self) {
        for server in self.servers.values_mut() {
            server.open = 0;
        }
    }

    /// The next change of a server's state.
    pub fn poll(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    pub fn server(&self, address: &SocketAddr) -> Option<&Server> {
        self.servers.get(address)
    }

    /// All watched servers.
    pub fn servers(&self) -> impl Iterator<Item = (&SocketAddr, &Server)> {
        self.servers.iter()
    }

    /// How often an event was at a server that is not watched, or a server gave way to another.
    pub const fn unwatched(&self) -> u64 {
        self.unwatched
    }

    fn judge(&mut self, now: Timestamp) {
        let (profile, changes, silent) = (&self.profile, &mut self.changes, &mut self.silent);
        self.servers.retain(|address, server| {
            if server.window.is_ahead_of(now) {
                // After a silence: the event that ended it does not belong to the seconds before.
                return true;
            }
            server.window.advance(now);
            let before = server.state();
            if let Some(verdict) = server.judge.look(now, &server.window, profile) {
                changes.push_back(Change { server: *address, before, verdict });
                silent.remove(address);
            }
            let is_kept = server.open > 0 || !server.window.is_empty() || server.state() != ServerState::Idle;
            if !is_kept {
                silent.remove(address);
            }
            is_kept
        });
    }
}

impl Server {
    fn new(profile: &Profile) -> Self {
        let spans = [profile.span, profile.stopped_span, Self::SHORT_SPAN, Self::HELD_MIN];
        Self { window: Window::new(&spans), judge: ServerJudge::default(), open: 0 }
    }
}
