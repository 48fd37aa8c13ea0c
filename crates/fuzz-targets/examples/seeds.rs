//! Writes the seeds of the corpora: the output of correct programs, with which the fuzzer begins.
//!
//! `cargo run --package watari-fuzz-targets --example seeds`, in the repository; then `scripts/fuzz minimise`.

use std::fs;
use std::io::{IoSlice, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion};
use watari_endings::Tally;
use watari_fuzz_targets::connections::pair;
use watari_fuzz_targets::http1::corpus;
use watari_packets::build::{Builder, Gre};
use watari_packets::capture_file::Writer;
use watari_packets::{Flags, Frame, LinkType, Segment, Timestamp};
use watari_record::CipherSuite;
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName, Role, SecretBytes, StayReason, TlsInfo};
use watari_watch::link::wire::{FromJudge, FromSensor, Taken, WireReport};
use watari_watch::report::Health;
use watari_wire::leg::{Kind, LegSigner, Preface};
use watari_wire::proxy::{Header, Tlv};
use watari_wire::{
    Aborted, Advert, AgentToAgent, AgentToDispatcher, AnchoredContent, AnchoredEnd, AnchoredId, AnchoredMessage,
    AnchoredState, Cancel, Decided, DispatcherToAgent, Established, Final, Freeze, Held, Hello, LeaseGranted,
    LeaseNumber, LeaseRefused, LeaseReturned, LeaseWanted, Leave, LegKey, LinkMessage, Member, Members, Message,
    OrderedPurge, Predecessor, Prepare, PrepareRefusal, PrepareRest, Prepared, Propose, PurgeNumber, PurgeScope,
    PurgesMessage, Refused, ResponsePart, ResponseRest, Rest, Ship, ShipInResponse, Stays, SwitchWanted,
    TakeoverMessage, Verdict, Yielded, frame,
};

fn main() {
    let states = CipherSuite::ALL.map(|suite| pair(suite, 5).0.fence().state().to_vec());
    write("record_import", &states);
    write("record_open", &records());
    write("frame", &frames());
    write("preface", &[preface()]);
    write("proxy", &proxy_headers());
    write("client_hello", &client_hellos());
    write("passed_name", &client_hellos().iter().map(|seed| seed[1..].to_vec()).collect::<Vec<_>>());
    write("cache", &CACHED.map(<[u8]>::to_vec));
    write("files", &paths());
    write("flow_answers", &[ANSWER.to_vec()]);
    write("http1_response", &RESPONSES.map(|response| [&[0, 30], response].concat()));
    write("http1_server", &requests());
    write("http1_client", &responses());
    write("lists", &[LIST.to_vec()]);
    write("frames", &captured_frames());
    write("capture_files", &capture_files());
    write("reports", &reports());
    write("continuation", &CONTINUATIONS.map(<[u8]>::to_vec));
}

/// A request, a response, and a response to its validation.
const CACHED: [&[u8]; 6] = [
    b"GET /a?b\nCache-Control: max-age=5\x00200\nCache-Control: max-age=60, private=\"x\"\nETag: \"a\"\n\
      Vary: accept\x00304\nETag: \"a\"\nCache-Control: no-cache=\"set-cookie\"\nSet-Cookie: a=b",
    b"GET /a\nRange: bytes=0-1,4-5\nIf-Range: \"a\"\x00206\nContent-Range: bytes 0-4/10\nETag: \"a\"\n\
      CDN-Cache-Control: max-age=60, foo=\"x\";y\x00200\nContent-Length: 10",
    b"GET /\nIf-None-Match: W/\"a\", \"b\"\x00200\nLast-Modified: Sun, 13 Sep 2020 12:26:40 GMT\nAge: 5, 6\n\
      Expires: 0\nCache-Groups: \"a\", \"b\";c=1\nxkey: a b\x00304",
    b"POST /a/b\x00201\nLocation: https://h.example/x/../y?z#f\nContent-Location: ../y\n\
      Cache-Group-Invalidation: \"a\"",
    b"GET /\nAuthorization: x\nPragma: no-cache\x00404\nCache-Control: s-maxage=60, must-understand, no-store\n\
      Connection: x, y\x00304\nLast-Modified: x",
    b"GET /\nRange: bytes=-5\x00200\nContent-Type: text/plain\nContent-Length: 10\x00304\nVary: *",
];

