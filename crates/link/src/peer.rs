//! Peers, identified by the certificates that TLS has verified.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, CommonState, ServerConfig};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use watari_pki::{BadCertificate, Identity, peer_identity};
use watari_sys::UnidentifiedPlace;
use watari_sys::tcp::prepare_link;
use watari_values::{NodeName, Role};

/// A connection to a node of the cluster.
#[derive(Debug)]
pub struct Peer {
    pub stream: TlsStream<TcpStream>,
    pub node: NodeName,
    /// The roles that its certificate allows.
    pub roles: BTreeSet<Role>,
}

impl Peer {
    /// The protocol that both ends selected (ALPN; RFC 7301). `None`: the client offered none.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.stream.get_ref().1.alpn_protocol()
    }
}

/// TLS failed, or the peer is no node.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// TLS or the connection failed, for example because the authorities differ.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The peer has presented no certificate.
    #[error("its certificate identifies no node")]
    NoCertificate,
    /// The certificate is signed by the cluster's authority, but is not a node's.
    #[error("its certificate identifies no node")]
    Certificate(BadCertificate),
}

/// The peer is not identified as the caller requires.
#[derive(Debug, thiserror::Error)]
pub enum IdentifyError {
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The certificate does not allow the role.
    #[error("its certificate does not allow the role {0}")]
    Role(Role),
    /// TLS took too long.
    #[error("it did not finish its handshake in time")]
    Slow,
}

/// Does the TLS handshake with a node whose certificate has to have this name.
pub async fn connect_to(tcp: TcpStream, name: &NodeName, identity: &Identity) -> Result<Peer, PeerError> {
    connect_with(tcp, name, identity.client_config()).await
}

/// Like [`connect_to`], with a configuration that was made from [`Identity::client_config`].
pub async fn connect_with(tcp: TcpStream, name: &NodeName, config: &Arc<ClientConfig>) -> Result<Peer, PeerError> {
    let server_name = ServerName::try_from(name.to_string()).expect("node names are server names");
    connect(tcp, server_name, config).await
}

/// Does the TLS handshake with a node of any name, whose certificate has to allow this role. The certificate names a
/// node, not its host. So the client verifies no server name, and sends none.
pub async fn connect_to_role(tcp: TcpStream, role: Role, identity: &Identity) -> Result<Peer, IdentifyError> {
    let nowhere = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
    match connect(tcp, nowhere, identity.client_config_for_any()).await {
        Ok(peer) if peer.roles.contains(&role) => Ok(peer),
        Ok(_) | Err(PeerError::NoCertificate | PeerError::Certificate(_)) => Err(IdentifyError::Role(role)),
        Err(error @ PeerError::Tls(_)) => Err(error.into()),
    }
}

/// Waits for the peer's first bytes, and does the TLS handshake with it.
///
/// Until its first byte, a connection uses no memory for TLS, and is the first to be closed when a newer one needs a
/// place.
pub async fn accept(tcp: TcpStream, identity: &Identity, place: &UnidentifiedPlace) -> Result<Peer, PeerError> {
    accept_with(tcp, identity.server_config(), place).await
}

/// Like [`accept`], with a configuration that was made from [`Identity::server_config`].
pub async fn accept_with(
    tcp: TcpStream,
    config: &Arc<ServerConfig>,
    place: &UnidentifiedPlace,
) -> Result<Peer, PeerError> {
    let acceptor = TlsAcceptor::from(Arc::clone(config));
    let accepted = async {
        tcp.readable().await?;
        place.spoke();
        prepare_link(&tcp)?;
        acceptor.accept(tcp).await
    };
    certified(TlsStream::from(accepted.await.map_err(PeerError::Tls)?))
}

/// Like [`accept`], for at most 5 seconds.
pub async fn identify(tcp: TcpStream, identity: &Identity, place: &UnidentifiedPlace) -> Result<Peer, IdentifyError> {
    let accepted = timeout(HANDSHAKE_MAX, accept(tcp, identity, place)).await;
    Ok(accepted.map_err(|_| IdentifyError::Slow)??)
}

async fn connect(tcp: TcpStream, name: ServerName<'static>, config: &Arc<ClientConfig>) -> Result<Peer, PeerError> {
    let connected = async {
        prepare_link(&tcp)?;
        TlsConnector::from(Arc::clone(config)).connect(name, tcp).await
    };
    certified(TlsStream::from(connected.await.map_err(PeerError::Tls)?))
}

/// Takes the name and the roles from the certificate that TLS has verified.
fn certified(stream: TlsStream<TcpStream>) -> Result<Peer, PeerError> {
    let tls: &CommonState = stream.get_ref().1;
    let certificate = tls.peer_certificates().and_then(<[_]>::first).ok_or(PeerError::NoCertificate)?;
    let (node, roles) = peer_identity(certificate).map_err(PeerError::Certificate)?;
    Ok(Peer { stream, node, roles })
}

const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
