//! Peers that violate the protocol, and peers that use its rare features.

use super::*;
use crate::connection::DATALESS_RECORDS_MAX;
use crate::{AlertDescription, FRAGMENT_LEN_MAX, PeerMisbehaved};

const KEY_UPDATE_REQUESTED: [u8; 5] = [24, 0, 0, 1, 1];
const KEY_UPDATE_NOT_REQUESTED: [u8; 5] = [24, 0, 0, 1, 0];
const EMPTY_CLIENT_HELLO: [u8; 4] = [1, 0, 0, 0];
const NO_RENEGOTIATION: u8 = 100;

fn server_opens_inner(inner: &[u8]) -> Result<Opened, OpenError> {
    Rig::new(TLS13).server.open(&mut tls13_record(inner))
}

fn refused(misbehaved: PeerMisbehaved) -> Result<Opened, OpenError> {
    Err(OpenError::PeerMisbehaved(misbehaved))
}

#[test]
fn padding_is_removed() {
    for padding in [0, 1, 1000] {
        let inner = [b"data", &[23][..], &vec![0; padding]].concat();
        assert_eq!(server_opens_inner(&inner), Ok(Opened::Data(5..9)));
    }
    let longest = [&vec![7; FRAGMENT_LEN_MAX][..], &[23]].concat();
    assert_eq!(server_opens_inner(&longest), Ok(Opened::Data(5..5 + FRAGMENT_LEN_MAX)));
}

/// RFC 8446, section 5.4.
#[test]
fn nothing_but_padding_is_refused() {
    for len in [1, 16, FRAGMENT_LEN_MAX + 1] {
        assert_eq!(server_opens_inner(&vec![0; len]), refused(PeerMisbehaved::NoContentType));
    }
    assert_eq!(PeerMisbehaved::NoContentType.alert(), AlertDescription::UNEXPECTED_MESSAGE);
}

#[test]
fn a_record_too_short_to_be_one_does_not_authenticate() {
    for (suite, shortest) in [(TLS13, 16), (TLS12, 24)] {
        for len in 0..=shortest {
            let mut record = vec![23, 3, 3, 0, len];
            record.resize(5 + usize::from(len), 0);
            assert_eq!(Rig::new(suite).server.open(&mut record), Err(OpenError::BadRecordMac));
        }
    }
}

/// RFC 8446, section 5.4: the limit is on content, type and padding together.
#[test]
fn too_much_plaintext_is_refused() {
    let padded = [&[7, 23][..], &[0; FRAGMENT_LEN_MAX]].concat();
    assert_eq!(server_opens_inner(&padded), refused(PeerMisbehaved::PlaintextTooLong));
    assert_eq!(PeerMisbehaved::PlaintextTooLong.alert(), AlertDescription::RECORD_OVERFLOW);

    let mut rig = Rig::new(TLS12);
    let key = LessSafeKey::new(UnboundKey::new(TLS12.aead().algorithm(), &[0xc1; 16]).unwrap());
    let mut sealed = vec![7; FRAGMENT_LEN_MAX + 1];
    let aad = Aad::from([0, 0, 0, 0, 0, 0, 0, 0, 23, 3, 3, 0x40, 0x01]);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key([0x3e; 12]), aad, &mut sealed).unwrap();
    let mut record = [&[23, 3, 3, 0x40, 0x19][..], &[0x3e; 8], &sealed].concat();
    assert_eq!(rig.server.open(&mut record), refused(PeerMisbehaved::PlaintextTooLong));
}

#[test]
fn types_that_do_not_belong_there_are_refused() {
    assert_eq!(server_opens_inner(&[1, 20]), refused(PeerMisbehaved::ChangeCipherSpec));
    assert_eq!(server_opens_inner(&[1, 99]), refused(PeerMisbehaved::UnknownContentType(99)));
    let refused_by_server = Rig::new(TLS12).client_sends(ContentType::ChangeCipherSpec, &[1]);
    assert_eq!(refused_by_server, refused(PeerMisbehaved::ChangeCipherSpec));
}

#[test]
fn only_data_may_be_empty() {
    for suite in CipherSuite::ALL {
        assert_eq!(Rig::new(suite).client_sends_data(b""), Ok(Opened::Ignored));
        for content_type in [ContentType::Alert, ContentType::Handshake] {
            assert_eq!(Rig::new(suite).client_sends(content_type, b""), refused(PeerMisbehaved::EmptyFragment));
        }
    }
}

