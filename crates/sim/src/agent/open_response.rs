//! What is left of an HTTP connection, apart from its stream, when it leaves. Mirrors `connection/site_service.rs` of
//! `crates/agent`.

use bytes::Bytes;
use watari_connection::Responding;
use watari_connection::leaving::{InResponse, InResponseRest};
use watari_http1::Server;
use watari_wire::AnchoredState;

use super::Site;
use super::anchors::AnchoredStream;
use super::site::{SiteBody, SiteService};
use super::tunnel::{AnchorRelay, Tunnel};
use crate::message::ResponseRest;
use crate::sabotage::Sabotage;

pub(super) struct OpenResponse {
    pub(super) service: SiteService,
    pub(super) http: Server,
    /// Framed bytes that are not sealed.
    pub(super) unwritten: Vec<u8>,
    pub(super) rest: OpenRest,
    /// How the response continues at the target. `None`: the connection is between two requests.
    pub(super) how: Option<InResponse>,
}

/// What follows in an open response.
pub(super) enum OpenRest {
    /// The rest of its body. `None`: all of it is framed.
    Response(Option<Box<Responding<SiteBody>>>),
    /// It was the response to an upgrade.
    Tunnel(Box<Tunnel>),
}

impl OpenResponse {
    /// The rest as the target gets it. If this agent becomes the anchor of its bytes, also its end of their stream.
    pub(super) fn ship(&self, site: &Site) -> (ResponseRest, Option<AnchoredStream>) {
        match self.how.map(|how| how.rest) {
            None => (ResponseRest::None, None),
            Some(InResponseRest::Bytes) => (ResponseRest::Bytes(self.pending()), None),
            Some(InResponseRest::Prepared { skip }) => (ResponseRest::Prepared { skip }, None),
            Some(InResponseRest::Anchored) => {
                let (state, begun) = self.export(site);
                let is_lost = site.sabotage == Some(Sabotage::AnchoredPendingLost);
                let pending = if is_lost { Bytes::new() } else { self.pending() };
                (ResponseRest::Anchored { state, pending }, begun)
            }
        }
    }

    /// The response stays here: the move was aborted.
    pub(super) fn stays(&self) {
        self.anchored().into_iter().for_each(AnchoredStream::thaw);
    }

    /// The response continues at another agent, or may do so. With `begun`, its bytes come from here.
    pub(super) fn departs(self, site: &Site, begun: Option<AnchoredStream>) {
        if site.sabotage == Some(Sabotage::AnchorLeaves) {
            return;
        }
        let relay = match (self.rest, begun) {
            (OpenRest::Tunnel(tunnel), Some(stream)) => AnchorRelay::Tunnel(tunnel, stream),
            (OpenRest::Response(Some(responding)), Some(stream)) => {
                AnchorRelay::Body(responding.body, stream, Bytes::new())
            }
            _ => return,
        };
        site.relays.borrow_mut().push(relay);
        site.network.wake_in(site.node, std::time::Duration::ZERO);
    }

    /// Whether a response is in progress.
    pub(super) fn is_open(&self) -> bool {
        match &self.rest {
            OpenRest::Response(responding) => responding.is_some() || self.http.is_answering(),
            OpenRest::Tunnel(_) => true,
        }
    }

    /// The owner's end of the stream, as it moves, or a new one.
    fn export(&self, site: &Site) -> (AnchoredState, Option<AnchoredStream>) {
        if let Some(stream) = self.anchored() {
            let is_lost = site.sabotage == Some(Sabotage::AnchoredUnwrittenLost);
            let unwritten = if is_lost { Bytes::new() } else { self.to_origin() };
            return (stream.export(&unwritten), None);
        }
        let begun = site.anchors.begin();
        (begun.export(&[]), Some(begun))
    }

    /// The stream from which the bytes come, if their origin is at another agent.
    fn anchored(&self) -> Option<&AnchoredStream> {
        match &self.rest {
            OpenRest::Response(responding) => responding.as_ref()?.body.anchored(),
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map(|(stream, _)| stream),
        }
    }

    /// Bytes from the client that the stream to the anchor has not taken.
    fn to_origin(&self) -> Bytes {
        match &self.rest {
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map_or(Bytes::new(), |(_, [to_origin, _])| to_origin.clone()),
            OpenRest::Response(_) => Bytes::new(),
        }
    }

    /// Bytes for the client that are not framed. What the tunnel of this agent holds comes from the anchor.
    fn pending(&self) -> Bytes {
        match &self.rest {
            OpenRest::Response(responding) => {
                responding.as_ref().map_or(Bytes::new(), |responding| responding.pending.clone())
            }
            OpenRest::Tunnel(tunnel) => tunnel.anchor().map_or(Bytes::new(), |(_, [_, to_client])| to_client.clone()),
        }
    }
}
