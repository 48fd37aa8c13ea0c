//! Resumption of sessions.

use std::sync::{Arc, RwLock};
use std::time::{Duration, SystemTime};

use rustls::client::Tls12Resumption;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, SupportedProtocolVersion};
use watari_handshake::{ClientCertificates, Miss, Policy, ServerConfig, ServerOptions, Sessions};
use watari_record::Version;
use watari_values::SecretBytes;

use crate::pki::{Authority, KeyKind};
use crate::records::open;
use crate::support::{Client, Keeper, NAME, OpenTickets, connect, options, send_early, server, shake_with};

fn client(version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    Client::of_version(version).config()
}

/// A client of TLS 1.2 that takes no tickets.
fn client_of_ids() -> Arc<ClientConfig> {
    let mut client = Arc::unwrap_or_clone(client(&TLS12));
    client.resumption = client.resumption.tls12_resumption(Tls12Resumption::SessionIdOnly);
    Arc::new(client)
}

/// Whether a handshake resumed a session, or why not.
fn resumes(config: &ServerConfig, keeper: &Keeper, client: &Arc<ClientConfig>) -> (bool, Option<Miss>) {
    let info = shake_with(config, keeper, &mut connect(client, NAME)).unwrap().established.info;
    (info.resumed.is_some(), info.missed)
}

const RESUMED: (bool, Option<Miss>) = (true, None);
const FIRST: (bool, Option<Miss>) = (false, None);

#[test]
fn sessions_are_resumed_by_tickets_and_by_ids() {
    let config = server(&options(&[KeyKind::P256]));
    for keeper in [Keeper::tickets(), Keeper::sessions()] {
        for version in [&TLS12, &TLS13] {
            let client = client(version);
            for resumed in [false, true, true] {
                let mut client = connect(&client, NAME);
                send_early(&mut client, b"a request behind Finished");
                let done = shake_with(&config, &keeper, &mut client).unwrap();
                assert_eq!(done.established.info.resumed.is_some(), resumed);
                // TLS 1.2 exchanges no keys in a resumption, TLS 1.3 does.
                assert_eq!(done.established.info.group.is_none(), resumed && version == &TLS12);
                let request = done.records();
                let mut secrets = done.established.secrets;
                assert_eq!(open(secrets.suite, &mut secrets.rx, &request), b"a request behind Finished");
            }
        }
    }
}

#[test]
fn a_client_without_tickets_resumes_by_session_id() {
    let config = server(&options(&[KeyKind::P256]));
    let both = Keeper::new(Sessions { kept: true, ..Sessions::clone(&Keeper::tickets().sessions) });
    let of_tickets = client(&TLS12);
    for keeper in [&Keeper::sessions(), &both] {
        let of_ids = client_of_ids();
        assert_eq!(resumes(&config, keeper, &of_ids), FIRST);
        assert_eq!(resumes(&config, keeper, &of_ids), RESUMED);
    }
    assert_eq!(both.kept.lock().unwrap().len(), 1);
    assert_eq!(resumes(&config, &both, &of_tickets), FIRST);
    assert_eq!(both.kept.lock().unwrap().len(), 1, "who has a ticket is not kept");
    // Neither stored nor in a ticket.
    let of_ids = client_of_ids();
    assert_eq!(
        (resumes(&config, &Keeper::tickets(), &of_ids), resumes(&config, &Keeper::tickets(), &of_ids)),
        (FIRST, FIRST)
    );
}

/// Some clients of TLS 1.2 accept only tickets.
#[test]
fn a_ticket_of_tls12_is_a_name_where_sessions_are_kept_and_stays_the_same() {
    let config = server(&options(&[KeyKind::P256]));
    for keeper in [Keeper::sessions(), Keeper::tickets()] {
        let client = client(&TLS12);
        assert_eq!(resumes(&config, &keeper, &client), FIRST);
        for _ in 0..3 {
            assert_eq!(resumes(&config, &keeper, &client), RESUMED);
        }
        let (kept, wanted) = (keeper.kept.lock().unwrap(), keeper.wanted.lock().unwrap());
        let is_kept = !kept.is_empty();
        assert_eq!((kept.len(), wanted.len()), if is_kept { (1, 3) } else { (0, 0) });
        assert!(wanted.iter().all(|wanted| wanted.sessions == [kept[0].key]), "the same name each time");
    }
}

