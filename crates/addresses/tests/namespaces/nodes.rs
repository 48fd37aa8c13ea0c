//! Nodes with links, candidates and voters: d1 and d2 on machines of their own, the witness a1 on the client's.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use watari_addresses::{AddressStatus, Addresses, BeforeLeaving, Config, Prepared, ServiceAddress, Settings};
use watari_mesh::{Join, Limits, Mesh, Peer};
use watari_pki::{Authority, Identity};
use watari_takeover::{OwnershipRole, Terms};
use watari_values::{NodeName, Role};

use crate::bridge::{Bridge, V4, V6, enter};
use crate::lab::until;

const MESH: [(&str, &str); 3] = [("d1", "192.0.2.1:7000"), ("d2", "192.0.2.2:7000"), ("a1", "192.0.2.9:7000")];
pub(crate) const LEASE: Duration = Duration::from_millis(1500);
const PREFERRED: u8 = 200;
const OTHER: u8 = 100;

pub(crate) fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

pub(crate) fn addresses() -> [IpAddr; 2] {
    [V4, V6].map(|address| address.parse().unwrap())
}

/// The nodes of a cluster. The threads of each are in the namespace of its machine.
pub(crate) struct Cluster {
    pub(crate) bridge: Bridge,
    pub(crate) d1: Node,
    pub(crate) d2: Node,
    pub(crate) a1: Node,
    _keys: tempfile::TempDir,
}

pub(crate) struct Node {
    pub(crate) runtime: Runtime,
    pub(crate) addresses: Addresses,
    shutdown: CancellationToken,
}

impl Cluster {
    /// D1 owns all addresses. It runs `before_leaving`.
    pub(crate) fn start(before_leaving: Option<BeforeLeaving>) -> Self {
        let bridge = Bridge::new();
        let keys = tempfile::tempdir().unwrap();
        let authority = Authority::create(keys.path(), "test").unwrap();
        for (node, _) in MESH {
            authority.issue(&name(node), &[Role::Dispatcher, Role::Agent], 7).unwrap();
        }
        let own = File::open("/proc/thread-self/ns/net").unwrap();
        let start = |number: usize, namespace: File, priority, before_leaving| {
            let identity = Identity::load(keys.path(), &name(MESH[number].0)).unwrap();
            Node::start(number, identity, namespace, priority, before_leaving)
        };
        let a1 = start(2, own, None, None);
        let d1 = start(0, bridge.d1.namespace(), Some(PREFERRED), before_leaving);
        let d2 = start(1, bridge.d2.namespace(), Some(OTHER), None);
        let cluster = Self { bridge, d1, d2, a1, _keys: keys };
        cluster.until_owner("d1");
        cluster
    }

    /// All dispatchers know the owner of all addresses.
    pub(crate) fn until_owner(&self, owner: &str) {
        until(&format!("{owner} owns the addresses"), || {
            let know = |node: &Node| node.statuses().iter().all(|shown| shown.status.owner == Some(name(owner)));
            know(&self.d1) && know(&self.d2)
        });
    }
}

impl Node {
    fn start(
        number: usize,
        identity: Identity,
        namespace: File,
        priority: Option<u8>,
        before_leaving: Option<BeforeLeaving>,
    ) -> Self {
        let namespace = Arc::new(namespace);
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .on_thread_start(move || enter(&namespace))
            .build()
            .unwrap();
        let shutdown = CancellationToken::new();
        let (roles, address) = ([Role::Dispatcher].into(), MESH[number].1);
        let token = shutdown.clone();
        let addresses = runtime.spawn(async move {
            let peers = MESH.map(|(peer, address)| Peer { name: name(peer), address: address.parse().unwrap() });
            let config = watari_mesh::Config {
                identity,
                roles,
                listener: TcpListener::bind(address.parse::<SocketAddr>().unwrap()).await.unwrap(),
                peers: peers.into(),
                join: Join::Configured,
                limits: Limits::default(),
            };
            let mut registry = Registry::default();
            let (mesh, mut events) = Mesh::start(config, &mut registry, token.clone()).unwrap();
            let takeover = match priority {
                Some(priority) => Some(Prepared::check(settings(priority)).await.unwrap()),
                None => None,
            };
            let config = Config {
                node: name(MESH[number].0),
                takeover,
                before: None,
                can_serve: Box::new(|| true),
                before_leaving,
            };
            let addresses = Addresses::start(config, mesh, &mut registry, &token).await.unwrap();
            let handling = addresses.clone();
            tokio::spawn(async move {
                while let Some(event) = events.recv().await {
                    handling.handle(&event);
                }
            });
            addresses
        });
        let addresses = runtime.block_on(addresses).unwrap();
        Self { runtime, addresses, shutdown }
    }

    /// Runs this in the threads of the node.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        self.runtime.block_on(self.runtime.spawn(work)).unwrap()
    }

    pub(crate) fn statuses(&self) -> Vec<AddressStatus> {
        self.addresses.statuses()
    }

    pub(crate) fn role(&self, address: IpAddr) -> OwnershipRole {
        let statuses = self.statuses();
        statuses.iter().find(|shown| shown.service.address.addr() == address).unwrap().status.role
    }

    /// The node is gone, as by SIGKILL, except that its links are closed.
    pub(crate) fn kill(&self) {
        self.shutdown.cancel();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn settings(priority: u8) -> Settings {
    let service = |(address, len)| ServiceAddress {
        address: ipnet::IpNet::new(address, len).unwrap(),
        interface: "eth0".into(),
        priority,
    };
    Settings {
        addresses: addresses().into_iter().zip([24, 64]).map(service).collect(),
        terms: Terms {
            voters: MESH.map(|(node, _)| name(node)).into(),
            lease: LEASE,
            advert_interval: Duration::from_millis(200),
        },
        // D2 may be the owner for a moment at the start. D1 leaves it what an order gave it.
        preempt: true,
        garp_repeat: 3,
        garp_refresh: None,
        notify: None,
    }
}