/// One with each way to mark the end of a body.
const RESPONSES: [&[u8]; 4] = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;a=b\r\nbody\r\n0\r\nTrailer: x\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbody",
    b"HTTP/1.0 304 Not Modified\r\nConnection: keep-alive\r\n\r\n",
];

/// Requests of the corpus of `watari_http1`, with the size of pieces before them. Each tenth is enough.
fn requests() -> Vec<Vec<u8>> {
    let next = corpus::NEXT;
    let contents = corpus::CONTENTS.iter().map(|(_, rest, _)| format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}{next}"));
    let requests = contents.chain(corpus::HEADS.iter().map(|(_, head, _)| format!("{head}{next}")));
    requests.step_by(10).map(|request| [&[30], request.as_bytes()].concat()).collect()
}

/// Responses, with the size of pieces and the method of the request before them.
fn responses() -> Vec<Vec<u8>> {
    let (responses, next) = (corpus::RESPONSES, corpus::FORGED);
    let responses = responses.iter().map(|(_, _, response, _)| format!("{response}{next}"));
    let prefixed = |(index, response): (usize, String)| [&[30, (index % 3) as u8], response.as_bytes()].concat();
    responses.step_by(5).enumerate().map(prefixed).collect()
}

/// Lines of a list, with every option, and of a log.
const LIST: &[u8] = br#"# source URI TLS
192.0.2.1 /index.html 0
2001:db8::7 https://www.example.com:8443/a?b 1 weight=3 class=large
- /form 1 method=POST header="Content-Type: text/plain" body=form.txt status=303
- /b 0 sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
192.0.2.7 - - [22/Nov/2026:14:05:59 +0900] "GET /index.html HTTP/1.1" 200 4096 "-" "curl"
"#;

/// Every step of the target's flow takes a value from this.
const ANSWER: &[u8] = b"location: /next?a=b#c\nset-cookie: c=1; Path=/; Max-Age=60\n\n{\"v\": [\"v=one two\"]}";

/// Choices, heads and bodies of a transfer that continues: with each proof, whole and in part.
const CONTINUATIONS: [&[u8]; 4] = [
    b"\x00\x04\x00\x06\x00\x03range: bytes=0-\nif-none-match: \"b\"\0content-length: 10\netag: \"a\"\n\
    accept-ranges: bytes\0content-range: bytes 2-9/10\ncontent-length: 8\netag: \"a\"\0\x02\x03\x04\x05rest",
    b"\x05\x04\x00\x06\x02\x03range: bytes=90-99\0content-length: 10\ncontent-range: bytes 90-99/1000\n\
    last-modified: Sun, 22 Nov 2026 11:59:00 GMT\ndate: Sun, 22 Nov 2026 12:00:00 GMT\0\0rest",
    b"\x06\x04\x02\x06\x00\x03\0content-length: 10\netag: W/\"a\"\0\0rest",
    b"\x04\x00\x00\x06\x00\x03\0content-length: 10\nvary: accept\ncontent-encoding: identity\n\
    repr-digest: sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:\0\0rest",
];

fn write(target: &str, seeds: &[Vec<u8>]) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    fs::create_dir_all(&corpus).expect("a directory");
    for (number, seed) in seeds.iter().enumerate() {
        fs::write(corpus.join(format!("seed-{number}")), seed).expect("a file");
    }
}

fn name(name: &str) -> NodeName {
    NodeName::new(name).expect("a name")
}

