//! TLS to origins.

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

/// TLS settings for origins.
#[derive(Debug, Clone)]
pub struct OriginTls {
    /// Trusted authorities and the client certificate. The ALPN settings are replaced.
    pub config: ClientConfig,
    /// The server name (SNI) that is sent, and that the certificate must contain. `None`: the host of the origin's
    /// address.
    pub server_name: Option<ServerName<'static>>,
}
