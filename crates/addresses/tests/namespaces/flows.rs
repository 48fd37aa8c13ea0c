//! Flows that change machines before their address does.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use watari_addresses::{FLOWS_MAX, Flow, Gate, GateError};
use watari_tcp_repair::{Frozen, Restored, State};
use watari_test_origins::namespace::is_inside;

use crate::bridge::{Bridge, CLIENT, Connection, Machine, V4, V6};
use crate::capture::Capture;
use crate::lab::until;

const LONG: Duration = Duration::from_mins(10);
const PIECE: usize = 300_000;

/// The dispatcher d1 owns the addresses, and d2 expects flows of them.
struct Scene {
    bridge: Bridge,
    at_owner: Gate,
    at_next: Gate,
    began: Instant,
    capture: Capture,
}

impl Scene {
    fn new() -> Self {
        let bridge = Bridge::new();
        let make = |machine: &Machine| machine.run(|| Gate::make(addresses(), vec!["eth0".into()]).unwrap());
        let (at_owner, at_next) = (make(&bridge.d1), make(&bridge.d2));
        let mut scene = Self { at_owner, at_next, bridge, began: Instant::now(), capture: Capture::start() };
        for address in addresses() {
            scene.open_first(address);
            scene.bridge.d1.add(address);
            scene.at_next.expect(address, LONG).unwrap();
            scene.bridge.d2.add(address);
        }
        // As `Flows::let_in` does: d2 resolves the client's address from an address of its own.
        for client in [CLIENT, "2001:db8::9"] {
            scene.bridge.d2.run(|| {
                let any = if client.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
                UdpSocket::bind(any).unwrap().send_to(b"", (client, 9)).unwrap();
                until("d2 knows the client", || crate::lab::ip(&["neigh", "show", client]).contains("lladdr"));
            });
        }
        scene
    }

    fn open_first(&mut self, address: IpAddr) {
        let began = self.began;
        self.at_owner.open_first(address, began.elapsed() + LONG, || began.elapsed()).unwrap();
    }

    /// Freezes the connection at d1, and restores it at d2. D1 forwards its packets.
    fn move_to_next(&mut self, connection: Connection, ttl: Duration) -> Connection {
        let (flow, near) = (connection.flow(), connection.near);
        let frozen = Frozen::freeze(connection.far).unwrap();
        self.at_owner.send_away(&[flow], self.bridge.d2.mac, LONG).unwrap();
        let restored = self.restore(frozen.state());
        frozen.discard().unwrap();
        self.at_next.let_in(&[flow], ttl).unwrap();
        let live = restored.release().unwrap();
        assert!(live.waiting.is_empty());
        Connection::new(near, live.stream)
    }

    fn restore(&self, state: &State) -> Restored {
        let state = State::decode(&state.encode()).unwrap();
        self.bridge.d2.run(|| state.restore()).unwrap()
    }

    fn answers(&self, machine: &Machine, flow: Flow) -> usize {
        self.capture.count(machine, |frame| frame.is_answer_of(flow))
    }

    /// Packets of the client that d1 has forwarded to d2.
    fn forwarded(&self, flow: Flow) -> usize {
        let Bridge { d1, d2 } = &self.bridge;
        let is_rewritten = |frame: &crate::capture::Frame| frame.destination() == d2.mac && frame.source() == d1.mac;
        let all = self.capture.count(d1, |frame| frame.is_request_of(flow));
        assert_eq!(all, self.capture.count(d1, |frame| frame.is_request_of(flow) && is_rewritten(frame)));
        all
    }
}

fn addresses() -> Vec<IpAddr> {
    [V4, V6].map(|address| address.parse().unwrap()).into()
}

