//! Handshakes that succeed, and their results.

use std::io::Read;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs::{ALL_CIPHER_SUITES, kx_group};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConnection, HandshakeKind};
use watari_handshake::{Established, Handshake, Stage};
use watari_record::{CipherSuite, Secrets, Side, Version};

use crate::pki::KeyKind;
use crate::records::{open, seal};
use crate::support::{
    Client, Done, Keeper, NAME, Server, connect, give, options, output_of, send_early, server, shake, shake_with,
};

/// Client and server exchange messages with the secrets.
#[track_caller]
fn converse(client: &mut ClientConnection, done: Done) {
    let request = done.records();
    let Secrets { suite, mut tx, mut rx, .. } = done.established.secrets;
    assert_eq!(open(suite, &mut rx, &request), b"a request behind Finished");
    let reply = seal(suite, &mut tx, b"a reply");
    give(client, &reply).unwrap();
    let mut read = [0; 7];
    client.reader().read_exact(&mut read).unwrap();
    assert_eq!(&read, b"a reply");
    send_early(client, b"another request");
    assert_eq!(open(suite, &mut rx, &output_of(client)), b"another request");
}

fn certificate_kind(suite: CipherSuite) -> Option<KeyKind> {
    let name = suite.name();
    let kinds = [("_RSA_", KeyKind::Rsa2048), ("_ECDSA_", KeyKind::P256)];
    kinds.into_iter().find(|(part, _)| name.contains(part)).map(|(_, kind)| kind)
}

#[test]
fn every_suite_with_every_kind_of_key() {
    let mut established = 0;
    for kind in KeyKind::BOTH {
        let config = server(&options(&[kind]));
        for &suite in ALL_CIPHER_SUITES {
            let expected = CipherSuite::from_iana(suite.suite().into()).unwrap();
            let mut client = Client { suites: vec![suite], versions: vec![suite.version()], ..Client::default() };
            client.alpn = vec![b"http/1.1".to_vec()];
            let mut client = client.connect(NAME);
            send_early(&mut client, b"a request behind Finished");
            let done = shake(&config, &mut client);
            if certificate_kind(expected).is_some_and(|needed| needed != kind) {
                assert_eq!(done.unwrap_err().cause.label(), "no_common_suite");
                continue;
            }
            let done = done.unwrap();
            let info = &done.established.info;
            assert_eq!(info.suite, expected);
            assert_eq!(info.version, expected.version());
            assert_eq!(done.established.secrets.suite, expected);
            assert_eq!(done.established.secrets.side, Side::Server);
            assert_eq!(info.server_name.as_deref(), Some(NAME));
            assert!(info.resumed.is_none());
            assert_eq!(info.client_certificate, None);
            assert!(info.alpn.is_empty(), "the server speaks no ALPN here");
            converse(&mut client, done);
            established += 1;
        }
    }
    assert_eq!(established, 3 + 3 + 6);
}

#[test]
fn sequence_numbers_are_those_after_the_handshake() {
    // TLS 1.3: two tickets under the application keys, in one record or two. TLS 1.2: each Finished was record 0.
    for (version, tx, rx) in [(&TLS13, 1..=2, 0), (&TLS12, 1..=1, 1)] {
        let mut client = Client::of_version(version).connect(NAME);
        let config = server(&options(&[KeyKind::P256]));
        let done = shake_with(&config, &Keeper::tickets(), &mut client).unwrap();
        let Established { secrets, .. } = *done.established;
        assert!(tx.contains(&secrets.tx.sequence), "{}", secrets.tx.sequence);
        assert_eq!(secrets.rx.sequence, rx);
    }
}

/// In TLS 1.2, a client sends first only if it resumes a session: then its Finished is the last.
#[test]
fn what_rides_behind_finished_stays_unopened() {
    let config = server(&options(&[KeyKind::P256]));
    for (version, resumed) in [(&TLS12, true), (&TLS13, false), (&TLS13, true)] {
        let (client_config, keeper) = (Client::of_version(version).config(), Keeper::tickets());
        if resumed {
            shake_with(&config, &keeper, &mut connect(&client_config, NAME)).unwrap();
        }
        let mut client = connect(&client_config, NAME);
        send_early(&mut client, b"first");
        send_early(&mut client, b"second");
        let Done { established, unread, answer } = shake_with(&config, &keeper, &mut client).unwrap();
        assert_eq!(established.info.resumed.is_some(), resumed);
        assert_eq!(answer, b"");
        let Secrets { suite, mut rx, .. } = established.secrets;
        let first_len = 5 + usize::from(u16::from_be_bytes([unread[3], unread[4]]));
        assert_eq!(open(suite, &mut rx, &unread[..first_len]), b"first");
        assert_eq!(open(suite, &mut rx, &unread[first_len..]), b"second");
    }
}

