#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use watari_values::{AbortReason, ConnectionId, Epoch, NodeName, Role, SecretBytes, SessionKey};

use super::*;
use crate::*;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode(message, &mut out).unwrap();
    out
}

fn frame(version: u8, kind: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len() + 2).unwrap();
    [&len.to_be_bytes()[..], &[version, kind], body].concat()
}

proptest! {
    #[test]
    fn messages_come_back(messages in vec(arbitrary::message(), 1..8)) {
        let mut batch = Vec::new();
        for message in &messages {
            let before = batch.len();
            encode(message, &mut batch).unwrap();
            prop_assert_eq!(batch.len() - before, encoded_len(message));
        }
        let mut rest = &batch[..];
        for message in messages {
            let (frame, len) = decode(rest).unwrap().unwrap();
            prop_assert_eq!(frame, Frame::Message(message));
            rest = &rest[len..];
        }
        prop_assert!(rest.is_empty());
    }

    #[test]
    fn every_prefix_of_a_frame_waits_for_more(message in arbitrary::message()) {
        let whole = encoded(&message);
        for len in 0..whole.len() {
            prop_assert_eq!(decode(&whole[..len]), Ok(None));
        }
    }

    #[test]
    fn a_truncated_body_is_refused(message in arbitrary::message(), cut in any::<prop::sample::Index>()) {
        let whole = encoded(&message);
        prop_assume!(whole.len() > HEAD_LEN);
        let body = &whole[HEAD_LEN..];
        let cut = frame(VERSION_MAX, message.kind() as u8, &body[..cut.index(body.len())]);
        let refused = matches!(decode(&cut), Err(FrameError::Body { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn trailing_bytes_are_refused(message in arbitrary::message(), extra in vec(any::<u8>(), 1..9)) {
        let kind = message.kind() as u8;
        let long = frame(VERSION_MAX, kind, &[&encoded(&message)[HEAD_LEN..], &extra].concat());
        prop_assert_eq!(decode(&long), Err(FrameError::TrailingBytes { kind, extra: extra.len() }));
    }

    #[test]
    fn random_bodies_never_panic(kind in 0..70u8, version in 0..3u8, body in vec(any::<u8>(), 0..400)) {
        let whole = frame(version, kind, &body);
        if let Ok(decoded) = decode(&whole) {
            prop_assert_eq!(decoded.unwrap().1, whole.len());
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..64)) {
        let _ = decode(&bytes);
    }
}

#[test]
fn link_messages_come_back() {
    let node = NodeName::new("a-1").unwrap();
    let messages = [
        LinkMessage::Hello(Hello::new(node, &BTreeSet::from(Role::ALL), u64::MAX)),
        LinkMessage::Ping,
        LinkMessage::Pong,
        LinkMessage::Unsupported { version: 9, kind: 200 },
        LinkMessage::Members(members(2)),
        LinkMessage::Members(members(Members::MAX)),
    ];
    for message in messages {
        let mut out = Vec::new();
        encode_link(&message, &mut out);
        assert_eq!(decode(&out), Ok(Some((Frame::Link(message), out.len()))));
    }
}

/// `count` members, and as many verdicts.
fn members(count: usize) -> Members {
    let name = |number: usize| NodeName::new(&format!("n{number}")).unwrap();
    let member = |number| Member {
        name: name(number),
        since: 300,
        mesh: ([192, 0, 2, 1], 7001).into(),
        legs: Some(([192, 0, 2, 1], 7101).into()),
        unlinked_s: 5,
    };
    let verdict = |number| Verdict { name: name(number), at: 300, evicted: true, keys_by: Some(name(0)) };
    Members { verdicts: (0..count).map(verdict).collect(), members: (0..count).map(member).collect() }
}

#[test]
fn members_are_so_many() {
    let many = members(Members::MAX + 1);
    let cases = [
        ("members", Members { verdicts: Vec::new(), ..many.clone() }),
        ("verdicts", Members { members: Vec::new(), ..many }),
    ];
    for (field, members) in cases {
        let mut out = Vec::new();
        encode_link(&LinkMessage::Members(members), &mut out);
        match decode(&out) {
            Err(FrameError::BadLength { kind: MEMBERS, cause }) => assert_eq!(cause.field, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

/// The layout is a contract with other builds: a change of these bytes needs a new version.
#[test]
fn the_layout_is_pinned() {
    let mut out = Vec::new();
    encode_link(&LinkMessage::Ping, &mut out);
    encode_link(&LinkMessage::Members(members(1)), &mut out);
    let connection = ConnectionId { boot: 0x81, number: 2 };
    encode(&Message::from(DispatcherToAgent::Committed(Decided { connection, epoch: Epoch(3) })), &mut out).unwrap();
    let key = SecretBytes::new(vec![9; LEG_KEY_LEN]);
    encode(&Message::from(AgentToDispatcher::LegKey(LegKey { id: 300, key, handshakes: true })), &mut out).unwrap();
    encode(
        &Message::from(AgentToDispatcher::Cancel(Cancel { connection, epoch: Epoch(4), reason: AbortReason::Timeout })),
        &mut out,
    )
    .unwrap();
    encode(
        &Message::from(DispatcherToAgent::LegKept(LegKept { connection, epoch: Epoch(3), rx_offset: 300 })),
        &mut out,
    )
    .unwrap();
    let kept = KeptSession {
        key: SessionKey([8; 32]),
        session: SecretBytes::new(vec![7; 3]),
        expires_in_s: 300,
        issuer: NodeName::new("a1").unwrap(),
    };
    encode(&Message::from(SessionMessage::Put(SessionPut { request: 5, sessions: vec![kept.clone()] })), &mut out)
        .unwrap();
    encode(&Message::from(SessionMessage::Stored(SessionStored { request: 300 })), &mut out).unwrap();
    encode(&Message::from(SessionMessage::Get(SessionGet { request: 6, keys: vec![kept.key] })), &mut out).unwrap();
    encode(&Message::from(SessionMessage::Found(SessionFound { request: 6, sessions: Vec::new() })), &mut out).unwrap();
    encode(&Message::from(SessionMessage::Spend(SessionSpend { request: 7, key: kept.key })), &mut out).unwrap();
    encode(&Message::from(SessionMessage::Spent(SessionSpent { request: 7, granted: true })), &mut out).unwrap();
    encode(&Message::from(AgentToDispatcher::Tunnel(connection)), &mut out).unwrap();
    for message in takeover_messages() {
        encode(&Message::from(message), &mut out).unwrap();
    }
    let purge = |number, scope| OrderedPurge { id: PurgeNumber { incarnation: 7, number }, scope };
    let purges = vec![purge(1, PurgeScope::Url("a/".to_owned())), purge(2, PurgeScope::Everything)];
    let folded = vec![PurgeNumber { incarnation: 300, number: 2 }];
    encode(&Message::from(AgentToAgent::Purges(PurgesMessage { generation: 5, folded, purges })), &mut out).unwrap();
    let expected = [
        &[0, 0, 0, 2, 0, 2][..],
        &[0, 0, 0, 35, 0, 5, 1, 2, b'n', b'0', 0xac, 0x02, 1, 1, 2, b'n', b'0'],
        &[1, 2, b'n', b'0', 0xac, 0x02, 0, 192, 0, 2, 1, 0xd9, 0x36, 1, 0, 192, 0, 2, 1, 0xbd, 0x37, 5],
        &[0, 0, 0, 6, 1, 25, 0x81, 0x01, 2, 3],
        &[0, 0, 0, 38, 1, 16, 0xac, 0x02, 32],
        &[9; 32],
        &[1],
        &[0, 0, 0, 7, 1, 24, 0x81, 0x01, 2, 4, 1],
        &[0, 0, 0, 8, 1, 32, 0x81, 0x01, 2, 3, 0xac, 0x02],
        &[0, 0, 0, 45, 1, 35, 5, 1],
        &[8; 32],
        &[3, 7, 7, 7, 0xac, 0x02, 2, 97, 49],
        &[0, 0, 0, 4, 1, 36, 0xac, 0x02],
        &[0, 0, 0, 36, 1, 37, 6, 1],
        &[8; 32],
        &[0, 0, 0, 4, 1, 38, 6, 0],
        &[0, 0, 0, 35, 1, 39, 7],
        &[8; 32],
        &[0, 0, 0, 4, 1, 40, 7, 1],
        &[0, 0, 0, 5, 1, 41, 0x81, 0x01, 2],
        &[0, 0, 0, 19, 1, 46, 0, 192, 0, 2, 1, 7, 0xac, 0x02, 0xd8, 0x04, 0, 1, 2, b'd', b'1', 7, 9],
        &[0, 0, 0, 10, 1, 47, 0, 192, 0, 2, 1, 7, 0xac, 0x02],
        &[0, 0, 0, 10, 1, 48, 0, 192, 0, 2, 1, 7, 0xac, 0x02],
        &[0, 0, 0, 16, 1, 49, 0, 192, 0, 2, 1, 7, 0xac, 0x02, 1, 2, b'd', b'1', 0xac, 0x02],
        &[0, 0, 0, 28, 1, 50, 1],
        &[0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[1, 100, 0, 0xd8, 0x04, 1, 2, b'd', b'1'],
        &[0, 0, 0, 12, 1, 51, 0, 192, 0, 2, 1, 2, b'd', b'1', 100, 1],
        &[0, 0, 0, 11, 1, 52, 0, 192, 0, 2, 1, 7, 0xac, 0x02, 0],
        &[0, 0, 0, 17, 1, 66, 5, 1, 0xac, 0x02, 2, 2, 7, 1, 1, 2, b'a', b'/', 7, 2, 0],
    ];
    assert_eq!(out, expected.concat());
}

/// One of each.
fn takeover_messages() -> [TakeoverMessage; 7] {
    let (address, node) = ([192, 0, 2, 1].into(), NodeName::new("d1").unwrap());
    let v6 = "2001:db8::1".parse().unwrap();
    let lease = LeaseNumber { incarnation: 7, round: 300 };
    let after = Predecessor { node: node.clone(), lease: LeaseNumber { incarnation: 7, round: 9 } };
    let holder = Some(node.clone());
    [
        TakeoverMessage::LeaseWanted(LeaseWanted { address, lease, lease_ms: 600, inquiry: false, after: Some(after) }),
        TakeoverMessage::LeaseReturned(LeaseReturned { address, lease }),
        TakeoverMessage::LeaseGranted(LeaseGranted { address, lease }),
        TakeoverMessage::LeaseRefused(LeaseRefused { address, lease, holder, remaining_ms: 300 }),
        TakeoverMessage::Advert(Advert {
            address: v6,
            is_owner: true,
            priority: 100,
            by_order: false,
            lease_ms: 600,
            voters: vec![node.clone()],
        }),
        TakeoverMessage::SwitchWanted(SwitchWanted { address, to: node, priority: 100, by_order: true }),
        TakeoverMessage::Yielded(Yielded { address, lease, by_order: false }),
    ]
}

#[test]
fn an_advert_has_so_many_voters() {
    let voters = (0..=VOTERS_MAX).map(|number| NodeName::new(&format!("n{number}")).unwrap()).collect();
    let address = [192, 0, 2, 1].into();
    let advert = Advert { address, is_owner: true, priority: 1, by_order: false, lease_ms: 600, voters };
    let body = postcard::to_allocvec(&advert).unwrap();
    let decoded = decode(&frame(VERSION_MAX, MessageKind::Advert as u8, &body));
    assert!(matches!(decoded, Err(FrameError::BadLength { .. })));
    let message = Message::from(TakeoverMessage::Advert(advert));
    assert_eq!(encode(&message, &mut Vec::new()).unwrap_err().field, "voters");
}

#[test]
fn what_is_unknown_is_named_and_can_be_skipped() {
    for (version, kind) in [(VERSION_MAX + 1, 16), (VERSION_MAX, 255), (VERSION_MAX, PING), (0, 16), (255, 0)] {
        let bytes = [frame(version, kind, b"whatever"), frame(0, PONG, b"")].concat();
        let (unknown, len) = decode(&bytes).unwrap().unwrap();
        assert_eq!(unknown, Frame::Unknown { version, kind });
        assert_eq!(decode(&bytes[len..]).unwrap().unwrap().0, Frame::Link(LinkMessage::Pong));
    }
}

#[test]
fn lengths_are_refused_before_the_body_is_there() {
    let beyond = u32::try_from(FRAME_LEN_MAX).unwrap() - 3;
    assert_eq!(decode(&beyond.to_be_bytes()), Err(FrameError::TooLong { len: FRAME_LEN_MAX + 1 }));
    assert_eq!(decode(&(beyond - 1).to_be_bytes()), Ok(None));
    assert!(matches!(decode(b"GET / HTTP/1.1"), Err(FrameError::TooLong { .. })));
    assert_eq!(decode(&[0, 0, 0, 1, 7]), Err(FrameError::TooShort { len: 5 }));
}

fn longest_ship() -> Ship {
    let mut ship = arbitrary::sample_ship();
    ship.tls.alpn = vec![1; ALPN_LEN_MAX];
    ship.tls.server_name = Some("n".repeat(SERVER_NAME_LEN_MAX));
    ship.client_certificate = Some(vec![2; CERTIFICATE_LEN_MAX]);
    ship.state = SecretBytes::new(vec![3; STATE_LEN_MAX]);
    ship.rest = SecretBytes::new(vec![4; REST_LEN_MAX]);
    ship.tail = vec![5; TAIL_LEN_MAX];
    ship.opened = SecretBytes::new(vec![6; OPENED_LEN_MAX]);
    ship
}

fn longest_ship_in_response() -> ShipInResponse {
    let http = vec![7; HTTP_STATE_LEN_MAX];
    let (unwritten, pending) = (vec![9; 1000], vec![8; RESPONSE_BYTES_LEN_MAX - 1000]);
    let (unwritten, pending) = (SecretBytes::new(unwritten), SecretBytes::new(pending));
    let rest = anchored(ANCHORED_SHIPPED_LEN_MAX);
    ShipInResponse { ship: longest_ship(), number: 1, http, unwritten, pending, rest }
}

/// An anchored stream with this many unacknowledged bytes.
fn anchored(len: usize) -> ResponseRest {
    let anchor = NodeName::new("a1").unwrap();
    let (received, acknowledged, unacknowledged) = (u64::MAX, u64::MAX, SecretBytes::new(vec![1; len]));
    let id = AnchoredId(u64::MAX);
    ResponseRest::Anchored(AnchoredState { anchor, id, received, acknowledged, unacknowledged, is_ended: true })
}

#[test]
fn the_longest_ships_fit() {
    let ship = AgentToAgent::Ship(Box::new(longest_ship()));
    let in_response = AgentToAgent::ShipInResponse(Box::new(longest_ship_in_response()));
    for message in [ship, in_response] {
        let message = Message::from(message);
        let bytes = encoded(&message);
        assert_eq!(decode(&bytes), Ok(Some((Frame::Message(message), bytes.len()))));
    }
}

#[test]
fn long_responses_are_neither_sent_nor_accepted() {
    type Lengthen = fn(&mut ShipInResponse);
    let cases: [(&str, Lengthen); 5] = [
        ("http", |shipped| shipped.http.push(0)),
        ("tail", |shipped| shipped.ship.tail.push(0)),
        ("unwritten and pending", |shipped| shipped.unwritten = SecretBytes::new(vec![0; 1001])),
        ("unwritten and pending", |shipped| {
            shipped.pending = SecretBytes::new(Vec::new());
            shipped.unwritten = SecretBytes::new(vec![0; RESPONSE_BYTES_LEN_MAX + 1]);
        }),
        ("unacknowledged", |shipped| shipped.rest = anchored(ANCHORED_SHIPPED_LEN_MAX + 1)),
    ];
    for (field, lengthen) in cases {
        let mut shipped = longest_ship_in_response();
        lengthen(&mut shipped);
        let body = postcard::to_allocvec(&shipped).unwrap();
        match decode(&frame(VERSION_MAX, MessageKind::ShipInResponse as u8, &body)) {
            Err(FrameError::BadLength { cause, .. }) => assert_eq!(cause.field, field),
            other => panic!("{field}: {other:?}"),
        }
        let message = Message::from(AgentToAgent::ShipInResponse(Box::new(shipped)));
        assert_eq!(encode(&message, &mut Vec::new()).unwrap_err().field, field);
    }
    let part = ResponsePart {
        request: SecretBytes::new(vec![0; REQUEST_LEN_MAX]),
        etag: vec![0; ETAG_LEN_MAX],
        first: 0,
        last: 1,
        complete_len: 2,
    };
    let Ship { connection, client, server, .. } = arbitrary::sample_ship();
    let prepare = |part, client_certificate| {
        let prepare =
            Prepare { connection, number: 1, client, server, client_certificate, rest: PrepareRest::Part(part) };
        encode(&Message::from(AgentToAgent::Prepare(Box::new(prepare))), &mut Vec::new()).map_err(|error| error.field)
    };
    assert_eq!(prepare(part.clone(), Some(vec![0; CERTIFICATE_LEN_MAX])), Ok(()));
    assert_eq!(prepare(part.clone(), Some(vec![0; CERTIFICATE_LEN_MAX + 1])), Err("client_certificate"));
    let long = SecretBytes::new(vec![0; REQUEST_LEN_MAX + 1]);
    assert_eq!(prepare(ResponsePart { request: long, ..part.clone() }, None), Err("request"));
    assert_eq!(prepare(ResponsePart { etag: vec![0; ETAG_LEN_MAX + 1], ..part }, None), Err("etag"));
}

#[test]
fn long_fields_are_neither_sent_nor_accepted() {
    type Lengthen = fn(&mut Ship);
    let cases: [(&str, Lengthen); 6] = [
        ("alpn", |ship| ship.tls.alpn = vec![0; ALPN_LEN_MAX + 1]),
        ("server_name", |ship| {
            ship.tls.server_name = Some("n".repeat(SERVER_NAME_LEN_MAX + 1));
        }),
        ("client_certificate", |ship| {
            ship.client_certificate = Some(vec![0; CERTIFICATE_LEN_MAX + 1]);
        }),
        ("state", |ship| {
            ship.state = SecretBytes::new(vec![0; STATE_LEN_MAX + 1]);
        }),
        ("rest", |ship| ship.rest = SecretBytes::new(vec![0; REST_LEN_MAX + 1])),
        ("tail", |ship| ship.tail = vec![0; TAIL_LEN_MAX + 1]),
    ];
    for (field, lengthen) in cases {
        let mut ship = arbitrary::sample_ship();
        lengthen(&mut ship);
        let body = postcard::to_allocvec(&ship).unwrap();
        let kind = MessageKind::Ship as u8;
        match decode(&frame(VERSION_MAX, kind, &body)) {
            Err(FrameError::BadLength { cause, .. }) => assert_eq!(cause.field, field),
            other => panic!("{field}: {other:?}"),
        }
        let mut out = vec![1, 2, 3];
        assert_eq!(encode(&Message::from(AgentToAgent::Ship(Box::new(ship))), &mut out).unwrap_err().field, field);
        assert_eq!(out, [1, 2, 3]);
    }
}

#[test]
fn a_leg_key_has_its_length() {
    for len in [0, LEG_KEY_LEN - 1, LEG_KEY_LEN + 1] {
        let body =
            postcard::to_allocvec(&LegKey { id: 1, key: SecretBytes::new(vec![0; len]), handshakes: true }).unwrap();
        let decoded = decode(&frame(VERSION_MAX, MessageKind::LegKey as u8, &body));
        assert!(matches!(decoded, Err(FrameError::BadLength { .. })), "{len}");
    }
}

#[test]
fn sessions_are_so_many_and_so_long() {
    let (key, issuer) = (SessionKey([1; 32]), NodeName::new("a1").unwrap());
    let kept =
        |len| KeptSession { key, session: SecretBytes::new(vec![2; len]), expires_in_s: 3, issuer: issuer.clone() };
    let put = |sessions| Message::from(SessionMessage::Put(SessionPut { request: 4, sessions }));
    let most = put(vec![kept(SESSION_LEN_MAX); SESSIONS_MAX]);
    let bytes = encoded(&most);
    assert_eq!(decode(&bytes), Ok(Some((Frame::Message(most), bytes.len()))));
    let cases = [
        ("sessions", put(vec![kept(1); SESSIONS_MAX + 1])),
        ("session", put(vec![kept(SESSION_LEN_MAX + 1)])),
        (
            "session",
            Message::from(SessionMessage::Found(SessionFound {
                request: 4,
                sessions: vec![kept(SESSION_LEN_MAX + 1)],
            })),
        ),
        (
            "keys",
            Message::from(SessionMessage::Get(SessionGet {
                request: 4,
                keys: vec![SessionKey([1; 32]); SESSIONS_MAX + 1],
            })),
        ),
    ];
    for (field, message) in cases {
        assert_eq!(encode(&message, &mut Vec::new()).unwrap_err().field, field);
    }
    let keys = vec![SessionKey([1; 32]); SESSIONS_MAX + 1];
    let body = postcard::to_allocvec(&SessionGet { request: 4, keys }).unwrap();
    let decoded = decode(&frame(VERSION_MAX, MessageKind::SessionGet as u8, &body));
    assert!(matches!(decoded, Err(FrameError::BadLength { .. })), "{decoded:?}");
}

#[test]
fn purges_are_so_many_and_so_long() {
    let id = PurgeNumber { incarnation: u64::MAX, number: u64::MAX };
    let purge = |len| OrderedPurge { id, scope: PurgeScope::HostGroup("x".repeat(len)) };
    let purges = |folded, purges| PurgesMessage { generation: u64::MAX, folded: vec![id; folded], purges };
    let most = purges(FOLDED_PURGES_MAX, vec![purge(PURGE_TEXT_LEN_MAX); PURGES_MAX]);
    let most = Message::from(AgentToAgent::Purges(most));
    let bytes = encoded(&most);
    assert_eq!(decode(&bytes), Ok(Some((Frame::Message(most), bytes.len()))));
    let cases = [
        ("folded", purges(FOLDED_PURGES_MAX + 1, Vec::new())),
        ("purges", purges(0, vec![purge(1); PURGES_MAX + 1])),
        ("text", purges(0, vec![purge(1), purge(PURGE_TEXT_LEN_MAX + 1)])),
    ];
    for (field, message) in cases {
        let body = postcard::to_allocvec(&message).unwrap();
        match decode(&frame(VERSION_MAX, MessageKind::Purges as u8, &body)) {
            Err(FrameError::BadLength { cause, .. }) => assert_eq!(cause.field, field),
            other => panic!("{field}: {other:?}"),
        }
        let message = Message::from(AgentToAgent::Purges(message));
        assert_eq!(encode(&message, &mut Vec::new()).unwrap_err().field, field);
    }
}

#[test]
fn a_claimed_length_allocates_nothing() {
    // A Rest whose byte string claims 2^35 bytes and has none.
    let body = [0, 0, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let decoded = decode(&frame(VERSION_MAX, MessageKind::Rest as u8, &body));
    assert!(matches!(decoded, Err(FrameError::Body { .. })), "{decoded:?}");
}

#[test]
fn every_kind_has_one_number_and_one_name() {
    let numbers: BTreeSet<u8> = MessageKind::ALL.iter().map(|kind| *kind as u8).collect();
    let names: BTreeSet<&str> = MessageKind::ALL.iter().map(|kind| kind.as_str()).collect();
    assert_eq!((numbers.len(), names.len()), (MessageKind::ALL.len(), MessageKind::ALL.len()));
    assert!(numbers.iter().all(|number| MessageKind::from_u8(*number).is_some_and(|kind| kind as u8 == *number)));
}

#[test]
fn secrets_are_not_printed() {
    let ship = Message::from(AgentToAgent::Ship(Box::new(arbitrary::sample_ship())));
    let printed = format!("{ship:?}");
    assert!(printed.contains("[5 secret bytes]") && !printed.contains("4, 4"), "{printed}");
}
