//! Clients that are refused: the cause, the label and the exact alert of each.

use std::sync::{Arc, Mutex};

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, ClientConnection, KeyLog, SignatureScheme};
use watari_handshake::{Failed, Handshake, HandshakeError, Policy, ServerConfig, ServerOptions, Stage};
use watari_record::{CipherSuite, Direction, DirectionSecret, Version};
use zeroize::Zeroizing;

use crate::pki::{Authority, KeyKind};
use crate::records::seal_as;
use crate::support::{Client, Keeper, NAME, Server, connect, give, options, output_of, server, shake};

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const HANDSHAKE_FAILURE: u8 = 40;
const ILLEGAL_PARAMETER: u8 = 47;
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

/// Passes `bytes` to a new handshake.
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
    // RFC 8446, section 5.1.
    assert_refused(&refused(&record(22, &[])), "unexpected_message", UNEXPECTED_MESSAGE);
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
    // It announces 65,535 bytes, so rustls waits for them. With the records around it, the message is too long.
    let message = [&[1, 0, 0xff, 0xff][..], &vec![0; 0xffff]].concat();
    let pieces: Vec<u8> = message.chunks(1000).flat_map(|piece| record(22, piece)).collect();
    let failed = refused(&pieces);
    assert_refused(&failed, "too_large", DECODE_ERROR);
    // It announces more than the limit of a message.
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

/// A `ClientHello` with these extensions, as a handshake message in a record.
fn hello(version: [u8; 2], suites: &[u8], extensions: &[(u16, &[u8])]) -> Vec<u8> {
    let len = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let extension = |(kind, body): &(u16, &[u8])| [&kind.to_be_bytes()[..], &len(body), body].concat();
    let extensions: Vec<u8> = extensions.iter().flat_map(extension).collect();
    let body = [&version[..], &[7; 32], &[0], &len(suites), suites, &[1, 0], &len(&extensions), &extensions].concat();
    record(22, &[&[1, 0][..], &len(&body), &body].concat())
}

/// Extensions of a client that offers both versions.
const VERSIONS: (u16, &[u8]) = (43, &[4, 3, 4, 3, 3]);
const SCHEMES: (u16, &[u8]) = (13, &[0, 2, 4, 3]);
const GROUPS: (u16, &[u8]) = (10, &[0, 2, 0, 29]);
const SHARES: (u16, &[u8]) = (51, &[0, 0]);
const MODES: (u16, &[u8]) = (45, &[1, 1]);
const SUITES: [u8; 4] = [0x13, 0x01, 0xc0, 0x2b];

/// RFC 8446, sections 9.2, 4.2.9 and 4.2.1, appendix D.5; RFC 7507, section 3; RFC 5746, section 3.6.
#[test]
fn hellos_that_the_rfcs_refuse_by_a_certain_alert() {
    const INAPPROPRIATE_FALLBACK: u8 = 86;
    let psk: (u16, &[u8]) = (41, &[&[0, 7, 0, 1, 9, 0, 0, 0, 0, 0, 33, 32][..], &[0; 32]].concat());
    let fallback = [0x56, 0x00, 0xc0, 0x2b];
    let missing = |extensions: &[(u16, &[u8])]| {
        let failed = refused(&hello([3, 3], &SUITES, extensions));
        assert_refused(&failed, "missing_extension", MISSING_EXTENSION);
    };
    missing(&[VERSIONS, GROUPS, SHARES]);
    missing(&[VERSIONS, SCHEMES, SHARES]);
    missing(&[VERSIONS, SCHEMES, GROUPS]);
    missing(&[VERSIONS, SCHEMES]);
    missing(&[VERSIONS, SCHEMES, GROUPS, SHARES, psk]);
    missing(&[VERSIONS, SCHEMES, GROUPS, MODES, psk]);
    let cases: [(&[u8], &str, u8); 8] = [
        (&hello([3, 3], &SUITES, &[VERSIONS, SCHEMES, GROUPS, SHARES, psk, MODES]), "misbehaved", ILLEGAL_PARAMETER),
        (&hello([3, 0], &SUITES, &[VERSIONS, SCHEMES, GROUPS, SHARES]), "no_common_version", PROTOCOL_VERSION),
        (&hello([2, 0], &SUITES, &[]), "no_common_version", PROTOCOL_VERSION),
        (&hello([3, 3], &SUITES, &[(43, &[4, 3, 2, 3, 1])]), "no_common_version", PROTOCOL_VERSION),
        (&hello([3, 3], &SUITES, &[(43, &[2, 3, 5]), SCHEMES]), "no_common_version", PROTOCOL_VERSION),
        (&hello([3, 3], &fallback, &[SCHEMES, GROUPS]), "fallback", INAPPROPRIATE_FALLBACK),
        (&hello([3, 3], &fallback, &[(43, &[2, 3, 3]), SCHEMES, GROUPS]), "fallback", INAPPROPRIATE_FALLBACK),
        (&hello([3, 3], &SUITES, &[SCHEMES, GROUPS, (0xff01, &[2, 7, 7])]), "renegotiation_info", HANDSHAKE_FAILURE),
    ];
    for (bytes, label, description) in cases {
        assert_refused(&refused(bytes), label, description);
    }
}

