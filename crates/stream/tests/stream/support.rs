//! Peers for a [`TlsStream`].

use std::sync::{Arc, OnceLock};

use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, ConnectionTrafficSecrets, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use watari_record::{
    CipherSuite, Connection, Direction, DirectionSecret, Opened, RecordHeader, Secrets, Side, Version,
};
use watari_stream::TlsStream;
use zeroize::Zeroizing;

pub(crate) type RustlsClient = tokio_rustls::client::TlsStream<DuplexStream>;

/// `len` bytes. Each differs from its neighbours and from the byte one record earlier.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i >> 14) as u8).collect()
}

/// The client's and the server's end of a connection, without a handshake.
pub(crate) fn connections(suite: CipherSuite, server_tx_sequence: u64) -> (Connection, Connection) {
    let direction = |seed: u8, sequence| Direction {
        sequence,
        secret: match suite.version() {
            Version::Tls13 => DirectionSecret::Tls13(Zeroizing::new(vec![seed; suite.hash().output_len()])),
            Version::Tls12 => DirectionSecret::Tls12 {
                key: Zeroizing::new(vec![seed; suite.aead().key_len()]),
                iv: Zeroizing::new([seed; 12]),
            },
        },
    };
    let to_client = || direction(1, server_tx_sequence);
    let to_server = || direction(2, 0);
    let client = Secrets { side: Side::Client, suite, tx: to_server(), rx: to_client() };
    let server = Secrets { side: Side::Server, suite, tx: to_client(), rx: to_server() };
    (Connection::new(client).unwrap(), Connection::new(server).unwrap())
}

/// A client that builds its records itself.
pub(crate) struct RawClient {
    pub(crate) io: DuplexStream,
    pub(crate) connection: Connection,
}

impl RawClient {
    /// A client and the server's stream, over a pipe that holds `pipe_len` bytes in each direction.
    pub(crate) fn connect(suite: CipherSuite, pipe_len: usize) -> (Self, TlsStream<DuplexStream>) {
        let (client_io, server_io) = duplex(pipe_len);
        let (client, server) = connections(suite, 0);
        (Self { io: client_io, connection: client }, TlsStream::new(server_io, server))
    }

    pub(crate) fn seal(&mut self, data: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        self.connection.seal(&[std::io::IoSlice::new(data)], usize::MAX, &mut records).unwrap();
        records
    }

    pub(crate) fn key_update_request(&mut self) -> Vec<u8> {
        let mut record = Vec::new();
        self.connection.update_keys(true, &mut record).unwrap();
        record
    }

    /// Receives one record. Returns its kind and its data.
    pub(crate) async fn receive(&mut self) -> (Opened, Vec<u8>) {
        let mut record = vec![0; 5];
        self.io.read_exact(&mut record).await.unwrap();
        let header = RecordHeader::parse(self.connection.version(), &record).unwrap().unwrap();
        record.resize(header.record_len(), 0);
        self.io.read_exact(&mut record[5..]).await.unwrap();
        let opened = self.connection.open(&mut record).unwrap();
        let data = match &opened {
            Opened::Data(range) => record[range.clone()].to_vec(),
            _ => Vec::new(),
        };
        (opened, data)
    }

    pub(crate) async fn receive_data(&mut self, len: usize) -> Vec<u8> {
        let mut received = Vec::new();
        while received.len() < len {
            received.extend(self.receive().await.1);
        }
        received
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }
}

/// A rustls client, and the server's stream right after the handshake.
pub(crate) async fn rustls_client(version: Version, pipe_len: usize) -> (RustlsClient, TlsStream<DuplexStream>) {
    let (client_io, server_io) = duplex(pipe_len);
    let versions: &[&SupportedProtocolVersion] = match version {
        Version::Tls12 => &[&version::TLS12],
        Version::Tls13 => &[&version::TLS13],
    };
    let log = Arc::new(SecretLog::default());
    let (client_config, server_config) = configs(versions, &log);
    let name = ServerName::try_from("example.org").unwrap();
    let connector = TlsConnector::from(client_config);
    let acceptor = TlsAcceptor::from(server_config);
    let (client, server) = tokio::join!(connector.connect(name, client_io), acceptor.accept(server_io));
    let (server_io, server) = server.unwrap().into_inner();
    let suite = server.negotiated_cipher_suite().unwrap().suite();
    let suite = CipherSuite::from_iana(suite.into()).unwrap();
    let extracted = server.dangerous_extract_secrets().unwrap();
    let direction = |label, (sequence, secrets)| {
        let secret = match suite.version() {
            Version::Tls12 => tls12_secret(secrets),
            Version::Tls13 => DirectionSecret::Tls13(log.secret(label)),
        };
        Direction { sequence, secret }
    };
    let secrets = Secrets {
        side: Side::Server,
        suite,
        tx: direction("SERVER_TRAFFIC_SECRET_0", extracted.tx),
        rx: direction("CLIENT_TRAFFIC_SECRET_0", extracted.rx),
    };
    (client.unwrap(), TlsStream::new(server_io, Connection::new(secrets).unwrap()))
}

fn tls12_secret(secrets: ConnectionTrafficSecrets) -> DirectionSecret {
    match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv }
        | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => DirectionSecret::Tls12 {
            key: Zeroizing::new(key.as_ref().to_vec()),
            iv: Zeroizing::new(iv.as_ref().try_into().unwrap()),
        },
        _ => panic!("secrets of an unknown algorithm"),
    }
}

fn configs(
    versions: &[&'static SupportedProtocolVersion],
    log: &Arc<SecretLog>,
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    static IDENTITY: OnceLock<(CertificateDer<'static>, PrivateKeyDer<'static>)> = OnceLock::new();
    let (certificate, key) = IDENTITY.get_or_init(|| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        (certificate, PrivatePkcs8KeyDer::from(key.serialize_der()).into())
    });
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).unwrap();
    let client =
        ClientConfig::builder_with_protocol_versions(versions).with_root_certificates(roots).with_no_client_auth();
    let mut server = ServerConfig::builder_with_protocol_versions(versions)
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key.clone_key())
        .unwrap();
    server.enable_secret_extraction = true;
    server.key_log = log.clone();
    // Without tickets: the server would send them after the client is done, and the client does not read them out of a
    // short pipe.
    server.send_tls13_tickets = 0;
    (Arc::new(client), Arc::new(server))
}

/// The secrets that rustls logs for `SSLKEYLOGFILE`, by label.
#[derive(Debug, Default)]
struct SecretLog(std::sync::Mutex<std::collections::HashMap<String, Vec<u8>>>);

impl tokio_rustls::rustls::KeyLog for SecretLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap().insert(label.to_owned(), secret.to_vec());
    }
}

impl SecretLog {
    fn secret(&self, label: &str) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.0.lock().unwrap()[label].clone())
    }
}
