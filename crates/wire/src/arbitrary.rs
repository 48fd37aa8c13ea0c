//! Strategies for the messages, shared by the tests of this crate.

#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, SocketAddr};

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use watari_values::{
    AbortReason, ConnectionId, DispatcherChange, Epoch, NodeName, SecretBytes, SessionKey, StayReason, TicketSeedId,
    TlsInfo,
};

use crate::*;

pub(crate) fn node_name() -> impl Strategy<Value = NodeName> {
    "[a-z]([a-z0-9-]{0,61}[a-z0-9])?".prop_map(|name| NodeName::new(&name).unwrap())
}

pub(crate) fn connection() -> impl Strategy<Value = ConnectionId> {
    any::<(u64, u64)>().prop_map(|(boot, number)| ConnectionId { boot, number })
}

pub(crate) fn epoch() -> impl Strategy<Value = Epoch> {
    any::<u32>().prop_map(Epoch)
}

/// Both addresses of a TCP connection, of the same family.
pub(crate) fn addresses() -> impl Strategy<Value = (SocketAddr, SocketAddr)> {
    let port = any::<u16>;
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (a.into(), b.into())),
        any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (a.into(), b.into())),
    ]
    .prop_flat_map(move |(a, b): (std::net::IpAddr, std::net::IpAddr)| {
        (port(), port()).prop_map(move |(p, q)| (SocketAddr::new(a, p), SocketAddr::new(b, q)))
    })
}

pub(crate) fn ship() -> impl Strategy<Value = Ship> {
    let identity = (connection(), epoch(), node_name(), node_name(), any::<u32>());
    let client = (addresses(), option::of(vec(any::<u8>(), 0..300)), tls());
    let bytes = (secret(), secret(), vec(any::<u8>(), 0..300), any::<u64>(), any::<u64>(), secret());
    (identity, client, bytes).prop_map(|(identity, client, bytes)| Ship {
        connection: identity.0,
        epoch: identity.1,
        dispatcher: identity.2,
        handshake_node: identity.3,
        moves: identity.4,
        client: client.0.0,
        server: client.0.1,
        client_certificate: client.1,
        tls: client.2,
        state: bytes.0,
        rest: bytes.1,
        tail: bytes.2,
        rx_offset: bytes.3,
        tail_offset: bytes.4,
        opened: bytes.5,
    })
}

