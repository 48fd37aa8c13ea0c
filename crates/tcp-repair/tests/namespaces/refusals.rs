//! Connections that stay, and states that are wrong.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener};

use proptest::prelude::*;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use watari_tcp_repair::{FreezeError, Frozen, RestoreError, State, TcpState};
use watari_test_origins::namespace::is_inside;

use crate::lab::{Buffers, Lab, V4, V6, until};
use crate::peer::{Client, Server};

const MIB: u64 = 1 << 20;

#[test]
fn a_thawed_connection_loses_nothing() {
    if !is_inside("refusals::a_thawed_connection_loses_nothing") {
        return;
    }
    let lab = Lab::new();
    let (near, far) = lab.a.connect(V6.parse().unwrap(), Buffers::Fixed);
    let client = Client::start(&near, 11 * MIB, 11 * MIB);
    let mut server = Server::new(far);
    for step in 1..=10 {
        server.pump(MIB * step, MIB * step);
        let mut frozen = Frozen::freeze(&server.stream).unwrap();
        assert_eq!((&server.stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::PermissionDenied);
        if step % 2 == 0 {
            frozen.thaw().unwrap();
            frozen = Frozen::freeze(&server.stream).unwrap();
        }
        drop(frozen);
    }
    server.pump(11 * MIB, 11 * MIB);
    client.join();
}

#[test]
fn a_discarded_connection_ends_silently() {
    if !is_inside("refusals::a_discarded_connection_ends_silently") {
        return;
    }
    let lab = Lab::new();
    let (mut near, mut far) = lab.a.connect(V4.parse().unwrap(), Buffers::Fixed);
    // Closing with unread bytes would be a RST.
    near.write_all(b"unread").unwrap();
    until("the bytes arrive", || far.peek(&mut [0; 9]).is_ok_and(|len| len == 6));
    let second = far.try_clone().unwrap();
    let counters = || ["OutSegs", "OutRsts"].map(|name| lab.a.counter("snmp", "Tcp:", name));
    let before = counters();
    Frozen::freeze(&far).unwrap().discard().unwrap();
    assert!(far.write(b"more").is_err());
    drop((far, second));
    assert_eq!(counters(), before);
    near.set_nonblocking(true).unwrap();
    assert_eq!(near.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_half_closed_connection_stays() {
    if !is_inside("refusals::a_half_closed_connection_stays") {
        return;
    }
    let lab = Lab::new();
    let state_of = |far: &_| match Frozen::freeze(far) {
        Ok(_) => TcpState::Established,
        Err(refused) => match refused.error {
            FreezeError::State(state) => state,
            error => panic!("{error}"),
        },
    };
    let (mut near, mut far) = lab.a.connect(V4.parse().unwrap(), Buffers::Fixed);
    near.shutdown(Shutdown::Write).unwrap();
    until("the FIN arrives", || state_of(&far) == TcpState::CloseWait);
    far.write_all(b"goes on").unwrap();
    let mut received = [0; 7];
    near.read_exact(&mut received).unwrap();
    assert_eq!(&received, b"goes on");
    let (_near, far) = lab.a.connect(V4.parse().unwrap(), Buffers::Fixed);
    far.shutdown(Shutdown::Write).unwrap();
    until("the FIN is acknowledged", || state_of(&far) == TcpState::FinWait2);
    let listener = lab.a.run(|| TcpListener::bind("127.0.0.1:0")).unwrap();
    let refused = Frozen::freeze(&listener).unwrap_err();
    let message = "cannot freeze the connection: it is in state LISTEN, and only ESTABLISHED ones move";
    assert_eq!(refused.to_string(), message);
}

#[test]
fn what_cannot_be_restored_goes_on_where_it_is() {
    if !is_inside("refusals::what_cannot_be_restored_goes_on_where_it_is") {
        return;
    }
    let lab = Lab::new();
    let (near, far) = lab.a.connect(V4.parse().unwrap(), Buffers::Fixed);
    let client = Client::start(&near, 3 * MIB, 3 * MIB);
    let mut server = Server::new(far);
    server.pump(MIB, MIB);
    lab.a.run(|| {
        let before = capabilities(None).unwrap();
        let mut without = before;
        without.effective.remove(CapabilitySet::NET_ADMIN);
        let frozen = Frozen::freeze(&server.stream).unwrap();
        set_capabilities(None, without).unwrap();
        assert!(matches!(frozen.state().restore(), Err(RestoreError::NotPermitted)));
        set_capabilities(None, before).unwrap();
        frozen.thaw().unwrap();
        set_capabilities(None, without).unwrap();
        let refused = Frozen::freeze(&server.stream).unwrap_err();
        assert!(matches!(refused.error, FreezeError::NotPermitted), "{refused}");
    });
    server.pump(2 * MIB, 2 * MIB);
    let frozen = Frozen::freeze(&server.stream).unwrap();
    assert!(matches!(lab.a.run(|| frozen.state().restore()), Err(RestoreError::Exists)));
    // Without a route to the client.
    lab.b.run(|| crate::lab::ip("link set eth0 down"));
    assert!(matches!(lab.b.run(|| frozen.state().restore()), Err(RestoreError::NoRoute(_))));
    lab.b.run(|| crate::lab::ip("link set eth0 up"));
    // Restored and dropped, it leaves no trace.
    let sent = lab.b.counter("snmp", "Tcp:", "OutSegs");
    drop(lab.b.run(|| frozen.state().restore()).unwrap());
    assert_eq!(lab.b.counter("snmp", "Tcp:", "OutSegs"), sent);
    drop(frozen);
    server.pump(3 * MIB, 3 * MIB);
    client.join();
}

/// The kernel survives each state that decoding accepts, and refuses it or makes a socket.
#[test]
fn changed_states_do_no_harm() {
    if !is_inside("refusals::changed_states_do_no_harm") {
        return;
    }
    let lab = Lab::new();
    let (mut near, far) = lab.a.connect(V4.parse().unwrap(), Buffers::Fixed);
    near.write_all(b"unread").unwrap();
    until("the bytes arrive", || far.peek(&mut [0; 9]).is_ok_and(|len| len == 6));
    let encoded = Frozen::freeze(&far).unwrap().state().encode();
    let (mut accepted, mut restored) = (0, 0);
    lab.b.run(|| {
        let changes = proptest::collection::vec((0..encoded.len(), any::<u8>()), 1..3);
        let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
        let mut runner = proptest::test_runner::TestRunner::new(config);
        let counts = std::cell::RefCell::new((&mut accepted, &mut restored));
        let outcome = runner.run(&changes, |changes| {
            let mut bytes = encoded.clone();
            for (at, value) in changes {
                bytes[at] = value;
            }
            let Ok(state) = State::decode(&bytes) else { return Ok(()) };
            *counts.borrow_mut().0 += 1;
            // A released one sends to the client, which has no such connection, or to no machine.
            if let Ok(mut live) = state.restore().map(|restored| restored.release().unwrap()) {
                *counts.borrow_mut().1 += 1;
                let _ = live.stream.write(b"more");
                let _ = live.stream.read(&mut [0; 100]);
            }
            Ok(())
        });
        outcome.unwrap();
    });
    println!("2000 changed states: {accepted} decoded, {restored} restored");
    assert!(restored > 20);
}
