//! Clients that get no connection: the cause, the label and the exact alert of each.

use std::sync::Arc;

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConnection, SignatureScheme};
use watari_handshake::{Failed, Handshake, HandshakeError, ServerConfig, ServerOptions, Stage};

use crate::pki::{Authority, KeyKind};
use crate::support::{Client, Keeper, NAME, Server, give, options, output_of, server, shake};

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const HANDSHAKE_FAILURE: u8 = 40;
const DECODE_ERROR: u8 = 50;
const PROTOCOL_VERSION: u8 = 70;
const MISSING_EXTENSION: u8 = 109;
const UNRECOGNIZED_NAME: u8 = 112;
const NO_APPLICATION_PROTOCOL: u8 = 120;

fn config() -> ServerConfig {
    server(&ServerOptions { alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()], ..options(&[KeyKind::P256]) })
}

/// A fatal alert in plaintext.
fn alert(description: u8) -> Vec<u8> {
    vec![21, 3, 3, 0, 2, 2, description]
}

#[track_caller]
fn assert_refused(failed: &Failed, label: &str, description: u8) {
    assert_eq!(failed.cause.label(), label, "{}", failed.cause);
    assert_eq!(failed.output, alert(description), "{}", failed.cause);
}

/// Feeds a fresh handshake with `bytes`.
#[track_caller]
fn refused(bytes: &[u8]) -> Failed {
    let mut handshake = Handshake::new(&config(), &Arc::default());
    let failed = handshake.receive(bytes).unwrap_err();
    assert_eq!(handshake.stage(), Stage::Over);
    assert_eq!(handshake.receive(bytes).unwrap_err().cause, HandshakeError::Over);
    failed
}

fn record(content_type: u8, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[content_type, 3, 1, len[0], len[1]], payload].concat()
}

