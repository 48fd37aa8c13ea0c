//! From a TCP connection to a link: TLS, who the peer is, and the hellos.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustls::CommonState;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use watari_pki::peer_identity;
use watari_wire::frame::{self, Frame};
use watari_wire::{Hello, LinkMessage, NodeName, Role};

use crate::inbox::Inbox;
use crate::peer::PeerEntry;
use crate::{LinkError, Shared};

/// A connection whose peer is known, and has said hello.
pub(crate) struct Established {
    pub(crate) stream: TlsStream<TcpStream>,
    /// What came behind the peer's hello.
    pub(crate) inbox: Inbox,
    pub(crate) roles: BTreeSet<Role>,
    pub(crate) incarnation: u64,
}

/// Connects to `peer`, which has to prove that it is.
pub(crate) async fn dial(shared: &Shared, peer: &PeerEntry) -> Result<Established, LinkError> {
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

/// Finds out who connected.
pub(crate) async fn accept(shared: &Shared, tcp: TcpStream) -> Result<(Arc<PeerEntry>, Established), LinkError> {
    tcp.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(Arc::clone(shared.identity.server_config()));
    let stream = acceptor.accept(tcp).await?;
    let (found, allowed) = certified(stream.get_ref().1)?;
    let Some(peer) = shared.peer(&found) else { return Err(LinkError::UnknownPeer(found)) };
    if shared.dials(&found) {
        return Err(LinkError::WrongDirection(found));
    }
    let established = say_hello(shared, TlsStream::from(stream), &found, &allowed).await?;
    Ok((peer, established))
}

/// Who the peer is and what it may do, by the certificate that TLS has verified.
fn certified(tls: &CommonState) -> Result<(NodeName, BTreeSet<Role>), LinkError> {
    let certificate = tls.peer_certificates().and_then(<[_]>::first);
    let certificate = certificate.ok_or(LinkError::Untrusted(rustls::Error::NoCertificatesPresented))?;
    Ok(peer_identity(certificate)?)
}

async fn say_hello(
    shared: &Shared,
    mut stream: TlsStream<TcpStream>,
    name: &NodeName,
    allowed: &BTreeSet<Role>,
) -> Result<Established, LinkError> {
    let mut inbox = Inbox::new();
    let hello = exchange(&mut stream, &mut inbox, &shared.hello).await?;
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

async fn exchange(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    inbox: &mut Inbox,
    hello: &Hello,
) -> Result<Hello, LinkError> {
    let mut bytes = Vec::new();
    frame::encode_link(&LinkMessage::Hello(hello.clone()), &mut bytes);
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    loop {
        match inbox.next_frame()? {
            Some(Frame::Link(LinkMessage::Hello(hello))) => return Ok(hello),
            Some(_) => return Err(LinkError::NoHello),
            None => {}
        }
        match stream.read(inbox.room()).await? {
            0 => return Err(LinkError::Closed),
            len => inbox.filled(len),
        }
    }
}