#[test]
fn an_incomplete_record_behind_finished_stays_too() {
    let config = server(&options(&[KeyKind::P256]));
    let mut client = Client::default().connect(NAME);
    let mut server = Server::new(&config, &Keeper::default());
    assert_eq!(server.handshake.stage(), Stage::ClientHello);
    let hello = output_of(&mut client);
    assert!(server.arrive(&hello, &mut client).unwrap().is_none());
    assert_eq!(server.handshake.stage(), Stage::Finished);
    let mut flight = output_of(&mut client);
    flight.extend([23, 3, 3]);
    assert!(server.arrive(&flight, &mut client).unwrap().is_some());
    assert_eq!(server.unread, [23, 3, 3]);
    assert_eq!(server.handshake.stage(), Stage::Over);
}

#[test]
fn post_quantum_key_exchange_is_what_clients_get_that_prefer_it() {
    let config = server(&options(&[KeyKind::P256]));
    let group = |client: Client| {
        let mut client = client.connect(NAME);
        shake(&config, &mut client).unwrap().established.info.group
    };
    assert_eq!(group(Client::default()), Some("X25519MLKEM768"));
    assert_eq!(group(Client { groups: vec![kx_group::X25519], ..Client::default() }), Some("X25519"));
    assert_eq!(group(Client { groups: vec![kx_group::SECP384R1], ..Client::of_version(&TLS12) }), Some("secp384r1"));
}

#[test]
fn a_client_is_asked_for_a_key_share_it_did_not_send() {
    let config = server(&options(&[KeyKind::P256]));
    let groups: Vec<&'static dyn rustls::crypto::SupportedKxGroup> = vec![kx_group::MLKEM768, kx_group::SECP256R1];
    let mut client = Client { groups, ..Client::default() }.connect(NAME);
    send_early(&mut client, b"a request behind Finished");
    let done = shake(&config, &mut client).unwrap();
    assert_eq!(client.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
    assert_eq!(done.established.info.group, Some("secp256r1"));
    assert_eq!(done.established.info.version, Version::Tls13);
    converse(&mut client, done);
}

#[test]
fn the_server_prefers_protocols_in_its_order() {
    let (h2, http): (&[u8], &[u8]) = (b"h2", b"http/1.1");
    let mut options = options(&[KeyKind::P256]);
    options.alpn = vec![h2.to_vec(), http.to_vec()];
    let config = server(&options);
    let cases: [(&[&[u8]], &[u8]); 5] =
        [(&[http, h2], h2), (&[h2], h2), (&[http], http), (&[b"spdy/3", http], http), (&[], b"")];
    for version in [&TLS12, &TLS13] {
        for (offered, agreed) in cases {
            let alpn = offered.iter().map(|protocol| protocol.to_vec()).collect();
            let mut client = Client { alpn, ..Client::of_version(version) }.connect(NAME);
            let done = shake(&config, &mut client).unwrap();
            assert_eq!(done.established.info.alpn, agreed);
            assert_eq!(client.alpn_protocol().unwrap_or_default(), agreed);
        }
    }
}

#[test]
fn nothing_shows_a_secret() {
    let config = server(&options(&[KeyKind::P256]));
    let done = shake(&config, &mut Client::default().connect(NAME)).unwrap();
    let shown = format!("{:?} {:?}", done.established, Handshake::new(&config, &Arc::default()));
    assert!(shown.contains(NAME), "{shown}");
    assert!(!shown.contains("secrets"), "{shown}");
}

#[test]
fn a_handshake_can_go_to_another_thread() {
    fn is_send<T: Send>() {}
    is_send::<Handshake>();
    is_send::<Established>();
}
