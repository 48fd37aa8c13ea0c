//! Early data: accepted once, and only if all conditions hold.

use std::io::{IoSlice, Read, Write};
use std::sync::{Arc, Mutex};

use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use rustls::crypto::aws_lc_rs::kx_group::{SECP384R1, X25519};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConfig, ClientConnection, KeyLog, NamedGroup};
use watari_handshake::{
    ClientCertificates, EarlyData, Established, Group, Handshake, Policy, Progress, ServerConfig, ServerOptions,
};
use watari_record::{Direction, DirectionSecret};
use zeroize::Zeroizing;

use crate::pki::{Authority, KeyKind};
use crate::records::{open, seal};
use crate::support::{Client, Keeper, NAME, Server, connect, give, options, output_of, server, shake_with};

const REQUEST: &[u8] = b"a request ahead of Finished";

fn early(client: Client) -> Arc<ClientConfig> {
    let mut config = Arc::unwrap_or_clone(client.config());
    config.enable_early_data = true;
    Arc::new(config)
}

/// Servers that store a session of `client`.
fn acquainted(config: &ServerConfig, client: &Arc<ClientConfig>) -> Keeper {
    let keeper = Keeper::early_data();
    let mut first = connect(client, NAME);
    let done = shake_with(config, &keeper, &mut first).unwrap();
    assert_eq!(done.established.info.resumed, None);
    keeper
}

/// A client that sends a request as early data.
fn hasty(client: &Arc<ClientConfig>) -> ClientConnection {
    let mut client = connect(client, NAME);
    client.early_data().expect("its session is good for early data").write_all(REQUEST).unwrap();
    client
}

/// A client's second flight, split into records.
fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let [_, _, _, high, low, ..] = *bytes {
        let (record, rest) = bytes.split_at(5 + usize::from(u16::from_be_bytes([high, low])));
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

fn read(client: &mut ClientConnection) -> Vec<u8> {
    let mut read = vec![0; 100];
    let len = client.reader().read(&mut read).unwrap();
    read.truncate(len);
    read
}

/// Both directions continue after the handshake, at the sequence numbers of rustls.
fn goes_on(established: Established, client: &mut ClientConnection) {
    let mut secrets = established.secrets;
    for data in [&b"one"[..], b"two"] {
        give(client, &seal(secrets.suite, &mut secrets.tx, data)).unwrap();
        assert_eq!(read(client), data);
        client.writer().write_all(data).unwrap();
        assert_eq!(open(secrets.suite, &mut secrets.rx, &output_of(client)), data);
    }
}

#[test]
fn a_request_is_answered_before_the_client_says_finished() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS13)));
    let keeper = acquainted(&config, &client);
    // Each handshake gives tickets that allow early data again.
    for answers in [0, 1, 3] {
        let mut client = hasty(&client);
        let mut server = Server::new(&config, &keeper);
        assert!(server.arrive(&output_of(&mut client), &mut client).unwrap().is_none());
        let Some(EarlyData::Accepted(info)) = server.early_data.take() else { panic!("it is refused") };
        assert_eq!(server.early, REQUEST);
        let finished = output_of(&mut client);
        for _ in 0..answers {
            let mut output = Vec::new();
            let parts = [IoSlice::new(b"an an"), IoSlice::new(b"swer")];
            assert_eq!(server.handshake.seal(&parts, &mut output), 9);
            give(&mut client, &output).unwrap();
            assert_eq!(read(&mut client), b"an answer");
        }
        let established = server.arrive(&finished, &mut client).unwrap().expect("the client says Finished");
        assert!(client.is_early_data_accepted());
        assert_eq!(established.info, *info);
        assert!(info.resumed.is_some());
        assert_eq!(server.handshake.seal(&[IoSlice::new(b"late")], &mut Vec::new()), 0);
        goes_on(*established, &mut client);
    }
}

#[test]
fn what_is_not_approved_is_refused_and_the_session_resumed() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS13)));
    let keeper = acquainted(&config, &client);
    let approved = keeper.kept.lock().unwrap().iter().map(|kept| kept.key).collect();
    *keeper.approved.lock().unwrap() = approved;
    let mut refused = hasty(&client);
    let mut server = Server::new(&config, &keeper);
    assert!(server.arrive(&output_of(&mut refused), &mut refused).unwrap().is_none());
    assert_eq!(server.early_data, Some(EarlyData::Refused));
    assert_eq!(server.handshake.seal(&[IoSlice::new(b"early")], &mut Vec::new()), 0);
    let done = server.finish(&mut refused, usize::MAX).unwrap();
    assert!(done.established.info.resumed.is_some());
    assert!(!refused.is_early_data_accepted());
    goes_on(*done.established, &mut refused);
}

