//! Adds and removes peers as the members change, and passes the changes on.
//!
//! All of this happens under the lock of [`Members`], including a link's coming up. So a peer with a link first gets
//! all members, and then all news. Each precedes the messages that are sent later.

use std::ptr;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::time::{interval, timeout};
use tracing::{error, info, warn};
use watari_values::{NodeName, Role};
use watari_wire::{LinkMessage, Members as MembersMessage, Verdict};

use crate::config::Peer;
use crate::event::Event;
use crate::members::{Change, Members, Now, OrderError, Outcome, Source};
use crate::peer::{Link, PeerEntry};
use crate::shared::MeshShared;
use crate::{dial, introduce};

/// The most time that a link takes to end in good order.
pub(crate) const REMOVAL_MAX: Duration = Duration::from_secs(3);

/// Peers that were removed, and whose links are about to end.
pub(crate) type Ending = Vec<Arc<PeerEntry>>;

impl MeshShared {
    /// Replaces the configured peers.
    pub(crate) fn configure(self: &Arc<Self>, peers: Vec<Peer>) -> Ending {
        let mut members = self.members();
        let outcome = members.configure(peers, Now::read());
        self.follow(&members, outcome, None)
    }

    /// Merges the members that `from` has sent.
    pub(crate) fn learn(self: &Arc<Self>, from: &NodeName, message: MembersMessage) {
        let mut members = self.members();
        let outcome = members.merge(message, Now::read());
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

    /// All members, as a message for a node without a link.
    pub(crate) fn members_message(&self) -> LinkMessage {
        LinkMessage::Members(self.members().all(Now::read()))
    }

    /// Makes `link` the link to `peer`, and sends all members first. Returns `false` if it is no peer any more.
    pub(crate) fn open(&self, peer: &PeerEntry, link: &Arc<Link>) -> bool {
        let mut members = self.members();
        if peer.end.is_cancelled() {
            return false;
        }
        send_members(link, members.all(Now::read()));
        members.linked(&peer.name, true, Now::read());
        peer.set_up(Arc::clone(link));
        self.note_addresses();
        true
    }

    /// Records that the link to `peer` is down. No message goes to it any more.
    pub(crate) fn close(&self, peer: &PeerEntry) {
        let mut members = self.members();
        peer.set_down();
        self.note_addresses();
        // While its link ended, the peer may have been evicted and admitted again. Then it has a new entry with its own
        // link.
        if self.peer(&peer.name).is_none_or(|current| ptr::eq(&raw const *current, peer)) {
            members.linked(&peer.name, false, Now::read());
        }
    }

    /// Sends the news to all peers with a link except `from`, then adds and removes peers.
    fn follow(self: &Arc<Self>, members: &Members, outcome: Outcome, from: Option<&NodeName>) -> Ending {
        if !outcome.news.is_empty() {
            for peer in self.all_peers().iter().filter(|peer| Some(&peer.name) != from) {
                if let Some(link) = peer.link() {
                    send_members(&link, outcome.news.clone());
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

    /// Adds a peer, or changes its address.
    fn add(self: &Arc<Self>, peer: Peer) {
        if let Some(known) = self.peer(&peer.name) {
            return known.set_address(peer.address);
        }
        let entry = Arc::new(PeerEntry::new(peer, &self.limits, &self.shutdown));
        self.peers.write().unwrap_or_else(PoisonError::into_inner).insert(entry.name.clone(), Arc::clone(&entry));
        if self.dials(&entry.name) {
            self.tasks.spawn(dial::run(Arc::clone(self), entry));
        } else if self.is_open {
            self.tasks.spawn(introduce::run(Arc::clone(self), entry));
        }
    }

    fn change(self: &Arc<Self>, change: Change) -> Option<Arc<PeerEntry>> {
        match change {
            Change::Peer(peer) => {
                self.add(peer);
                None
            }
            Change::Gone(name) => self.remove(&name).inspect(|peer| peer.end.cancel()),
            Change::Evicted(verdict) if verdict.name == self.hello.node => {
                error!("this node is evicted from the cluster: the other nodes have ended their links to it");
                None
            }
            Change::Evicted(verdict) => self.expel(verdict),
        }
    }

    /// Ends the link to an evicted node, and reports [`Event::Evicted`] when it has ended.
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

    /// The node that makes new ticket keys after the eviction of `evicted`: this node if it is an agent, otherwise the
    /// first linked agent by name.
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

/// Removes members without a link from any node for long. Sends all members to one peer after the other, so that lost
/// messages are made up for, and all nodes have the time of each member's last link.
pub(crate) async fn keep(shared: Arc<MeshShared>) {
    let mut tick = interval(shared.limits.members_interval);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.shutdown.cancelled() => return,
        }
        let mut members = shared.members();
        let outcome = members.forget(Now::read());
        for change in &outcome.changes {
            info!(?change, "node forgotten: no node had a link to it for too long");
        }
        shared.follow(&members, outcome, None);
        let next = members.next_in_turn().and_then(|name| shared.peer(&name)?.link());
        if let Some(link) = next {
            send_members(&link, members.all(Now::read()));
        }
    }
}

/// A node without verdicts and statements sends nothing.
fn send_members(link: &Link, message: MembersMessage) {
    if !message.is_empty() {
        link.outbox.push_link(&LinkMessage::Members(message));
    }
}

impl Now {
    pub(crate) fn read() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), unix_s: unix.as_secs() }
    }
}
