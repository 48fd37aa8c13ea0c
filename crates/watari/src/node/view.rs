//! The node's side of the administration: answers to questions, and execution of orders.

use std::collections::{BTreeMap, HashSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use tokio::task::spawn_blocking;
use watari_addresses::{Addresses, Multipath};
use watari_agent::{
    Agent, DatabaseStatus, NoProxy, RedisCounters, RedisStatus, RotationError, SessionStatus, WriterCounters,
};
use watari_dispatcher::{AgentStatus, Dispatcher};
use watari_mesh::{Mesh, PeerStatus};
use watari_proxy::{CacheHandle, Proxy, Purge};
use watari_record::{CipherSuite, Version};
use watari_values::{ConnectionStatus, Role, TlsInfo};

use super::cache::NodeCache;
use super::reload::Reloader;
use super::roles::Roles;
use super::upgrade::{Fixed, Parts, Predecessor};
use crate::admin::{
    AddressEntry, Answer, Cache, Connection, Handshakes, Node, Pool, Purged, RedisServer, Sessions, Status, Stored,
    Topic,
};

/// Answers an administrator's questions, and follows the orders.
pub(super) struct View {
    pub(super) name: String,
    pub(super) mesh_address: SocketAddr,
    pub(super) roles: Vec<String>,
    pub(super) started: Instant,
    pub(super) mesh: Mesh,
    pub(super) running: Roles,
    pub(super) addresses: Addresses,
    pub(super) multipath: Option<Multipath>,
    /// The settings of its candidates that no other process of this node may change.
    pub(super) fixed: Fixed,
    pub(super) reloader: Arc<Reloader>,
    pub(super) predecessor: Arc<Predecessor>,
    pub(super) cache: Arc<NodeCache>,
}

impl View {
    pub(super) async fn answer(self: &Arc<Self>, topic: Topic) -> Answer {
        match topic {
            Topic::Status => self.answer_aside(|view| Answer::Status(view.status())).await,
            Topic::Nodes => Answer::Nodes(self.nodes()),
            Topic::Connections => {
                self.answer_aside(|view| Answer::Connections(view.connections().iter().map(connection).collect())).await
            }
            Topic::Sessions => self.of_agent("resume sessions", |agent| {
                Ok::<_, RotationError>(Answer::Sessions(sessions(agent.sessions())))
            }),
            Topic::Origins => self.of_agent("have origins", |agent| {
                let pools = agent.with_proxy(Proxy::status)?;
                Ok::<_, NoProxy>(Answer::Origins(pools.into_iter().map(Pool::from).collect()))
            }),
            Topic::DrainOrigin { origin, draining } => self.of_agent("have origins", |agent| {
                let drained = agent.with_proxy(|proxy| proxy.drain(&origin, draining))?;
                Ok::<_, NoProxy>(done(drained))
            }),
            Topic::MoveTransfer { transfer, origin } => self.of_agent("have origins", |agent| {
                let moved = agent.with_proxy(|proxy| proxy.move_transfer(transfer, origin.as_ref()))?;
                Ok::<_, NoProxy>(done(moved))
            }),
            Topic::Cache => {
                self.of_agent("have a cache", |agent| agent.with_proxy(|proxy| Answer::Cache(cache(proxy.cache()))))
            }
            Topic::Purge { .. } if self.running.agent.is_none() => self.no_agent("have a cache"),
            Topic::Purge { purge } => done(self.cache.purge(purge_of(purge)).await),
            Topic::Move { connection, node } => self.order(|dispatcher| dispatcher.move_connection(connection, &node)),
            Topic::Drain { node } => self.order(|dispatcher| dispatcher.drain(&node)),
            Topic::Undrain { node } => self.order(|dispatcher| dispatcher.undrain(&node)),
            Topic::Evict { node } => done(self.mesh.evict(&node).await),
            Topic::Admit { node } => done(self.mesh.admit(&node)),
            Topic::RotateKeys => {
                self.of_agent("resume sessions", |agent| agent.rotate_ticket_keys().map(|()| Answer::Done))
            }
            Topic::Upgrade { program } => self.upgrade(program).await,
            Topic::Addresses => Answer::Addresses(self.addresses()),
            Topic::Switch { address, node } => done(self.addresses.order_switch(address, node.as_ref()).await),
            Topic::Reload => {
                self.reloader.reload().await.map_or_else(|refused| Answer::Error(refused.to_string()), Answer::Reloaded)
            }
        }
    }

    /// The upgrade goes on if the administrator does not wait for it.
    async fn upgrade(self: &Arc<Self>, program: Option<PathBuf>) -> Answer {
        let view = Arc::clone(self);
        let upgrade = tokio::spawn(async move {
            let (roles, addresses, fixed) = (&view.running, &view.addresses, view.fixed.clone());
            let (multipath, reloader) = (view.multipath.as_ref(), &*view.reloader);
            let upgraded =
                view.predecessor.upgrade(Parts { roles, addresses, multipath, fixed, reloader }, program).await;
            upgraded.inspect_err(|error| tracing::error!(%error, "the upgrade has failed"))
        });
        match upgrade.await {
            Ok(Ok(upgraded)) => Answer::Upgraded(upgraded),
            Ok(Err(refused)) => Answer::Error(refused.to_string()),
            Err(error) => Answer::Error(format!("the upgrade has failed: {error}")),
        }
    }

    /// Answers on another thread: a long list of connections would delay those of this thread.
    async fn answer_aside(self: &Arc<Self>, answer: impl FnOnce(&Self) -> Answer + Send + 'static) -> Answer {
        let view = Arc::clone(self);
        let answered = spawn_blocking(move || answer(&view)).await;
        answered.unwrap_or_else(|error| Answer::Error(format!("the question could not be answered: {error}")))
    }

    fn order<E: ToString>(&self, order: impl FnOnce(&Dispatcher) -> Result<(), E>) -> Answer {
        let Some(dispatcher) = &self.running.dispatcher else {
            return Answer::Error(format!("{} is not a dispatcher: only dispatchers move and drain", self.name));
        };
        done(order(dispatcher))
    }

    /// `what` completes the error "only agents ..".
    fn of_agent<E: ToString>(&self, what: &str, order: impl FnOnce(&Agent) -> Result<Answer, E>) -> Answer {
        let Some(agent) = &self.running.agent else {
            return self.no_agent(what);
        };
        order(agent).unwrap_or_else(|refused| Answer::Error(refused.to_string()))
    }

    fn no_agent(&self, what: &str) -> Answer {
        Answer::Error(format!("{} is not an agent: only agents {what}", self.name))
    }

    fn status(&self) -> Status {
        let peers = self.mesh.peers();
        Status {
            node: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: self.roles.clone(),
            pid: std::process::id(),
            uptime_s: self.started.elapsed().as_secs(),
            connections: self.connections().len(),
            links_up: peers.iter().filter(|peer| peer.up_for.is_some()).count(),
            peers: peers.len(),
            addresses: self.addresses(),
        }
    }

    fn addresses(&self) -> Vec<AddressEntry> {
        let shared = self.multipath.iter().flat_map(|multipath| AddressEntry::of_shared(&multipath.status()));
        self.addresses.statuses().into_iter().map(AddressEntry::from).chain(shared).collect()
    }

    fn nodes(&self) -> Vec<Node> {
        let agents = self.running.dispatcher.as_ref().map(Dispatcher::agents).unwrap_or_default();
        let as_agent = |name: &str| agents.iter().find(|agent| agent.name.as_str() == name);
        let peers = self.mesh.peers().into_iter().map(|peer| {
            let agent = as_agent(peer.name.as_str());
            node(peer, agent)
        });
        let evicted = self.mesh.evicted().into_iter().filter(|name| name.as_str() != self.name);
        let evicted =
            evicted.map(|name| Node { member: Some("evicted".to_owned()), ..unlinked(&name, as_agent(name.as_str())) });
        let mut nodes: Vec<_> = peers.chain(evicted).chain([self.this(as_agent(&self.name))]).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        nodes
    }

    fn this(&self, agent: Option<&AgentStatus>) -> Node {
        Node {
            mesh: Some(self.mesh_address),
            this: true,
            up: true,
            roles: self.roles.clone(),
            up_s: Some(self.started.elapsed().as_secs()),
            ..unlinked(&self.name, agent)
        }
    }

    fn connections(&self) -> Vec<ConnectionStatus> {
        let of_dispatcher = self.running.dispatcher.iter().flat_map(Dispatcher::connections);
        let of_agent = self.running.agent.iter().flat_map(Agent::connections);
        // A node of both roles lists its own clients twice. The dispatcher has more data of them, so its entry counts.
        let mut known = HashSet::new();
        of_dispatcher.chain(of_agent).filter(|connection| known.insert(connection.id)).collect()
    }
}

fn done<E: ToString>(outcome: Result<(), E>) -> Answer {
    outcome.map_or_else(|refused| Answer::Error(refused.to_string()), |()| Answer::Done)
}

fn node(peer: PeerStatus, agent: Option<&AgentStatus>) -> Node {
    Node {
        mesh: Some(peer.address),
        member: Some(peer.source.as_str().to_owned()),
        up: peer.up_for.is_some(),
        roles: peer.roles.iter().map(Role::to_string).collect(),
        up_s: peer.up_for.map(|up| up.as_secs()),
        last_error: peer.last_error,
        ..unlinked(&peer.name, agent)
    }
}

/// The entry of a node without a link, with its state as an agent of this dispatcher.
fn unlinked(name: &impl ToString, agent: Option<&AgentStatus>) -> Node {
    Node {
        name: name.to_string(),
        mesh: None,
        member: None,
        this: false,
        up: false,
        roles: Vec::new(),
        up_s: None,
        available: agent.map(|agent| agent.available),
        healthy: agent.map(|agent| agent.healthy),
        connections: agent.map(|agent| agent.connections),
        draining: agent.map(|agent| agent.draining),
        last_error: None,
    }
}

fn sessions(status: SessionStatus) -> Sessions {
    let named =
        |counts: BTreeMap<&str, u64>| counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    let handshakes = status.handshakes.into_iter().map(|(version, counts)| Handshakes {
        version: format!("TLS {version}"),
        full: counts.full,
        resumed: named(counts.resumed),
        missed: named(counts.missed),
    });
    Sessions {
        mode: status.sharing.mode.as_str().to_owned(),
        lifetime_s: status.sharing.lifetime.as_secs(),
        rotation_s: status.sharing.rotation.as_secs(),
        seeds: status.seeds,
        newest_seed_age_s: status.newest_seed_age.map(|age| age.as_secs()),
        kept: status.in_memory.0,
        kept_bytes: status.in_memory.1,
        stored: status.database.map(stored),
        redis: status.redis.map(redis),
        handshakes: handshakes.collect(),
    }
}

fn cache(handle: &CacheHandle) -> Cache {
    let Some(state) = handle.get().map(|cache| cache.status()) else { return Cache::default() };
    Cache {
        is_open: true,
        entries_in_memory: state.store.memory_entries,
        bytes_in_memory: state.store.memory_bytes,
        bytes_on_disk: state.store.disk.map(|disk| disk.bytes),
        filling: state.filling,
        asking: state.asking,
        requests: state.requests.into_iter().map(|(result, count)| (result.to_owned(), count)).collect(),
        purges: state.purges,
    }
}

fn purge_of(purge: Purged) -> Purge {
    match purge {
        Purged::Everything => Purge::Everything,
        Purged::Url(url) => Purge::Url(url.into()),
        Purged::Prefix(prefix) => Purge::Prefix(prefix.into()),
        Purged::Group(group) => Purge::Group(group.into()),
    }
}

fn stored(DatabaseStatus { usage, counters }: DatabaseStatus) -> Stored {
    let WriterCounters { dropped, failed, evicted, .. } = counters;
    Stored { sessions: usage.entries, bytes: usage.bytes, dropped, failed, evicted }
}

fn redis(RedisStatus { connected, counters }: RedisStatus) -> RedisServer {
    let RedisCounters { away, timed_out, lost, refused, garbage, .. } = counters;
    RedisServer { connected, away, unanswered: timed_out + lost, refused: refused + garbage }
}

fn connection(status: &ConnectionStatus) -> Connection {
    let tls = status.tls.as_ref();
    Connection {
        id: status.id.to_string(),
        client: status.client,
        version: tls.map(version),
        suite: tls.map(suite),
        alpn: tls.filter(|tls| !tls.alpn.is_empty()).map(|tls| String::from_utf8_lossy(&tls.alpn).into_owned()),
        handshake_node: status.handshake_node.to_string(),
        node: status.node.to_string(),
        moves: status.moves,
        resumed: tls.map(|tls| tls.resumed),
        stays: status.stays.map(|reason| reason.as_str().to_owned()),
    }
}

fn version(tls: &TlsInfo) -> String {
    let known = [Version::Tls12, Version::Tls13].into_iter().find(|version| version.iana() == tls.version);
    known.map_or_else(|| format!("{:#06x}", tls.version), |version| version.to_string())
}

fn suite(tls: &TlsInfo) -> String {
    CipherSuite::from_iana(tls.suite).map_or_else(|| format!("{:#06x}", tls.suite), |suite| suite.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use watari_values::{ConnectionId, NodeName, StayReason};

    use super::*;

    #[test]
    fn a_connection_is_shown() {
        let tls = TlsInfo { version: 0x0304, suite: 0x1301, alpn: b"h2".to_vec(), server_name: None, resumed: true };
        let mut status = ConnectionStatus {
            id: ConnectionId { boot: 1, number: 2 },
            client: "192.0.2.1:1000".parse().unwrap(),
            tls: Some(tls),
            handshake_node: NodeName::new("a1").unwrap(),
            node: NodeName::new("a2").unwrap(),
            moves: 1,
            stays: Some(StayReason::Http2),
        };
        let shown = serde_json::to_value(connection(&status)).unwrap();
        let expected = serde_json::json!({
            "id": "0000000000000001-2", "client": "192.0.2.1:1000", "version": "TLS 1.3",
            "suite": "TLS_AES_128_GCM_SHA256", "alpn": "h2", "handshake_node": "a1", "node": "a2", "moves": 1,
            "resumed": true, "stays": "http2",
        });
        assert_eq!(shown, expected);
        (status.tls, status.stays) = (None, None);
        let shown = serde_json::to_value(connection(&status)).unwrap();
        assert!(["version", "suite", "alpn", "resumed", "stays"].iter().all(|key| shown[key].is_null()), "{shown}");
    }
}
