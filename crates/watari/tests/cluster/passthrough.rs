//! Names that go to a backend unopened, beside the site that the agents serve.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use socket2::SockRef;
use watari_test_origins::LoopbackAddresses;
use watari_wire::proxy::{self, Header};

use crate::clients::http::Http;
use crate::clients::raw::listen;
use crate::clients::tls::{Taste, Tls, dial, hello, reset};
use crate::harness::pattern::pattern;
use crate::harness::wait::{WAIT_MAX, until};
use crate::harness::{Cluster, Plan};

const REFUSED: &str = "watari_dispatcher_connections_refused_total";

/// A backend's listener, which accepts with a timeout. It has an address of its own, so that no other process takes the
/// port when the backend has ended.
fn backend() -> TcpListener {
    let backend = TcpListener::bind((LoopbackAddresses::draw().take().ip(), 0)).unwrap();
    SockRef::from(&backend).set_read_timeout(Some(WAIT_MAX)).unwrap();
    backend
}

fn start(backend: &TcpListener) -> Cluster {
    start_with(backend, "")
}

fn start_with(backend: &TcpListener, dispatcher_limits: &'static str) -> Cluster {
    Cluster::start(&Plan { backend: Some(backend.local_addr().unwrap()), dispatcher_limits, ..Plan::default() })
}

/// The first flight of a client with the server name `name`, in records of at most `fragment_len` bytes.
fn fragmented_hello(name: &str, fragment_len: usize) -> Vec<u8> {
    let flight = hello(name, &Taste::default());
    let fragments = flight[5..].chunks(fragment_len);
    fragments.flat_map(|part| [&[22, 3, 1, (part.len() >> 8) as u8, part.len() as u8], part].concat()).collect()
}

/// Accepts one connection and reads all its data. Then sends `answer`, and closes.
fn answer_one(backend: &TcpListener, answer: Vec<u8>) -> JoinHandle<(Header, Vec<u8>)> {
    let backend = backend.try_clone().unwrap();
    thread::spawn(move || {
        let mut stream = backend.accept().unwrap().0;
        stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&answer).unwrap();
        let (header, len) = proxy::parse(&received, usize::MAX).unwrap().expect("it begins with a header");
        (header, received.split_off(len))
    })
}

fn connect(cluster: &Cluster) -> (SocketAddr, TcpStream) {
    let stream = dial(cluster.clients.any(), cluster.service).unwrap();
    (stream.local_addr().unwrap(), stream)
}

/// The dispatcher is upgraded while the client sends, and while it does not read the response.
#[test]
fn a_connection_goes_on_in_a_new_process() {
    let backend = backend();
    let cluster = start(&backend);
    let (up, down) = (pattern(1, 0..3_000_000), pattern(2, 0..30_000_000));
    let served = answer_one(&backend, down.clone());
    let (_, mut client) = connect(&cluster);
    let hello = fragmented_hello("raw.test", 16_000);
    client.write_all(&hello).unwrap();
    let (first, second) = up.split_at(1_000_001);
    client.write_all(first).unwrap();
    cluster.dispatcher().upgrade(None).unwrap();
    client.write_all(second).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    // The response has begun, and is longer than all buffers on its way.
    client.peek(&mut [0]).unwrap();
    cluster.dispatcher().upgrade(None).unwrap();
    assert!(listen(&mut client) == down);
    assert!(served.join().unwrap().1 == [hello, up].concat());
    cluster.wait_until_idle();
}

#[test]
fn a_name_goes_to_its_backend_byte_by_byte() {
    let backend = backend();
    let cluster = start(&backend);
    // In one record, in many records, and in segments of a few bytes each.
    for (name, fragment_len, segment_len) in
        [("raw.test", 16_000, usize::MAX), ("db.raw.test", 100, usize::MAX), ("RAW.test", 300, 97)]
    {
        let (up, down) = (pattern(1, 0..3_000_000), pattern(2, 0..3_000_000));
        let served = answer_one(&backend, down.clone());
        let (address, mut client) = connect(&cluster);
        let hello = fragmented_hello(name, fragment_len);
        for segment in hello.chunks(segment_len.min(hello.len())) {
            client.write_all(segment).unwrap();
        }
        client.write_all(&up).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert!(listen(&mut client) == down, "{name}");
        let (header, received) = served.join().unwrap();
        assert_eq!(header, Header::Tcp { client: address, server: cluster.service, tlvs: Vec::new() });
        assert!(received == [hello, up].concat(), "{name}");
    }
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_passed_through_total", ""), 3);
    cluster.wait_until_idle();
}