#[test]
fn alerts_are_two_bytes() {
    for suite in [TLS12, TLS13] {
        for wrong in [&[1][..], &[1, 0, 1]] {
            let opened = Rig::new(suite).client_sends(ContentType::Alert, wrong);
            assert_eq!(opened, refused(PeerMisbehaved::WrongAlertLength));
        }
    }
}

/// RFC 8446, section 6: the level has no meaning.
#[test]
fn tls13_alerts_are_fatal_but_for_closure() {
    for level in [0, 1, 2, 255] {
        let send = |description| Rig::new(TLS13).client_sends(ContentType::Alert, &[level, description]);
        assert_eq!(send(0), Ok(Opened::CloseNotify));
        assert_eq!(send(90), Ok(Opened::Ignored));
        assert_eq!(send(100), Ok(Opened::FatalAlert(AlertDescription::NO_RENEGOTIATION)));
        assert_eq!(send(255), Ok(Opened::FatalAlert(AlertDescription(255))));
    }
}

/// RFC 5246, section 7.2.
#[test]
fn tls12_alerts_are_what_their_level_says() {
    let send = |level, description| Rig::new(TLS12).client_sends(ContentType::Alert, &[level, description]);
    assert_eq!(send(1, 0), Ok(Opened::CloseNotify));
    assert_eq!(send(1, 90), Ok(Opened::Ignored));
    assert_eq!(send(1, 112), Ok(Opened::Ignored));
    assert_eq!(send(2, 112), Ok(Opened::FatalAlert(AlertDescription(112))));
    assert_eq!(send(3, 112), refused(PeerMisbehaved::IllegalAlertLevel(3)));
}

#[test]
fn a_key_update_may_come_in_pieces() {
    let mut rig = Rig::new(TLS13);
    for byte in &KEY_UPDATE_REQUESTED[..4] {
        assert_eq!(rig.client_sends(ContentType::Handshake, &[*byte]), Ok(Opened::Ignored));
    }
    assert_eq!(rig.client_sends(ContentType::Handshake, &[1]), Ok(Opened::KeyUpdate));
    rig.client.tx.update();
    assert_eq!(rig.client_sends_data(b"under new keys"), Ok(Opened::Data(5..19)));
}

/// RFC 8446, section 5.1.
#[test]
fn nothing_may_come_between_the_pieces() {
    for (content_type, content) in [(ContentType::ApplicationData, &b"data"[..]), (ContentType::Alert, &[1, 0])] {
        let mut rig = Rig::new(TLS13);
        assert_eq!(rig.client_sends(ContentType::Handshake, &KEY_UPDATE_REQUESTED[..2]), Ok(Opened::Ignored));
        assert_eq!(rig.client_sends(content_type, content), refused(PeerMisbehaved::Interleaved));
    }
}

/// RFC 8446, section 5.1: bytes after it in the same record would be under old keys.
#[test]
fn a_key_update_ends_its_record() {
    let twice = [KEY_UPDATE_REQUESTED, KEY_UPDATE_REQUESTED].concat();
    let opened = Rig::new(TLS13).client_sends(ContentType::Handshake, &twice);
    assert_eq!(opened, refused(PeerMisbehaved::KeyUpdateNotAtBoundary));
}

#[test]
fn after_a_key_update_old_keys_open_nothing() {
    let mut rig = Rig::new(TLS13);
    assert_eq!(rig.client_sends(ContentType::Handshake, &KEY_UPDATE_NOT_REQUESTED), Ok(Opened::KeyUpdate));
    assert!(!rig.server.answers_due());
    assert_eq!(rig.client_sends_data(b"under old keys"), Err(OpenError::BadRecordMac));
}

/// RFC 8446, section 4.6.3: one answer for any number of requests.
#[test]
fn requests_for_new_keys_get_one_answer() {
    let mut rig = Rig::new(TLS13);
    for _ in 0..10 {
        assert_eq!(rig.client_sends(ContentType::Handshake, &KEY_UPDATE_REQUESTED), Ok(Opened::KeyUpdate));
        rig.client.tx.update();
    }
    assert_eq!(rig.answers(), [Opened::KeyUpdate]);
    assert!(!rig.client.answers_due(), "an answer is no request");
    assert_eq!(rig.answers(), []);
}

