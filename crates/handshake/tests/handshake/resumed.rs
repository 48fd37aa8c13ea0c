//! Sessions resumed from tickets.

use rustls::version::{TLS12, TLS13};
use watari_handshake::ServerOptions;

use crate::pki::{Authority, KeyKind};
use crate::records::open;
use crate::support::{Client, NAME, connect, options, send_early, server, shake};

#[test]
fn a_ticket_resumes_a_session() {
    let config = server(&options(&[KeyKind::P256]));
    for version in [&TLS12, &TLS13] {
        let client = Client::of_version(version).config();
        for resumed in [false, true, true] {
            let mut client = connect(&client, NAME);
            send_early(&mut client, b"a request behind Finished");
            let done = shake(&config, &mut client).unwrap();
            assert_eq!(done.established.info.resumed, resumed);
            // TLS 1.2 exchanges no keys when it resumes, TLS 1.3 does.
            assert_eq!(done.established.info.group.is_none(), resumed && version == &TLS12);
            let request = done.records();
            let mut secrets = done.established.secrets;
            assert_eq!(open(secrets.suite, &mut secrets.rx, &request), b"a request behind Finished");
        }
    }
}

#[test]
fn a_ticket_is_worth_nothing_to_another_configuration_or_name() {
    let authority = Authority::of_servers();
    let certificates = vec![authority.issue(KeyKind::P256, &[NAME, "other.example.com"])];
    let options = ServerOptions { certificates, ..ServerOptions::default() };
    for version in [&TLS12, &TLS13] {
        let client = Client::of_version(version).config();
        let (config, another) = (server(&options), server(&options));
        let resumed = |config, name| shake(config, &mut connect(&client, name)).unwrap().established.info.resumed;
        assert!(!resumed(&config, NAME));
        assert!(!resumed(&config, "other.example.com"));
        assert!(!resumed(&another, NAME));
        assert!(resumed(&another, NAME));
    }
}

/// Without a ticket a TLS 1.2 session could only be resumed by its id, which would have to be kept.
#[test]
fn nothing_is_resumed_without_a_ticket() {
    let config = server(&options(&[KeyKind::P256]));
    let mut client = std::sync::Arc::unwrap_or_clone(Client::of_version(&TLS12).config());
    client.resumption = client.resumption.tls12_resumption(rustls::client::Tls12Resumption::SessionIdOnly);
    let client = std::sync::Arc::new(client);
    for _ in 0..2 {
        assert!(!shake(&config, &mut connect(&client, NAME)).unwrap().established.info.resumed);
    }
}