/// A data record in each suite; the target takes them as raw ones.
fn records() -> Vec<Vec<u8>> {
    let sealed = |(index, suite): (usize, CipherSuite)| {
        let mut record = Vec::new();
        pair(suite, 0).0.seal(&[IoSlice::new(b"data")], usize::MAX, &mut record).expect("a fresh key");
        let choice = u8::try_from(index).expect("few suites");
        [&[choice, 0, 1, 0, 0, 0, 0][..], &record].concat()
    };
    CipherSuite::ALL.into_iter().enumerate().map(sealed).collect()
}

fn messages() -> Vec<Message> {
    let connection = ConnectionId { boot: 7, number: 8 };
    let epoch = Epoch(1);
    let (target, digest, reason) = (name("b"), [3; 32], AbortReason::Timeout);
    let (client, server) = addresses();
    let tls = TlsInfo {
        version: 0x0304,
        suite: 0x1301,
        alpn: b"h2".to_vec(),
        server_name: Some("www.example.com".to_owned()),
        resumed: false,
    };
    let secret = |len| SecretBytes::new(vec![4; len]);
    let ship = Ship {
        connection,
        epoch,
        dispatcher: name("d"),
        handshake_node: name("a"),
        moves: 0,
        client,
        server,
        client_certificate: Some(vec![9; 20]),
        tls: tls.clone(),
        state: secret(100),
        opened: secret(3),
        rx_offset: 600,
        rest: secret(10),
        tail: vec![5; 8],
        tail_offset: 900,
    };
    let part = ResponsePart { request: secret(30), etag: b"\"v\"".to_vec(), first: 10, last: 99, complete_len: 100 };
    let anchored = ResponseRest::Anchored(AnchoredState {
        anchor: name("a"),
        id: AnchoredId(7),
        received: 9,
        acknowledged: 3,
        unacknowledged: SecretBytes::new(vec![3; 4]),
        is_ended: false,
    });
    let data = |content| {
        Message::from(AgentToAgent::Anchored(AnchoredMessage { id: AnchoredId(7), to: AnchoredEnd::Owner, content }))
    };
    let prepare =
        Prepare { connection, number: 1, client, server, client_certificate: None, rest: PrepareRest::Part(part) };
    let purge_id = PurgeNumber { incarnation: 7, number: 300 };
    let scopes = [PurgeScope::Everything, PurgeScope::Url("h/p?q".to_owned()), PurgeScope::HostGroup("h g".to_owned())];
    let purges = scopes.map(|scope| OrderedPurge { id: purge_id, scope }).into();
    vec![
        Message::from(AgentToDispatcher::LegKey(LegKey { id: 1, key: secret(32), handshakes: true })),
        Message::from(AgentToDispatcher::Established(Established { connection, tls })),
        Message::from(AgentToDispatcher::Propose(Propose {
            connection,
            epoch,
            target: target.clone(),
            rx_offset: 600,
            tail_offset: 900,
            digest,
        })),
        Message::from(DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset: 700 })),
        Message::from(AgentToAgent::Ship(Box::new(ship.clone()))),
        Message::from(AgentToAgent::Prepare(Box::new(prepare))),
        Message::from(AgentToAgent::Prepared(Prepared { connection, number: 1, refused: Some(PrepareRefusal::Full) })),
        Message::from(AgentToAgent::ShipInResponse(Box::new(in_response(ship.clone(), ResponseRest::End)))),
        Message::from(AgentToAgent::ShipInResponse(Box::new(in_response(
            ship.clone(),
            ResponseRest::Prepared { skip: 7 },
        )))),
        Message::from(AgentToAgent::ShipInResponse(Box::new(in_response(ship, anchored)))),
        data(AnchoredContent::Attach { epoch: Epoch(2), received: 5 }),
        data(AnchoredContent::Data { offset: 5, bytes: SecretBytes::new(vec![4; 3]), is_last: true }),
        data(AnchoredContent::Progress { received: 5, consumed: 4, is_question: true, is_answer: false }),
        data(AnchoredContent::Reset),
        Message::from(AgentToAgent::Rest(Rest { connection, epoch, from_offset: 600, bytes: vec![6; 30] })),
        Message::from(AgentToDispatcher::Held(Held { connection, epoch, rx_offset: 700, tail_offset: 900, digest })),
        Message::from(AgentToDispatcher::Refused(Refused { connection, epoch, reason })),
        Message::from(AgentToDispatcher::Cancel(Cancel { connection, epoch, reason })),
        Message::from(DispatcherToAgent::Committed(Decided { connection, epoch })),
        Message::from(DispatcherToAgent::Aborted(Aborted { connection, epoch, reason })),
        Message::from(DispatcherToAgent::Gone(connection)),
        Message::from(AgentToDispatcher::Final(Final { connection, epoch, tx_offset: 1000 })),
        Message::from(DispatcherToAgent::Leave(Leave { connection, target: Some(target), or_end: true })),
        Message::from(AgentToDispatcher::Stays(Stays { connection, reason: StayReason::Http2 })),
        Message::from(AgentToDispatcher::Tunnel(connection)),
        Message::from(AgentToAgent::Purges(PurgesMessage { generation: 1, folded: vec![purge_id], purges })),
        Message::from(AgentToDispatcher::Draining),
    ]
    .into_iter()
    .chain(takeover_messages().map(Message::from))
    .collect()
}

