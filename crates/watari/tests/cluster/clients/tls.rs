//! A TLS client with strict parameters, which controls the content of each write.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned,
    SupportedProtocolVersion,
};
use socket2::{Domain, SockRef, Socket, Type};

use crate::harness::site::{Authority, ClientIdentity, KeyKind, SITE};
use crate::harness::wait::WAIT_MAX;

pub(crate) use rustls::version::{TLS12, TLS13};

/// The parameters that a client insists on.
#[derive(Clone)]
pub(crate) struct Taste {
    pub(crate) version: &'static SupportedProtocolVersion,
    pub(crate) key: KeyKind,
    pub(crate) identity: Option<ClientIdentity>,
}

impl Default for Taste {
    fn default() -> Self {
        Self { version: &TLS13, key: KeyKind::P256, identity: None }
    }
}

impl Taste {
    /// Every combination of version and kind of key.
    pub(crate) fn all() -> Vec<Self> {
        let versions = [&TLS12, &TLS13].into_iter();
        versions.flat_map(|version| KeyKind::BOTH.map(|key| Self { version, key, identity: None })).collect()
    }

    /// A configuration that resumes nothing.
    pub(crate) fn config(&self) -> Arc<ClientConfig> {
        let mut config = self.usual_config();
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }

    /// A configuration that resumes sessions established with it.
    pub(crate) fn resuming_config(&self) -> Arc<ClientConfig> {
        Arc::new(self.usual_config())
    }

    fn usual_config(&self) -> ClientConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[self.version])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier::new(provider, self.key)));
        match self.identity.clone() {
            Some(identity) => builder.with_client_auth_cert(vec![identity.certificate], identity.key).unwrap(),
            None => builder.with_no_client_auth(),
        }
    }
}

/// Verifies as usual, and accepts only one kind of key.
#[derive(Debug)]
struct Verifier {
    usual: Arc<WebPkiServerVerifier>,
    key: KeyKind,
}

impl Verifier {
    fn new(provider: Arc<CryptoProvider>, key: KeyKind) -> Self {
        let roots = Arc::new(Authority::of_site().roots());
        Self { usual: WebPkiServerVerifier::builder_with_provider(roots, provider).build().unwrap(), key }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.usual.verify_server_cert(leaf, chain, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match self.key {
            KeyKind::P256 => vec![SignatureScheme::ECDSA_NISTP256_SHA256],
            KeyKind::Rsa2048 => vec![SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
        }
    }
}

/// A TLS connection.
pub(crate) struct Tls {
    stream: StreamOwned<ClientConnection, TcpStream>,
}

impl Tls {
    /// Does the handshake. `behind_finished` goes in one write with the client's last flight.
    pub(crate) fn connect(
        mut tcp: TcpStream,
        config: Arc<ClientConfig>,
        server: &str,
        behind_finished: impl FnOnce(&mut ClientConnection),
    ) -> io::Result<Self> {
        let mut tls = ClientConnection::new(config, ServerName::try_from(server.to_owned()).unwrap()).unwrap();
        tls.set_buffer_limit(None);
        while tls.is_handshaking() {
            if tls.wants_write() {
                send(&mut tls, &mut tcp)?;
            }
            receive(&mut tls, &mut tcp)?;
        }
        behind_finished(&mut tls);
        send(&mut tls, &mut tcp)?;
        Ok(Self { stream: StreamOwned::new(tls, tcp) })
    }

    /// Connects from `source` to the site and does the handshake.
    pub(crate) fn to_site(source: IpAddr, service: SocketAddr, taste: &Taste) -> io::Result<Self> {
        Self::to_site_saying(source, service, taste, |_| {})
    }

    /// Like [`Tls::to_site`]. See [`Tls::connect`] for `behind_finished`.
    pub(crate) fn to_site_saying(
        source: IpAddr,
        service: SocketAddr,
        taste: &Taste,
        behind_finished: impl FnOnce(&mut ClientConnection),
    ) -> io::Result<Self> {
        Self::connect(dial(source, service)?, taste.config(), SITE, behind_finished)
    }

    /// The certificate that the site has sent.
    pub(crate) fn site_certificate(&self) -> CertificateDer<'static> {
        self.stream.conn.peer_certificates().unwrap()[0].clone().into_owned()
    }

    pub(crate) fn session(&mut self) -> &mut ClientConnection {
        &mut self.stream.conn
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.stream.sock
    }

    /// Sends the session's pending records, such as a `KeyUpdate` or an alert.
    pub(crate) fn send(&mut self) -> io::Result<()> {
        send(&mut self.stream.conn, &mut self.stream.sock)
    }
}

/// Sends everything in one write, whatever its length.
pub(super) fn send(tls: &mut ClientConnection, tcp: &mut TcpStream) -> io::Result<()> {
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight)?;
    }
    tcp.write_all(&flight)
}

pub(super) fn receive(tls: &mut ClientConnection, tcp: &mut TcpStream) -> io::Result<()> {
    match tls.read_tls(tcp) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        // The end of a child may interrupt a wait that has a timeout.
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
        read => read?,
    };
    match tls.process_new_packets() {
        Ok(_) => Ok(()),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}

impl Read for Tls {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl Write for Tls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The first flight of a client with the server name `name`.
pub(crate) fn hello(name: &str, taste: &Taste) -> Vec<u8> {
    let mut client = ClientConnection::new(taste.config(), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// Connects from `source`, at any port. Sets the timeout of a test for reads and writes.
pub(crate) fn dial(source: IpAddr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(server), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(source, 0).into())?;
    socket.connect_timeout(&server.into(), WAIT_MAX)?;
    socket.set_read_timeout(Some(WAIT_MAX))?;
    socket.set_write_timeout(Some(WAIT_MAX))?;
    socket.set_tcp_nodelay(true)?;
    Ok(socket.into())
}

/// Closes with a TCP reset.
pub(crate) fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
}