#[test]
fn a_recorded_flight_is_refused() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS13)));
    let keeper = acquainted(&config, &client);
    let mut hasty = hasty(&client);
    let recorded = output_of(&mut hasty);
    for replay in [false, true, true] {
        let mut handshake = Handshake::new(&config, &keeper.sessions);
        let Progress { wanted, consumed, .. } = handshake.receive(&recorded).unwrap();
        let decided = handshake.provide(keeper.find(&wanted)).unwrap().early_data;
        let early = handshake.receive(&recorded[consumed..]).unwrap().early;
        assert_eq!(decided == Some(EarlyData::Refused), replay);
        assert_eq!(early, if replay { b"" } else { REQUEST });
    }
}

#[test]
fn there_is_none_where_clients_are_asked_for_certificates() {
    let roots = Authority::of_clients().client_roots();
    let client_certificates = ClientCertificates::Optional(roots);
    let config = server(&ServerOptions { client_certificates, ..options(&[KeyKind::P256]) });
    let client = early(Client::of_version(&TLS13));
    acquainted(&config, &client);
    assert!(connect(&client, NAME).early_data().is_none());
}

#[test]
fn there_is_none_where_it_is_not_on() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS13)));
    shake_with(&config, &Keeper::sessions(), &mut connect(&client, NAME)).unwrap();
    assert!(connect(&client, NAME).early_data().is_none());
    // A client whose session is from when early data was on is refused, even if the driver approves.
    let keeper = acquainted(&config, &client);
    let off = Keeper { sessions: Keeper::sessions().sessions, ..keeper };
    let mut client = hasty(&client);
    let mut server = Server::new(&config, &off);
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    assert_eq!(server.early_data, Some(EarlyData::Refused));
    assert!(server.finish(&mut client, usize::MAX).unwrap().established.info.resumed.is_some());
}

#[test]
fn another_protocol_than_the_sessions_refuses_it() {
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let config = server(&ServerOptions { alpn, ..options(&[KeyKind::P256]) });
    let client = early(Client { alpn: vec![b"h2".to_vec()], ..Client::of_version(&TLS13) });
    let keeper = acquainted(&config, &client);
    let mut other = ClientConfig::clone(&client);
    other.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut client = hasty(&Arc::new(other));
    let mut server = Server::new(&config, &keeper);
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    assert_eq!(server.early_data, Some(EarlyData::Refused));
    let done = server.finish(&mut client, usize::MAX).unwrap();
    assert_eq!(
        (done.established.info.alpn.as_slice(), done.established.info.resumed.is_some()),
        (&b"http/1.1"[..], true)
    );
}

#[test]
fn a_hello_retry_request_refuses_it() {
    let policy = Policy { groups: vec![Group::Secp384r1], ..Policy::default() };
    let config = server(&ServerOptions { policy, ..options(&[KeyKind::P256]) });
    let client = early(Client { groups: vec![X25519, SECP384R1], ..Client::of_version(&TLS13) });
    let mut client = Arc::unwrap_or_clone(client);
    client.resumption = Resumption::store(Arc::new(Forgetful(ClientSessionMemoryCache::new(1))));
    let client = Arc::new(client);
    let keeper = acquainted(&config, &client);
    let mut client = hasty(&client);
    let mut server = Server::new(&config, &keeper);
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    assert_eq!(server.early_data, Some(EarlyData::Refused));
    let done = server.finish(&mut client, usize::MAX).unwrap();
    assert!(done.established.info.resumed.is_some());
    goes_on(*done.established, &mut client);
}

#[test]
fn tls12_knows_of_none() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS12)));
    let keeper = acquainted(&config, &client);
    let mut client = connect(&client, NAME);
    let mut server = Server::new(&config, &keeper);
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    assert_eq!(server.early_data, None);
    assert!(server.finish(&mut client, usize::MAX).unwrap().established.info.resumed.is_some());
}

