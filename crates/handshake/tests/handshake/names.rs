//! Certificates by server name, and parsing of certificates.

use rustls::ClientConnection;
use rustls::SignatureScheme;
use rustls::version::{TLS12, TLS13};
use watari_handshake::{Certificate, CertificateError, ClientRoots, ConfigError, ServerConfig, ServerOptions};

use crate::pki::{Authority, KeyKind};
use crate::support::{Client, NAME, options, server, shake};

/// The leaf certificate that `client` got.
fn leaf(client: &ClientConnection) -> Vec<u8> {
    client.peer_certificates().unwrap()[0].to_vec()
}

fn leaf_of(pem: &str) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

#[test]
fn the_name_decides_and_a_wildcard_covers_one_label() {
    let authority = Authority::of_servers();
    let mut certificates = Vec::new();
    let mut issue = |names: &[&str]| {
        let (chain, key) = authority.issue_pem(KeyKind::P256, names);
        certificates.push(Certificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap());
        leaf_of(&chain)
    };
    let one = issue(&["one.example.com", "ONE.example.org"]);
    let wild = issue(&["*.example.com"]);
    let config = server(&ServerOptions { certificates, ..ServerOptions::default() });

    for (name, expected) in [
        ("one.example.com", Some(&one)),
        ("One.Example.Com", Some(&one)),
        ("one.example.org", Some(&one)),
        ("two.example.com", Some(&wild)),
        ("example.com", None),
        ("a.two.example.com", None),
        ("two.example.org", None),
    ] {
        for version in [&TLS12, &TLS13] {
            let mut client = Client::of_version(version).connect(name);
            match (shake(&config, &mut client), expected) {
                (Ok(done), Some(expected)) => {
                    assert_eq!(&leaf(&client), expected, "{name}");
                    assert_eq!(done.established.info.server_name, Some(name.to_ascii_lowercase()));
                }
                (Err(failed), None) => assert_eq!(failed.cause.label(), "unknown_sni", "{name}"),
                (result, _) => panic!("{name}: {result:?}"),
            }
        }
    }
}

#[test]
fn default_certificates_answer_what_no_certificate_is_issued_for() {
    let authority = Authority::of_servers();
    let mut options = options(&[KeyKind::P256]);
    options.default_certificates =
        KeyKind::BOTH.map(|kind| authority.issue(kind, &["other.example.net", "127.0.0.1"])).to_vec();
    let config = server(&options);
    let mut known = Client::default().connect(NAME);
    shake(&config, &mut known).unwrap();
    let mut unknown = Client::default().connect("other.example.net");
    shake(&config, &mut unknown).unwrap();
    assert_ne!(leaf(&known), leaf(&unknown));
    // A client that has only an address sends no name (RFC 6066, section 3).
    let mut nameless = Client::default().connect("127.0.0.1");
    let done = shake(&config, &mut nameless).unwrap();
    assert_eq!(done.established.info.server_name, None);
    assert_eq!(leaf(&nameless), leaf(&unknown));
}

#[test]
fn the_client_decides_between_kinds_of_key_and_ecdsa_is_preferred() {
    let config = server(&options(&KeyKind::BOTH));
    let mut rsa_suites = Client::of_version(&TLS12);
    rsa_suites.suites.retain(|suite| format!("{:?}", suite.suite()).contains("ECDHE_RSA"));
    let verifying = |version, scheme| Client::of_version(version).verifying(scheme);
    for (client, expected) in [
        (Client::of_version(&TLS13), KeyKind::P256),
        (Client::of_version(&TLS12), KeyKind::P256),
        (rsa_suites, KeyKind::Rsa2048),
        (verifying(&TLS12, SignatureScheme::RSA_PSS_SHA256), KeyKind::Rsa2048),
        (verifying(&TLS13, SignatureScheme::RSA_PSS_SHA256), KeyKind::Rsa2048),
    ] {
        let mut client = client.connect(NAME);
        shake(&config, &mut client).unwrap();
        let (leaf, public_key) = (leaf(&client), expected.key().public_key_raw());
        assert!(leaf.windows(public_key.len()).any(|window| window == public_key), "not {expected:?}");
    }
}

#[test]
fn unusable_certificates_have_a_reason() {
    let authority = Authority::of_servers();
    let (chain, key) = authority.issue_pem(KeyKind::P256, &[NAME]);
    let (_, other_key) = authority.issue_pem(KeyKind::Rsa2048, &[NAME]);
    let read = |chain: &str, key: &str| Certificate::from_pem(chain.as_bytes(), key.as_bytes());

    assert_eq!(read(&chain, &key).unwrap().names(), [NAME]);
    let both = format!("{key}{chain}{}", authority.pem());
    assert_eq!(read(&both, &both).unwrap().names(), [NAME]);
    // The authority first: a common mistake.
    let reversed = format!("{}{chain}", authority.pem());
    assert!(matches!(read(&reversed, &key), Err(CertificateError::KeyMismatch)));
    assert!(matches!(read(&chain, &other_key), Err(CertificateError::KeyMismatch)));
    assert!(matches!(read("", &key), Err(CertificateError::NoCertificate)));
    assert!(matches!(read(&key, &key), Err(CertificateError::NoCertificate)));
    assert!(matches!(read(&chain, &chain), Err(CertificateError::NoKey)));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMA==\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(matches!(read(&chain, encrypted), Err(CertificateError::EncryptedKey)));
    let damaged_key = "-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n";
    assert!(matches!(read(&chain, damaged_key), Err(CertificateError::UnsupportedKey)));
    let damaged = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n";
    assert!(matches!(read(damaged, &key), Err(CertificateError::BadCertificate(_))));
    assert!(matches!(ClientRoots::from_pem(damaged.as_bytes()), Err(CertificateError::BadCertificate(_))));
    let cut = &chain[..chain.len() / 2];
    assert!(matches!(read(cut, &key), Err(CertificateError::Pem(_))));
    assert!(matches!(ClientRoots::from_pem(b""), Err(CertificateError::NoCertificate)));
}

#[test]
fn der_and_pem_read_the_same() {
    let authority = Authority::of_servers();
    let (chain, _) = authority.issue_pem(KeyKind::Rsa2048, &[NAME]);
    let key = KeyKind::Rsa2048.key().serialize_der();
    assert_eq!(Certificate::from_der(vec![leaf_of(&chain)], &key).unwrap().names(), [NAME]);
    let wrong = Certificate::from_der(vec![leaf_of(&chain)], &KeyKind::P256.key().serialize_der());
    assert!(matches!(wrong, Err(CertificateError::KeyMismatch)));
    assert!(matches!(Certificate::from_der(vec![], &key), Err(CertificateError::NoCertificate)));
    assert!(ClientRoots::from_der(vec![leaf_of(&authority.pem())]).is_ok());
}

#[test]
fn configurations_that_cannot_serve_are_refused() {
    let error = |options: ServerOptions| ServerConfig::new(&options).unwrap_err();
    assert!(matches!(error(ServerOptions::default()), ConfigError::NoCertificate));
    let nameless = Authority::of_servers().issue(KeyKind::P256, &["127.0.0.1"]);
    let mut without_name = options(&[KeyKind::P256]);
    without_name.certificates.push(nameless);
    assert!(matches!(error(without_name), ConfigError::NoName { index: 1 }));
    for protocol in [vec![], vec![b'x'; 256]] {
        let bad_alpn = ServerOptions { alpn: vec![protocol], ..options(&[KeyKind::P256]) };
        assert!(matches!(error(bad_alpn), ConfigError::BadAlpn));
    }
}