#[test]
fn keys_changed_of_our_own_accord_are_an_answer() {
    let mut rig = Rig::new(TLS13);
    rig.client_sends(ContentType::Handshake, &KEY_UPDATE_REQUESTED).unwrap();
    rig.server.update_keys(false, &mut Vec::new()).unwrap();
    assert!(!rig.server.answers_due());
}

#[test]
fn a_request_of_ours_is_no_answer() {
    let mut rig = Rig::new(TLS13);
    rig.client_sends(ContentType::Handshake, &KEY_UPDATE_REQUESTED).unwrap();
    let mut records = Vec::new();
    rig.server.update_keys(true, &mut records).unwrap();
    assert_eq!(open_all(&mut rig.client, &mut records), [Opened::KeyUpdate, Opened::KeyUpdate]);
}

#[test]
fn a_server_refuses_messages_only_servers_send() {
    let ticket = Rig::new(TLS13).client_sends(ContentType::Handshake, &[4, 0, 0, 0]);
    assert_eq!(ticket, refused(PeerMisbehaved::UnexpectedHandshakeMessage(4)));
    let hello_request = Rig::new(TLS12).client_sends(ContentType::Handshake, &[0, 0, 0, 0]);
    assert_eq!(hello_request, refused(PeerMisbehaved::UnexpectedHandshakeMessage(0)));
}

/// RFC 5246, section 7.2.2.
#[test]
fn renegotiation_is_refused_and_life_goes_on() {
    let mut rig = Rig::new(TLS12);
    for _ in 0..3 {
        assert_eq!(rig.client_sends(ContentType::Handshake, &EMPTY_CLIENT_HELLO), Ok(Opened::Ignored));
    }
    let mut record = Vec::new();
    rig.server.seal_answers(&mut record).unwrap();
    let header = rig.client.header(&record).unwrap().unwrap();
    assert_eq!(header.record_len(), record.len(), "one answer for three wishes");
    let (content_type, plaintext) = rig.client.rx.open(header, &mut record).unwrap();
    assert_eq!((content_type, &record[plaintext]), (ContentType::Alert, &[1, NO_RENEGOTIATION][..]));
    assert!(!rig.server.answers_due());
    assert_eq!(rig.client_sends_data(b"data"), Ok(Opened::Data(13..17)));
}

#[test]
fn a_flood_without_data_is_stopped() {
    let floods: [(CipherSuite, ContentType, &[u8]); 5] = [
        (TLS13, ContentType::ApplicationData, b""),
        (TLS13, ContentType::Handshake, &KEY_UPDATE_REQUESTED),
        (TLS13, ContentType::Alert, &[1, 90]),
        (TLS12, ContentType::Alert, &[1, 90]),
        (TLS12, ContentType::Handshake, &EMPTY_CLIENT_HELLO),
    ];
    for (suite, content_type, content) in floods {
        let mut rig = Rig::new(suite);
        let mut send = || {
            let opened = rig.client_sends(content_type, content);
            if content == KEY_UPDATE_REQUESTED {
                rig.client.tx.update();
            }
            opened
        };
        for _ in 0..DATALESS_RECORDS_MAX {
            send().unwrap();
        }
        assert_eq!(send(), refused(PeerMisbehaved::TooManyRecordsWithoutData));
    }
}

#[test]
fn data_makes_up_for_records_without() {
    let mut rig = Rig::new(TLS13);
    for _ in 0..3 {
        for _ in 0..DATALESS_RECORDS_MAX {
            rig.client_sends_data(b"").unwrap();
        }
        assert_eq!(rig.client_sends_data(b"data"), Ok(Opened::Data(5..9)));
    }
}

#[test]
fn a_close_notify_after_many_records_without_data_is_still_one() {
    let mut rig = Rig::new(TLS13);
    for _ in 0..DATALESS_RECORDS_MAX {
        rig.client_sends_data(b"").unwrap();
    }
    assert_eq!(rig.client_sends(ContentType::Alert, &[1, 0]), Ok(Opened::CloseNotify));
}

#[test]
fn a_closed_end_answers_nothing() {
    let mut rig = Rig::new(TLS13);
    rig.server.seal_close_notify(&mut Vec::new()).unwrap();
    rig.client_sends(ContentType::Handshake, &KEY_UPDATE_REQUESTED).unwrap();
    assert!(!rig.server.answers_due());
    let mut records = Vec::new();
    assert_eq!(rig.server.seal_answers(&mut records), Ok(()));
    assert_eq!(records, []);
}