pub(crate) fn message() -> impl Strategy<Value = Message> {
    let attempt = || (connection(), epoch());
    let offsets = || (any::<u64>(), any::<u64>(), any::<[u8; 32]>());
    prop_oneof![
        (any::<u32>(), vec(any::<u8>(), LEG_KEY_LEN)).prop_map(|(id, key)| Message::from(AgentToDispatcher::LegKey(
            LegKey { id, key: SecretBytes::new(key), handshakes: id % 2 == 0 }
        ))),
        (connection(), tls()).prop_map(|(connection, tls)| Message::from(AgentToDispatcher::Established(
            Established { connection, tls }
        ))),
        (attempt(), node_name(), offsets()).prop_map(
            |((connection, epoch), target, (rx_offset, tail_offset, digest))| {
                Message::from(AgentToDispatcher::Propose(Propose {
                    connection,
                    epoch,
                    target,
                    rx_offset,
                    tail_offset,
                    digest,
                }))
            }
        ),
        (attempt(), any::<u64>()).prop_map(|((connection, epoch), rx_offset)| {
            Message::from(DispatcherToAgent::Freeze(Freeze { connection, epoch, rx_offset }))
        }),
        ship().prop_map(|ship| Message::from(AgentToAgent::Ship(Box::new(ship)))),
        ship_in_response().prop_map(|shipped| Message::from(AgentToAgent::ShipInResponse(Box::new(shipped)))),
        anchored_message().prop_map(|message| Message::from(AgentToAgent::Anchored(message))),
        prepare().prop_map(|prepare| Message::from(AgentToAgent::Prepare(Box::new(prepare)))),
        (connection(), any::<u32>(), option::of(prepare_refusal())).prop_map(|(connection, number, refused)| {
            Message::from(AgentToAgent::Prepared(Prepared { connection, number, refused }))
        }),
        (attempt(), any::<u64>(), vec(any::<u8>(), 0..300)).prop_map(|((connection, epoch), from_offset, bytes)| {
            Message::from(AgentToAgent::Rest(Rest { connection, epoch, from_offset, bytes }))
        }),
        (attempt(), offsets()).prop_map(|((connection, epoch), (rx_offset, tail_offset, digest))| {
            Message::from(AgentToDispatcher::Held(Held { connection, epoch, rx_offset, tail_offset, digest }))
        }),
        (attempt(), reason()).prop_map(|((connection, epoch), reason)| {
            Message::from(AgentToDispatcher::Refused(Refused { connection, epoch, reason }))
        }),
        (attempt(), reason()).prop_map(|((connection, epoch), reason)| Message::from(AgentToDispatcher::Cancel(
            Cancel { connection, epoch, reason }
        ))),
        attempt()
            .prop_map(|(connection, epoch)| Message::from(DispatcherToAgent::Committed(Decided { connection, epoch }))),
        (attempt(), reason()).prop_map(|((connection, epoch), reason)| Message::from(DispatcherToAgent::Aborted(
            Aborted { connection, epoch, reason }
        ))),
        connection().prop_map(|connection| DispatcherToAgent::Gone(connection).into()),
        (attempt(), any::<u64>()).prop_map(|((connection, epoch), tx_offset)| {
            Message::from(AgentToDispatcher::Final(Final { connection, epoch, tx_offset }))
        }),
        (connection(), option::of(node_name()), any::<bool>()).prop_map(|(connection, target, or_end)| Message::from(
            DispatcherToAgent::Leave(Leave { connection, target, or_end })
        )),
        connection().prop_map(|connection| Message::from(AgentToDispatcher::Stays(Stays {
            connection,
            reason: StayReason::Http2
        }))),
        connection().prop_map(|connection| AgentToDispatcher::Tunnel(connection).into()),
        Just(Message::from(AgentToDispatcher::Draining)),
        (attempt(), any::<u64>()).prop_map(|((connection, epoch), rx_offset)| {
            Message::from(DispatcherToAgent::LegKept(LegKept { connection, epoch, rx_offset }))
        }),
        vec(ticket_seed(), 0..3).prop_map(|seeds| AgentToAgent::TicketSeeds(seeds).into()),
        any::<TicketSeedId>().prop_map(|seed| AgentToAgent::TicketSeedWanted(seed).into()),
        (any::<u64>(), kept_sessions())
            .prop_map(|(request, sessions)| Message::from(SessionMessage::Put(SessionPut { request, sessions }))),
        any::<u64>().prop_map(|request| Message::from(SessionMessage::Stored(SessionStored { request }))),
        (any::<u64>(), vec(session_key(), 0..=SESSIONS_MAX))
            .prop_map(|(request, keys)| Message::from(SessionMessage::Get(SessionGet { request, keys }))),
        (any::<u64>(), kept_sessions())
            .prop_map(|(request, sessions)| Message::from(SessionMessage::Found(SessionFound { request, sessions }))),
        (any::<u64>(), session_key())
            .prop_map(|(request, key)| Message::from(SessionMessage::Spend(SessionSpend { request, key }))),
        (any::<u64>(), any::<bool>())
            .prop_map(|(request, granted)| Message::from(SessionMessage::Spent(SessionSpent { request, granted }))),
        purges_message().prop_map(|message| Message::from(AgentToAgent::Purges(message))),
        takeover_message().prop_map(Message::from),
        change_message(),
    ]
}

/// A message about a change of a connection's dispatcher.
fn change_message() -> impl Strategy<Value = Message> {
    let change =
        || (connection(), any::<u32>()).prop_map(|(connection, number)| DispatcherChange { connection, number });
    let address = || prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    let part = (change(), any::<u32>(), 0..=CHANGE_STATE_LEN_MAX as u32, vec(any::<u8>(), 0..300));
    prop_oneof![
        (change(), node_name()).prop_map(|(change, to)| DispatcherToAgent::DetachLeg(DetachLeg { change, to }).into()),
        change().prop_map(|change| DispatcherToAgent::AttachLeg(change).into()),
        change().prop_map(|change| AgentToDispatcher::LegAttached(change).into()),
        (change(), any::<u64>()).prop_map(|(change, tx_offset)| {
            Message::from(AgentToDispatcher::LegDetached(LegDetached { change, tx_offset }))
        }),
        (address(), any::<u32>()).prop_map(|(address, connections)| {
            Message::from(DispatcherToDispatcher::TakeWanted(TakeWanted { address, connections }))
        }),
        (address(), any::<[u8; 6]>()).prop_map(|(address, mac)| DispatcherToDispatcher::TakeReady(TakeReady {
            address,
            mac
        })
        .into()),
        vec(addresses(), 0..4).prop_map(|flows| DispatcherToDispatcher::TakeComing(TakeComing { flows }).into()),
        part.prop_map(|(change, offset, state_len, bytes)| {
            Message::from(DispatcherToDispatcher::StatePart(StatePart { change, offset, state_len, bytes }))
        }),
        change().prop_map(|change| DispatcherToDispatcher::TakeHeld(change).into()),
        (change(), reason()).prop_map(|(change, reason)| DispatcherToDispatcher::TakeRefused(TakeRefused {
            change,
            reason
        })
        .into()),
        change().prop_map(|change| DispatcherToDispatcher::Given(change).into()),
        change().prop_map(|change| DispatcherToDispatcher::Taken(change).into()),
        steering_advert().prop_map(|advert| DispatcherToDispatcher::Steering(advert).into()),
    ]
}

