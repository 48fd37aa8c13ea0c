//! Establishes a link over a TCP connection: TLS, identification of the peer, and the hellos.
//!
//! TLS selects whether an accepted connection is a link or for HTTP.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use watari_link::Peer;
use watari_sys::UnidentifiedPlace;
use watari_values::{NodeName, Role};
use watari_wire::LinkMessage;
use watari_wire::frame::{self, Frame};

use crate::error::LinkError;
use crate::inbox::Inbox;
use crate::peer::PeerEntry;
use crate::shared::MeshShared;

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
    let found = watari_link::connect_to(tcp, &peer.name, &shared.identity).await?;
    if found.node != peer.name {
        return Err(LinkError::OtherNode(found.node));
    }
    say_hello(shared, found).await
}

/// Identifies the node that has connected. Returns its entry, if this node has one.
pub(crate) async fn identify(
    shared: &MeshShared,
    tcp: TcpStream,
    place: &UnidentifiedPlace,
) -> Result<(Peer, Option<Arc<PeerEntry>>), LinkError> {
    let found = watari_link::accept_with(tcp, shared.http.server_config(), place).await?;
    let known = may_come(shared, &found.node, &found.roles)?;
    Ok((found, known))
}

/// Exchanges hellos with an identified node. Returns its name, and its entry if this node waits for its links.
pub(crate) async fn accept(
    shared: &MeshShared,
    found: Peer,
    known: Option<Arc<PeerEntry>>,
) -> Result<(NodeName, Option<Arc<PeerEntry>>, Established), LinkError> {
    let name = found.node.clone();
    let established = say_hello(shared, found).await?;
    let known = known.filter(|_| !shared.dials(&name));
    Ok((name, known, established))
}

/// Whether the node `name` may continue. Returns its entry, if it has one. A peer that this node dials may introduce
/// itself.
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
        known => Ok(known),
    }
}

async fn say_hello(shared: &MeshShared, peer: Peer) -> Result<Established, LinkError> {
    let Peer { mut stream, node, roles: allowed } = peer;
    let mut inbox = Inbox::new();
    send_message(&mut stream, &LinkMessage::Hello(shared.hello.clone())).await?;
    let Frame::Link(LinkMessage::Hello(hello)) = next_frame(&mut stream, &mut inbox).await? else {
        return Err(LinkError::NoHello);
    };
    if hello.node != node {
        return Err(LinkError::FalseName(hello.node));
    }
    if hello.agreed_version().is_none() {
        return Err(LinkError::NoCommonVersion { min: hello.version_min, max: hello.version_max });
    }
    let roles = hello.known_roles();
    match roles.difference(&allowed).next() {
        Some(role) => Err(LinkError::FalseRole(*role)),
        None => Ok(Established { stream, inbox, roles, incarnation: hello.incarnation }),
    }
}

/// Sends a message before the link is established.
pub(crate) async fn send_message(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &LinkMessage,
) -> Result<(), LinkError> {
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
