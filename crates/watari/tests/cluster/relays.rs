//! Relays that bring clients, and name them in a PROXY protocol header.

use std::fs;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};

use watari_wire::proxy::{Header, Tlv};

use crate::clients::curl::{Curl, Manner};
use crate::clients::http::Http;
use crate::clients::raw::listen;
use crate::clients::tls::{Taste, Tls, dial};
use crate::harness::ctl;
use crate::harness::pattern::pattern;
use crate::harness::site::SITE;
use crate::harness::wait::until;
use crate::harness::{Cluster, Plan};

/// Clients of the harness may be relays, 127.0.0.1 may not.
const RELAYS: Option<&str> = Some("127.1.0.0/16");
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const REFUSED: &str = "watari_dispatcher_connections_refused_total";

fn start(dispatcher_limits: &'static str) -> Cluster {
    Cluster::start(&Plan { relays: RELAYS, dispatcher_limits, ..Plan::default() })
}

fn header(client: &str, server: &str) -> Vec<u8> {
    let tlvs = vec![Tlv { kind: 0x02, value: b"site.test".to_vec() }, Tlv { kind: 0xee, value: vec![7; 500] }];
    encoded(&Header::Tcp { client: client.parse().unwrap(), server: server.parse().unwrap(), tlvs })
}

fn encoded(header: &Header) -> Vec<u8> {
    let mut bytes = Vec::new();
    header.encode(&mut bytes).unwrap();
    bytes
}

/// Connects as a relay, sends `header`, and continues as the client.
fn relayed(relay: IpAddr, service: SocketAddr, header: &[u8]) -> io::Result<Http<Tls>> {
    let mut tcp = dial(relay, service)?;
    tcp.write_all(header)?;
    Ok(Http::new(Tls::connect(tcp, Taste::default().config(), SITE, |_| {})?))
}

#[test]
fn curl_sends_its_address_by_the_proxy_protocol() {
    let cluster = start("");
    let (ca, dir) = (cluster.site_ca(), cluster.dir());
    let [v4, v6] = cluster.for_relays;
    for (source, service) in [(cluster.clients.any(), v4), ("::1".parse().unwrap(), v6)] {
        for manner in Manner::all().into_iter().step_by(3) {
            let curl = Curl { manner, source, service, ca: &ca, dir };
            let answer = curl.run("/bytes/1000000?3", &["--haproxy-protocol"]);
            assert!(answer.status == 200 && answer.body == pattern(3, 0..1_000_000), "{manner:?} from {source}");
        }
    }
    assert_eq!(cluster.dispatcher().count(REFUSED, ""), 0);
}

/// A relay that has sent a part of its header goes on in a new process, and keeps no process of before alive.
#[test]
fn a_header_may_come_to_two_processes() {
    let cluster = start("proxy_header_timeout = \"50s\"");
    let header = header("192.0.2.77:1234", "198.51.100.1:443");
    let (first, second) = header.split_at(20);
    let mut tcp = dial(cluster.clients.any(), cluster.for_relays[0]).unwrap();
    tcp.write_all(first).unwrap();
    until("the dispatcher has the connection", || cluster.dispatcher().count("watari_dispatcher_connections", "") == 1);
    cluster.dispatcher().upgrade(None).unwrap();
    tcp.write_all(second).unwrap();
    let mut client = Http::new(Tls::connect(tcp, Taste::default().config(), SITE, |_| {}).unwrap());
    client.download(100_000, 1).unwrap();
    let known = cluster.connections().into_iter().map(|connection| connection.client.to_string());
    assert_eq!(known.collect::<Vec<_>>(), ["192.0.2.77:1234"]);
}

#[test]
fn the_client_address_is_that_of_the_proxy_header() {
    let cluster = start("");
    let [v4, v6] = cluster.for_relays;
    let line = b"PROXY TCP6 2001:db8::5 2001:db8::6 5000 443\r\n";
    let cases = [
        (v4, header("192.0.2.77:1234", "198.51.100.1:443"), "192.0.2.77:1234"),
        (v4, line.to_vec(), "[2001:db8::5]:5000"),
        (v6, header("[2001:db8::7]:4321", "[2001:db8::8]:443"), "[2001:db8::7]:4321"),
        (v6, header("192.0.2.78:99", "198.51.100.1:443"), "192.0.2.78:99"),
    ];
    for (service, header, expected) in cases {
        let relay = if service.is_ipv6() { "::1".parse().unwrap() } else { cluster.clients.any() };
        let mut client = relayed(relay, service, &header).unwrap();
        client.download(100_000, 1).unwrap();
        let expected: SocketAddr = expected.parse().unwrap();
        assert_eq!(cluster.connection_of(expected.ip()).client, expected);
        let fields = client.get_text("/headers", "").unwrap();
        assert!(fields.contains(&expected.ip().to_string()), "the origin is told: {fields}");
    }
}

/// A relay that sends a health check, or does not have the client's address, counts as the client itself.
#[test]
fn a_relay_may_speak_for_itself() {
    let cluster = start("");
    for header in [encoded(&Header::Local), encoded(&Header::Unspecified), b"PROXY UNKNOWN\r\n".to_vec()] {
        let relay = cluster.clients.any();
        let mut client = relayed(relay, cluster.for_relays[0], &header).unwrap();
        client.download(1000, 1).unwrap();
        assert_eq!(cluster.connection_of(relay).client, client.stream.tcp().local_addr().unwrap());
    }
}