#[test]
fn a_flow_moves_and_others_stay() {
    if !is_inside("flows::a_flow_moves_and_others_stay") {
        return;
    }
    let mut scene = Scene::new();
    for address in addresses() {
        let [staying, moving] = [(); 2].map(|()| scene.bridge.d1.connect(address));
        for connection in [&staying, &moving] {
            connection.exchange(PIECE);
        }
        scene.capture.clear(&scene.bridge.d1);
        let flow = moving.flow();
        // By steps, with a packet of the client in between.
        let mut near = moving.near;
        let frozen = Frozen::freeze(moving.far).unwrap();
        scene.at_owner.send_away(&[flow], scene.bridge.d2.mac, LONG).unwrap();
        scene.capture.clear(&scene.bridge.d1);
        near.write_all(b"early").unwrap();
        until("d1 has forwarded a packet", || scene.forwarded(flow) > 0);
        let restored = scene.restore(frozen.state());
        frozen.discard().unwrap();
        assert_eq!(scene.answers(&scene.bridge.d2, flow), 0, "d2 has answered before the flow was let in");
        scene.at_next.let_in(&[flow], LONG).unwrap();
        let live = restored.release().unwrap();
        assert!(live.waiting.is_empty());
        let moved = Connection::new(near, live.stream);
        let mut early = [0; 5];
        std::io::Read::read_exact(&mut (&moved.far), &mut early).unwrap();
        assert_eq!(&early, b"early");
        moved.exchange(PIECE);
        staying.exchange(PIECE);
        assert_eq!(scene.answers(&scene.bridge.d1, flow), 0, "d1 has answered");
        assert_eq!(scene.answers(&scene.bridge.d2, staying.flow()), 0);
        assert!(scene.answers(&scene.bridge.d2, flow) > 0);
        println!("{address}: d1 has forwarded {} packets", scene.forwarded(flow));
        // D2 has the address silently.
        assert!(scene.bridge.d2.has(address));
        assert_eq!(Bridge::neighbour(address), Some(scene.bridge.d1.shown_mac()));
        scene.bridge.d1.connect(address).exchange(1);
        let claims = scene.capture.count(&scene.bridge.d2, |frame| frame.claims(address) && !frame.is_answer_of(flow));
        assert_eq!(claims, 0, "d2 has sent something else from the address");
        // D2 becomes the owner, and d1 leaves.
        scene.at_owner.close(address).unwrap();
        let began = scene.began;
        scene.at_next.open_first(address, began.elapsed() + LONG, || began.elapsed()).unwrap();
        moved.exchange(PIECE);
        assert_eq!(Bridge::neighbour(address), Some(scene.bridge.d2.shown_mac()));
        scene.bridge.d2.connect(address).exchange(PIECE);
        // As the owner, it needs no exception.
        scene.at_next.forget(&[flow]).unwrap();
        moved.exchange(PIECE);
    }
}

#[test]
fn a_flow_comes_back() {
    if !is_inside("flows::a_flow_comes_back") {
        return;
    }
    let mut scene = Scene::new();
    for address in addresses() {
        let Connection { mut near, far } = scene.bridge.d1.connect(address);
        let flow = Flow { client: near.local_addr().unwrap(), server: near.peer_addr().unwrap() };
        let frozen = Frozen::freeze(far).unwrap();
        scene.at_owner.send_away(&[flow], scene.bridge.d2.mac, LONG).unwrap();
        let restored = scene.restore(frozen.state());
        near.write_all(b"early").unwrap();
        until("d1 has forwarded a packet", || scene.forwarded(flow) > 0);
        drop(restored);
        scene.at_next.forget(&[flow]).unwrap();
        scene.at_owner.bring_back(&[flow]).unwrap();
        // Neither of these is there any more.
        scene.at_next.forget(&[flow]).unwrap();
        scene.at_owner.bring_back(&[flow]).unwrap();
        let connection = Connection::new(near, frozen.thaw().unwrap());
        let mut early = [0; 5];
        std::io::Read::read_exact(&mut (&connection.far), &mut early).unwrap();
        connection.exchange(PIECE);
        assert_eq!(scene.answers(&scene.bridge.d2, flow), 0);
        // To d2 after all, and back to d1, which forgets that the flow was away.
        let moved = scene.move_to_next(connection, LONG);
        moved.exchange(PIECE);
        let near = moved.near.try_clone().unwrap();
        let frozen = Frozen::freeze(moved.far).unwrap();
        scene.at_next.send_away(&[flow], scene.bridge.d1.mac, LONG).unwrap();
        let state = State::decode(&frozen.state().encode()).unwrap();
        let restored = scene.bridge.d1.run(|| state.restore()).unwrap();
        frozen.discard().unwrap();
        scene.at_owner.let_in(&[flow], LONG).unwrap();
        scene.capture.clear(&scene.bridge.d1);
        Connection::new(near, restored.release().unwrap().stream).exchange(PIECE);
        assert_eq!(scene.forwarded(flow), 0);
    }
}