fn steering_advert() -> impl Strategy<Value = SteeringAdvert> {
    use SteeringState::{Joining, Leaving, Left, Serving};
    let state = prop_oneof![Just(Joining), Just(Serving), Just(Leaving), Just(Left)];
    let numbers = any::<(u64, u64, bool, bool)>();
    (any::<[u8; 6]>(), state, numbers).prop_map(|(mac, state, (addresses, view, can_serve, has_strays))| {
        SteeringAdvert { mac, state, addresses, can_serve, view, has_strays }
    })
}

fn takeover_message() -> impl Strategy<Value = TakeoverMessage> {
    let address = || prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)];
    let lease = || any::<(u64, u64)>().prop_map(|(incarnation, round)| LeaseNumber { incarnation, round });
    let after = (node_name(), lease()).prop_map(|(node, lease)| Predecessor { node, lease });
    prop_oneof![
        (address(), lease(), any::<(u32, bool)>(), option::of(after)).prop_map(
            |(address, lease, (lease_ms, inquiry), after)| {
                TakeoverMessage::LeaseWanted(LeaseWanted { address, lease, lease_ms, inquiry, after })
            }
        ),
        (address(), lease())
            .prop_map(|(address, lease)| TakeoverMessage::LeaseReturned(LeaseReturned { address, lease })),
        (address(), lease())
            .prop_map(|(address, lease)| TakeoverMessage::LeaseGranted(LeaseGranted { address, lease })),
        (address(), lease(), option::of(node_name()), any::<u32>()).prop_map(
            |(address, lease, holder, remaining_ms)| TakeoverMessage::LeaseRefused(LeaseRefused {
                address,
                lease,
                holder,
                remaining_ms
            })
        ),
        (address(), any::<(bool, u8, bool, u32)>(), vec(node_name(), 0..=VOTERS_MAX)).prop_map(
            |(address, (is_owner, priority, by_order, lease_ms), voters)| TakeoverMessage::Advert(Advert {
                address,
                is_owner,
                priority,
                by_order,
                lease_ms,
                voters
            })
        ),
        (address(), node_name(), any::<(u8, bool)>()).prop_map(|(address, to, (priority, by_order))| {
            TakeoverMessage::SwitchWanted(SwitchWanted { address, to, priority, by_order })
        }),
        (address(), lease(), any::<bool>()).prop_map(|(address, lease, by_order)| TakeoverMessage::Yielded(Yielded {
            address,
            lease,
            by_order
        })),
    ]
}

pub(crate) fn ship_in_response() -> impl Strategy<Value = ShipInResponse> {
    let rest = prop_oneof![
        Just(ResponseRest::End),
        any::<u64>().prop_map(|skip| ResponseRest::Prepared { skip }),
        anchored_state().prop_map(ResponseRest::Anchored),
    ];
    (ship(), any::<u32>(), vec(any::<u8>(), 0..40), secret(), secret(), rest).prop_map(
        |(ship, number, http, unwritten, pending, rest)| ShipInResponse {
            ship,
            number,
            http,
            unwritten,
            pending,
            rest,
        },
    )
}

fn anchored_state() -> impl Strategy<Value = AnchoredState> {
    (node_name(), anchored_id(), any::<[u64; 2]>(), secret(), any::<bool>()).prop_map(
        |(anchor, id, [received, acknowledged], unacknowledged, is_ended)| AnchoredState {
            anchor,
            id,
            received,
            acknowledged,
            unacknowledged,
            is_ended,
        },
    )
}

fn anchored_id() -> impl Strategy<Value = AnchoredId> {
    any::<u64>().prop_map(AnchoredId)
}

fn anchored_message() -> impl Strategy<Value = AnchoredMessage> {
    let content = prop_oneof![
        any::<(u32, u64)>().prop_map(|(epoch, received)| AnchoredContent::Attach { epoch: Epoch(epoch), received }),
        (any::<u64>(), secret(), any::<bool>()).prop_map(|(offset, bytes, is_last)| AnchoredContent::Data {
            offset,
            bytes,
            is_last
        }),
        any::<([u64; 2], [bool; 2])>().prop_map(|([received, consumed], [is_question, is_answer])| {
            AnchoredContent::Progress { received, consumed, is_question, is_answer }
        }),
        Just(AnchoredContent::Reset),
    ];
    let to = prop_oneof![Just(AnchoredEnd::Anchor), Just(AnchoredEnd::Owner)];
    (anchored_id(), to, content).prop_map(|(id, to, content)| AnchoredMessage { id, to, content })
}

