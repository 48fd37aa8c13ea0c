//! Planned switches between nodes: what happens before the owner leaves, and how flows move meanwhile.

use std::fs::File;
use std::io::{Read, Write};
use std::mem;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use watari_addresses::{
    Addresses, BeforeLeaving, EXPECT_MAX, ExpectError, Flow, Flows, FlowsError, Gate, LeavingStep, SwitchError,
};
use watari_takeover::{OwnershipRole, SwitchRefused};
use watari_tcp_repair::{Frozen, State};
use watari_test_origins::namespace::is_inside;
use watari_values::NodeName;

use crate::bridge::{Bridge, CLIENT, Connection, counter, enter};
use crate::capture::Capture;
use crate::lab::{ip, until};
use crate::nodes::{Cluster, LEASE, Node, addresses, name};

const TTL: Duration = Duration::from_mins(1);
const ATTEMPTS: usize = 10;

/// How long a preparation may take.
const PREPARE_MAX: Duration = Duration::from_secs(5);

/// A preparation that ends when the test permits it.
#[derive(Clone)]
struct Gatekeeper {
    begun: Arc<Mutex<Vec<(IpAddr, NodeName)>>>,
    permits: Arc<Semaphore>,
    /// Preparations that have ended, or were dropped.
    ended: Arc<AtomicUsize>,
    /// The steps after them.
    concluded: Arc<Mutex<Vec<LeavingStep>>>,
}

