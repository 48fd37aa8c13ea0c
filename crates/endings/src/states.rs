//! All servers that are watched, and what they are in.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use watari_packets::Timestamp;

use crate::connection::Event;
use crate::judge::{self, Evidence, Profile, ServerJudge, ServerState, Verdict};
use crate::window::{Shares, Tally, Window};

/// Follows the states of servers. Give it what happened and the time, and take [`States::poll`] until it says nothing.
#[derive(Debug)]
pub struct States {
    profile: Profile,
    servers_max: usize,
    servers: BTreeMap<SocketAddr, Server>,
    /// Those that never answered anything, and never were anything but idle. They give way to others.
    silent: BTreeSet<SocketAddr>,
    changes: VecDeque<Change>,
    /// The second that time is in.
    now_s: u64,
    unwatched: u64,
}

/// A server is in another state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Change {
    /// Which.
    pub server: SocketAddr,
    /// What it was in, until [`Verdict::since`].
    pub before: ServerState,
    /// What it is in.
    pub verdict: Verdict,
}

/// What is known of a server.
#[derive(Debug)]
pub struct Server {
    window: Window,
    judge: ServerJudge,
    open: u32,
}

/// What time up to now the numbers of a server are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lately {
    /// [`Profile::span`], of which the shares are judged.
    Span,
    /// [`Profile::stopped_span`].
    StoppedSpan,
    /// [`Server::SHORT_SPAN`].
    ShortSpan,
}

impl Server {
    /// The short span. It decides no state: rates are shown over its complete seconds.
    pub const SHORT_SPAN: Duration = Duration::from_secs(10);
    /// How much is held at least: also the latest seconds, which are not complete.
    const HELD_MIN: Duration = Duration::from_secs(12);

    /// What happened at it lately.
    pub fn total(&self, lately: Lately) -> Tally {
        self.window.total(lately as usize)
    }

    /// Its seconds.
    pub const fn window(&self) -> &Window {
        &self.window
    }

    /// What it is in.
    pub fn state(&self) -> ServerState {
        self.judge.state()
    }

    /// The last verdict, if there was one.
    pub const fn verdict(&self) -> Option<&Verdict> {
        self.judge.verdict()
    }

    /// What its state is concluded from: at first that of the verdict, then what was measured last.
    pub const fn evidence(&self) -> Option<&Evidence> {
        self.judge.evidence()
    }

    /// X, Y and Z of what ended lately; while it is stopped, of what ended since it is.
    pub fn shares(&self, lately: Lately) -> Option<Shares> {
        let all = self.total(lately).shares();
        self.verdict().map_or(all, |verdict| judge::shares(verdict, &self.window, lately, all))
    }

    /// What it would be in if nothing more happened, whether that has lasted or not. `None`: too little happened to say.
    pub fn seems(&self, profile: &Profile) -> Option<(ServerState, Evidence)> {
        profile.judge(self.state(), &self.total(Lately::Span), &self.total(Lately::StoppedSpan))
    }

    /// Connections that have not ended.
    pub const fn open(&self) -> u32 {
        self.open
    }
}

impl States {
    /// Of `servers_max` servers at most. Those that never answered anything, such as closed ports, give way to others; what
    /// further ones do is not followed.
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

    /// Something happened at a server.
    pub fn handle(&mut self, event: &Event) {
        if let Some((at, tally)) = Tally::of(event) {
            self.add(event.server(), at, &tally);
        }
    }

    /// So much happened at a server in the second that `at` is in, as [`Tally::of`] counts it.
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

    /// What they are judged by.
    pub const fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Time has come to `now`. Servers are judged once a second, in a silence until all of them are idle.
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

    /// The clock was set back to `now`. Seconds that were are of no time any more; servers are what they were until they are
    /// judged by what happens from now on.
    pub fn set_back(&mut self, now: Timestamp) {
        self.now_s = now.0 / 1_000_000_000;
        for server in self.servers.values_mut() {
            server.window = Server::new(&self.profile).window;
            server.judge.set_back();
        }
    }

    /// Nobody will say how those connections end that are open.
    pub fn forget_open(&mut self) {
        for server in self.servers.values_mut() {
            server.open = 0;
        }
    }

    /// The next server that is in another state.
    pub fn poll(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// One of those that are watched.
    pub fn server(&self, address: &SocketAddr) -> Option<&Server> {
        self.servers.get(address)
    }

    /// All servers that are watched.
    pub fn servers(&self) -> impl Iterator<Item = (&SocketAddr, &Server)> {
        self.servers.iter()
    }

    /// How many times something happened at servers that are not watched, or others gave way.
    pub const fn unwatched(&self) -> u64 {
        self.unwatched
    }

    fn judge(&mut self, now: Timestamp) {
        let (profile, changes, silent) = (&self.profile, &mut self.changes, &mut self.silent);
        self.servers.retain(|address, server| {
            if server.window.is_ahead_of(now) {
                // After a silence: what ended it says nothing of the seconds before.
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
