//! Limits of keys, and the secrets that are accepted.

use super::*;
use crate::{AlertDescription, FRAGMENT_LEN_MAX, ImportError, PeerMisbehaved, SealError, SecretsError};

const RECORDS_MAX_GCM: u64 = 1 << 24;
const HALF: u64 = RECORDS_MAX_GCM / 2;

/// RFC 8446, section 5.5.
#[test]
fn tls13_keys_change_in_time() {
    let mut server = connection(TLS13, Side::Server, HALF - 1, 0);
    let mut client = connection(TLS13, Side::Client, 0, HALF - 1);
    let mut records = seal(&mut server, &vec![7; 3 * FRAGMENT_LEN_MAX]);
    let whole = Opened::Data(5..5 + FRAGMENT_LEN_MAX);
    assert_eq!(open_all(&mut client, &mut records), [whole.clone(), Opened::KeyUpdate, whole.clone(), whole]);
    assert_eq!(server.tx.sequence(), 2);
    assert!(!server.close_due());
}

#[test]
fn tls12_says_in_time_that_it_must_close() {
    let mut server = connection(TLS12, Side::Server, HALF - 1, 0);
    assert!(!server.close_due());
    seal(&mut server, b"x");
    assert!(server.close_due());
}

#[test]
fn tls12_stops_when_its_key_is_used_up() {
    let mut server = connection(TLS12, Side::Server, RECORDS_MAX_GCM - 2, 0);
    let mut client = connection(TLS12, Side::Client, 0, RECORDS_MAX_GCM - 2);
    let mut records = Vec::new();
    let data = vec![7; 3 * FRAGMENT_LEN_MAX];
    let sealed = server.seal(&[IoSlice::new(&data)], usize::MAX, &mut records);
    assert_eq!(sealed, Ok(2 * FRAGMENT_LEN_MAX), "two records were left");
    let refused = server.seal(&[IoSlice::new(&data)], usize::MAX, &mut records);
    assert_eq!(refused, Err(SealError::Exhausted));
    server.seal_alert(SealError::Exhausted.alert().unwrap(), &mut records).unwrap();
    let opened = open_all(&mut client, &mut records);
    assert_eq!(opened.last(), Some(&Opened::FatalAlert(AlertDescription::INTERNAL_ERROR)));
    assert_eq!(opened.len(), 3);
}

/// The alert is one record more than the key's limit. A state with that number can be imported if its write side is
/// closed.
#[test]
fn what_a_used_up_key_has_closed_can_be_moved() {
    let mut server = connection(TLS12, Side::Server, RECORDS_MAX_GCM, 0);
    let used_up = server.fence();
    let mut beyond = used_up.state().to_vec();
    server = used_up.thaw();
    server.seal_alert(AlertDescription::INTERNAL_ERROR, &mut Vec::new()).unwrap();
    let closed = server.fence();
    let moved = Connection::import(closed.state()).unwrap();
    assert!(moved.is_write_closed());
    assert_eq!(moved.fence().state(), closed.state());

    // With an open write side, the same sequence number would seal more.
    let sequence_at = beyond.len() - 2 * (8 + TLS12.aead().key_len() + 12);
    beyond[sequence_at..sequence_at + 8].copy_from_slice(&(RECORDS_MAX_GCM + 1).to_be_bytes());
    let too_high = ImportError::Secrets(SecretsError::SequenceTooHigh(RECORDS_MAX_GCM + 1));
    assert_eq!(Connection::import(&beyond).err(), Some(too_high));
}

#[test]
fn an_exhausted_key_refuses_renegotiation_no_more() {
    let mut server = connection(TLS12, Side::Server, RECORDS_MAX_GCM, 0);
    let mut client = connection(TLS12, Side::Client, 0, 0);
    let mut record = Vec::new();
    client.tx.seal(ContentType::Handshake, 4, |out| out.extend([1, 0, 0, 0]), &mut record);
    server.open(&mut record).unwrap();
    let mut answers = Vec::new();
    assert_eq!(server.seal_answers(&mut answers), Err(SealError::Exhausted));
    assert_eq!(answers, []);
}

/// A TLS 1.3 connection that is restored at the very end of its key has no record left, not even for a `KeyUpdate`.
#[test]
fn tls13_beyond_rescue_seals_nothing() {
    let mut server = connection(TLS13, Side::Server, RECORDS_MAX_GCM, 0);
    let mut records = Vec::new();
    let refused = server.seal(&[IoSlice::new(b"x")], usize::MAX, &mut records);
    assert_eq!((refused, records), (Err(SealError::Exhausted), vec![]));
}

#[test]
fn what_a_peer_seals_with_one_key_is_limited_by_its_sequence_numbers_only() {
    let mut client = connection(TLS13, Side::Client, RECORDS_MAX_GCM, 0);
    let mut record = Vec::new();
    client.tx.seal(ContentType::ApplicationData, 1, |out| out.push(7), &mut record);
    let mut server = connection(TLS13, Side::Server, 0, RECORDS_MAX_GCM);
    assert_eq!(server.open(&mut record), Ok(Opened::Data(5..6)));

    let mut server = connection(TLS13, Side::Server, 0, u64::MAX);
    let exhausted = OpenError::PeerMisbehaved(PeerMisbehaved::SequenceExhausted);
    assert_eq!(server.open(&mut record), Err(exhausted));
}

#[test]
fn secrets_must_fit_their_suite() {
    let new = |suite, tx, rx| Connection::new(Secrets { side: Side::Server, suite, tx, rx }).map(|_| ());
    let direction = |suite, sequence| Direction { sequence, secret: secret(suite, 1) };
    let sha384 = CipherSuite::TLS_AES_256_GCM_SHA384;
    assert_eq!(new(TLS13, direction(TLS13, 0), direction(TLS12, 0)), Err(SecretsError::WrongVersion(TLS13)));
    assert_eq!(new(TLS12, direction(TLS13, 0), direction(TLS12, 0)), Err(SecretsError::WrongVersion(TLS12)));
    assert_eq!(
        new(TLS13, direction(sha384, 0), direction(TLS13, 0)),
        Err(SecretsError::WrongLength { suite: TLS13, len: 48, expected: 32 })
    );
    assert_eq!(
        new(TLS13, direction(TLS13, RECORDS_MAX_GCM + 1), direction(TLS13, 0)),
        Err(SecretsError::SequenceTooHigh(RECORDS_MAX_GCM + 1))
    );
    assert_eq!(derive_traffic_key(TLS12, &[0; 32]).map(|_| ()), Err(SecretsError::WrongVersion(TLS12)));
}

#[test]
fn debug_output_has_no_secrets() {
    let server = connection(TLS13, Side::Server, 3, 4);
    let printed = format!("{server:?} {:?}", connection(TLS13, Side::Server, 3, 4).fence());
    assert!(printed.contains("tx_sequence: 3"));
    assert!(!printed.contains("94, 94") && !printed.to_lowercase().contains("5e5e"), "{printed}");
}
