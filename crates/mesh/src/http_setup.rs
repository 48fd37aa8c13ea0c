//! TLS configurations with the protocol of HTTP connections, and their handler.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::{ClientConfig, ServerConfig};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use watari_link::Peer;
use watari_pki::Identity;

use crate::error::LinkError;
use crate::http_stream::HttpConnection;

/// The protocol of connections for HTTP between agents (ALPN; RFC 7301, section 3.1).
pub(crate) const HTTP_PROTOCOL: &[u8] = b"watari-http/1";

pub(crate) struct HttpSetup {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    handler: Mutex<Option<mpsc::Sender<HttpConnection>>>,
}

impl HttpSetup {
    pub(crate) fn new(identity: &Identity) -> Self {
        let mut client = ClientConfig::clone(identity.client_config());
        client.alpn_protocols = vec![HTTP_PROTOCOL.to_vec()];
        let mut server = ServerConfig::clone(identity.server_config());
        server.alpn_protocols = vec![HTTP_PROTOCOL.to_vec()];
        Self { client: Arc::new(client), server: Arc::new(server), handler: Mutex::default() }
    }

    /// Offers the protocol.
    pub(crate) fn client_config(&self) -> &Arc<ClientConfig> {
        &self.client
    }

    /// Accepts clients that offer the protocol, and those that offer none: links.
    pub(crate) fn server_config(&self) -> &Arc<ServerConfig> {
        &self.server
    }

    /// Replaces the handler. `waiting_max` is the number of connections that may wait for it.
    pub(crate) fn handle(&self, waiting_max: usize) -> mpsc::Receiver<HttpConnection> {
        let (sender, receiver) = mpsc::channel(waiting_max.max(1));
        *self.handler.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender);
        receiver
    }

    pub(crate) fn give(&self, connection: HttpConnection) -> Result<(), LinkError> {
        let handler = self.handler.lock().unwrap_or_else(PoisonError::into_inner);
        let handler = handler.as_ref().ok_or(LinkError::NoHttpHandler)?;
        handler.try_send(connection).map_err(|error| match error {
            TrySendError::Full(_) => LinkError::HttpFull,
            TrySendError::Closed(_) => LinkError::NoHttpHandler,
        })
    }
}

/// Whether a connection is for HTTP, and not a link.
pub(crate) fn is_http(found: &Peer) -> bool {
    found.protocol() == Some(HTTP_PROTOCOL)
}