/// Requirements of TLS 1.3 do not apply to a client that does not offer it.
#[test]
fn a_fallback_is_none_where_there_is_nothing_newer() {
    let policy = Policy { versions: vec![Version::Tls12], ..Policy::default() };
    let config = server(&ServerOptions { policy, ..options(&[KeyKind::P256]) });
    let name: (u16, &[u8]) = (0, &[&[0, 18, 0, 0, 15][..], NAME.as_bytes()].concat());
    let old = hello([3, 3], &[0x56, 0x00, 0xc0, 0x2b], &[name, SCHEMES, GROUPS, (0xff01, &[0])]);
    let both = hello([3, 3], &[0x56, 0x00, 0xc0, 0x2b], &[name, VERSIONS, SCHEMES, GROUPS]);
    for bytes in [old, both] {
        let progress = Handshake::new(&config, &Arc::default()).receive(&bytes).unwrap();
        assert_eq!(progress.output[5], 2, "a ServerHello");
    }
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

/// A handshake after the server's flight, and the client's next flight.
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
        assert_refused_midway(client(), b"GET / HTTP/1.1", "garbage", AlertDescription::UnexpectedMessage);
        assert_refused_midway(client(), &[22, 3, 3, 0x48, 0x01], "record_too_long", AlertDescription::RecordOverflow);
        for content_type in [20, 21, 22] {
            let empty = record(content_type, &[]);
            assert_refused_midway(client(), &empty, "unexpected_message", AlertDescription::UnexpectedMessage);
        }
    }
    // TLS 1.3 expects only protected records here, except alerts.
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

/// rustls ends these without an alert.
#[test]
fn alerts_that_rustls_leaves_out_are_supplied() {
    // A ClientKeyExchange in two parts, with a change_cipher_spec in between (RFC 5246, section 7.2.1).
    let bytes = [record(22, &[16, 0, 0, 33, 32, 1, 2]), record(20, &[1])].concat();
    assert_refused_midway(Client::of_version(&TLS12), &bytes, "misbehaved", AlertDescription::UnexpectedMessage);
    // An endless sequence of warnings.
    let bytes = record(21, &[1, 90]).repeat(40);
    for version in [&TLS12, &TLS13] {
        assert_refused_midway(Client::of_version(version), &bytes, "misbehaved", AlertDescription::UnexpectedMessage);
    }
}

/// RFC 8446, section 5.4: a record whose plaintext is all zeros has no content type.
#[test]
fn a_record_without_a_content_type() {
    let config = config();
    let log = Arc::new(HandshakeSecret::default());
    let mut client = ClientConfig::clone(&Client::of_version(&TLS13).config());
    client.key_log = Arc::clone(&log) as _;
    let mut client = connect(&Arc::new(client), NAME);
    let mut server = Server::new(&config, &Keeper::default());
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    let secret = DirectionSecret::Tls13(Zeroizing::new(log.0.lock().unwrap().clone()));
    let mut direction = Direction { sequence: 0, secret };
    let number = client.negotiated_cipher_suite().unwrap().suite().into();
    let record = seal_as(0, CipherSuite::from_iana(number).unwrap(), &mut direction, &[0; 32]);
    let failed = server.arrive(&record, &mut client).unwrap_err();
    assert_eq!(failed.cause.label(), "misbehaved");
    let seen = Err(rustls::Error::AlertReceived(AlertDescription::UnexpectedMessage));
    assert_eq!(give(&mut client, &failed.output), seen);
}

/// The secret that a client's part of the handshake is sealed with.
#[derive(Debug, Default)]
struct HandshakeSecret(Mutex<Vec<u8>>);

impl KeyLog for HandshakeSecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_HANDSHAKE_TRAFFIC_SECRET" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
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
    assert_eq!(cause.to_string(), "the handshake timed out before its ClientHello was complete");
}
