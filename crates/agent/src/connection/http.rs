//! What HTTP gets of a connection, and in which state it leaves the connection.

use std::error::Error;
use std::sync::Arc;

use watari_connection::leaving::InResponse;
use watari_proxy::Client;
use watari_stream::TlsStream;
use watari_values::NodeName;

use super::early_data::opening::{EarlyConnection, Unfinished};
use super::requests::Requests;
use super::site_service::OpenResponse;
use crate::handoff::live::{About, Live};
use crate::handoff::registry::Undecided;
use crate::leg::Leg;
use crate::node::peers::Peers;
use crate::settings::current::CurrentSettings;

pub(super) type HttpError = Box<dyn Error + Send + Sync>;

/// What HTTP uses of the agent.
pub(crate) struct Http {
    /// To report why a connection stays.
    pub(crate) peers: Peers,
    pub(crate) settings: Arc<CurrentSettings>,
    pub(crate) requests: Arc<Requests>,
}

/// The state of a connection when HTTP begins.
pub(crate) enum HttpStart {
    /// The handshake is done, and no response is in progress.
    Live(Box<Live>),
    /// An HTTP/1 connection within a response, after a move or an aborted attempt to move.
    InResponse(Box<Live>, Box<OpenResponse>),
    /// The client has sent early data.
    EarlyConnection(Box<EarlyConnection>),
}

/// The state of a connection when HTTP has ended.
pub(crate) enum HttpEnd {
    /// The connection has ended, or cannot continue.
    Ended(Box<TlsStream<Leg>>, Result<(), HttpError>),
    /// The connection has to move.
    Parked(Box<Parked>),
    /// The handshake failed.
    Unfinished(Box<Unfinished>),
}

/// A connection that has to move to `target`.
pub(crate) struct Parked {
    pub(super) live: Box<Live>,
    pub(super) target: NodeName,
    /// The response in progress, and how it continues at the target. `None`: the connection is between two requests.
    pub(super) within: Option<(Box<OpenResponse>, InResponse)>,
    /// Held until it has passed, if the target is a successor of this process.
    pub(super) undecided: Option<Undecided>,
}

impl HttpStart {
    pub(crate) fn about(&self) -> &About {
        match self {
            Self::Live(live) | Self::InResponse(live, _) => &live.about,
            Self::EarlyConnection(early) => early.about(),
        }
    }

    /// The bytes received and sent before.
    pub(crate) fn counts(&self) -> (u64, u64) {
        match self {
            Self::Live(live) | Self::InResponse(live, _) => (live.parts.received, live.parts.sent),
            Self::EarlyConnection(early) => early.counts(),
        }
    }
}

/// The client, as requests to origins report it.
pub(super) fn client(about: &About) -> Arc<Client> {
    Arc::new(Client::new(about.client, about.server, about.client_certificate.as_deref()))
}
