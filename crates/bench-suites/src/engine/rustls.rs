//! rustls with aws-lc-rs. It has no suite of the paper: all of those lack forward secrecy, or authenticated encryption,
//! or both.

use std::io;
use std::net::TcpStream;
use std::ops::DerefMut;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::server::ServerSessionMemoryCache;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
    ServerConnection, SideData, StreamOwned, SupportedCipherSuite,
};

use super::interface::{Engine, MeasureError, Offer};
use crate::certificates::{Certificates, HOST, Identity};
use crate::loopback::{self, Channel, Client, Connected, Server, Session};
use crate::row::Measured;
use crate::work::Work;

pub(crate) struct Rustls<'a> {
    certificates: &'a Certificates,
}

impl<'a> Rustls<'a> {
    pub(super) fn new(certificates: &'a Certificates) -> Self {
        Self { certificates }
    }
}

impl Engine for Rustls<'_> {
    /// The library does not report its version.
    fn version(&self) -> String {
        "with aws-lc-rs".to_owned()
    }

    fn offers(&self) -> Vec<Offer> {
        aws_lc_rs::ALL_CIPHER_SUITES.iter().filter_map(|suite| Offer::new(iana(*suite), iana(*suite))).collect()
    }

    fn measure(&mut self, offer: &Offer, work: Work) -> Result<Measured, MeasureError> {
        let suite = aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| iana(**suite) == offer.own_name);
        let identity = self.certificates.identity(offer.key);
        let (Some(suite), Some(identity)) = (suite, identity) else {
            return Err(rustls::Error::General(format!("no suite {}", offer.own_name)).into());
        };
        let mut server = RustlsServer(Arc::new(server_config(*suite, identity)?));
        let mut client = RustlsClient::new(*suite, identity)?;
        Ok(loopback::measure(&mut server, &mut client, work)?)
    }
}

/// The IANA name. rustls writes `TLS13_` where IANA writes `TLS_`.
fn iana(suite: SupportedCipherSuite) -> String {
    let name = format!("{:?}", suite.suite());
    name.strip_prefix("TLS13_").map_or_else(|| name.clone(), |rest| format!("TLS_{rest}"))
}

/// Only this suite, and X25519 as in the other engines.
fn provider(suite: SupportedCipherSuite) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![aws_lc_rs::kx_group::X25519],
        ..aws_lc_rs::default_provider()
    })
}

fn server_config(suite: SupportedCipherSuite, identity: &Identity) -> Result<ServerConfig, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[suite.version()])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate.clone()], identity.key())?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    Ok(config)
}

fn client_config(suite: SupportedCipherSuite, identity: &Identity) -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(identity.authority.clone())?;
    Ok(ClientConfig::builder_with_provider(provider(suite))
        .with_protocol_versions(&[suite.version()])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

struct RustlsServer(Arc<ServerConfig>);

impl Server for RustlsServer {
    fn accept(&mut self, tcp: TcpStream) -> io::Result<Box<dyn Channel>> {
        let connection = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
        Ok(Box::new(shaken(connection, tcp)?))
    }
}

struct RustlsClient {
    new: Arc<ClientConfig>,
    kept: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl RustlsClient {
    fn new(suite: SupportedCipherSuite, identity: &Identity) -> Result<Self, rustls::Error> {
        let kept = client_config(suite, identity)?;
        let mut new = kept.clone();
        new.resumption = Resumption::disabled();
        let name = ServerName::try_from(HOST).map_err(|error| rustls::Error::General(error.to_string()))?;
        Ok(Self { new: Arc::new(new), kept: Arc::new(kept), name })
    }
}

impl Client for RustlsClient {
    fn connect(&mut self, tcp: TcpStream, session: Session) -> io::Result<Connected> {
        let config = match session {
            Session::New => &self.new,
            Session::Kept => &self.kept,
        };
        let connection = ClientConnection::new(config.clone(), self.name.clone()).map_err(io::Error::other)?;
        let stream = shaken(connection, tcp)?;
        Ok(Connected {
            resumed: stream.conn.handshake_kind() == Some(HandshakeKind::Resumed),
            version: version(stream.conn.protocol_version()),
            channel: Box::new(stream),
        })
    }
}

/// Performs the handshake of a connection.
fn shaken<C, S>(mut connection: C, mut tcp: TcpStream) -> io::Result<StreamOwned<C, TcpStream>>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    while connection.is_handshaking() {
        connection.complete_io(&mut tcp)?;
    }
    Ok(StreamOwned::new(connection, tcp))
}

impl<C, S> Channel for StreamOwned<C, TcpStream>
where
    C: DerefMut<Target = ConnectionCommon<S>>,
    S: SideData,
{
    fn finish(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        while self.conn.wants_write() {
            self.conn.write_tls(&mut self.sock)?;
        }
        Ok(())
    }
}

fn version(version: Option<ProtocolVersion>) -> &'static str {
    match version {
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "TLSv1.2",
    }
}

/// More sessions than a server has to store at a time: a client reuses one session (TLS 1.2), or the newest ticket (TLS
/// 1.3).
const SESSIONS: usize = 1024;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustls::server::NoServerSessionStorage;

    use super::*;

    #[test]
    fn a_server_that_forgets_shows() {
        let certificates = Certificates::generate().unwrap();
        let work = Work { bulk_bytes: 1, connections: 2 };
        for suite in aws_lc_rs::ALL_CIPHER_SUITES {
            let offer = Offer::new(iana(*suite), "").unwrap();
            let identity = certificates.identity(offer.key).unwrap();
            let mut config = server_config(*suite, identity).unwrap();
            config.session_storage = Arc::new(NoServerSessionStorage {});
            let mut client = RustlsClient::new(*suite, identity).unwrap();
            let measured = loopback::measure(&mut RustlsServer(Arc::new(config)), &mut client, work).unwrap();
            assert_eq!(measured.reused, 0, "{suite:?}");
        }
    }
}