/// The bytes may be another program's, or forged by the node that stored them.
#[test]
fn what_is_no_session_is_not_resumed() {
    let config = server(&options(&[KeyKind::P256]));
    for client in [client(&TLS12), client(&TLS13), client_of_ids()] {
        for garbage in [vec![], vec![0; 1], vec![0xff; 300]] {
            let keeper = Keeper::sessions();
            assert!(!resumes(&config, &keeper, &client).0);
            for kept in keeper.kept.lock().unwrap().iter_mut() {
                kept.session = SecretBytes::new(garbage.clone());
            }
            assert_eq!(resumes(&config, &keeper, &client), (false, Some(Miss::Unfit)));
        }
    }
}

#[test]
fn nothing_is_resumed_where_nothing_is_offered() {
    let config = server(&options(&[KeyKind::P256]));
    for client in [client(&TLS12), client(&TLS13), client_of_ids()] {
        assert_eq!(resumes(&config, &Keeper::default(), &client), FIRST);
        assert_eq!(resumes(&config, &Keeper::default(), &client), FIRST);
    }
}

#[test]
fn every_configuration_of_the_same_terms_resumes() {
    for keeper in [Keeper::tickets(), Keeper::sessions()] {
        for version in [&TLS12, &TLS13] {
            // Each has another certificate, because certificates are renewed.
            let (a, b, client) = (options(&[KeyKind::P256]), options(&[KeyKind::P256]), client(version));
            assert_eq!(resumes(&server(&a), &keeper, &client), FIRST);
            assert_eq!(resumes(&server(&b), &keeper, &client), RESUMED);
        }
    }
}

#[test]
fn no_session_outlasts_its_terms() {
    let roots = || Authority::of_clients().client_roots();
    let options = options(&[KeyKind::P256]);
    for (number, version) in [(Version::Tls12, &TLS12), (Version::Tls13, &TLS13)] {
        let other = [
            ServerOptions { client_certificates: ClientCertificates::Optional(roots()), ..options.clone() },
            ServerOptions { policy: Policy { versions: vec![number], ..Policy::default() }, ..options.clone() },
            ServerOptions { alpn: vec![b"h2".to_vec()], ..options.clone() },
            ServerOptions { scope: "another listener".to_owned(), ..options.clone() },
        ];
        for (keeper, miss) in [(Keeper::tickets(), Miss::Forged), (Keeper::sessions(), Miss::Unknown)] {
            for other in &other {
                let client = client(version);
                assert_eq!(resumes(&server(&options), &keeper, &client), FIRST);
                assert_eq!(resumes(&server(other), &keeper, &client), (false, Some(miss)));
                assert_eq!(resumes(&server(other), &keeper, &client), RESUMED);
            }
            // A session without a certificate does not resume where one is required.
            let client = client(version);
            assert_eq!(resumes(&server(&options), &keeper, &client), FIRST);
            let required = ClientCertificates::Required(roots());
            let demanding = server(&ServerOptions { client_certificates: required, ..options.clone() });
            let failed = shake_with(&demanding, &keeper, &mut connect(&client, NAME)).unwrap_err();
            assert_eq!(failed.cause.label(), "no_client_certificate");
        }
    }
}

#[test]
fn a_session_is_of_one_name() {
    let certificates = vec![Authority::of_servers().issue(KeyKind::P256, &[NAME, "other.example.com"])];
    let config = server(&ServerOptions { certificates, ..ServerOptions::default() });
    for keeper in [Keeper::tickets(), Keeper::sessions()] {
        for version in [&TLS12, &TLS13] {
            let client = client(version);
            let resumed = |name| shake_with(&config, &keeper, &mut connect(&client, name)).unwrap();
            assert!(resumed(NAME).established.info.resumed.is_none());
            assert!(resumed("other.example.com").established.info.resumed.is_none());
            assert!(resumed(NAME).established.info.resumed.is_some());
        }
    }
}