fn takeover_messages() -> [TakeoverMessage; 7] {
    let (address, lease) = ("192.0.2.1".parse().expect("an address"), LeaseNumber { incarnation: 7, round: 300 });
    let (after, holder) = (Some(Predecessor { node: name("d"), lease }), Some(name("d")));
    let voters = vec![name("d"), name("e"), name("a")];
    [
        TakeoverMessage::LeaseWanted(LeaseWanted { address, lease, lease_ms: 600, inquiry: false, after }),
        TakeoverMessage::LeaseReturned(LeaseReturned { address, lease }),
        TakeoverMessage::LeaseGranted(LeaseGranted { address, lease }),
        TakeoverMessage::LeaseRefused(LeaseRefused { address, lease, holder, remaining_ms: 300 }),
        TakeoverMessage::Advert(Advert {
            address,
            is_owner: true,
            priority: 100,
            by_order: false,
            lease_ms: 600,
            voters,
        }),
        TakeoverMessage::SwitchWanted(SwitchWanted { address, to: name("e"), priority: 100, by_order: true }),
        TakeoverMessage::Yielded(Yielded { address, lease, by_order: false }),
    ]
}

fn in_response(ship: Ship, rest: ResponseRest) -> ShipInResponse {
    let (unwritten, pending) = (SecretBytes::new(vec![2; 5]), SecretBytes::new(vec![3; 9]));
    ShipInResponse { ship, number: 1, http: vec![1; 27], unwritten, pending, rest }
}

/// A member, an evicted node, and a node that was admitted again.
fn members() -> Members {
    let (mesh, legs) = addresses();
    let member = Member { name: name("a"), since: 1_700_000_000, mesh, legs: Some(legs), unlinked_s: 3 };
    let verdict = |node, evicted, keys_by| Verdict { name: name(node), at: 1_700_000_000, evicted, keys_by };
    Members { verdicts: vec![verdict("b", true, Some(name("a"))), verdict("c", false, None)], members: vec![member] }
}

/// Every message, and a link that carries several.
fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for message in messages() {
        let mut bytes = Vec::new();
        frame::encode(&message, &mut bytes).expect("a message within its bounds");
        frames.push(bytes);
    }
    let hello = LinkMessage::Hello(Hello::new(name("a"), &Role::ALL.into(), 7));
    let unsupported = LinkMessage::Unsupported { version: 2, kind: 40 };
    for message in [hello, LinkMessage::Ping, LinkMessage::Pong, unsupported, LinkMessage::Members(members())] {
        let mut bytes = Vec::new();
        frame::encode_link(&message, &mut bytes);
        frames.push(bytes);
    }
    frames.push(frames.concat());
    frames
}

fn addresses() -> (SocketAddr, SocketAddr) {
    (([192, 0, 2, 1], 50_000).into(), ([192, 0, 2, 2], 443).into())
}

