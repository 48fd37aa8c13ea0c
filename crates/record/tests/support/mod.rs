//! A rustls peer, and a [`Connection`] made from the other end of its handshake.

use std::collections::HashMap;
use std::io::{IoSlice, Read, Write};
use std::sync::{Arc, Mutex, OnceLock};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, ExtractedSecrets, KeyLog, RootCertStore, ServerConfig,
    ServerConnection,
};
use watari_record::{
    CipherSuite, Connection, Direction, DirectionSecret, Opened, Secrets, Side, Version, derive_traffic_key,
};
use zeroize::Zeroizing;

/// One connection: this end and the rustls end, and the bytes that each has to read.
pub(crate) struct Pair {
    pub(crate) ours: Connection,
    pub(crate) theirs: rustls::Connection,
}

impl Pair {
    /// A connection with `suite` right after its handshake. `our_side` is the side of the [`Connection`].
    pub(crate) fn new(suite: CipherSuite, our_side: Side) -> Self {
        let log = Arc::new(SecretLog::default());
        let (client, server) = handshake(suite, &log);
        let (ours, theirs) = match our_side {
            Side::Client => (client, server),
            Side::Server => (server, client),
        };
        let extracted = ours.dangerous_extract_secrets().unwrap();
        let ours = Connection::new(secrets(suite, our_side, extracted, &log)).unwrap();
        Self { ours, theirs }
    }

    /// Seals `parts` at this end. Returns the plaintext that rustls reads.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        let parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut records = Vec::new();
        let sealed = self.ours.seal(&parts, usize::MAX, &mut records).unwrap();
        assert_eq!(sealed, parts.iter().map(|part| part.len()).sum::<usize>());
        self.deliver(&records).unwrap()
    }

    /// Delivers `records` to rustls. Returns the plaintext that rustls reads.
    pub(crate) fn deliver(&mut self, mut records: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let mut plaintext = Vec::new();
        while !records.is_empty() {
            self.theirs.read_tls(&mut records).unwrap();
            let state = self.theirs.process_new_packets()?;
            let mut piece = vec![0; state.plaintext_bytes_to_read()];
            self.theirs.reader().read_exact(&mut piece).unwrap();
            plaintext.extend(piece);
        }
        Ok(plaintext)
    }

    /// Sends `plaintext` from rustls. Returns the plaintext that this end opens.
    pub(crate) fn receive(&mut self, plaintext: &[u8]) -> Vec<u8> {
        self.theirs.writer().write_all(plaintext).unwrap();
        let mut opened_bytes = Vec::new();
        for mut record in self.their_records() {
            if let Opened::Data(range) = self.ours.open(&mut record).unwrap() {
                opened_bytes.extend_from_slice(&record[range]);
            }
        }
        opened_bytes
    }

    /// The records that rustls wants to send.
    pub(crate) fn their_records(&mut self) -> Vec<Vec<u8>> {
        let mut bytes = Vec::new();
        while self.theirs.wants_write() {
            self.theirs.write_tls(&mut bytes).unwrap();
        }
        self.split(&bytes)
    }

    /// Splits `bytes` into complete records.
    pub(crate) fn split(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut records = Vec::new();
        while let Some(header) = self.ours.header(bytes).unwrap() {
            let (record, rest) = bytes.split_at(header.record_len());
            records.push(record.to_vec());
            bytes = rest;
        }
        assert!(bytes.is_empty(), "half a record");
        records
    }
}

/// `len` bytes. Each differs from its neighbours and from the byte one record earlier.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 14) as u8).collect()
}

/// The secrets that rustls logs for `SSLKEYLOGFILE`, by label.
#[derive(Debug, Default)]
struct SecretLog(Mutex<HashMap<String, Vec<u8>>>);

impl KeyLog for SecretLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().insert(label.to_owned(), secret.to_vec());
    }
}

