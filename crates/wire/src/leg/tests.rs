#![allow(clippy::unwrap_used)]

use proptest::option;
use proptest::prelude::*;
use watari_values::{ConnectionId, Epoch, NodeName, SecretBytes};

use super::preface::{TLV_KIND, VERSION};
use super::*;
use crate::proxy::{Header, ProxyError, Tlv};
use crate::{LegKey, arbitrary};

fn name(name: &str) -> NodeName {
    NodeName::new(name).unwrap()
}

fn key(id: u32, byte: u8) -> LegKey {
    LegKey { id, key: SecretBytes::new(vec![byte; 32]), handshakes: true }
}

fn signer(key: &LegKey) -> LegSigner {
    LegSigner::new(name("d"), &name("a"), key)
}

/// The verifier of agent `a`, which has sent `keys` to dispatcher `d`, one after the other.
fn verifier(keys: &[LegKey]) -> LegVerifier {
    let mut verifier = LegVerifier::new(name("a"));
    for key in keys {
        verifier.rotate(&name("d"), key);
    }
    verifier
}

fn sample() -> Preface {
    Preface {
        kind: Kind::New { bulk: None },
        connection: ConnectionId { boot: 1, number: 2 },
        epoch: Epoch(0),
        client: "192.0.2.1:1000".parse().unwrap(),
        server: "192.0.2.2:443".parse().unwrap(),
    }
}

fn preface() -> impl Strategy<Value = Preface> {
    let kind = prop_oneof![
        option::of(arbitrary::node_name()).prop_map(|bulk| Kind::New { bulk }),
        any::<(u64, u64)>().prop_map(|(rx_offset, tail_offset)| Kind::Commit { rx_offset, tail_offset }),
        Just(Kind::Check),
    ];
    (kind, arbitrary::connection(), arbitrary::epoch(), arbitrary::addresses())
        .prop_map(|(kind, connection, epoch, (client, server))| Preface { kind, connection, epoch, client, server })
}

proptest! {
    #[test]
    fn prefaces_come_back_once(preface in preface(), first in any::<u8>()) {
        let (signer, mut verifier) = (signer(&key(1, 1)), verifier(&[key(1, 1)]));
        let bytes = signer.sign(&preface);
        prop_assert!(bytes.len() <= PREFACE_LEN_MAX);
        for len in 0..bytes.len() {
            prop_assert_eq!(verifier.verify(&bytes[..len]), Ok(None));
        }
        let followed = [&bytes[..], &[first]].concat();
        let accepted = Accepted { preface, dispatcher: name("d"), len: bytes.len() };
        prop_assert_eq!(verifier.verify(&followed), Ok(Some(accepted)));
        let replayed = PrefaceError::Replayed { dispatcher: name("d"), nonce: 1 };
        prop_assert_eq!(verifier.verify(&followed), Err(replayed));
    }

    #[test]
    fn a_changed_byte_is_never_accepted(preface in preface(), at in any::<prop::sample::Index>(), change in 1..=255u8) {
        let mut verifier = verifier(&[key(1, 1)]);
        let mut bytes = signer(&key(1, 1)).sign(&preface);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        // A changed length may ask for more bytes. Everything else is refused.
        let outcome = verifier.verify(&bytes);
        let refused = matches!(outcome, Err(_) | Ok(None));
        prop_assert!(refused, "byte {}: {:?}", at, outcome);
        bytes.resize(PREFACE_LEN_MAX, 0);
        prop_assert!(verifier.verify(&bytes).is_err());
    }

    #[test]
    fn random_claims_never_panic(value in prop::collection::vec(any::<u8>(), 0..200)) {
        let value = [&[VERSION], &value[..]].concat();
        let bytes = header(vec![Tlv { kind: TLV_KIND, value }]);
        prop_assert!(verifier(&[key(1, 1)]).verify(&bytes).is_err());
    }
}

