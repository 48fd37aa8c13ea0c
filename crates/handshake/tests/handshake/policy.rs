//! Policies without some versions, suites and groups.

use rustls::crypto::aws_lc_rs::kx_group;
use rustls::version::{TLS12, TLS13};
use watari_handshake::{BadPolicy, ConfigError, Group, Policy, ServerConfig, ServerOptions};
use watari_record::{CipherSuite, Version};

use crate::pki::KeyKind;
use crate::support::{Client, NAME, options, server, shake};

fn with(policy: Policy) -> ServerOptions {
    ServerOptions { policy, ..options(&KeyKind::BOTH) }
}

fn only(version: Version) -> Policy {
    Policy { versions: vec![version], ..Policy::default() }
}

#[test]
fn a_version_that_is_left_out_is_not_spoken() {
    let cases = [(Version::Tls12, &TLS12, &TLS13), (Version::Tls13, &TLS13, &TLS12)];
    for (version, spoken, left_out) in cases {
        let config = server(&with(only(version)));
        let done = shake(&config, &mut Client::of_version(spoken).connect(NAME)).unwrap();
        assert_eq!(done.established.info.version, version);
        let failed = shake(&config, &mut Client::of_version(left_out).connect(NAME)).unwrap_err();
        assert_eq!(failed.cause.label(), "no_common_version");
        // A fatal protocol_version (RFC 8446, section 6.2).
        assert_eq!(failed.output[5..], [2, 70]);
        let done = shake(&config, &mut Client::default().connect(NAME)).unwrap();
        assert_eq!(done.established.info.version, version, "a client of both");
    }
}

#[test]
fn suites_and_groups_that_are_left_out_are_not_used() {
    let (suites, groups) = (vec![CipherSuite::TLS_AES_256_GCM_SHA384], vec![Group::Secp384r1]);
    let config = server(&with(Policy { versions: vec![Version::Tls13], suites, groups }));
    let info = shake(&config, &mut Client::default().connect(NAME)).unwrap().established.info;
    assert_eq!((info.suite, info.group), (CipherSuite::TLS_AES_256_GCM_SHA384, Some("secp384r1")));
    let client = Client { groups: vec![kx_group::X25519], ..Client::default() };
    let failed = shake(&config, &mut client.connect(NAME)).unwrap_err();
    assert_eq!(failed.cause.label(), "no_common_group");
    let mut client = Client::default();
    client.suites.retain(|suite| u16::from(suite.suite()) != CipherSuite::TLS_AES_256_GCM_SHA384.iana());
    let failed = shake(&config, &mut client.connect(NAME)).unwrap_err();
    assert_eq!(failed.cause.label(), "no_common_suite");
}

/// A client without hardware for AES shows that by its order of suites.
#[test]
fn our_order_of_suites_decides_unless_the_client_prefers_chacha20() {
    let config = server(&options(&[KeyKind::P256]));
    let cases = [
        (["TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"], "TLS_AES_128_GCM_SHA256"),
        (["TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_256_GCM_SHA384"], "TLS_CHACHA20_POLY1305_SHA256"),
    ];
    for (first, chosen) in cases {
        let mut client = Client::of_version(&TLS13);
        let rank = |name: &str| first.iter().position(|first| name.ends_with(&first[4..])).unwrap_or(first.len());
        client.suites.sort_by_key(|suite| rank(&format!("{:?}", suite.suite())));
        let info = shake(&config, &mut client.connect(NAME)).unwrap().established.info;
        assert_eq!(info.suite.to_string(), chosen);
    }
}

#[test]
fn options_under_which_a_version_has_no_handshake_are_refused() {
    let suites = vec![CipherSuite::TLS_AES_128_GCM_SHA256];
    let refused = ServerConfig::new(&with(Policy { suites, ..Policy::default() })).unwrap_err();
    assert!(matches!(refused, ConfigError::BadPolicy(BadPolicy::NoSuite(Version::Tls12))), "{refused}");
    let suites = vec![CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256];
    let policy = Policy { suites, ..only(Version::Tls12) };
    let ecdsa = ServerOptions { policy: policy.clone(), ..options(&[KeyKind::P256]) };
    let refused = ServerConfig::new(&ecdsa).unwrap_err();
    assert!(matches!(refused, ConfigError::NoKeyForSuites(Version::Tls12)), "{refused}");
    assert!(ServerConfig::new(&ServerOptions { policy, ..options(&[KeyKind::Rsa2048]) }).is_ok());
}