struct EndGuard(Arc<AtomicUsize>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Gatekeeper {
    fn new() -> Self {
        Self {
            begun: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
            ended: Arc::default(),
            concluded: Arc::default(),
        }
    }

    fn hook(&self) -> BeforeLeaving {
        let keeper = self.clone();
        BeforeLeaving::new(PREPARE_MAX, move |step| {
            let keeper = keeper.clone();
            async move {
                let LeavingStep::Prepare { address, to } = step else {
                    keeper.concluded.lock().unwrap().push(step);
                    return true;
                };
                let _guard = EndGuard(keeper.ended.clone());
                keeper.begun.lock().unwrap().push((address, to));
                keeper.permits.acquire().await.unwrap().forget();
                true
            }
        })
    }

    fn until_begun(&self, count: usize) {
        until("the preparations begin", || self.begun.lock().unwrap().len() >= count);
        assert_eq!(self.begun.lock().unwrap().len(), count);
    }

    fn until_ended(&self, count: usize) {
        until("the preparations end", || self.ended.load(Ordering::SeqCst) == count);
    }
}

fn order(node: &Node, address: Option<IpAddr>, to: &str) -> Result<(), SwitchError> {
    let (addresses, to) = (node.addresses.clone(), name(to));
    node.run(async move { addresses.order_switch(address, Some(&to)).await })
}

fn refused(ordered: Result<(), SwitchError>) -> SwitchRefused {
    match ordered {
        Err(SwitchError::Refused { cause, .. }) => cause,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_prepares_before_it_leaves() {
    if !is_inside("switches::an_owner_prepares_before_it_leaves") {
        return;
    }
    let keeper = Gatekeeper::new();
    let cluster = Cluster::start(Some(keeper.hook()));
    let Cluster { d1, d2, .. } = &cluster;
    let [v4, v6] = addresses();
    // Refusals come first.
    assert_eq!(refused(order(d1, Some(v4), "d7")), SwitchRefused::UnknownCandidate(name("d7")));
    assert_eq!(refused(order(d1, Some(v4), "d1")), SwitchRefused::AlreadyThere(name("d1")));
    keeper.until_begun(0);
    // By an order to the owner.
    order(d1, Some(v4), "d2").unwrap();
    keeper.until_begun(1);
    assert_eq!(keeper.begun.lock().unwrap()[0], (v4, name("d2")));
    assert_eq!(refused(order(d1, Some(v4), "d2")), SwitchRefused::Changing);
    let renewed = || d1.statuses()[0].status.lease_end.unwrap();
    let first = renewed();
    until("the owner renews its lease meanwhile", || renewed() > first + Duration::from_secs(2));
    assert_eq!(d1.role(v4), OwnershipRole::Active);
    // By an order to the other node, for the other address. An order that comes twice counts once.
    order(d2, Some(v6), "d2").unwrap();
    keeper.until_begun(2);
    order(d2, Some(v6), "d2").unwrap();
    keeper.permits.add_permits(2);
    cluster.until_owner("d2");
    keeper.until_begun(2);
    keeper.until_ended(2);
    // D2 has no preparation.
    order(d2, Some(v4), "d1").unwrap();
    order(d2, Some(v6), "d1").unwrap();
    cluster.until_owner("d1");
    // The end of a node.
    keeper.permits.add_permits(1);
    order(d1, Some(v6), "d2").unwrap();
    until("d2 owns an address", || d2.role(v6) == OwnershipRole::Active);
    let addresses = d1.addresses.clone();
    let ending = d1.runtime.spawn(async move { addresses.end().await });
    keeper.until_begun(4);
    assert_eq!(d1.role(v4), OwnershipRole::Active);
    assert!(!ending.is_finished());
    keeper.permits.add_permits(1);
    d1.runtime.block_on(ending).unwrap();
    assert!(keeper.concluded.lock().unwrap().contains(&LeavingStep::Leave { address: v4 }));
    until("d2 owns the address", || d2.role(v4) == OwnershipRole::Active);
    assert!(!cluster.bridge.d1.has(v4));
}

#[test]
fn a_lost_lease_ends_the_preparation() {
    if !is_inside("switches::a_lost_lease_ends_the_preparation") {
        return;
    }
    let keeper = Gatekeeper::new();
    let cluster = Cluster::start(Some(keeper.hook()));
    order(&cluster.d1, None, "d2").unwrap();
    keeper.until_begun(2);
    cluster.d2.kill();
    cluster.a1.kill();
    keeper.until_ended(2);
    until("d1 is no owner", || addresses().iter().all(|address| !cluster.bridge.d1.has(*address)));
    assert!(cluster.d1.statuses().iter().all(|shown| shown.status.role != OwnershipRole::Active));
}

#[test]
fn a_preparation_has_a_time_limit() {
    if !is_inside("switches::a_preparation_has_a_time_limit") {
        return;
    }
    let keeper = Gatekeeper::new();
    let cluster = Cluster::start(Some(keeper.hook()));
    let began = Instant::now();
    let addresses = cluster.d1.addresses.clone();
    cluster.d1.run(async move { addresses.order_switch(None, None).await }).unwrap();
    cluster.until_owner("d2");
    assert!(began.elapsed() >= PREPARE_MAX, "{:?}", began.elapsed());
    keeper.until_ended(2);
}

/// The node that was to get the addresses dies meanwhile.
#[test]
fn an_owner_stays_if_the_other_node_is_gone() {
    if !is_inside("switches::an_owner_stays_if_the_other_node_is_gone") {
        return;
    }
    let keeper = Gatekeeper::new();
    let cluster = Cluster::start(Some(keeper.hook()));
    order(&cluster.d1, None, "d2").unwrap();
    keeper.until_begun(2);
    cluster.d2.kill();
    // By then, d1 has noticed that its link to d2 has ended.
    let renewed = || cluster.d1.statuses()[0].status.lease_end.unwrap();
    let first = renewed();
    until("d1 renews its lease without d2", || renewed() > first + LEASE);
    keeper.permits.add_permits(2);
    keeper.until_ended(2);
    until("the steps after the preparations", || keeper.concluded.lock().unwrap().len() == 2);
    let cancel = |address| LeavingStep::Cancel { address };
    assert!(addresses().map(cancel).iter().all(|step| keeper.concluded.lock().unwrap().contains(step)));
    until("orders are possible again", || {
        refused(order(&cluster.d1, None, "d2")) == SwitchRefused::UnknownCandidate(name("d2"))
    });
    assert!(cluster.d1.statuses().iter().all(|shown| shown.status.role == OwnershipRole::Active));
}

#[test]
fn an_expected_address_is_silent() {
    if !is_inside("switches::an_expected_address_is_silent") {
        return;
    }
    let cluster = Cluster::start(None);
    let Cluster { bridge, d1, d2, .. } = &cluster;
    let expect = |node: &Node, address| {
        let addresses = node.addresses.clone();
        node.run(async move { addresses.expect(address).await })
    };
    let capture = Capture::start();
    let unknown: IpAddr = [192, 0, 2, 77].into();
    assert_eq!(expect(d2, unknown), Err(ExpectError::UnknownAddress(unknown)));
    let [v4, v6] = addresses();
    assert_eq!(expect(d1, v4), Err(ExpectError::Owner(v4)));
    let flow = |address: IpAddr, client: &str| Flow {
        client: (client.parse::<IpAddr>().unwrap(), 1).into(),
        server: (address, 443).into(),
    };
    let let_in = |flow: Flow| {
        let flows: Flows = d2.addresses.flows();
        d2.run(async move { flows.let_in(&[flow], TTL).await })
    };
    for (address, client) in [(v4, CLIENT), (v6, "2001:db8::9")] {
        let early = let_in(flow(address, client));
        assert!(matches!(early, Err(FlowsError::NotExpected(named)) if named == address), "{early:?}");
        assert_eq!(expect(d2, address), Ok(bridge.d2.mac));
        assert!(bridge.d2.has(address));
        assert_eq!(Bridge::neighbour(address), Some(bridge.d1.shown_mac()));
        bridge.d1.connect(address).exchange(1000);
        // The next hop is resolved, although the address is silent.
        bridge.d2.run(|| ip(&["neigh", "flush", "all"]));
        let_in(flow(address, client)).unwrap();
        until("d2 knows the client", || bridge.d2.run(|| ip(&["neigh", "show", client])).contains("lladdr"));
        assert_eq!(capture.count(&bridge.d2, |frame| frame.claims(address)), 0);
    }
    // Again, for a longer time.
    assert_eq!(expect(d2, v6), Ok(bridge.d2.mac));
    // Another program removes the tables of d2: they are made again before they are needed.
    bridge.d2.run(|| Gate::make(Vec::new(), Vec::new()).unwrap().remove().unwrap());
    until("d2 is silent", || Bridge::neighbour(v4) == Some(bridge.d1.shown_mac()));
    let began = Instant::now();
    until("the silent address is removed", || !bridge.d2.has(v4) && !bridge.d2.has(v6));
    println!("removed after {:?} of {EXPECT_MAX:?}", began.elapsed());
    cluster.until_owner("d1");
    // A node that becomes the owner keeps it.
    assert_eq!(expect(d2, v4), Ok(bridge.d2.mac));
    order(d1, None, "d2").unwrap();
    cluster.until_owner("d2");
    for address in [v4, v6] {
        assert_eq!(Bridge::neighbour(address), Some(bridge.d2.shown_mac()));
        assert!(bridge.d2.has(address) && !bridge.d1.has(address));
    }
    // A node that ends removes it before it removes its gate.
    assert_eq!(expect(d1, v4), Ok(bridge.d1.mac));
    let addresses = d1.addresses.clone();
    d1.run(async move { addresses.end().await });
    assert!(!bridge.d1.has(v4));
    assert_eq!(expect(d1, v4), Err(ExpectError::Ending));
    assert_eq!(Bridge::neighbour(v4), Some(bridge.d2.shown_mac()));
}

/// What moves the connections of d1 before it leaves an address.
#[derive(Default)]
struct Mover {
    /// The connections at d1.
    here: Mutex<Vec<Connection>>,
    /// Those at d2.
    there: Mutex<Vec<Connection>>,
    parts: OnceLock<MoverParts>,
}

struct MoverParts {
    d1: Addresses,
    d2: Addresses,
    /// Runs in the namespace of d2.
    at_d2: Handle,
    namespace: File,
}

impl Mover {
    async fn leave(&self, address: IpAddr) {
        let MoverParts { d1, d2, at_d2, .. } = self.parts.get().unwrap();
        let expecting = d2.clone();
        let mac = at_d2.spawn(async move { expecting.expect(address).await.unwrap() }).await.unwrap();
        d1.flows().close_to_new(address, TTL).await.unwrap();
        let all = mem::take(&mut *self.here.lock().unwrap());
        let (moving, staying) = all.into_iter().partition(|connection| connection.flow().server.ip() == address);
        *self.here.lock().unwrap() = staying;
        for connection in moving {
            let moved = self.move_to_d2(connection, mac).await;
            self.there.lock().unwrap().push(moved);
        }
    }

    async fn move_to_d2(&self, connection: Connection, mac: [u8; 6]) -> Connection {
        let MoverParts { d1, d2, at_d2, namespace } = self.parts.get().unwrap();
        let flow = connection.flow();
        let frozen = Frozen::freeze(connection.far).unwrap();
        d1.flows().send_away(&[flow], mac, TTL).await.unwrap();
        let state = State::decode(&frozen.state().encode()).unwrap();
        let restored = thread::scope(|scope| {
            let restoring = scope.spawn(|| {
                enter(namespace);
                state.restore().unwrap()
            });
            restoring.join().unwrap()
        });
        frozen.discard().unwrap();
        let flows = d2.flows();
        at_d2.spawn(async move { flows.let_in(&[flow], TTL).await.unwrap() }).await.unwrap();
        Connection::new(connection.near, restored.release().unwrap().stream)
    }
}

/// Connections move while their owner prepares to leave the address, and the address follows.
#[test]
fn connections_move_before_their_address() {
    if !is_inside("switches::connections_move_before_their_address") {
        return;
    }
    let mover = Arc::new(Mover::default());
    let moving = mover.clone();
    let cluster = Cluster::start(Some(BeforeLeaving::new(PREPARE_MAX, move |step| {
        let mover = moving.clone();
        async move {
            if let LeavingStep::Prepare { address, to } = step {
                assert_eq!(to, name("d2"));
                mover.leave(address).await;
            }
            true
        }
    })));
    let Cluster { bridge, d1, d2, .. } = &cluster;
    let (at_d2, namespace) = (d2.runtime.handle().clone(), bridge.d2.namespace());
    let parts = MoverParts { d1: d1.addresses.clone(), d2: d2.addresses.clone(), at_d2, namespace };
    assert!(mover.parts.set(parts).is_ok());
    for address in addresses() {
        for _ in 0..5 {
            let connection = bridge.d1.connect(address);
            connection.exchange(1000);
            mover.here.lock().unwrap().push(connection);
        }
    }
    order(d1, None, "d2").unwrap();
    cluster.until_owner("d2");
    let there = mover.there.lock().unwrap();
    assert_eq!(there.len(), 10);
    for connection in &*there {
        connection.exchange(100_000);
    }
}

/// Packets of the client that reach d2 before the connection does are delivered later. The client repeats none.
#[test]
fn early_packets_are_held() {
    if !is_inside("switches::early_packets_are_held") {
        return;
    }
    let cluster = Cluster::start(None);
    for address in addresses() {
        // On a busy machine, the client's timer may expire.
        let is_in_time = (0..ATTEMPTS).any(|_| repeated_packets(&cluster, address, 5, true) == 0);
        assert!(is_in_time, "{address}: the client has repeated its packet each time");
        assert!(repeated_packets(&cluster, address, 5, false) > 0, "{address}: nothing was held");
        // Packets that the network card, or here the kernel, has not cut yet. Their sender probes for lost ones sooner.
        repeated_packets(&cluster, address, 14_000, true);
    }
}

/// Moves a connection to d2, with bytes of the client on their way. Returns how many packets the client has repeated.
fn repeated_packets(cluster: &Cluster, address: IpAddr, len: usize, is_held: bool) -> u64 {
    let Cluster { bridge, d1, d2, .. } = cluster;
    let capture = Capture::start();
    let Connection { mut near, far } = bridge.d1.connect(address);
    let flow = Flow { client: near.local_addr().unwrap(), server: near.peer_addr().unwrap() };
    let (expecting, arriving, leaving) = (d2.addresses.clone(), d2.addresses.flows(), d1.addresses.flows());
    let (holding, letting_in, delivering) = (arriving.clone(), arriving.clone(), arriving);
    let mac = d2.run(async move { expecting.expect(address).await }).unwrap();
    if is_held {
        d2.run(async move { holding.hold(&[flow]).await }).unwrap();
    }
    let before = retransmissions();
    let began = Instant::now();
    let frozen = Frozen::freeze(far).unwrap();
    d1.run(async move { leaving.send_away(&[flow], mac, TTL).await }).unwrap();
    let sent: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
    near.write_all(&sent).unwrap();
    until("d1 has forwarded a packet", || {
        capture.count(&bridge.d1, |frame| frame.is_request_of(flow) && frame.destination() == mac) > 0
    });
    let state = State::decode(&frozen.state().encode()).unwrap();
    let restored = bridge.d2.run(|| state.restore()).unwrap();
    frozen.discard().unwrap();
    d2.run(async move { letting_in.let_in(&[flow], TTL).await }).unwrap();
    let moved = Connection::new(near, restored.release().unwrap().stream);
    let delivered = d2.run(async move { delivering.deliver(&[flow]).await }).unwrap();
    let mut received = vec![0; len];
    (&moved.far).read_exact(&mut received).unwrap();
    assert!(received == sent);
    let repeated = retransmissions() - before;
    println!(
        "{address}: {len} bytes, {delivered} packets held, {repeated} repeated, arrived after {:?}",
        began.elapsed()
    );
    assert_eq!(delivered > 0, is_held);
    moved.exchange(100_000);
    repeated
}

/// Segments that the client has repeated.
fn retransmissions() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    counter(&text, "Tcp:", "RetransSegs")
}
