//! Has the peers follow who is a member, and others know.
//!
//! Everything here happens under the lock of [`Members`], links' coming up included: so whoever has a link has been
//! told what was known when it came up, and then all news, each ahead of whatever is said to it later.

use std::ptr;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::time::{interval, timeout};
use tracing::{error, info, warn};
use watari_wire::{LinkMessage, Members as Told, NodeName, Role, Verdict};

use crate::members::{Change, Members, Now, OrderError, Outcome, Source};
use crate::peer::{Link, PeerEntry};
use crate::{Event, Peer, REMOVAL_MAX, Shared};

/// Peers that are none any more, and whose links are about to end.
pub(crate) type Ending = Vec<Arc<PeerEntry>>;

impl Shared {
    pub(crate) fn members(&self) -> MutexGuard<'_, Members> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes these the configured peers.
    pub(crate) fn configure(self: &Arc<Self>, peers: Vec<Peer>) -> Ending {
        let mut members = self.members();
        let outcome = members.configure(peers, Now::read());
        self.follow(&members, outcome, None)
    }

    /// Takes what `from` tells about members.
    pub(crate) fn learn(self: &Arc<Self>, from: &NodeName, told: Told) {
        let mut members = self.members();
        let outcome = members.merge(told, Now::read());
        self.follow(&members, outcome, Some(from));
    }

    pub(crate) fn evict(self: &Arc<Self>, node: &NodeName) -> Result<Ending, OrderError> {
        let keys_by = self.maker_of_keys(node);
        let mut members = self.members();
        let outcome = members.evict(node, keys_by, Now::read())?;
        Ok(self.follow(&members, outcome, None))
    }

    pub(crate) fn admit(self: &Arc<Self>, node: &NodeName) -> Result<(), OrderError> {
        let mut members = self.members();
        let outcome = members.admit(node, Now::read())?;
        self.follow(&members, outcome, None);
        Ok(())
    }

    /// All that is known, for a node that is no peer yet.
    pub(crate) fn told(&self) -> LinkMessage {
        LinkMessage::Members(self.members().all(Now::read()))
    }

    /// Has messages go to `peer` by `link`, ahead of all what is known of members; `false`: it is no peer any more.
    pub(crate) fn open(&self, peer: &PeerEntry, link: &Arc<Link>) -> bool {
        let mut members = self.members();
        if peer.end.is_cancelled() {
            return false;
        }
        tell(link, members.all(Now::read()));
        members.linked(&peer.name, true, Now::read());
        peer.set_up(Arc::clone(link));
        self.note_addresses();
        true
    }

    /// No message goes to `peer` any more.
    pub(crate) fn close(&self, peer: &PeerEntry) {
        let mut members = self.members();
        peer.set_down();
        self.note_addresses();
        // It may have been evicted and admitted while its link ended, and be another entry now, with a link of its own.
        if self.peer(&peer.name).is_none_or(|current| ptr::eq(&raw const *current, peer)) {
            members.linked(&peer.name, false, Now::read());
        }
    }

    /// Tells the news to all who have a link but `from`, and then has the peers follow.
    fn follow(self: &Arc<Self>, members: &Members, outcome: Outcome, from: Option<&NodeName>) -> Ending {
        if !outcome.news.is_empty() {
            for peer in self.all_peers().iter().filter(|peer| Some(&peer.name) != from) {
                if let Some(link) = peer.link() {
                    tell(&link, outcome.news.clone());
                }
            }
        }
        let ending = outcome.changes.into_iter().filter_map(|change| self.change(change)).collect();
        self.note_addresses();
        for source in [Source::Configured, Source::Learned] {
            self.metrics.members(source, members.count(source));
        }
        self.metrics.evicted.set(i64::try_from(members.evicted().count()).unwrap_or(i64::MAX));
        let legs = members.legs();
        self.legs.send_if_modified(|before| {
            let is_other = *before != legs;
            *before = legs;
            is_other
        });
        ending
    }

    fn change(self: &Arc<Self>, change: Change) -> Option<Arc<PeerEntry>> {
        match change {
            Change::Peer(peer) => {
                self.add(peer);
                None
            }
            Change::Gone(name) => self.remove(&name).inspect(|peer| peer.end.cancel()),
            Change::Evicted(verdict) if verdict.name == self.hello.node => {
                error!("this node is evicted from the cluster: the others have no links to it any more");
                None
            }
            Change::Evicted(verdict) => self.expel(verdict),
        }
    }

    /// Ends the link to a node that is evicted, and reports when it has ended.
    fn expel(self: &Arc<Self>, Verdict { name, at, keys_by, .. }: Verdict) -> Option<Arc<PeerEntry>> {
        warn!(node = %name, "evicted from the cluster");
        let peer = self.remove(&name).inspect(|peer| peer.expel());
        let (shared, ending) = (Arc::clone(self), peer.clone());
        self.tasks.spawn(async move {
            if let Some(peer) = ending {
                let _ = timeout(REMOVAL_MAX, peer.ended()).await;
            }
            shared.report(Event::Evicted { peer: name, at, keys_by }).await;
        });
        peer
    }

    /// Who makes new keys for tickets when `evicted` is out: this node, if it is an agent, or else the first by name
    /// that it has a link to.
    fn maker_of_keys(&self, evicted: &NodeName) -> Option<NodeName> {
        if self.roles.contains(&Role::Agent) {
            return Some(self.hello.node.clone());
        }
        let peers = self.all_peers();
        let mut others = peers.iter().filter(|peer| peer.name != *evicted);
        let is_agent = |peer: &&Arc<PeerEntry>| peer.link().is_some_and(|link| link.roles.contains(&Role::Agent));
        others.find(is_agent).map(|peer| peer.name.clone())
    }
}

/// Forgets who has not been heard of for long. One peer after the other is told all that is known, so that what was
/// lost on the way is made good, and all know who is still heard of.
pub(crate) async fn keep(shared: Arc<Shared>) {
    let mut tick = interval(shared.limits.members_told_every);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.shutdown.cancelled() => return,
        }
        let mut members = shared.members();
        let outcome = members.forget(Now::read());
        for change in &outcome.changes {
            info!(?change, "not heard of for long");
        }
        shared.follow(&members, outcome, None);
        let next = members.next_in_turn().and_then(|name| shared.peer(&name)?.link());
        if let Some(link) = next {
            tell(&link, members.all(Now::read()));
        }
    }
}

/// Nodes that know nothing but their configurations have nothing to say.
fn tell(link: &Link, told: Told) {
    if !told.is_empty() {
        link.outbox.push_link(&LinkMessage::Members(told));
    }
}

impl Now {
    pub(crate) fn read() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), unix_s: unix.as_secs() }
    }
}
