//! The client in the fields of forwarded requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// The properties of a client's connection. Made once per connection, and used for each of its requests.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    server: SocketAddr,
    /// The `for` parameter of `Forwarded`. An IPv6 address is in brackets and quotes (RFC 7239, section 6).
    pub(crate) forwarded_for: Arc<str>,
    pub(crate) address_field: HeaderValue,
    pub(crate) certificate_field: Option<HeaderValue>,
}

impl Client {
    /// * `address`: the source address of the connection.
    /// * `server`: the service address that the client connected to.
    /// * `certificate`: the client certificate (DER) of the TLS handshake.
    pub fn new(address: SocketAddr, server: SocketAddr, certificate: Option<&[u8]>) -> Self {
        let forwarded_for = match address.ip().to_canonical() {
            IpAddr::V4(address) => format!("for={address}"),
            IpAddr::V6(address) => format!("for=\"[{address}]\""),
        };
        Self {
            address,
            server,
            forwarded_for: forwarded_for.into(),
            address_field: field(address.ip().to_canonical().to_string()),
            certificate_field: certificate.map(|der| field(format!(":{}:", STANDARD.encode(der)))),
        }
    }

    /// The source address of the connection.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The service address that the client connected to.
    pub fn server(&self) -> SocketAddr {
        self.server
    }
}

/// Addresses and base64 (RFC 9440, section 2.1) are plain ASCII.
fn field(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("addresses and base64 are valid field values")
}
