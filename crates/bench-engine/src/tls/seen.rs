//! The results of handshakes.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::client::ClientConnection;
use rustls::pki_types::CertificateDer;
use watari_handshake::Group;
use x509_parser::public_key::PublicKey;

use crate::sample::{HandshakeKind, TlsSeen};

/// Reads the results of handshakes. Most are equal, so the last one is stored and shared.
#[derive(Debug, Default)]
pub(crate) struct Observer {
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    seen: Option<Arc<TlsSeen>>,
    key: Option<(CertificateDer<'static>, String)>,
}

impl Observer {
    /// The result of this connection's completed handshake.
    pub(crate) fn observe(&self, connection: &ClientConnection) -> Arc<TlsSeen> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let kind = match connection.handshake_kind() {
            Some(rustls::HandshakeKind::Resumed) => HandshakeKind::Resumed,
            _ => HandshakeKind::Full,
        };
        let group = connection.negotiated_key_exchange_group().and_then(Group::agreed);
        let seen = TlsSeen {
            kind,
            version: connection.protocol_version().map_or("", version),
            suite: connection.negotiated_cipher_suite().map_or_else(String::new, suite),
            group: group.map(|group| group.name().to_owned()),
            key: connection.peer_certificates().and_then(<[_]>::first).map(|certificate| last.key_of(certificate)),
            alpn: connection.alpn_protocol().map(|protocol| String::from_utf8_lossy(protocol).into_owned()),
        };
        match &last.seen {
            Some(before) if **before == seen => Arc::clone(before),
            _ => Arc::clone(last.seen.insert(Arc::new(seen))),
        }
    }
}

impl Last {
    fn key_of(&mut self, certificate: &CertificateDer<'_>) -> String {
        match &self.key {
            Some((before, key)) if before == certificate => key.clone(),
            _ => {
                let key = key_type(certificate);
                self.key = Some((certificate.clone().into_owned(), key.clone()));
                key
            }
        }
    }
}

fn version(version: rustls::ProtocolVersion) -> &'static str {
    match version {
        rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2",
        _ => "TLSv1.3",
    }
}

/// rustls calls the suites of TLS 1.3 `TLS13_`; IANA does not.
fn suite(suite: rustls::SupportedCipherSuite) -> String {
    let name = suite.suite().as_str().unwrap_or("unknown");
    name.strip_prefix("TLS13_").map_or_else(|| name.to_owned(), |rest| format!("TLS_{rest}"))
}

/// Kind and size of the key in a certificate.
fn key_type(certificate: &[u8]) -> String {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else {
        return "unreadable".to_owned();
    };
    match parsed.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => format!("RSA-{}", key.key_size()),
        // A coordinate of P-521 takes 66 bytes.
        Ok(PublicKey::EC(point)) => format!("ECDSA P-{}", point.key_size().min(521)),
        _ => match parsed.public_key().algorithm.algorithm.to_id_string().as_str() {
            "1.3.101.112" => "Ed25519".to_owned(),
            other => other.chars().take(KEY_CHARS_MAX).collect(),
        },
    }
}

/// Limit for kinds of keys without a name here. A server can make such an identifier as long as its certificate.
const KEY_CHARS_MAX: usize = 64;