/// An order replaces what an earlier one has left, also if another process gave it.
#[test]
fn orders_replace_each_other() {
    if !is_inside("flows::orders_replace_each_other") {
        return;
    }
    let mut scene = Scene::new();
    for address in addresses() {
        let connection = scene.bridge.d1.connect(address);
        let flow = connection.flow();
        let mut near = connection.near.try_clone().unwrap();
        let mut arrives_at = |gate: &mut Gate, mac: [u8; 6], ttl| {
            gate.send_away(&[flow, flow], mac, ttl).unwrap();
            scene.capture.clear(&scene.bridge.d1);
            near.write_all(b"x").unwrap();
            until("the packet is forwarded there", || {
                scene.capture.count(&scene.bridge.d1, |frame| frame.is_request_of(flow) && frame.destination() == mac)
                    > 0
            });
        };
        for mac in [[2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 8]] {
            arrives_at(&mut scene.at_owner, mac, LONG);
        }
        let mut successor = scene.bridge.d1.run(|| Gate::take_over(addresses(), vec!["eth0".into()]).unwrap());
        arrives_at(&mut successor, [2, 0, 0, 0, 0, 9], LONG);
        arrives_at(&mut successor, [2, 0, 0, 0, 0, 10], Duration::from_secs(2));
        // It has another MAC there than this process knows.
        scene.at_owner.bring_back(&[flow]).unwrap();
        let mut received = [0; 4];
        std::io::Read::read_exact(&mut (&connection.far), &mut received).unwrap();
        connection.exchange(PIECE);
        // The owner that begins anew has all flows.
        arrives_at(&mut successor, [2, 0, 0, 0, 0, 11], LONG);
        scene.open_first(address);
        std::io::Read::read_exact(&mut (&connection.far), &mut received[..1]).unwrap();
        connection.exchange(PIECE);
    }
}

#[test]
fn flows_end_by_themselves() {
    const SHORT: Duration = Duration::from_millis(400);
    if !is_inside("flows::flows_end_by_themselves") {
        return;
    }
    let mut scene = Scene::new();
    for address in addresses() {
        // D1 has the flow again after the time.
        let connection = scene.bridge.d1.connect(address);
        scene.at_owner.send_away(&[connection.flow()], scene.bridge.d2.mac, SHORT).unwrap();
        connection.exchange(10);
        // D2 is silent after the time, of the flow or of the address.
        for (ttl, is_expected) in [(SHORT, true), (LONG, false)] {
            let moved = scene.move_to_next(scene.bridge.d1.connect(address), LONG);
            moved.exchange(PIECE);
            scene.at_next.let_in(&[moved.flow()], ttl).unwrap();
            if !is_expected {
                scene.at_next.expect(address, SHORT).unwrap();
            }
            until("d2 is silent", || {
                let sent =
                    || scene.bridge.d2.counter("Tcp:", "OutSegs") + scene.bridge.d2.counter("Tcp:", "RetransSegs");
                scene.capture.clear(&scene.bridge.d2);
                let before = sent();
                (&moved.far).write_all(b"x").unwrap();
                until("d2's kernel has sent it", || sent() > before);
                scene.answers(&scene.bridge.d2, moved.flow()) == 0
            });
            scene.at_next.expect(address, LONG).unwrap();
        }
    }
}

#[test]
fn a_closing_address_gets_no_new_connections() {
    if !is_inside("flows::a_closing_address_gets_no_new_connections") {
        return;
    }
    let mut scene = Scene::new();
    for address in addresses() {
        let connection = scene.bridge.d1.connect(address);
        let listener = scene.bridge.d1.run(|| TcpListener::bind((address, 0)).unwrap());
        let connect = |wait| TcpStream::connect_timeout(&listener.local_addr().unwrap(), wait);
        scene.at_owner.close_to_new(address, LONG).unwrap();
        let refused = connect(Duration::from_millis(300)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut);
        connection.exchange(PIECE);
        // The client repeats what was dropped.
        scene.at_owner.close_to_new(address, Duration::from_millis(300)).unwrap();
        connect(LONG).unwrap();
        scene.at_owner.close_to_new(address, LONG).unwrap();
        scene.open_first(address);
        connect(LONG).unwrap();
    }
    let foreign = scene.at_owner.close_to_new([192, 0, 2, 1].into(), LONG);
    assert!(matches!(foreign, Err(GateError::ForeignAddress(_))), "{foreign:?}");
}

