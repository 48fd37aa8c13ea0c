//! Establishes a link over a TCP connection: TLS, identification of the peer, and the hellos.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::CommonState;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use watari_pki::peer_identity;
use watari_values::{NodeName, Role};
use watari_wire::LinkMessage;
use watari_wire::frame::{self, Frame};

use crate::inbox::Inbox;
use crate::peer::PeerEntry;
use crate::{LinkError, MeshShared, introduce};

/// A connection whose peer is identified and has sent its hello.
pub(crate) struct Established {
    pub(crate) stream: TlsStream<TcpStream>,
    /// Bytes received after the peer's hello.
    pub(crate) inbox: Inbox,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) incarnation: u64,
}

/// Connects to `peer`, and verifies that its certificate has this name.
pub(crate) async fn dial(shared: &MeshShared, peer: &PeerEntry) -> Result<Established, LinkError> {
    let tcp = TcpStream::connect(peer.address()).await.map_err(LinkError::Connect)?;
    tcp.set_nodelay(true)?;
    let name = ServerName::try_from(peer.name.to_string()).expect("node names are server names");
    let connector = TlsConnector::from(Arc::clone(shared.identity.client_config()));
    let stream = connector.connect(name, tcp).await?;
    let (found, allowed) = certified(stream.get_ref().1)?;
    if found != peer.name {
        return Err(LinkError::OtherNode(found));
    }
    say_hello(shared, TlsStream::from(stream), &found, &allowed).await
}

/// Identifies the node that has connected. `None`: it has introduced itself, and this node dials it.
pub(crate) async fn accept(
    shared: &Arc<MeshShared>,
    tcp: TcpStream,
) -> Result<Option<(Arc<PeerEntry>, Established)>, LinkError> {
    tcp.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(Arc::clone(shared.identity.server_config()));
    let stream = acceptor.accept(tcp).await?;
    let (found, allowed) = certified(stream.get_ref().1)?;
    let known = may_come(shared, &found, &allowed)?;
    let established = say_hello(shared, TlsStream::from(stream), &found, &allowed).await?;
    match known.filter(|_| !shared.dials(&found)) {
        Some(peer) => Ok(Some((peer, established))),
        None => introduce::welcome(shared, found, established).await,
    }
}

/// Whether the node `name` may continue. Returns its entry, if it has one.
fn may_come(
    shared: &MeshShared,
    name: &NodeName,
    allowed: &BTreeSet<Role>,
) -> Result<Option<Arc<PeerEntry>>, LinkError> {
    if shared.members().is_evicted(name) {
        return Err(LinkError::Evicted(name.clone()));
    }
    let known = shared.peer(name);
    // Certificates with only the roles of load generators or of the state monitor are not those of members.
    let is_node = allowed.contains(&Role::Agent) || allowed.contains(&Role::Dispatcher);
    match known {
        None if !shared.is_open || !is_node || *name == shared.hello.node => Err(LinkError::UnknownPeer(name.clone())),
        Some(_) if !shared.is_open && shared.dials(name) => Err(LinkError::WrongDirection(name.clone())),
        known => Ok(known),
    }
}

/// The name and the roles in the certificate that TLS has verified.
fn certified(tls: &CommonState) -> Result<(NodeName, BTreeSet<Role>), LinkError> {
    let certificate = tls.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or(LinkError::Untrusted(rustls::Error::NoCertificatesPresented))?;
    Ok(peer_identity(certificate)?)
}

async fn say_hello(
    shared: &MeshShared,
    mut stream: TlsStream<TcpStream>,
    name: &NodeName,
    allowed: &BTreeSet<Role>,
) -> Result<Established, LinkError> {
    let mut inbox = Inbox::new();
    say(&mut stream, &LinkMessage::Hello(shared.hello.clone())).await?;
    let Frame::Link(LinkMessage::Hello(hello)) = next_frame(&mut stream, &mut inbox).await? else {
        return Err(LinkError::NoHello);
    };
    if hello.node != *name {
        return Err(LinkError::FalseName(hello.node));
    }
    if hello.agreed_version().is_none() {
        return Err(LinkError::NoCommonVersion { min: hello.version_min, max: hello.version_max });
    }
    let roles = hello.known_roles();
    match roles.difference(allowed).next() {
        Some(role) => Err(LinkError::FalseRole(*role)),
        None => Ok(Established { stream, inbox, roles, incarnation: hello.incarnation }),
    }
}

/// Sends a message before the link is established.
pub(crate) async fn say(stream: &mut (impl AsyncWrite + Unpin), message: &LinkMessage) -> Result<(), LinkError> {
    let mut bytes = Vec::new();
    frame::encode_link(message, &mut bytes);
    stream.write_all(&bytes).await?;
    Ok(stream.flush().await?)
}

/// Receives the peer's next message.
pub(crate) async fn next_frame(stream: &mut (impl AsyncRead + Unpin), inbox: &mut Inbox) -> Result<Frame, LinkError> {
    loop {
        if let Some(frame) = inbox.next_frame()? {
            return Ok(frame);
        }
        match stream.read(inbox.room()).await? {
            0 => return Err(LinkError::Closed),
            len => inbox.filled(len),
        }
    }
}
