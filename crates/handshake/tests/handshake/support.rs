//! Both ends of a handshake and the bytes between them.

use std::io::Write;
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, SupportedKxGroup, WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, SignatureScheme, SupportedCipherSuite, SupportedProtocolVersion};
use watari_handshake::{Established, Failed, Handshake, ServerConfig, ServerOptions};

use crate::pki::{Authority, KeyKind};

pub(crate) const NAME: &str = "www.example.com";

/// Options with a certificate of each of `kinds` for [`NAME`].
pub(crate) fn options(kinds: &[KeyKind]) -> ServerOptions {
    let issue = |kind: &KeyKind| Authority::of_servers().issue(*kind, &[NAME]);
    ServerOptions { certificates: kinds.iter().map(issue).collect(), ..ServerOptions::default() }
}

pub(crate) fn server(options: &ServerOptions) -> ServerConfig {
    ServerConfig::new(options).unwrap()
}

/// How a client behaves.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) suites: Vec<SupportedCipherSuite>,
    pub(crate) groups: Vec<&'static dyn SupportedKxGroup>,
    pub(crate) signatures: WebPkiSupportedAlgorithms,
    pub(crate) versions: Vec<&'static SupportedProtocolVersion>,
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) certificate: Option<(CertificateDer<'static>, Arc<PrivateKeyDer<'static>>)>,
    pub(crate) sends_name: bool,
}

impl Default for Client {
    fn default() -> Self {
        let provider = aws_lc_rs::default_provider();
        Self {
            suites: provider.cipher_suites,
            groups: provider.kx_groups,
            signatures: provider.signature_verification_algorithms,
            versions: rustls::ALL_VERSIONS.to_vec(),
            alpn: Vec::new(),
            certificate: None,
            sends_name: true,
        }
    }
}

impl Client {
    pub(crate) fn of_version(version: &'static SupportedProtocolVersion) -> Self {
        Self { versions: vec![version], ..Self::default() }
    }

    /// A client that verifies signatures of no other `scheme`.
    pub(crate) fn verifying(mut self, scheme: SignatureScheme) -> Self {
        let at = self.signatures.mapping.iter().position(|(each, _)| *each == scheme).unwrap();
        self.signatures.mapping = &self.signatures.mapping[at..=at];
        self
    }

    pub(crate) fn config(self) -> Arc<ClientConfig> {
        let provider = CryptoProvider {
            cipher_suites: self.suites,
            kx_groups: self.groups,
            signature_verification_algorithms: self.signatures,
            ..aws_lc_rs::default_provider()
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&self.versions)
            .unwrap()
            .with_root_certificates(Authority::of_servers().store());
        let mut config = match self.certificate {
            Some((leaf, key)) => builder.with_client_auth_cert(vec![leaf], key.clone_key()).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn;
        config.enable_sni = self.sends_name;
        Arc::new(config)
    }

    pub(crate) fn connect(self, name: &str) -> ClientConnection {
        connect(&self.config(), name)
    }
}

pub(crate) fn connect(config: &Arc<ClientConfig>, name: &str) -> ClientConnection {
    ClientConnection::new(Arc::clone(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap()
}

/// What [`client`] has to send now.
pub(crate) fn output_of(client: &mut ClientConnection) -> Vec<u8> {
    let mut output = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut output).unwrap();
    }
    output
}

/// Gives `client` all of `bytes`.
pub(crate) fn give(client: &mut ClientConnection, mut bytes: &[u8]) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        client.read_tls(&mut bytes).unwrap();
        client.process_new_packets()?;
    }
    Ok(())
}

/// A handshake that was established.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) established: Box<Established>,
    /// What the client sent together with its Finished, behind it.
    pub(crate) unread: Vec<u8>,
    /// What the client sent in answer to the server's last flight.
    pub(crate) answer: Vec<u8>,
}

impl Done {
    /// Everything the client sent after its Finished.
    pub(crate) fn records(&self) -> Vec<u8> {
        [&self.unread[..], &self.answer].concat()
    }
}

/// A server's end as a driver holds it.
pub(crate) struct Server {
    pub(crate) handshake: Handshake,
    pub(crate) unread: Vec<u8>,
}

impl Server {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        Self { handshake: Handshake::new(config), unread: Vec::new() }
    }

    /// Takes `bytes` as they arrive, gives the answer to `client`.
    pub(crate) fn arrive(
        &mut self,
        bytes: &[u8],
        client: &mut ClientConnection,
    ) -> Result<Option<Box<Established>>, Failed> {
        self.unread.extend_from_slice(bytes);
        let progress = self.handshake.receive(&self.unread)?;
        self.unread.drain(..progress.consumed);
        assert!(self.unread.len() <= Handshake::UNREAD_MAX || progress.established.is_some());
        give(client, &progress.output).unwrap();
        Ok(progress.established)
    }

    /// Carries bytes both ways, those to the server in pieces of at most `piece` bytes, until the handshake ends.
    pub(crate) fn finish(mut self, client: &mut ClientConnection, piece: usize) -> Result<Done, Failed> {
        loop {
            let bytes = output_of(client);
            assert!(!bytes.is_empty(), "the handshake stalls");
            let mut pieces = bytes.chunks(piece);
            while let Some(bytes) = pieces.next() {
                if let Some(established) = self.arrive(bytes, client)? {
                    let unread = self.unread.into_iter().chain(pieces.flatten().copied()).collect();
                    return Ok(Done { established, unread, answer: output_of(client) });
                }
            }
        }
    }
}

/// A whole handshake.
pub(crate) fn shake(config: &ServerConfig, client: &mut ClientConnection) -> Result<Done, Failed> {
    Server::new(config).finish(client, usize::MAX)
}

/// Has `client` send `data` as soon as it may: right behind its Finished.
pub(crate) fn send_early(client: &mut ClientConnection, data: &[u8]) {
    client.writer().write_all(data).unwrap();
}