#[test]
fn the_clients_certificate_is_part_of_the_session_and_looked_at_again() {
    let (authority, others) = (Authority::of_clients(), Authority::new("others"));
    let asked = |authority: &Authority| {
        let client_certificates = ClientCertificates::Required(authority.client_roots());
        server(&ServerOptions { client_certificates, ..options(&[KeyKind::P256]) })
    };
    for keeper in [Keeper::tickets(), Keeper::sessions()] {
        for version in [&TLS12, &TLS13] {
            let (leaf, key) = authority.issue_to_client(&["client.example.com"]);
            let shown = Some(leaf.to_vec());
            let client = Client { certificate: Some((leaf, Arc::new(key))), ..Client::of_version(version) }.config();
            for resumed in [false, true] {
                let info =
                    shake_with(&asked(authority), &keeper, &mut connect(&client, NAME)).unwrap().established.info;
                assert_eq!((info.resumed.is_some(), &info.client_certificate), (resumed, &shown));
            }
            // This policy has other authorities. The node that stored the session has no influence on that.
            let failed = shake_with(&asked(&others), &keeper, &mut connect(&client, NAME)).unwrap_err();
            assert_eq!(failed.cause.label(), "bad_client_certificate");
        }
    }
}

#[test]
fn a_key_that_is_missing_is_asked_for_and_lost_only_if_it_does_not_come() {
    let config = server(&options(&[KeyKind::P256]));
    for version in [&TLS12, &TLS13] {
        let (ours, theirs) = (Arc::new(OpenTickets::default()), Arc::new(OpenTickets { word: RwLock::new([7; 8]) }));
        let of = |tickets: &Arc<OpenTickets>| {
            Keeper::new(Sessions {
                tickets: Some(Arc::clone(tickets) as _),
                tickets_per_handshake: 1,
                ..Sessions::default()
            })
        };
        let (client, keeper) = (client(version), of(&ours));
        assert_eq!(resumes(&config, &of(&theirs), &client), FIRST);
        assert!(!resumes(&config, &keeper, &client).0);
        assert_eq!(keeper.wanted.lock().unwrap()[0].ticket_seeds, [[7; 8]]);
        // Now the client has a ticket of the first server, and the second one gets the key in time.
        *theirs.word.write().unwrap() = [0; 8];
        assert_eq!(resumes(&config, &of(&theirs), &client), RESUMED);
    }
}

/// The session's own lifetime is longer. rustls itself does not check the certificate when it resumes.
#[test]
fn a_session_ends_with_the_clients_certificate() {
    let client_certificates = ClientCertificates::Required(Authority::of_clients().client_roots());
    let config = server(&ServerOptions { client_certificates, ..options(&[KeyKind::P256]) });
    let end = SystemTime::now() + Duration::from_secs(3);
    let (leaf, key) = Authority::of_clients().issue_to_client_until(end);
    let certificate = Some((leaf, Arc::new(key)));
    let client = |version| Client { certificate: certificate.clone(), ..Client::of_version(version) }.config();
    let shake = |keeper: &Keeper, client| shake_with(&config, keeper, &mut connect(client, NAME));
    let clients = [(Keeper::tickets(), &TLS12), (Keeper::tickets(), &TLS13), (Keeper::sessions(), &TLS12)];
    let clients = clients.into_iter().chain([(Keeper::sessions(), &TLS13)]);
    let clients: Vec<_> = clients.map(|(keeper, version)| (keeper, client(version))).collect();
    for (keeper, client) in &clients {
        assert!(shake(keeper, client).unwrap().established.info.resumed.is_none());
        assert!(shake(keeper, client).unwrap().established.info.resumed.is_some());
    }
    for (keeper, client) in &clients {
        let refused = loop {
            assert!(SystemTime::now() < end + Duration::from_secs(10));
            match shake(keeper, client) {
                Ok(done) => assert!(done.established.info.resumed.is_some()),
                Err(failed) => break failed,
            }
        };
        assert_eq!(refused.cause.label(), "bad_client_certificate");
    }
}