#[test]
fn more_than_the_ticket_allows_ends_the_handshake() {
    let config = server(&options(&[KeyKind::P256]));
    let mut client = Arc::unwrap_or_clone(early(Client::of_version(&TLS13)));
    let log = Arc::new(EarlySecret::default());
    client.key_log = log.clone();
    let client = Arc::new(client);
    let keeper = acquainted(&config, &client);
    let mut client = hasty(&client);
    let mut server = Server::new(&config, &keeper);
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    let Some(EarlyData::Accepted(info)) = server.early_data.take() else { panic!("it is refused") };
    let secret = DirectionSecret::Tls13(Zeroizing::new(log.0.lock().unwrap().clone()));
    let mut direction = Direction { sequence: 1, secret };
    let allowed = 14 * 1024 - REQUEST.len();
    server.arrive(&seal(info.suite, &mut direction, &vec![7; allowed]), &mut client).unwrap();
    assert_eq!(server.early.len(), 14 * 1024);
    let failed = server.arrive(&seal(info.suite, &mut direction, b"!"), &mut client).unwrap_err();
    assert_eq!(failed.cause.label(), "misbehaved");
    assert!(!failed.output.is_empty(), "the client is told");
}

#[test]
fn without_its_end_or_with_another_finished_the_handshake_fails() {
    let (config, client) = (server(&options(&[KeyKind::P256])), early(Client::of_version(&TLS13)));
    let keeper = acquainted(&config, &client);
    let without_end: fn(&mut Vec<Vec<u8>>) = |records| drop(records.remove(0));
    let other_finished: fn(&mut Vec<Vec<u8>>) = |records| *records.last_mut().unwrap().last_mut().unwrap() ^= 1;
    for change in [without_end, other_finished] {
        let mut client = hasty(&client);
        let mut server = Server::new(&config, &keeper);
        server.arrive(&output_of(&mut client), &mut client).unwrap();
        assert!(matches!(server.early_data, Some(EarlyData::Accepted(_))));
        let mut second = records(&output_of(&mut client));
        change(&mut second);
        let failed = server.arrive(&second.concat(), &mut client).unwrap_err();
        assert_eq!(failed.cause.label(), "undecryptable");
        assert!(!failed.output.is_empty(), "the client is told");
    }
}

/// A server that rejects early data, for each possible reason, with the client's next flight.
struct Rejecting {
    server: Server,
    client: ClientConnection,
    /// Whether the server has sent a `HelloRetryRequest`.
    retries: bool,
    flight: Vec<u8>,
}

fn rejecting() -> Vec<Rejecting> {
    let config = server(&options(&[KeyKind::P256]));
    let retrying = Policy { groups: vec![Group::Secp384r1], ..Policy::default() };
    let retrying = server(&ServerOptions { policy: retrying, ..options(&[KeyKind::P256]) });
    let client = early(Client::of_version(&TLS13));
    let mut unprepared =
        Arc::unwrap_or_clone(early(Client { groups: vec![X25519, SECP384R1], ..Client::of_version(&TLS13) }));
    unprepared.resumption = Resumption::store(Arc::new(Forgetful(ClientSessionMemoryCache::new(1))));
    let unprepared = Arc::new(unprepared);
    let of = |config: &ServerConfig, client: &Arc<ClientConfig>, reject: fn(Keeper) -> Keeper, retries: bool| {
        let keeper = reject(acquainted(config, client));
        let mut client = hasty(client);
        let mut server = Server::new(config, &keeper);
        let hello = records(&output_of(&mut client)).remove(0);
        server.arrive(&hello, &mut client).unwrap();
        assert_eq!(server.early_data, Some(EarlyData::Refused));
        let flight = output_of(&mut client);
        Rejecting { server, client, retries, flight }
    };
    vec![
        // The session was used before.
        of(
            &config,
            &client,
            |keeper| {
                let used = keeper.kept.lock().unwrap().iter().map(|kept| kept.key).collect();
                *keeper.approved.lock().unwrap() = used;
                keeper
            },
            false,
        ),
        // The session is lost, as after a restart.
        of(&config, &client, |_| Keeper::early_data(), false),
        // Early data is off: with sessions, with tickets, with neither.
        of(&config, &client, |_| Keeper::sessions(), false),
        of(&config, &client, |_| Keeper::tickets(), false),
        of(&config, &client, |_| Keeper::default(), false),
        of(&retrying, &unprepared, |keeper| keeper, true),
        of(&retrying, &unprepared, |_| Keeper::default(), true),
    ]
}

/// Records that a server cannot distinguish from early data.
fn undecryptable(lens: &[usize]) -> Vec<u8> {
    let record = |len: &usize| [&[23, 3, 3][..], &u16::try_from(*len).unwrap().to_be_bytes(), &vec![7; *len]].concat();
    lens.iter().flat_map(record).collect()
}

const CHANGE_CIPHER_SPEC: [u8; 6] = [20, 3, 3, 0, 1, 1];

