//! The client's TLS handshake, by rustls. The record layer of `watari_record` continues.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets, HandshakeKind, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use watari_record::{CipherSuite, Connection, Direction, DirectionSecret, Secrets, Side, Version};
use watari_stream::{Parts, TlsStream};
use zeroize::Zeroizing;

use crate::network::Reset;
use crate::pki::{NAME, PKI};
use crate::socket::Socket;

/// What a client offers.
#[derive(Clone, Copy)]
pub(crate) struct Offer {
    pub(crate) suite: CipherSuite,
}

impl Offer {
    pub(crate) const SUITES: [CipherSuite; 5] = [
        CipherSuite::TLS_AES_128_GCM_SHA256,
        CipherSuite::TLS_AES_256_GCM_SHA384,
        CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ];

    fn config(self, log: &Arc<SecretLog>, resumption: Resumption) -> ClientConfig {
        // rustls resumes a session only with the verifier that it was established with.
        static CONFIGS: LazyLock<Vec<ClientConfig>> = LazyLock::new(|| Offer::SUITES.map(config_of).into());
        let at = Self::SUITES.iter().position(|suite| *suite == self.suite).unwrap_or_default();
        let mut config = CONFIGS[at].clone();
        config.key_log = log.clone();
        config.resumption = resumption;
        config
    }
}

fn config_of(suite: CipherSuite) -> ClientConfig {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|known| u16::from(known.suite()) == suite.iana());
    // One exchange is enough, and the others take more time.
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let version = match suite.version() {
        Version::Tls12 => &rustls::version::TLS12,
        Version::Tls13 => &rustls::version::TLS13,
    };
    let mut roots = RootCertStore::empty();
    roots.add(PKI.authority.clone()).expect("the authority's certificate is well-formed");
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[version])
        .expect("the suite is one of this version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.enable_secret_extraction = true;
    config
}

/// The traffic secrets of one connection, which rustls gives to a log only.
#[derive(Debug, Default)]
struct SecretLog(Mutex<Vec<(String, Vec<u8>)>>);

impl SecretLog {
    fn take(&self, label: &str) -> Option<DirectionSecret> {
        let mut secrets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = secrets.iter().position(|(known, _)| known == label)?;
        Some(DirectionSecret::Tls13(Zeroizing::new(secrets.swap_remove(at).1)))
    }
}

impl rustls::KeyLog for SecretLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((label.to_owned(), secret.to_vec()));
    }
}

/// A handshake in progress.
pub(super) struct Handshake {
    socket: Socket,
    tls: ClientConnection,
    log: Arc<SecretLog>,
    offer: Offer,
    unsent: Vec<u8>,
    /// The first request goes together with the last message.
    coalesces: bool,
}

/// The result of a step.
pub(super) enum Step {
    Waits(Box<Handshake>),
    Done(Box<Stream>, HandshakeKind),
    /// The connection was cut.
    Cut,
    /// The agent has done something wrong.
    Failed(String),
}

impl Handshake {
    pub(super) fn new(socket: Socket, offer: Offer, resumption: Resumption, coalesces: bool) -> Self {
        let log = Arc::<SecretLog>::default();
        let config = Arc::new(offer.config(&log, resumption));
        let name = ServerName::try_from(NAME).expect("a name of the certificate");
        let tls = ClientConnection::new(config, name).expect("the settings of a client are consistent");
        Self { socket, tls, log, offer, unsent: Vec::new(), coalesces }
    }

    /// Continues as far as possible.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        loop {
            while self.tls.wants_write() {
                self.tls.write_tls(&mut self.unsent).expect("writes to a vector do not fail");
            }
            if !self.tls.is_handshaking() && self.coalesces {
                return self.finish();
            }
            let Ok(written) = self.socket.write(&self.unsent) else { return Step::Cut };
            self.unsent.drain(..written);
            if !self.tls.is_handshaking() && self.unsent.is_empty() {
                return self.finish();
            }
            match self.socket.read(16 * 1024) {
                None => return Step::Waits(self),
                Some(Err(Reset)) => return Step::Cut,
                Some(Ok(bytes)) if bytes.is_empty() => return Step::Failed("a clean end in a handshake".to_owned()),
                Some(Ok(bytes)) => {
                    if let Err(error) = give(&mut self.tls, &bytes) {
                        return Step::Failed(error.to_string());
                    }
                }
            }
        }
    }

    fn finish(self) -> Step {
        let Self { socket, tls, log, offer, unsent, .. } = self;
        let kind = tls.handshake_kind().unwrap_or(HandshakeKind::Full);
        let stream = match offer.suite.version() {
            Version::Tls13 => {
                let direction = |label| log.take(label).map(|secret| Direction { sequence: 0, secret });
                let (tx, rx) = (direction("CLIENT_TRAFFIC_SECRET_0"), direction("SERVER_TRAFFIC_SECRET_0"));
                let (Some(tx), Some(rx)) = (tx, rx) else { return Step::Failed("no traffic secrets".to_owned()) };
                (tx, rx, Some(Box::new(tls)))
            }
            Version::Tls12 => {
                let Ok(extracted) = tls.dangerous_extract_secrets() else {
                    return Step::Failed("no secrets".to_owned());
                };
                (tls12(extracted.tx), tls12(extracted.rx), None)
            }
        };
        let (tx, rx, shadow) = stream;
        let secrets = Secrets { side: Side::Client, suite: offer.suite, tx, rx };
        match Connection::new(secrets) {
            Ok(connection) => {
                let parts = Parts { unsent, ..Parts::new(ClientSocket { socket, shadow }, connection) };
                Step::Done(Box::new(TlsStream::from_parts(parts)), kind)
            }
            Err(error) => Step::Failed(error.to_string()),
        }
    }
}

fn tls12((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Direction {
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
    else {
        unreachable!("the suites have these ciphers")
    };
    let iv = iv.as_ref().try_into().expect("an IV has 12 bytes");
    let key = Zeroizing::new(key.as_ref().to_vec());
    Direction { sequence, secret: DirectionSecret::Tls12 { key, iv: Zeroizing::new(iv) } }
}

fn give(tls: &mut ClientConnection, mut bytes: &[u8]) -> Result<usize, rustls::Error> {
    let mut plaintext = 0;
    while !bytes.is_empty() && plaintext == 0 {
        tls.read_tls(&mut bytes).map_err(|error| rustls::Error::General(error.to_string()))?;
        plaintext = tls.process_new_packets()?.plaintext_bytes_to_read();
    }
    Ok(plaintext)
}

/// The stream of a client.
pub(super) type Stream = TlsStream<ClientSocket>;

/// The socket of a client. rustls gets a copy of what it reads before the first response: the tickets.
pub(super) struct ClientSocket {
    pub(super) socket: Socket,
    shadow: Option<Box<ClientConnection>>,
}

impl AsyncRead for ClientSocket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.socket).poll_read(cx, buf);
        if let Some(shadow) = &mut self.shadow {
            let has_response = give(shadow, &buf.filled()[before..]) != Ok(0);
            self.shadow.take_if(|_| has_response);
        }
        read
    }
}

impl AsyncWrite for ClientSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