/// The target makes its own prefaces. This one is for its raw bytes, which come after the other fields.
fn preface() -> Vec<u8> {
    let key = LegKey { id: 7, key: SecretBytes::new(vec![1; 32]), handshakes: true };
    let (client, server) = addresses();
    let kind = Kind::Commit { rx_offset: 600, tail_offset: 900 };
    let preface = Preface { kind, connection: ConnectionId { boot: 7, number: 8 }, epoch: Epoch(1), client, server };
    let signed = LegSigner::new(name("d"), &name("a"), &key).sign(&preface);
    [&[0; 80][..], &signed].concat()
}

fn proxy_headers() -> Vec<Vec<u8>> {
    let (client, server) = addresses();
    let v6 = |address: SocketAddr| SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port());
    let tlvs = vec![Tlv { kind: 0xe5, value: vec![1; 40] }, Tlv { kind: 4, value: Vec::new() }];
    let headers = [
        Header::Local,
        Header::Unspecified,
        Header::Tcp { client, server, tlvs },
        Header::Tcp { client: v6(client), server: v6(server), tlvs: Vec::new() },
    ];
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for header in headers {
        let mut bytes = Vec::new();
        header.encode(&mut bytes).expect("a short header");
        seeds.push(bytes);
    }
    for line in ["UNKNOWN", "TCP4 192.0.2.1 192.0.2.2 50000 443", "TCP6 ::1 2001:db8::1 50000 443"] {
        seeds.push(format!("PROXY {line}\r\nbehind").into_bytes());
    }
    seeds
}

/// The first bytes of rustls' client.
fn client_hellos() -> Vec<Vec<u8>> {
    let hello = |versions: &[&'static SupportedProtocolVersion], alpn: &[&[u8]]| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).expect("versions");
        let mut config = builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
        let name = "www.example.com".try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::new(config), name).expect("a client");
        let mut bytes = vec![0];
        client.write_tls(&mut bytes).expect("memory takes everything");
        bytes
    };
    vec![
        hello(&[&rustls::version::TLS12], &[]),
        hello(&[&rustls::version::TLS13], &[b"h2", b"http/1.1"]),
        hello(rustls::ALL_VERSIONS, &[b"http/1.1"]),
        b"\0GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0, 0x80, 0x2e, 1, 3, 1, 0, 0x15, 0, 0, 0, 0x10],
    ]
}

fn paths() -> Vec<Vec<u8>> {
    let asked = |rest: &str| [&[0, 0, 0, 0, 0][..], rest.as_bytes()].concat();
    ["/a/../../f", "/%2e%2e/f", "/a/.b/f", "/.well-known/x", "/l", "bytes=0-9", "bytes=-5,10-", "\"etag\""]
        .map(asked)
        .to_vec()
}

/// Messages of sensors and judges, alone and in sequence.
fn reports() -> Vec<Vec<u8>> {
    let (server, _) = addresses();
    let tally = Tally { opened: 9, s_normal: 5, client_abort: 3, timeout: 1, answered: 8, ..Tally::default() };
    let at = Timestamp(1_800_000_000_000_000_000);
    let tallies = vec![(server, 1_799_999_999, tally), (server, 1_800_000_000, tally)];
    let report = Box::new(WireReport::of(1, at, &Health::default(), &tallies));
    let taken = Taken { number: 7, reported: 20, missed: 3 };
    let sensor = [
        FromSensor::Hello { run: 1, taken },
        FromSensor::Report { number: 8, before: 20, report },
        FromSensor::Beat { clock_offset_ns: Some(-5) },
    ];
    let judge = [
        FromJudge::Welcome { run: 1, taken },
        FromJudge::Refused { why: "no room".to_owned() },
        FromJudge::Taken(taken),
        FromJudge::Beat { at_ns: 5 },
    ];
    let sensor = sensor.map(|message| watari_link::encode(&message).expect("a short message"));
    let mut seeds = judge.map(|message| watari_link::encode(&message).expect("a short message")).to_vec();
    seeds.push(sensor.concat());
    seeds.extend(sensor);
    seeds
}

