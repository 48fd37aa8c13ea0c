//! Input in pieces of any size, and with any content.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use rustls::version::{TLS12, TLS13};
use watari_handshake::{Failed, Handshake, ServerConfig};

use crate::pki::KeyKind;
use crate::records::open;
use crate::support::{Client, Keeper, NAME, Server, options, output_of, send_early, server};

fn config() -> &'static ServerConfig {
    static CONFIG: OnceLock<ServerConfig> = OnceLock::new();
    CONFIG.get_or_init(|| server(&options(&[KeyKind::P256])))
}

fn client(tls13: bool) -> Client {
    Client::of_version(if tls13 { &TLS13 } else { &TLS12 })
}

/// The first flight of a client that offers both versions.
fn hello() -> Vec<u8> {
    output_of(&mut Client::default().connect(NAME))
}

/// `message` as records of at most `fragment` bytes.
fn fragmented(hello: &[u8], fragment: usize) -> Vec<u8> {
    let records = hello[5..].chunks(fragment).map(|piece| {
        let len = u16::try_from(piece.len()).unwrap().to_be_bytes();
        [&[22, 3, 1, len[0], len[1]], piece].concat()
    });
    records.flatten().collect()
}

/// The offset of the last record of `flight`.
fn last_record(flight: &[u8]) -> usize {
    let record_len = |at: usize| 5 + usize::from(u16::from_be_bytes([flight[at + 3], flight[at + 4]]));
    let next = |at: &usize| Some(at + record_len(*at)).filter(|next| *next < flight.len());
    std::iter::successors(Some(0), next).last().unwrap()
}

/// Every refusal of a `ClientHello` ends with a fatal alert: in plaintext, unless a TLS 1.3 server has sent its flight.
#[track_caller]
fn assert_announced(failed: &Failed) {
    let alert = &failed.output[last_record(&failed.output)..];
    match alert {
        [21, 3, 3, 0, 2, 2, _] => assert_eq!(alert.len(), failed.output.len(), "{}", failed.cause),
        // An alert, its type and a tag.
        [23, 3, 3, 0, 19, ..] => assert_eq!(failed.output[0], 22, "{}", failed.cause),
        _ => panic!("{}: {alert:?}", failed.cause),
    }
}

#[test]
fn byte_by_byte() {
    for tls13 in [true, false] {
        let mut client = client(tls13).connect(NAME);
        send_early(&mut client, b"a request");
        let done = Server::new(config(), &Keeper::default()).finish(&mut client, 1).unwrap();
        let received = done.records();
        let mut secrets = done.established.secrets;
        assert_eq!(open(secrets.suite, &mut secrets.rx, &received), b"a request");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_pieces_of_any_size(tls13: bool, piece in 1_usize..3000, request in proptest::collection::vec(any::<u8>(), 1..2000)) {
        let mut client = client(tls13).connect(NAME);
        send_early(&mut client, &request);
        let done = Server::new(config(), &Keeper::default()).finish(&mut client, piece).unwrap();
        let received = done.records();
        let mut secrets = done.established.secrets;
        prop_assert_eq!(open(secrets.suite, &mut secrets.rx, &received), request);
    }

    #[test]
    fn a_hello_in_fragments_of_any_size(fragment in 1_usize..2000) {
        let mut client = Client::default().connect(NAME);
        let hello = fragmented(&output_of(&mut client), fragment);
        let mut server = Server::new(config(), &Keeper::default());
        prop_assert!(server.arrive(&hello, &mut client).unwrap().is_none());
        prop_assert!(server.finish(&mut client, usize::MAX).is_ok());
    }

    #[test]
    fn any_bytes_are_refused_with_an_alert_or_waited_on(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(failed) = Handshake::new(config(), &Arc::default()).receive(&bytes) {
            assert_announced(&failed);
        }
    }

    #[test]
    fn a_damaged_hello_is_answered_or_refused_with_an_alert(at: prop::sample::Index, value: u8) {
        let mut hello = hello();
        *at.get_mut(&mut hello) = value;
        match Handshake::new(config(), &Arc::default()).receive(&hello) {
            Ok(progress) => prop_assert!(progress.established.is_none()),
            Err(failed) => assert_announced(&failed),
        }
    }

    #[test]
    fn a_damaged_finished_is_refused(tls13: bool, at: prop::sample::Index, flip in 1_u8..) {
        let mut client = client(tls13).connect(NAME);
        let mut server = Server::new(config(), &Keeper::default());
        let hello = output_of(&mut client);
        server.arrive(&hello, &mut client).unwrap();
        let mut flight = output_of(&mut client);
        let payload = last_record(&flight) + 5;
        *at.get_mut(&mut flight[payload..]) ^= flip;
        prop_assert!(server.handshake.receive(&flight).is_err());
    }
}