/// Every byte counts once. Most bytes of long streams never enter the dispatcher's process.
#[test]
fn long_streams_are_spliced() {
    let backend = backend();
    let cluster = start(&backend);
    let (up, down) = (pattern(1, 0..20_000_000), pattern(2, 0..20_000_000));
    let served = answer_one(&backend, down.clone());
    let (_, mut client) = connect(&cluster);
    let sent = [fragmented_hello("raw.test", 16_000), up].concat();
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert!(listen(&mut client) == down);
    assert!(served.join().unwrap().1 == sent);
    cluster.wait_until_idle();
    let count = |name: &str| cluster.dispatcher().count(&format!("watari_dispatcher_{name}_total"), "");
    let relayed = (count("bytes_to_backends"), count("bytes_to_clients"));
    assert_eq!(relayed, (sent.len().cast_signed() as i64, down.len().cast_signed() as i64));
    assert_eq!(count("bytes_to_agents"), 0);
    let spliced = count("bytes_spliced");
    assert!(2 * spliced > relayed.0 + relayed.1, "of {relayed:?} bytes {spliced} went by splice");
}

#[test]
fn all_other_names_are_the_agents() {
    let backend = backend();
    let cluster = start(&backend);
    for address in cluster.clients.two_of_each_agent() {
        let mut client = Http::new(Tls::to_site(address, cluster.service, &Taste::default()).unwrap());
        client.download(1_000_000, 1).unwrap();
        client.upload(&pattern(1, 0..100_000)).unwrap();
        cluster.connection_of(address);
    }
    // An agent still answers connections that are not TLS.
    let (_, mut client) = connect(&cluster);
    client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    until("an agent has refused it", || cluster.count_on_agents("watari_agent_handshakes_failed_total", "") == 1);
    for name in ["a.b.raw.test", "test"] {
        let (_, mut client) = connect(&cluster);
        client.write_all(&fragmented_hello(name, 500)).unwrap();
    }
    until("agents have refused them", || cluster.count_on_agents("watari_agent_handshakes_failed_total", "") == 3);
    assert_eq!(cluster.dispatcher().count("watari_dispatcher_passed_through_total", ""), 0);
}

/// Neither end takes a stream that was cut for complete.
#[test]
fn a_reset_goes_through_both_ways() {
    let backend = backend();
    let cluster = start(&backend);
    let meet = || {
        let (_, mut client) = connect(&cluster);
        client.write_all(&fragmented_hello("raw.test", 500)).unwrap();
        let mut served = backend.accept().unwrap().0;
        served.set_read_timeout(Some(WAIT_MAX)).unwrap();
        served.read_exact(&mut [0; 20]).unwrap();
        (client, served)
    };
    let (mut client, served) = meet();
    reset(&served);
    drop(served);
    assert!(client.read(&mut [0]).is_err());

    let (client, mut served) = meet();
    reset(&client);
    drop(client);
    assert!(served.read_to_end(&mut Vec::new()).is_err());
    cluster.wait_until_idle();
}

#[test]
fn a_client_without_a_name_or_backend_is_reset() {
    let listener = backend();
    let cluster = start_with(&listener, "handshake_timeout = \"300ms\"\nidle_timeout = \"400ms\"");
    let (_, mut silent) = connect(&cluster);
    silent.write_all(&fragmented_hello("raw.test", 500)[..100]).unwrap();
    assert!(listen(&mut silent).is_empty());
    assert_eq!(cluster.dispatcher().count(REFUSED, "hello_slow"), 1);

    // Connected, then silent on both sides.
    let (_, mut idle) = connect(&cluster);
    idle.write_all(&fragmented_hello("raw.test", 500)).unwrap();
    assert!(idle.read(&mut [0]).is_err());

    // Another test may start a process at this moment, which has a copy of the listener until it runs its program.
    drop(listener);
    until("it is counted", || {
        let (_, mut lost) = connect(&cluster);
        lost.write_all(&fragmented_hello("raw.test", 500)).unwrap();
        assert!(listen(&mut lost).is_empty());
        cluster.dispatcher().count(REFUSED, "no_backend") == 1
    });
}

/// Connections that are passed through already stay at their backend.
#[test]
fn rules_change_at_a_reload() {
    let (backend, other) = (backend(), backend());
    let cluster = start(&backend);
    let dispatcher = cluster.dispatcher();
    let meet = |backend: &TcpListener| {
        let (_, mut client) = connect(&cluster);
        client.write_all(&fragmented_hello("raw.test", 500)).unwrap();
        let mut served = backend.accept().unwrap().0;
        served.set_read_timeout(Some(WAIT_MAX)).unwrap();
        served.read_exact(&mut [0; 20]).unwrap();
        (client, served)
    };
    let talk = |(client, served): &mut (TcpStream, TcpStream)| {
        served.write_all(b"still here").unwrap();
        let mut echoed = [0; 10];
        client.read_exact(&mut echoed).unwrap();
        assert_eq!(&echoed, b"still here");
    };
    let mut first = meet(&backend);
    let [before, after] = [&backend, &other].map(|backend| backend.local_addr().unwrap().to_string());
    dispatcher.reconfigure(|text| text.replace(&before, &after));
    let mut second = meet(&other);
    talk(&mut first);

    dispatcher.reconfigure(|text| text.replace("\"raw.test\", ", ""));
    let (_, mut third) = connect(&cluster);
    third.write_all(&fragmented_hello("raw.test", 500)).unwrap();
    until("an agent has refused it", || cluster.count_on_agents("watari_agent_handshakes_failed_total", "") == 1);
    talk(&mut first);
    talk(&mut second);
}
