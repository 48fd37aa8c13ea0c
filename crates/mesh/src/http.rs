//! Connections for HTTP between agents, over the same port and with the same certificates as links.
//!
//! The client offers the protocol [`HTTP_PROTOCOL`](crate::http_setup::HTTP_PROTOCOL) (ALPN; RFC 7301). A link offers
//! none. The acceptor gives the connection to the handler of this process. If there is none, or it is at a limit, the
//! acceptor closes the connection: the peer then goes on without this node.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;
use watari_link::Peer;
use watari_values::{NodeName, Role};

use crate::error::LinkError;
use crate::http_setup::is_http;
use crate::http_stream::{HttpConnection, HttpStream};
use crate::link::why_ended;
use crate::peer::PeerEntry;
use crate::shared::MeshShared;

/// Connects to an agent that is a member.
pub(crate) async fn dial(shared: &MeshShared, node: &NodeName) -> Result<HttpStream, LinkError> {
    let outcome = match to_dial(shared, node) {
        Ok(peer) => tokio::select! {
            outcome = timeout(shared.limits.handshake_max, connect(shared, &peer)) => {
                outcome.unwrap_or(Err(LinkError::HandshakeTimeout))
            }
            () = peer.end.cancelled() => Err(why_ended(shared, &peer, LinkError::Removed)),
        },
        Err(error) => Err(error),
    };
    outcome.inspect_err(|error| shared.metrics.http_dial_failed(error))
}

/// Gives an accepted connection to the handler. `known` is the entry of the peer, if it has one.
pub(crate) fn serve(shared: &MeshShared, found: Peer, known: Option<Arc<PeerEntry>>) -> Result<(), LinkError> {
    let Peer { stream, node, roles } = found;
    let peer = known.ok_or_else(|| LinkError::UnknownPeer(node.clone()))?;
    if !roles.contains(&Role::Agent) {
        return Err(LinkError::NotAnAgent(node));
    }
    own_role(shared)?;
    let place = Arc::clone(&peer.http).try_acquire_owned().map_err(|_| LinkError::HttpFull)?;
    let stream = HttpStream::new(stream, &peer.end, shared.metrics.http_accepted(), Some(place));
    shared.http.give(HttpConnection { peer: node, stream })
}

fn to_dial(shared: &MeshShared, node: &NodeName) -> Result<Arc<PeerEntry>, LinkError> {
    own_role(shared)?;
    if shared.members().is_evicted(node) {
        return Err(LinkError::Evicted(node.clone()));
    }
    let peer = shared.peer(node).ok_or_else(|| LinkError::UnknownPeer(node.clone()))?;
    match peer.link() {
        Some(link) if !link.roles.contains(&Role::Agent) => Err(LinkError::NotAnAgent(node.clone())),
        _ => Ok(peer),
    }
}

async fn connect(shared: &MeshShared, peer: &PeerEntry) -> Result<HttpStream, LinkError> {
    let tcp = TcpStream::connect(peer.address()).await.map_err(LinkError::Connect)?;
    let found = watari_link::connect_with(tcp, &peer.name, shared.http.client_config()).await?;
    if found.node != peer.name {
        return Err(LinkError::OtherNode(found.node));
    }
    if !found.roles.contains(&Role::Agent) {
        return Err(LinkError::NotAnAgent(found.node));
    }
    if !is_http(&found) {
        return Err(LinkError::NoHttp);
    }
    Ok(HttpStream::new(found.stream, &peer.end, shared.metrics.http_dialed(), None))
}

fn own_role(shared: &MeshShared) -> Result<(), LinkError> {
    if shared.roles.contains(&Role::Agent) { Ok(()) } else { Err(LinkError::NotAnAgent(shared.hello.node.clone())) }
}