fn captured_segment() -> Segment<'static> {
    let (source, destination) = addresses();
    let (time, flags) = (Timestamp(1_800_000_000_000_000_000), Flags::PSH.with(Flags::ACK));
    let (sequence, acknowledgment, window) = (1000, 2000, 500);
    Segment { time, source, destination, sequence, acknowledgment, flags, window, len: 4, data: b"data" }
}

/// Frames of each link layer and tunnel, after the bytes of the target's other input.
fn captured_frames() -> Vec<Vec<u8>> {
    let segment = captured_segment();
    let (source, destination) = (segment.source.ip(), segment.destination.ip());
    let v6 = std::net::Ipv6Addr::LOCALHOST.into();
    let packet = || Builder::tcp(&segment, &[1; 12]).ip(source, destination);
    let packet_v6 = || Builder::tcp(&segment, &[]).extension(60, 1).extension(0, 1).ip(v6, v6);
    let gre = Gre { checksum: true, key: Some(7), sequence: Some(8) };
    let frames = [
        (LinkType::ETHERNET, packet().vlan(0x8100).vlan(0x88a8).ethernet()),
        (LinkType::ETHERNET, packet().ethernet().vxlan(4789).ip(source, destination).ethernet()),
        (LinkType::ETHERNET, packet_v6().ethernet().gre(gre).ip(v6, v6).ethernet()),
        (LinkType::ETHERNET, packet().ethernet().geneve(8).ip(source, destination).mpls(&[16, 17]).ethernet()),
        (LinkType::ETHERNET, packet().ethernet().erspan(true).ip(source, destination).pppoe().ethernet()),
        (LinkType::RAW, packet_v6().gre(gre).ip(source, destination)),
        (LinkType::IPV4, packet().ip(source, destination).ip(source, destination)),
        (LinkType::IPV6, packet_v6().ip(v6, v6)),
        (LinkType::NULL, packet().loopback()),
        (LinkType::LINUX_SLL, packet().cooked()),
        (LinkType::LINUX_SLL2, packet_v6().cooked_2()),
    ];
    let choice = |link| LinkType::ALL.iter().position(|known| *known == link).expect("a known one") as u8;
    frames.map(|(link, built)| [&[choice(link), 0, 0, 1][..], &built.finish()].concat()).to_vec()
}

/// pcap, the same with gzip, and pcapng, after the byte of the target's other input.
fn capture_files() -> Vec<Vec<u8>> {
    let frames = captured_frames();
    let mut writer = Writer::new(Vec::new(), LinkType::ETHERNET, 96).expect("memory takes everything");
    for data in frames[..3].iter().map(|seed| &seed[4..]) {
        let frame = Frame { time: captured_segment().time, link: LinkType::ETHERNET, len: data.len() as u32, data };
        writer.write(&frame).expect("memory takes everything");
    }
    let pcap = writer.into_inner();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&pcap).expect("memory takes everything");
    let packed = encoder.finish().expect("memory takes everything");
    [pcap, packed, pcapng()].map(|file| [&[100][..], &file].concat()).to_vec()
}

/// Section, interface with its clock, a frame of each kind, statistics (`draft-ietf-opsawg-pcapng`, section 4).
fn pcapng() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &len, body, &len].concat()
    };
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let clock = words(&[0x0001_0009, 9, 0x0008_000e, 5, 0, 0]);
    [
        block(0x0a0d_0d0a, &words(&[0x1a2b_3c4d, 1, u32::MAX, u32::MAX])),
        block(1, &[words(&[1, 96]), clock].concat()),
        block(6, &[&words(&[0, 0x18fa_e27a, 7, 5, 5])[..], b"frame\0\0\0", &words(&[0])].concat()),
        block(3, &[&words(&[4])[..], b"data"].concat()),
        block(2, &[&words(&[0, 0, 8, 4, 90])[..], b"data"].concat()),
        block(5, &[0; 12]),
    ]
    .concat()
}
