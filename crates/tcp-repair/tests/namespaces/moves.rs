//! Connections that move.

use std::io::Read;
use std::net::{IpAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionread;
use socket2::{SockFilter, SockRef};
use watari_tcp_repair::{Frozen, State};
use watari_test_origins::namespace::is_inside;

use crate::lab::{Buffers, Lab, Machine, V4, V6, sysctl, until};
use crate::peer::{Client, Server, reader, writer};

const MIB: u64 = 1 << 20;

#[test]
fn a_connection_moves_to_and_fro() {
    if !is_inside("moves::a_connection_moves_to_and_fro") {
        return;
    }
    let lab = Lab::new();
    for address in [V4, V6] {
        transfer(&lab, address, Buffers::Fixed, 20);
        transfer(&lab, address, Buffers::Adapted, 4);
    }
}

#[test]
fn a_connection_moves_without_tcp_options() {
    const OPTIONS: [&str; 3] = ["tcp_timestamps", "tcp_sack", "tcp_window_scaling"];
    if !is_inside("moves::a_connection_moves_without_tcp_options") {
        return;
    }
    let lab = Lab::new();
    for without in [&OPTIONS[..1], &OPTIONS[1..2], &OPTIONS[2..], &OPTIONS] {
        for option in OPTIONS {
            sysctl(option, if without.contains(&option) { "0" } else { "1" });
        }
        for address in [V4, V6] {
            println!("{address} without {without:?}");
            transfer(&lab, address, Buffers::Fixed, 4);
        }
    }
}

#[test]
fn full_queues_move() {
    if !is_inside("moves::full_queues_move") {
        return;
    }
    let lab = Lab::new();
    for address in [V4, V6] {
        let address = address.parse().unwrap();
        let (near, far) = lab.a.connect(address, Buffers::Fixed);
        let (up, down) = (4 * MIB, 4 * MIB);
        let writer = writer(&near, up);
        let mut server = Server::new(far);
        until("the read queue is full", || ioctl_fionread(&server.stream).unwrap() > 200_000);
        while server.write(down) {}
        for (from, to) in [(&lab.a, &lab.b), (&lab.b, &lab.a)] {
            server = move_server(server, address, from, to);
            assert!(ioctl_fionread(&server.stream).unwrap() > 200_000);
        }
        let reader = reader(&near, down);
        server.pump(up, down);
        writer.join().unwrap();
        reader.join().unwrap();
    }
}

/// After the move of a download whose acknowledgments were lost, or whose last segments were, the kernel waits for no
/// timer.
#[test]
fn a_download_goes_on_at_once() {
    const ATTEMPTS: usize = 10;
    if !is_inside("moves::a_download_goes_on_at_once") {
        return;
    }
    let lab = Lab::new();
    for (burst, is_lost) in [(5_000, false), (40_000, false), (400_000, false), (5_000, true), (13_000, true)] {
        // On a busy machine, a timer may expire between `restore` and `release`.
        let goes_on = (0..ATTEMPTS).any(|_| {
            let timers = || ["TCPTimeouts", "TCPLossProbes"].map(|name| lab.b.counter("netstat", "TcpExt:", name));
            let before = timers();
            stall(&lab, burst, is_lost);
            let after = timers();
            println!("timeouts and loss probes of b: {before:?}, then {after:?}");
            after == before
        });
        assert!(goes_on, "{burst} bytes, lost: {is_lost}");
    }
}

/// Sends, loses the acknowledgments or the data as well, and moves from a to b.
fn stall(lab: &Lab, burst: u64, is_lost: bool) {
    let address = V4.parse().unwrap();
    let (near, far) = lab.a.connect(address, Buffers::Fixed);
    let mut server = Server::new(far);
    let client = Client::start(&near, 0, 4 * MIB);
    server.pump(0, 4 * MIB);
    client.join();
    let drop_all = [SockFilter::new(0x06, 0, 0, 0)];
    SockRef::from(&server.stream).attach_filter(&drop_all).unwrap();
    if is_lost {
        SockRef::from(&near).attach_filter(&drop_all).unwrap();
    }
    while server.sent < 4 * MIB + burst && server.write(4 * MIB + burst) {}
    // Reads what arrives without the kernel of a having heard of it.
    if !is_lost {
        until("the client has something", || ioctl_fionread(&near).unwrap() > 0);
    }
    let mut reader = near.try_clone().unwrap();
    let mut drain = || {
        let mut buffer = vec![0; ioctl_fionread(&near).unwrap() as usize];
        reader.read_exact(&mut buffer).unwrap();
        buffer.len() as u64
    };
    let mut received = drain();
    if is_lost {
        SockRef::from(&near).detach_filter().unwrap();
    }
    let began = Instant::now();
    let server = move_server(server, address, &lab.a, &lab.b);
    let released = began.elapsed();
    let total = server.sent - 4 * MIB - server.waiting.len() as u64;
    let mut first = None;
    until("the rest arrives", || {
        let read = drain();
        if read > 0 {
            first.get_or_insert(began.elapsed());
        }
        received += read;
        received == total
    });
    println!(
        "{burst} bytes, lost: {is_lost}: released after {released:?}, first byte after {first:?}, all after {:?}",
        began.elapsed()
    );
    // A reset leaves no socket whose timers would count in the next attempt.
    SockRef::from(&server.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(server);
    lab.b.remove(address);
    lab.a.add(address);
}

/// Transfers both ways, with `count` moves to and fro, and with data on its way in both directions.
fn transfer(lab: &Lab, address: &str, buffers: Buffers, count: u64) {
    let address = address.parse().unwrap();
    let (near, far) = lab.a.connect(address, buffers);
    let (up, down) = (MIB * (count + 1), 2 * MIB * (count + 1));
    let client = Client::start(&near, up, down);
    let mut server = Server::new(far);
    let (mut from, mut to) = (&lab.a, &lab.b);
    let mut pauses = Vec::new();
    for step in 1..=count {
        server.pump(MIB * step, 2 * MIB * step - MIB);
        while server.sent < 2 * MIB * step && server.write(2 * MIB * step) {}
        let began = Instant::now();
        server = move_server(server, address, from, to);
        pauses.push(began.elapsed());
        (from, to) = (to, from);
    }
    server.pump(up, down);
    client.join();
    pauses.sort();
    println!("{count} moves of a connection: median {:?}, longest {:?}", pauses[pauses.len() / 2], pauses.last());
    assert_eq!(count % 2, 0, "the address is back");
}

/// Moves the server's end and the service address.
fn move_server(server: Server, address: IpAddr, from: &Machine, to: &Machine) -> Server {
    let Server { stream, waiting, sent, received } = server;
    let began = Instant::now();
    let frozen = Frozen::freeze(stream).unwrap();
    let state = State::decode(&frozen.state().encode()).unwrap();
    let frozen_at = began.elapsed();
    let restored = to.run(|| state.restore()).unwrap();
    let restored_at = began.elapsed();
    from.remove(address);
    frozen.discard().unwrap();
    to.add(address);
    let moved_at = began.elapsed();
    let live = restored.release().unwrap();
    let released_at = began.elapsed();
    let [restoring, moving, releasing] = [(frozen_at, restored_at), (restored_at, moved_at), (moved_at, released_at)]
        .map(|(from, to): (Duration, Duration)| to.saturating_sub(from));
    println!(
        "{} bytes unread, {} unacknowledged: froze in {frozen_at:?}, restored in {restoring:?}, moved the address in \
         {moving:?}, released in {releasing:?}",
        state.unread().len(),
        state.unacknowledged().len(),
    );
    Server { stream: live.stream, waiting: [live.waiting, waiting].concat(), sent, received }
}

/// The time for many idle connections, on one core.
#[test]
fn many_connections_move() {
    const COUNT: usize = 300;
    if !is_inside("moves::many_connections_move") {
        return;
    }
    let lab = Lab::new();
    let address = V4.parse().unwrap();
    let pairs: Vec<(TcpStream, TcpStream)> = (0..COUNT).map(|_| lab.a.connect(address, Buffers::Fixed)).collect();
    let (near, far): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let began = Instant::now();
    let frozen: Vec<_> = far.into_iter().map(|far| Frozen::freeze(far).unwrap()).collect();
    let froze = began.elapsed();
    let restored: Vec<_> = lab.b.run(|| {
        let states = frozen.iter().map(|frozen| State::decode(&frozen.state().encode()).unwrap());
        states.map(|state| state.restore().unwrap()).collect()
    });
    let restored_at = began.elapsed();
    lab.a.remove(address);
    for frozen in frozen {
        frozen.discard().unwrap();
    }
    lab.b.add(address);
    let moved = began.elapsed();
    let live: Vec<_> = restored.into_iter().map(|restored| restored.release().unwrap()).collect();
    println!(
        "{COUNT} idle connections: frozen after {froze:?}, restored after {restored_at:?}, address moved after \
         {moved:?}, released after {:?}",
        began.elapsed()
    );
    for (near, live) in near.iter().zip(live) {
        assert!(live.waiting.is_empty());
        assert_eq!(live.stream.peer_addr().unwrap(), near.local_addr().unwrap());
        let (client, mut server) = (Client::start(near, 3, 3), Server::new(live.stream));
        server.pump(3, 3);
        client.join();
    }
}
