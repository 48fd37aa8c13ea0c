//! The record layer against that of rustls, in every suite and from both sides.

#![allow(clippy::unwrap_used)]

mod support;

use std::io::{IoSlice, Read, Write};

use rustls::{AlertDescription as TheirAlert, Error as TheirError};
use support::{Pair, pattern};
use watari_record::{
    AlertDescription, CipherSuite, Connection, FRAGMENT_LEN_MAX, OpenError, Opened, SealError, Side, Version,
};

const TLS13: CipherSuite = CipherSuite::TLS_AES_128_GCM_SHA256;
const TLS12: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384;

fn each_suite_and_side(test: impl Fn(Pair)) {
    for suite in CipherSuite::ALL {
        for side in [Side::Server, Side::Client] {
            test(Pair::new(suite, side));
        }
    }
}

#[test]
fn data_crosses_in_both_directions() {
    each_suite_and_side(|mut pair| {
        for len in [1, 100, FRAGMENT_LEN_MAX - 1, FRAGMENT_LEN_MAX, FRAGMENT_LEN_MAX + 1, 100_000] {
            let data = pattern(len);
            assert_eq!(pair.send(&[&data]), data);
            assert_eq!(pair.receive(&data), data);
        }
    });
}

#[test]
fn parts_are_joined_and_fragmented_as_one_stream() {
    each_suite_and_side(|mut pair| {
        let data = pattern(3 * FRAGMENT_LEN_MAX);
        let parts = [&data[..10], &[], &data[10..20_000], &data[20_000..], &[]];
        assert_eq!(pair.send(&parts), data);
    });
}

#[test]
fn nothing_to_seal_makes_no_record() {
    let mut pair = Pair::new(TLS13, Side::Server);
    let mut records = Vec::new();
    assert_eq!(pair.ours.seal(&[], usize::MAX, &mut records), Ok(0));
    assert_eq!(records, []);
}

#[test]
fn no_more_is_sealed_than_asked() {
    let mut pair = Pair::new(TLS13, Side::Server);
    let data = pattern(40_000);
    let mut records = Vec::new();
    let parts = [IoSlice::new(&data[..100]), IoSlice::new(&data[100..])];
    assert_eq!(pair.ours.seal(&parts, 20_000, &mut records), Ok(20_000));
    assert_eq!(pair.deliver(&records).unwrap(), data[..20_000]);
}

#[test]
fn a_moved_connection_goes_on_where_it_was() {
    each_suite_and_side(|mut pair| {
        for round in 0..5 {
            let data = pattern(20_000 + round);
            assert_eq!(pair.send(&[&data]), data);
            assert_eq!(pair.receive(&data), data);
            let fenced = pair.ours.fence();
            assert!(fenced.state().len() <= 180, "{} bytes", fenced.state().len());
            pair.ours = Connection::import(fenced.state()).unwrap();
        }
    });
}

#[test]
fn rustls_asks_for_new_keys_and_gets_one_answer() {
    for side in [Side::Server, Side::Client] {
        for suite in CipherSuite::ALL.into_iter().filter(|suite| suite.version() == Version::Tls13) {
            let mut pair = Pair::new(suite, side);
            for _ in 0..3 {
                pair.theirs.refresh_traffic_keys().unwrap();
                assert_eq!(pair.receive(b"under new keys"), b"under new keys");
            }
            assert!(pair.ours.answers_due());
            let mut answer = Vec::new();
            pair.ours.seal_answers(&mut answer).unwrap();
            assert_eq!(pair.split(&answer).len(), 1);
            assert!(!pair.ours.answers_due());
            assert_eq!(pair.deliver(&answer).unwrap(), b"");
            assert_eq!(pair.send(&[b"and back"]), b"and back");
        }
    }
}

#[test]
fn an_answer_goes_ahead_of_data() {
    let mut pair = Pair::new(TLS13, Side::Server);
    pair.theirs.refresh_traffic_keys().unwrap();
    pair.receive(b"");
    let mut records = Vec::new();
    pair.ours.seal(&[IoSlice::new(b"data")], usize::MAX, &mut records).unwrap();
    assert_eq!(pair.split(&records).len(), 2);
    assert_eq!(pair.deliver(&records).unwrap(), b"data");
}

#[test]
fn rustls_answers_when_we_ask_for_new_keys() {
    for side in [Side::Server, Side::Client] {
        for suite in CipherSuite::ALL.into_iter().filter(|suite| suite.version() == Version::Tls13) {
            let mut pair = Pair::new(suite, side);
            for request_peer in [true, false, true] {
                let mut records = Vec::new();
                pair.ours.update_keys(request_peer, &mut records).unwrap();
                pair.deliver(&records).unwrap();
                assert_eq!(pair.send(&[b"there"]), b"there");
                // rustls delays its answer until it has data to send.
                pair.theirs.writer().write_all(b"and back").unwrap();
                let opened: Vec<Opened> =
                    pair.their_records().iter_mut().map(|record| pair.ours.open(record).unwrap()).collect();
                let answered = usize::from(request_peer);
                assert_eq!(opened.len(), answered + 1);
                assert_eq!(opened[..answered], [Opened::KeyUpdate][..answered]);
                assert!(matches!(opened[answered], Opened::Data(_)));
                assert!(!pair.ours.answers_due());
            }
        }
    }
}

#[test]
fn tls12_has_no_key_update() {
    let mut pair = Pair::new(TLS12, Side::Server);
    assert_eq!(pair.ours.update_keys(true, &mut Vec::new()), Err(SealError::NoKeyUpdate));
}