fn prepare() -> impl Strategy<Value = Prepare> {
    let part = (secret(), vec(any::<u8>(), 0..40), any::<[u64; 3]>());
    let part = part.prop_map(|(request, etag, [first, last, complete_len])| ResponsePart {
        request,
        etag,
        first,
        last,
        complete_len,
    });
    let rest = prop_oneof![
        Just(PrepareRest::Bytes),
        part.prop_map(PrepareRest::Part),
        node_name().prop_map(|anchor| PrepareRest::Anchored { anchor }),
    ];
    // The addresses and the certificate are those of a connection that is shipped.
    (ship(), any::<u32>(), rest).prop_map(|(ship, number, rest)| {
        let Ship { connection, client, server, client_certificate, .. } = ship;
        Prepare { connection, number, client, server, client_certificate, rest }
    })
}

fn prepare_refusal() -> impl Strategy<Value = PrepareRefusal> {
    prop_oneof![
        Just(PrepareRefusal::Full),
        Just(PrepareRefusal::Response),
        Just(PrepareRefusal::Validator),
        Just(PrepareRefusal::NoLink),
    ]
}

fn kept_sessions() -> impl Strategy<Value = Vec<KeptSession>> {
    let kept = (session_key(), secret(), any::<u32>(), node_name());
    let kept = kept.prop_map(|(key, session, expires_in_s, issuer)| KeptSession { key, session, expires_in_s, issuer });
    vec(kept, 0..3)
}

fn purges_message() -> impl Strategy<Value = PurgesMessage> {
    let id = || any::<[u64; 2]>().prop_map(|[incarnation, number]| PurgeNumber { incarnation, number });
    let scope = prop_oneof![
        Just(PurgeScope::Everything),
        any::<String>().prop_map(PurgeScope::Url),
        any::<String>().prop_map(PurgeScope::Prefix),
        any::<String>().prop_map(PurgeScope::Group),
        any::<String>().prop_map(PurgeScope::HostGroup),
    ];
    let purge = (id(), scope).prop_map(|(id, scope)| OrderedPurge { id, scope });
    (any::<u64>(), vec(id(), 0..5), vec(purge, 0..5)).prop_map(|(generation, folded, purges)| PurgesMessage {
        generation,
        folded,
        purges,
    })
}

fn session_key() -> impl Strategy<Value = SessionKey> {
    any::<[u8; 32]>().prop_map(SessionKey)
}

fn ticket_seed() -> impl Strategy<Value = TicketSeed> {
    let secret = || {
        let bytes = vec(any::<u8>(), TICKET_SECRET_LEN).prop_map(SecretBytes::new);
        (any::<u32>(), bytes).prop_map(|(epoch, secret)| EpochSecret { epoch, secret })
    };
    (any::<(TicketSeedId, u64)>(), option::of(secret()), vec(secret(), 0..4))
        .prop_map(|((id, made), state, keys)| TicketSeed { id, made, state, keys })
}

/// One fixed connection, for tests that change one field of it.
pub(crate) fn sample_ship() -> Ship {
    Ship {
        connection: ConnectionId { boot: 1, number: 2 },
        epoch: Epoch(3),
        dispatcher: NodeName::new("d").unwrap(),
        state: SecretBytes::new(vec![4; 5]),
        tls: TlsInfo {
            version: 0x0304,
            suite: 0x1301,
            alpn: b"h2".to_vec(),
            server_name: Some("h".to_owned()),
            resumed: false,
        },
        client_certificate: None,
        client: "192.0.2.1:1000".parse().unwrap(),
        server: "192.0.2.2:443".parse().unwrap(),
        handshake_node: NodeName::new("a").unwrap(),
        moves: 0,
        opened: SecretBytes::new(vec![6; 4]),
        rx_offset: 600,
        rest: SecretBytes::new(vec![7; 3]),
        tail: vec![8; 2],
        tail_offset: 900,
    }
}

fn tls() -> impl Strategy<Value = TlsInfo> {
    (any::<(u16, u16, bool)>(), vec(any::<u8>(), 0..=ALPN_LEN_MAX), option::of("[a-z.]{0,40}")).prop_map(
        |((version, suite, resumed), alpn, server_name)| TlsInfo { version, suite, alpn, server_name, resumed },
    )
}

fn secret() -> impl Strategy<Value = SecretBytes> {
    vec(any::<u8>(), 0..300).prop_map(SecretBytes::new)
}

fn reason() -> impl Strategy<Value = AbortReason> {
    prop_oneof![
        Just(AbortReason::NoLeg),
        Just(AbortReason::Timeout),
        Just(AbortReason::Full),
        Just(AbortReason::BadState),
        Just(AbortReason::RestTooLong),
        Just(AbortReason::Mismatch),
        Just(AbortReason::Expired),
        Just(AbortReason::NoLink),
    ]
}