#[test]
fn orders_without_tables_fail() {
    if !is_inside("flows::orders_without_tables_fail") {
        return;
    }
    let mut scene = Scene::new();
    let address: IpAddr = V4.parse().unwrap();
    let connection = scene.bridge.d1.connect(address);
    let (flow, mac) = (connection.flow(), scene.bridge.d2.mac);
    scene.bridge.d1.run(|| Gate::make(Vec::new(), Vec::new()).unwrap().remove().unwrap());
    let gate = &mut scene.at_owner;
    for refused in [
        gate.send_away(&[flow], mac, LONG),
        gate.bring_back(&[flow]),
        gate.let_in(&[flow], LONG),
        gate.forget(&[flow]),
        gate.close_to_new(address, LONG),
    ] {
        assert!(matches!(refused, Err(GateError::Refused { .. })), "{refused:?}");
    }
    connection.exchange(10);
    // The next renewal makes them again.
    scene.bridge.d1.run(|| {
        let began = Instant::now();
        gate.open_first(address, began.elapsed() + LONG, || began.elapsed()).unwrap();
    });
    connection.exchange(10);
    gate.send_away(&[flow], mac, LONG).unwrap();
    gate.bring_back(&[flow]).unwrap();
    connection.exchange(10);
    // D2 makes its tables again, closed.
    scene.bridge.d2.run(|| {
        Gate::make(Vec::new(), Vec::new()).unwrap().remove().unwrap();
        scene.at_next.expect(address, LONG).unwrap();
    });
    assert_eq!(Bridge::neighbour(address), Some(scene.bridge.d1.shown_mac()));
    let foreign = [
        Flow { server: "192.0.2.1:1".parse().unwrap(), ..flow },
        Flow { client: "[2001:db8::9]:1".parse().unwrap(), ..flow },
    ];
    for foreign in foreign {
        let refused = scene.at_owner.send_away(&[flow, foreign], mac, LONG);
        assert!(matches!(refused, Err(GateError::ForeignFlow(named)) if named == foreign), "{refused:?}");
    }
    let refused = scene.at_owner.forget(&vec![flow; FLOWS_MAX + 1]);
    assert!(matches!(refused, Err(GateError::TooManyFlows(_))), "{refused:?}");
    connection.exchange(10);
}

/// The time of one transaction.
#[test]
fn many_flows_in_one_order() {
    if !is_inside("flows::many_flows_in_one_order") {
        return;
    }
    let mut scene = Scene::new();
    let mac = scene.bridge.d2.mac;
    for (address, client) in [(V4, CLIENT), (V6, "2001:db8::9")] {
        let (address, client): (IpAddr, IpAddr) = (address.parse().unwrap(), client.parse().unwrap());
        let flows = |from: u16, count: usize| -> Vec<Flow> {
            let ports = (from..).take(count);
            ports.map(|port| Flow { client: (client, port).into(), server: (address, 443).into() }).collect()
        };
        scene.at_owner.send_away(&flows(20_000, FLOWS_MAX), mac, LONG).unwrap();
        let mut times = [const { Vec::new() }; 4];
        for round in 0..50_u16 {
            let flows = flows(1000 + 32 * round, 32);
            let gate = &mut scene.at_owner;
            for (number, times) in times.iter_mut().enumerate() {
                let began = Instant::now();
                match number {
                    0 => gate.send_away(&flows, mac, LONG),
                    1 => gate.bring_back(&flows),
                    2 => gate.let_in(&flows, LONG),
                    _ => gate.forget(&flows),
                }
                .unwrap();
                times.push(began.elapsed());
            }
        }
        for (name, times) in ["send_away", "bring_back", "let_in", "forget"].into_iter().zip(&mut times) {
            times.sort();
            println!("{address}: {name} of 32 flows: median {:?}, longest {:?}", times[25], times[49]);
        }
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    println!("Linux {}", release.trim());
}