impl SecretLog {
    fn traffic_secret(&self, sender: Side) -> Zeroizing<Vec<u8>> {
        let label = match sender {
            Side::Client => "CLIENT_TRAFFIC_SECRET_0",
            Side::Server => "SERVER_TRAFFIC_SECRET_0",
        };
        Zeroizing::new(self.0.lock().unwrap()[label].clone())
    }
}

fn secrets(suite: CipherSuite, side: Side, extracted: ExtractedSecrets, log: &SecretLog) -> Secrets {
    let other_side = match side {
        Side::Client => Side::Server,
        Side::Server => Side::Client,
    };
    let direction = |sender, (sequence, extracted)| {
        let (key, iv) = key_and_iv(extracted);
        let secret = match suite.version() {
            Version::Tls12 => DirectionSecret::Tls12 { key, iv },
            Version::Tls13 => {
                let secret = log.traffic_secret(sender);
                let derived = derive_traffic_key(suite, &secret).unwrap();
                assert_eq!((derived.key, derived.iv), (key, iv), "our key schedule is not rustls'");
                DirectionSecret::Tls13(secret)
            }
        };
        Direction { sequence, secret }
    };
    Secrets { side, suite, tx: direction(side, extracted.tx), rx: direction(other_side, extracted.rx) }
}

fn key_and_iv(secrets: ConnectionTrafficSecrets) -> (Zeroizing<Vec<u8>>, Zeroizing<[u8; 12]>) {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            (Zeroizing::new(key.as_ref().to_vec()), Zeroizing::new(iv.as_ref().try_into().unwrap()))
        }
        _ => panic!("secrets of an unknown algorithm"),
    }
}

fn handshake(suite: CipherSuite, log: &Arc<SecretLog>) -> (rustls::Connection, rustls::Connection) {
    let identity = if suite.name().contains("_RSA_") { rsa_identity() } else { ecdsa_identity() };
    let mut client = client(suite, identity, log);
    let mut server = server(suite, identity, log);
    while client.is_handshaking() || server.is_handshaking() || server.wants_write() {
        pump(&mut client, &mut server);
        pump(&mut server, &mut client);
    }
    assert_eq!(client.negotiated_cipher_suite().unwrap().suite(), suite.iana().into());
    (client, server)
}

fn pump(from: &mut rustls::Connection, to: &mut rustls::Connection) {
    let mut bytes = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut bytes).unwrap();
    }
    let mut left = &bytes[..];
    while !left.is_empty() {
        to.read_tls(&mut left).unwrap();
        to.process_new_packets().unwrap();
    }
}

fn client(suite: CipherSuite, identity: &Identity, log: &Arc<SecretLog>) -> rustls::Connection {
    let mut roots = RootCertStore::empty();
    roots.add(identity.certificate.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider(suite))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config.key_log = log.clone();
    let name = ServerName::try_from("example.org").unwrap();
    let mut client = ClientConnection::new(Arc::new(config), name).unwrap();
    client.set_buffer_limit(None);
    client.into()
}

fn server(suite: CipherSuite, identity: &Identity, log: &Arc<SecretLog>) -> rustls::Connection {
    let mut config = ServerConfig::builder_with_provider(provider(suite))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key.clone_key())
        .unwrap();
    config.enable_secret_extraction = true;
    config.key_log = log.clone();
    let mut server = ServerConnection::new(Arc::new(config)).unwrap();
    server.set_buffer_limit(None);
    server.into()
}

fn provider(suite: CipherSuite) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|candidate| candidate.suite() == suite.iana().into());
    Arc::new(provider)
}

struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn new(algorithm: &'static rcgen::SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, key: PrivatePkcs8KeyDer::from(key.serialize_der()).into() }
    }
}

fn rsa_identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| Identity::new(&PKCS_RSA_SHA256))
}

fn ecdsa_identity() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| Identity::new(&PKCS_ECDSA_P256_SHA256))
}