fn header(tlvs: Vec<Tlv>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let Preface { client, server, .. } = sample();
    Header::Tcp { client, server, tlvs }.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn the_longest_preface_fits() {
    let long = name(&"n".repeat(NodeName::LEN_MAX));
    let preface = Preface {
        kind: Kind::New { bulk: Some(long.clone()) },
        connection: ConnectionId { boot: u64::MAX, number: u64::MAX },
        epoch: Epoch(u32::MAX),
        client: "[ffff::1]:65535".parse().unwrap(),
        server: "[ffff::2]:65535".parse().unwrap(),
    };
    let bytes = LegSigner::new(long.clone(), &long, &key(u32::MAX, 1)).sign(&preface);
    assert!(bytes.len() <= PREFACE_LEN_MAX, "{}", bytes.len());
}

#[test]
fn other_tools_read_the_addresses() {
    let bytes = signer(&key(1, 1)).sign(&sample());
    match crate::proxy::parse(&bytes, usize::MAX).unwrap().unwrap().0 {
        Header::Tcp { client, server, .. } => assert_eq!((client, server), (sample().client, sample().server)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn keys_expire_by_rotation() {
    let (first, second) = (signer(&key(1, 1)), signer(&key(2, 2)));
    let mut verifier = verifier(&[key(1, 1), key(2, 2)]);
    assert!(verifier.verify(&first.sign(&sample())).unwrap().is_some());
    assert!(verifier.verify(&second.sign(&sample())).unwrap().is_some());
    verifier.rotate(&name("d"), &key(3, 3));
    let expired = PrefaceError::UnknownKey { dispatcher: name("d"), key_id: 1 };
    assert_eq!(verifier.verify(&first.sign(&sample())), Err(expired));
    assert!(verifier.verify(&second.sign(&sample())).unwrap().is_some());
    verifier.forget(&name("d"));
    assert!(matches!(verifier.verify(&second.sign(&sample())), Err(PrefaceError::UnknownKey { .. })));
}

#[test]
fn rotation_forgets_no_nonce() {
    let used = signer(&key(1, 1)).sign(&sample());
    let mut verifier = verifier(&[key(1, 1)]);
    assert!(verifier.verify(&used).unwrap().is_some());
    verifier.rotate(&name("d"), &key(2, 2));
    assert_eq!(verifier.verify(&used), Err(PrefaceError::Replayed { dispatcher: name("d"), nonce: 1 }));
}

#[test]
fn each_key_is_bound_to_both_names() {
    let mut verifier = verifier(&[key(1, 1)]);
    verifier.rotate(&name("e"), &key(1, 2));
    let for_another_agent = LegSigner::new(name("d"), &name("b"), &key(1, 1)).sign(&sample());
    let by_another_dispatcher = LegSigner::new(name("e"), &name("a"), &key(1, 1)).sign(&sample());
    let by_a_stranger = LegSigner::new(name("f"), &name("a"), &key(1, 1)).sign(&sample());
    let bad = |dispatcher| Err(PrefaceError::BadAuthenticator { dispatcher: name(dispatcher) });
    assert_eq!(verifier.verify(&for_another_agent), bad("d"));
    assert_eq!(verifier.verify(&by_another_dispatcher), bad("e"));
    let unknown = PrefaceError::UnknownKey { dispatcher: name("f"), key_id: 1 };
    assert_eq!(verifier.verify(&by_a_stranger), Err(unknown));
}

#[test]
fn prefaces_may_overtake_each_other_but_not_without_end() {
    let signer = signer(&key(1, 1));
    let mut verifier = verifier(&[key(1, 1)]);
    let (first, second) = (signer.sign(&sample()), signer.sign(&sample()));
    assert!(verifier.verify(&second).unwrap().is_some());
    signer.nonces_used_for_test(crate::replay::WINDOW);
    assert!(verifier.verify(&signer.sign(&sample())).unwrap().is_some());
    assert_eq!(verifier.verify(&first), Err(PrefaceError::TooOld { dispatcher: name("d"), nonce: 1 }));
}

#[test]
fn a_forged_preface_does_not_move_the_window() {
    let signer = signer(&key(1, 1));
    let mut verifier = verifier(&[key(1, 1)]);
    let honest = signer.sign(&sample());
    let forger = LegSigner::new(name("d"), &name("a"), &key(1, 9));
    forger.nonces_used_for_test(u64::MAX - 1);
    assert!(matches!(verifier.verify(&forger.sign(&sample())), Err(PrefaceError::BadAuthenticator { .. })));
    assert!(verifier.verify(&honest).unwrap().is_some());
}

#[test]
fn each_malformation_has_its_name() {
    let bytes = signer(&key(1, 1)).sign(&sample());
    let value = match crate::proxy::parse(&bytes, usize::MAX).unwrap().unwrap().0 {
        Header::Tcp { mut tlvs, .. } => tlvs.remove(0).value,
        other => panic!("{other:?}"),
    };
    let ours = |value: &[u8]| Tlv { kind: TLV_KIND, value: value.to_vec() };
    let with = |at: usize, byte: u8| {
        let mut value = value.clone();
        value[at] = byte;
        value
    };
    let mut local = Vec::new();
    Header::Local.encode(&mut local).unwrap();
    let cases = [
        (b"\x16\x03\x01\x02".to_vec(), Malformed::Proxy(ProxyError::NotProxy)),
        (b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\n".to_vec(), Malformed::NoPreface),
        (local, Malformed::NoPreface),
        (header(vec![]), Malformed::NoPreface),
        (header(vec![Tlv { kind: 4, value: value.clone() }]), Malformed::NoPreface),
        (header(vec![ours(&value), ours(&value)]), Malformed::NoPreface),
        (header(vec![ours(&[])]), Malformed::NoPreface),
        (header(vec![ours(&with(0, 2))]), Malformed::Version(2)),
        (header(vec![ours(&with(2, 0xff))]), Malformed::Claim(postcard::Error::DeserializeBadUtf8)),
        (header(vec![ours(&value[..5])]), Malformed::Claim(postcard::Error::DeserializeUnexpectedEnd)),
        (header(vec![ours(&[&value[..], &[0]].concat())]), Malformed::TrailingBytes),
        (header(vec![ours(&value[..value.len() - 1])]), Malformed::TrailingBytes),
    ];
    for (bytes, malformed) in cases {
        let outcome = verifier(&[key(1, 1)]).verify(&bytes);
        assert_eq!(outcome, Err(PrefaceError::Malformed(malformed)), "{bytes:?}");
    }
    let head = &header(vec![ours(&[0; 600])])[..16];
    let too_long = verifier(&[key(1, 1)]).verify(head);
    assert!(matches!(too_long, Err(PrefaceError::Malformed(Malformed::Proxy(ProxyError::TooLong { .. })))));
}

#[test]
fn keys_pass_to_another_process_with_their_used_nonces() {
    let keys = [key(1, 1), key(2, 2)];
    let signers = keys.each_ref().map(signer);
    let mut before = verifier(&keys);
    let (used, late) = (
        signers.each_ref().map(|signer| signer.sign(&sample())),
        signers.each_ref().map(|signer| signer.sign(&sample())),
    );
    for preface in &used {
        before.verify(preface).unwrap();
    }
    let mut exported = before.export();
    let mut after = LegVerifier::new(name("a"));
    assert!(exported.iter().cloned().all(|key| after.import(key)));
    for (used, late) in used.iter().zip(&late) {
        assert!(matches!(after.verify(used), Err(PrefaceError::Replayed { .. })));
        assert!(after.verify(late).unwrap().is_some());
    }
    // The next key replaces the older one.
    after.rotate(&name("d"), &key(3, 3));
    let expired = after.verify(&signers[0].sign(&sample()));
    assert!(matches!(expired, Err(PrefaceError::UnknownKey { key_id: 1, .. })));
    assert!(after.verify(&signers[1].sign(&sample())).unwrap().is_some());
    exported[0].truncate_window();
    assert!(!after.import(exported.remove(0)), "a window of another size");
}

/// Postcard writes the position of a variant: a new one comes last.
#[test]
fn the_kinds_keep_their_numbers() {
    let kinds = [
        Kind::New { bulk: None },
        Kind::Commit { rx_offset: 1, tail_offset: 2 },
        Kind::Check,
        Kind::Continue { change: 1, rx_offset: 2, tx_offset: 3 },
    ];
    let bytes = kinds.map(|kind| postcard::to_stdvec(&kind).unwrap());
    assert_eq!(bytes, [vec![0, 0], vec![1, 1, 2], vec![2], vec![3, 1, 2, 3]]);
}