/// A `ClientHello` without extensions, as a handshake message.
fn bare_hello(version: [u8; 2], suites: &[u8]) -> Vec<u8> {
    let suites_len = u16::try_from(suites.len()).unwrap().to_be_bytes();
    let body = [&version[..], &[7; 32], &[0], &suites_len, suites, &[1, 0]].concat();
    [&[1, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat()
}

#[test]
fn what_is_not_tls() {
    assert_refused(&refused(b"GET / HTTP/1.1\r\n\r\n"), "plain_http", UNEXPECTED_MESSAGE);
    assert_refused(&refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), "plain_http", UNEXPECTED_MESSAGE);
    assert_refused(&refused(b"SSH-2.0-OpenSSH_9.2\r\n"), "garbage", UNEXPECTED_MESSAGE);
    assert_refused(&refused(&[0; 64]), "garbage", UNEXPECTED_MESSAGE);
    assert_refused(&refused(&[22, 2, 0, 0, 1, 0]), "garbage", UNEXPECTED_MESSAGE);
    // SSL 2.0: a record of 46 bytes, CLIENT-HELLO, version 3.1.
    assert_refused(&refused(&[0x80, 0x2e, 1, 3, 1, 0, 21, 0, 0, 0, 16]), "sslv2_hello", PROTOCOL_VERSION);
}

#[test]
fn records_that_are_no_hello() {
    assert_refused(&refused(&record(21, &[2, 40])), "unexpected_message", UNEXPECTED_MESSAGE);
    assert_refused(&refused(&record(23, b"data")), "unexpected_message", UNEXPECTED_MESSAGE);
    assert_refused(&refused(&record(20, &[1])), "unexpected_message", UNEXPECTED_MESSAGE);
    // A Finished.
    assert_refused(&refused(&record(22, &[20, 0, 0, 1, 0])), "unexpected_message", UNEXPECTED_MESSAGE);
    assert_refused(&refused(&record(22, &[])), "malformed", DECODE_ERROR);
    assert_refused(&refused(&record(22, &[1, 0, 0, 2, 3, 3])), "malformed", DECODE_ERROR);
}

#[test]
fn records_that_are_too_long() {
    assert_refused(&refused(&[22, 3, 1, 0x40, 0x01]), "record_too_long", RECORD_OVERFLOW);
    let mut handshake = Handshake::new(&config(), &Arc::default());
    let progress = handshake.receive(&[22, 3, 1, 0x40, 0x00]).unwrap();
    assert_eq!(progress.consumed, 0);
}

#[test]
fn a_hello_that_has_no_end() {
    // It announces 65,535 bytes, so rustls waits for them; the records around it make it too much.
    let message = [&[1, 0, 0xff, 0xff][..], &vec![0; 0xffff]].concat();
    let pieces: Vec<u8> = message.chunks(1000).flat_map(|piece| record(22, piece)).collect();
    let failed = refused(&pieces);
    assert_refused(&failed, "too_large", DECODE_ERROR);
    // It announces more than any message may have.
    assert_refused(&refused(&record(22, &[1, 0xff, 0xff, 0xff, 3, 3])), "malformed", DECODE_ERROR);
}

#[test]
fn versions_suites_and_groups_of_the_past() {
    let ecdhe_gcm = [0xc0, 0x2b];
    assert_refused(&refused(&record(22, &bare_hello([3, 1], &ecdhe_gcm))), "no_common_version", PROTOCOL_VERSION);
    assert_refused(&refused(&record(22, &bare_hello([3, 2], &ecdhe_gcm))), "no_common_version", PROTOCOL_VERSION);
    assert_refused(&refused(&record(22, &bare_hello([3, 0], &ecdhe_gcm))), "no_common_version", PROTOCOL_VERSION);
    // TLS 1.2 without the extension that lists signature algorithms.
    let failed = refused(&record(22, &bare_hello([3, 3], &ecdhe_gcm)));
    assert_refused(&failed, "incompatible", HANDSHAKE_FAILURE);

    let refused_client = |client: Client| shake(&config(), &mut client.connect(NAME)).unwrap_err();
    let mut rsa_only = Client::of_version(&TLS12);
    rsa_only.suites.retain(|suite| format!("{:?}", suite.suite()).contains("ECDHE_RSA"));
    assert_refused(&refused_client(rsa_only), "no_common_suite", HANDSHAKE_FAILURE);
    for version in [&TLS12, &TLS13] {
        let failed = refused_client(Client::of_version(version).verifying(SignatureScheme::RSA_PSS_SHA256));
        assert_refused(&failed, "no_common_signature", HANDSHAKE_FAILURE);
    }
    let unknown_group = Client { groups: vec![kx_group::MLKEM768], ..Client::of_version(&TLS13) };
    assert_refused(&refused_client(unknown_group), "no_common_group", HANDSHAKE_FAILURE);
}

#[test]
fn names_and_protocols_that_are_not_served() {
    for version in [&TLS12, &TLS13] {
        let client = || Client::of_version(version);
        let refused = |client: Client, name: &str| shake(&config(), &mut client.connect(name)).unwrap_err();
        let unknown = refused(client(), "nowhere.example.com");
        assert_refused(&unknown, "unknown_sni", UNRECOGNIZED_NAME);
        assert_eq!(unknown.cause, HandshakeError::UnknownName("nowhere.example.com".to_owned()));
        let nameless = refused(Client { sends_name: false, ..client() }, NAME);
        assert_refused(&nameless, "no_sni", MISSING_EXTENSION);
        let alien = refused(Client { alpn: vec![b"spdy/3".to_vec()], ..client() }, NAME);
        assert_refused(&alien, "no_common_alpn", NO_APPLICATION_PROTOCOL);
    }
}

/// A handshake in which the server has answered, and what the client would go on with.
fn midway(client: Client) -> (Server, ClientConnection, Vec<u8>) {
    let mut server = Server::new(&config(), &Keeper::default());
    let mut client = client.connect(NAME);
    let hello = output_of(&mut client);
    assert!(server.arrive(&hello, &mut client).unwrap().is_none());
    let flight = output_of(&mut client);
    (server, client, flight)
}

#[track_caller]
fn assert_refused_midway(client: Client, bytes: &[u8], label: &str, seen: AlertDescription) {
    let (mut server, mut client, _) = midway(client);
    let failed = server.handshake.receive(bytes).unwrap_err();
    assert_eq!(failed.cause.label(), label, "{}", failed.cause);
    assert_eq!(give(&mut client, &failed.output), Err(rustls::Error::AlertReceived(seen)), "{}", failed.cause);
}

#[test]
fn alerts_after_the_servers_flight_are_sealed_as_the_client_expects() {
    for version in [&TLS12, &TLS13] {
        let client = || Client::of_version(version);
        assert_refused_midway(client(), b"GET / HTTP/1.1", "garbage", AlertDescription::DecodeError);
        assert_refused_midway(client(), &[22, 3, 3, 0x48, 0x01], "record_too_long", AlertDescription::DecodeError);
    }
    // Protected records are all that TLS 1.3 expects here, but for alerts.
    let plaintext_finished = record(22, &[20, 0, 0, 1, 0]);
    assert_refused_midway(
        Client::of_version(&TLS13),
        &plaintext_finished,
        "undecryptable",
        AlertDescription::BadRecordMac,
    );
    assert_refused_midway(
        Client::of_version(&TLS12),
        &plaintext_finished,
        "unexpected_message",
        AlertDescription::UnexpectedMessage,
    );
}

#[test]
fn a_certificate_chain_that_has_no_end() {
    let message = [&[11, 0, 0xff, 0xf0][..], &vec![0; 0xfff0]].concat();
    let pieces: Vec<u8> = message.chunks(1000).flat_map(|piece| record(22, piece)).collect();
    assert_refused_midway(Client::of_version(&TLS12), &pieces, "too_large", AlertDescription::DecodeError);
}

#[test]
fn a_damaged_finished() {
    for version in [&TLS12, &TLS13] {
        let (mut server, mut client, mut flight) = midway(Client::of_version(version));
        *flight.last_mut().unwrap() ^= 1;
        let failed = server.handshake.receive(&flight).unwrap_err();
        assert_eq!(failed.cause, HandshakeError::Undecryptable);
        let seen = give(&mut client, &failed.output);
        assert_eq!(seen, Err(rustls::Error::AlertReceived(AlertDescription::BadRecordMac)));
    }
}

#[test]
fn a_client_that_does_not_trust_the_certificate_says_so() {
    let stranger = Authority::new("strangers").issue(KeyKind::P256, &[NAME]);
    let config = server(&ServerOptions { certificates: vec![stranger], ..ServerOptions::default() });
    for version in [&TLS12, &TLS13] {
        let mut handshake = Handshake::new(&config, &Arc::default());
        let mut client = Client::of_version(version).connect(NAME);
        let progress = handshake.receive(&output_of(&mut client)).unwrap();
        give(&mut client, &progress.output).unwrap_err();
        let failed = handshake.receive(&output_of(&mut client)).unwrap_err();
        assert_eq!(failed.cause, HandshakeError::PeerAlert(AlertDescription::UnknownCA));
        assert_eq!(failed.cause.label(), "peer_alert");
        assert_eq!(failed.output, b"");
    }
}

#[test]
fn causes_read_as_sentences() {
    let cause = HandshakeError::ClosedEarly(Stage::Finished);
    assert_eq!(cause.to_string(), "the client closed the connection before its Finished");
    let cause = HandshakeError::TimedOut(Stage::ClientHello);
    assert_eq!(cause.to_string(), "the client took too long: time is up before its ClientHello was complete");
}