/// RFC 8446, section 4.2.10.
#[test]
fn rejected_early_data_is_skipped_however_long_it_is_and_in_however_many_records() {
    let cases: [&[usize]; 10] = [
        &[],
        &[20],
        &[12_000 + 17],
        &[16_384 + 17],
        &[16_384 + 256],
        &[9_000, 9_000],
        &[4_000; 10],
        &[100; 600],
        &[16_384; 3],
        &[0, 1, 16, 17],
    ];
    for lens in cases {
        for Rejecting { mut server, mut client, flight, .. } in rejecting() {
            server.arrive(&undecryptable(lens), &mut client).unwrap();
            assert_eq!(server.early, b"");
            let established = match server.arrive(&flight, &mut client).unwrap() {
                Some(established) => established,
                None => server.finish(&mut client, usize::MAX).unwrap().established,
            };
            assert!(!client.is_early_data_accepted());
            goes_on(*established, &mut client);
        }
    }
}

#[test]
fn rejected_early_data_may_come_in_pieces_and_behind_a_change_cipher_spec() {
    for Rejecting { mut server, mut client, flight, .. } in rejecting() {
        let early = [&CHANGE_CIPHER_SPEC[..], &undecryptable(&[5000, 5000, 5000])].concat();
        // The client has sent its own at the beginning of its flight. A second one is an error.
        let flight = flight.strip_prefix(&CHANGE_CIPHER_SPEC).unwrap_or(&flight);
        for piece in [&early[..], flight].concat().chunks(777) {
            if let Some(established) = server.arrive(piece, &mut client).unwrap() {
                goes_on(*established, &mut client);
                break;
            }
        }
    }
}

/// RFC 8446, sections 4.2.10 and 5.2.
#[test]
fn rejected_early_data_beyond_the_limit_ends_the_handshake() {
    for Rejecting { mut server, mut client, retries, .. } in rejecting() {
        // 65,536 bytes with their headers.
        server.arrive(&undecryptable(&[16_384 - 5; 4]), &mut client).unwrap();
        let failed = server.arrive(&undecryptable(&[0]), &mut client).unwrap_err();
        assert_eq!(failed.cause.label(), "too_much_early_data");
        let alert = if retries { AlertDescription::UnexpectedMessage } else { AlertDescription::BadRecordMac };
        assert_eq!(give(&mut client, &failed.output), Err(rustls::Error::AlertReceived(alert)));
    }
}

/// Early data ends when the client's handshake key has opened a record.
#[test]
fn nothing_is_skipped_behind_the_first_handshake_record() {
    for Rejecting { mut server, mut client, retries, mut flight, .. } in rejecting() {
        if !retries {
            *flight.last_mut().unwrap() ^= 1;
            server.arrive(&flight, &mut client).unwrap();
            *flight.last_mut().unwrap() ^= 1;
            let established = server.arrive(records(&flight).last().unwrap(), &mut client).unwrap();
            goes_on(*established.expect("the client says Finished"), &mut client);
            continue;
        }
        assert!(server.arrive(&flight, &mut client).unwrap().is_none());
        let failed = server.arrive(&undecryptable(&[100]), &mut client).unwrap_err();
        assert_eq!(failed.cause.label(), "undecryptable");
        assert_eq!(
            give(&mut client, &failed.output),
            Err(rustls::Error::AlertReceived(AlertDescription::BadRecordMac))
        );
    }
}

/// For a client that announced no early data, the server skips nothing.
#[test]
fn without_the_extension_nothing_is_skipped() {
    let config = server(&options(&[KeyKind::P256]));
    let mut client = Client::of_version(&TLS13).connect(NAME);
    let mut server = Server::new(&config, &Keeper::default());
    server.arrive(&output_of(&mut client), &mut client).unwrap();
    let failed = server.arrive(&undecryptable(&[100]), &mut client).unwrap_err();
    assert_eq!(failed.cause.label(), "undecryptable");
}

/// A client's store of sessions that forgets the groups of servers.
#[derive(Debug)]
struct Forgetful(ClientSessionMemoryCache);

impl ClientSessionStore for Forgetful {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, server: ServerName<'static>, session: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(server, session);
    }

    fn take_tls13_ticket(&self, server: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(server)
    }
}

/// The secret that a client's early data is sealed with.
#[derive(Debug, Default)]
struct EarlySecret(Mutex<Vec<u8>>);

impl KeyLog for EarlySecret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "CLIENT_EARLY_TRAFFIC_SECRET" {
            *self.0.lock().unwrap() = secret.to_vec();
        }
    }
}
