//! Clients with and without certificates.

use std::sync::Arc;

use rustls::version::{TLS12, TLS13};
use rustls::{AlertDescription, ClientConnection, SupportedProtocolVersion};
use watari_handshake::{ClientCertificates, Failed, ServerConfig, ServerOptions};

use crate::pki::{Authority, KeyKind};
use crate::support::{Client, Keeper, NAME, connect, give, options, server, shake, shake_with};

fn asking(client_certificates: ClientCertificates) -> ServerConfig {
    server(&ServerOptions { client_certificates, ..options(&[KeyKind::P256]) })
}

fn showing(authority: &Authority, version: &'static SupportedProtocolVersion) -> (Client, Vec<u8>) {
    let (leaf, key) = authority.issue_to_client(&["client.example.com"]);
    let shown = leaf.to_vec();
    (Client { certificate: Some((leaf, Arc::new(key))), ..Client::of_version(version) }, shown)
}

/// The result at `client` of the last bytes of a handshake.
#[track_caller]
fn alert_seen(client: &mut ClientConnection, failed: &Failed) -> AlertDescription {
    match give(client, &failed.output) {
        Err(rustls::Error::AlertReceived(alert)) => alert,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_certificate_comes_out_of_full_and_resumed_handshakes() {
    let roots = Authority::of_clients().client_roots();
    for version in [&TLS12, &TLS13] {
        for asked in [ClientCertificates::Optional(roots.clone()), ClientCertificates::Required(roots.clone())] {
            let config = asking(asked);
            let (client, shown) = showing(Authority::of_clients(), version);
            let (client, keeper) = (client.config(), Keeper::tickets());
            for resumed in [false, true] {
                let info = shake_with(&config, &keeper, &mut connect(&client, NAME)).unwrap().established.info;
                assert_eq!(info.resumed.is_some(), resumed);
                assert_eq!(info.client_certificate.as_ref(), Some(&shown));
            }
        }
    }
}

#[test]
fn a_client_without_a_request_for_a_certificate_sends_none() {
    for version in [&TLS12, &TLS13] {
        let (client, _) = showing(Authority::of_clients(), version);
        let done = shake(&asking(ClientCertificates::NotAsked), &mut client.connect(NAME)).unwrap();
        assert_eq!(done.established.info.client_certificate, None);
    }
}

#[test]
fn a_client_without_one_is_refused_only_where_one_is_required() {
    let roots = Authority::of_clients().client_roots();
    for (version, alert) in
        [(&TLS12, AlertDescription::CertificateRequired), (&TLS13, AlertDescription::CertificateRequired)]
    {
        let mut client = Client::of_version(version).connect(NAME);
        let done = shake(&asking(ClientCertificates::Optional(roots.clone())), &mut client).unwrap();
        assert_eq!(done.established.info.client_certificate, None);

        let mut client = Client::of_version(version).connect(NAME);
        let failed = shake(&asking(ClientCertificates::Required(roots.clone())), &mut client).unwrap_err();
        assert_eq!(failed.cause.label(), "no_client_certificate");
        assert_eq!(alert_seen(&mut client, &failed), alert);
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_even_where_none_is_required() {
    let roots = Authority::of_clients().client_roots();
    let stranger = Authority::new("strangers");
    for version in [&TLS12, &TLS13] {
        for asked in [ClientCertificates::Optional(roots.clone()), ClientCertificates::Required(roots.clone())] {
            let (client, _) = showing(&stranger, version);
            let mut client = client.connect(NAME);
            let failed = shake(&asking(asked), &mut client).unwrap_err();
            assert_eq!(failed.cause.label(), "bad_client_certificate");
            assert_eq!(alert_seen(&mut client, &failed), AlertDescription::UnknownCA);
        }
    }
}