/// The limit is for clients, not for relays. A listener without the protocol does not accept a header.
#[test]
fn limits_count_the_real_client() {
    let cluster = start("connections_per_client_max = 2");
    let service = cluster.for_relays[0];
    let relay = cluster.clients.any();
    let header_of = |last: u8, port: u16| header(&format!("192.0.2.{last}:{port}"), "198.51.100.1:443");
    let connect = |last: u8, port: u16| relayed(relay, service, &header_of(last, port));
    let mut clients = [connect(1, 1), connect(1, 2), connect(2, 1), connect(3, 1)].map(Result::unwrap);
    assert!(connect(1, 3).is_err());
    assert_eq!(cluster.dispatcher().count(REFUSED, "client_full"), 1);
    for client in &mut clients {
        client.download(1000, 1).unwrap();
    }
    assert!(relayed(relay, cluster.service, &header_of(4, 1)).is_err());
}

#[test]
fn a_peer_that_is_no_relay_or_sends_a_bad_header_is_reset() {
    let cluster = start("proxy_header_timeout = \"500ms\"");
    let service = cluster.for_relays[0];
    let signature = b"\r\n\r\n\0\r\nQUIT\n";
    let long = [&signature[..], &[0x21, 0x11, 0xff, 0xff], &[0; 3000]].concat();
    let cases: [(&[u8], &str); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", "no PROXY protocol header"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "no PROXY protocol header"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 99999 443\r\n", "a PROXY protocol line that is malformed"),
        (&[b"PROXY ".as_slice(), &[b'x'; 200]].concat(), "where 107 are allowed"),
        (&long, "where 2048 are allowed"),
        (&[&signature[..], &[0x21, 0x12, 0, 12], &[0; 12]].concat(), "which is not TCP"),
    ];
    for (at, (bytes, sentence)) in (1..).zip(cases) {
        let mut relay = dial(cluster.clients.any(), service).unwrap();
        let _ = relay.write_all(bytes);
        check_refused(&cluster, &mut relay, "proxy_header", at);
        until("it is logged", || cluster.dispatcher().log().contains(sentence));
    }
    let mut silent = dial(cluster.clients.any(), service).unwrap();
    silent.write_all(&header("192.0.2.1:1", "192.0.2.2:2")[..20]).unwrap();
    check_refused(&cluster, &mut silent, "proxy_header_slow", 1);

    // The dispatcher does not read the header, and may reset the connection before the relay sends it.
    assert!(relayed(STRANGER, service, &header("192.0.2.1:1", "192.0.2.2:2")).is_err());
    until("it is counted", || cluster.dispatcher().count(REFUSED, "proxy_from") == 1);
    cluster.wait_until_idle();
}

fn check_refused(cluster: &Cluster, stream: &mut TcpStream, reason: &str, count: i64) {
    assert!(listen(stream).is_empty());
    until("it is counted", || cluster.dispatcher().count(REFUSED, reason) == count);
}

#[test]
fn listeners_for_relays_come_and_go_at_a_reload() {
    let cluster = Cluster::start(&Plan::default());
    let (dispatcher, [service, _]) = (cluster.dispatcher(), cluster.for_relays);
    let header = header("192.0.2.77:1234", "198.51.100.1:443");
    let relay = || relayed(cluster.clients.any(), service, &header);
    let is_closed = || TcpStream::connect(service).unwrap_err().kind() == io::ErrorKind::ConnectionRefused;
    let usual = fs::read_to_string(dispatcher.config()).unwrap();
    let proxy = |from: &str| {
        let lines = format!("[dispatcher]\nlisten_proxy = [\"{service}\"]\nproxy_from = [\"{from}\"]\n");
        usual.replace("[dispatcher]\n", &lines)
    };
    assert!(is_closed());
    for _ in 0..2 {
        dispatcher.reconfigure(|_| proxy("127.1.0.0/16"));
        let mut client = relay().unwrap();
        client.download(1000, 1).unwrap();
        dispatcher.reconfigure(|_| proxy("10.0.0.0/8"));
        assert!(relay().is_err(), "it is none of those that may");
        dispatcher.reconfigure(|_| usual.clone());
        assert!(is_closed());
        client.download(1000, 2).unwrap();
    }

    // The clients' address cannot become one for relays in the same reload. Then nothing changes.
    let clients = cluster.service;
    dispatcher.configure(|_| {
        let moved = usual.replace(&format!("\"{clients}\", "), "");
        assert_ne!(moved, usual);
        let lines = format!("[dispatcher]\nlisten_proxy = [\"{clients}\"]\nproxy_from = [\"10.0.0.0/8\"]\n");
        moved.replace("[dispatcher]\n", &lines)
    });
    let refused = ctl::reload(&dispatcher.admin()).unwrap_err();
    let expected = format!("cannot listen on {clients} for relays of clients: Address already in use");
    assert!(refused.contains(&expected), "{refused}");
    Http::new(Tls::to_site(cluster.clients.any(), clients, &Taste::default()).unwrap()).download(1000, 3).unwrap();
}