#[test]
fn our_close_notify_ends_what_rustls_reads() {
    each_suite_and_side(|mut pair| {
        let mut records = Vec::new();
        pair.ours.seal_close_notify(&mut records).unwrap();
        assert_eq!(pair.deliver(&records).unwrap(), b"");
        assert_eq!(pair.theirs.reader().read(&mut [0]).unwrap(), 0, "a clean end");
        assert_eq!(pair.receive(b"the other direction lives"), b"the other direction lives");
        let refused = pair.ours.seal(&[IoSlice::new(b"x")], usize::MAX, &mut records);
        assert_eq!(refused, Err(SealError::Closed));
        assert_eq!(pair.ours.seal_close_notify(&mut records), Err(SealError::Closed));
    });
}

#[test]
fn close_notify_of_rustls_ends_what_we_open() {
    each_suite_and_side(|mut pair| {
        pair.theirs.send_close_notify();
        let mut records = pair.their_records();
        assert_eq!(records.len(), 1);
        assert!(!pair.ours.is_read_closed());
        assert_eq!(pair.ours.open(&mut records[0]), Ok(Opened::CloseNotify));
        assert!(pair.ours.is_read_closed());
        assert_eq!(pair.ours.open(&mut records[0]), Ok(Opened::Ignored));
        assert_eq!(pair.send(&[b"the other direction lives"]), b"the other direction lives");
    });
}

#[test]
fn our_alert_reaches_rustls() {
    each_suite_and_side(|mut pair| {
        let mut records = Vec::new();
        pair.ours.seal_alert(AlertDescription::DECODE_ERROR, &mut records).unwrap();
        let error = pair.deliver(&records).unwrap_err();
        assert_eq!(error, TheirError::AlertReceived(TheirAlert::DecodeError));
    });
}

#[test]
fn a_damaged_record_is_told_to_rustls_and_ends_the_connection() {
    each_suite_and_side(|mut pair| {
        pair.theirs.writer().write_all(b"precious").unwrap();
        let mut records = pair.their_records();
        let last = records[0].len() - 1;
        for damaged_at in [5, last / 2, last] {
            let mut damaged = records[0].clone();
            damaged[damaged_at] ^= 1;
            let fenced = pair.ours.fence();
            let mut copy = Connection::import(fenced.state()).unwrap();
            pair.ours = fenced.thaw();
            assert_eq!(copy.open(&mut damaged), Err(OpenError::BadRecordMac));
            assert_eq!(copy.open(&mut damaged), Err(OpenError::AlreadyFailed));
            assert_eq!(copy.header(&damaged), Err(OpenError::AlreadyFailed));
        }
        records[0][last] ^= 0x80;
        let error = pair.ours.open(&mut records[0]).unwrap_err();
        let mut alert = Vec::new();
        pair.ours.seal_alert(error.alert(), &mut alert).unwrap();
        let told = pair.deliver(&alert).unwrap_err();
        assert_eq!(told, TheirError::AlertReceived(TheirAlert::BadRecordMac));
    });
}

#[test]
fn an_alert_of_rustls_ends_both_directions() {
    each_suite_and_side(|mut pair| {
        let mut records = Vec::new();
        pair.ours.seal(&[IoSlice::new(b"x")], usize::MAX, &mut records).unwrap();
        *records.last_mut().unwrap() ^= 1;
        pair.deliver(&records).unwrap_err();
        let mut alerts = pair.their_records();
        let opened = pair.ours.open(&mut alerts[0]);
        assert_eq!(opened, Ok(Opened::FatalAlert(AlertDescription::BAD_RECORD_MAC)));
        let sealed = pair.ours.seal(&[IoSlice::new(b"x")], usize::MAX, &mut records);
        assert_eq!(sealed, Err(SealError::Closed));
        assert_eq!(pair.ours.open(&mut alerts[0]), Err(OpenError::AlreadyFailed));
    });
}

#[test]
fn anything_but_one_whole_record_is_refused() {
    let mut pair = Pair::new(TLS13, Side::Server);
    pair.theirs.writer().write_all(b"data").unwrap();
    let whole = pair.their_records().remove(0);
    let long = [&whole[..], &[0]].concat();
    for wrong in [&whole[..0], &whole[..4], &whole[..whole.len() - 1], &long] {
        let state = pair.ours.fence();
        let mut copy = Connection::import(state.state()).unwrap();
        pair.ours = state.thaw();
        assert_eq!(copy.open(&mut wrong.to_vec()), Err(OpenError::NotOneRecord));
    }
    assert_eq!(pair.ours.open(&mut whole.clone()), Ok(Opened::Data(5..9)));
}

#[test]
fn a_replayed_or_skipped_record_does_not_authenticate() {
    each_suite_and_side(|mut pair| {
        for data in [b"one", b"two"] {
            pair.theirs.writer().write_all(data).unwrap();
        }
        let mut records = pair.their_records();
        let mut again = records[0].clone();
        let fenced = pair.ours.fence();
        let mut copy = Connection::import(fenced.state()).unwrap();
        assert_eq!(copy.open(&mut records[1].clone()), Err(OpenError::BadRecordMac));
        let mut ours = fenced.thaw();
        assert!(matches!(ours.open(&mut records[0]), Ok(Opened::Data(_))));
        assert_eq!(ours.open(&mut again), Err(OpenError::BadRecordMac));
    });
}
