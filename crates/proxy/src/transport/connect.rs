//! Makes connections to an origin.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use watari_body::Body;
use watari_http2::Metered;
use watari_wire::proxy::Header;

use crate::exchange::address::OriginAddress;
use crate::exchange::client::Client;
use crate::transport::connections::STREAMS_MAX;
use crate::transport::http1::{ByteStream, Http1};
use crate::transport::tls::OriginTls;

/// The largest head of a response, in bytes.
const HEAD_LEN_MAX: u32 = 128 * 1024;
/// The maximum that an origin may send on a stream of HTTP/2 while its client does not read, in bytes.
const STREAM_WINDOW_LEN: u32 = 512 << 10;
/// The maximum for all streams of a connection. Clients that do not read take all of their streams' windows, and others
/// go on.
const CONNECTION_WINDOW_LEN: u32 = STREAM_WINDOW_LEN * (STREAMS_MAX as u32 + 1);

/// The version of HTTP that the proxy uses with an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
pub enum HttpVersion {
    /// HTTP/1.1.
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2. Without TLS, with prior knowledge (RFC 9113, section 3.3).
    #[serde(rename = "2")]
    Http2,
    /// The result of ALPN in the TLS handshake. Without TLS, HTTP/1.1.
    #[serde(rename = "negotiated")]
    Negotiated,
}

impl HttpVersion {
    /// The protocols to offer in a TLS handshake (RFC 7301).
    fn alpn(self) -> Vec<Vec<u8>> {
        let offered: &[&[u8]] = match self {
            Self::Http1 => &[HTTP_1_1],
            Self::Http2 => &[H2],
            Self::Negotiated => &[H2, HTTP_1_1],
        };
        offered.iter().map(|protocol| protocol.to_vec()).collect()
    }
}

/// How the proxy connects to the origins of a pool.
#[derive(Debug, Clone, Default)]
pub struct Transport {
    pub version: HttpVersion,
    /// Trusted authorities and the client certificate. Required for origins with TLS.
    pub tls: Option<OriginTls>,
    /// Whether to send the client's address in a PROXY protocol v2 header. These connections are not used again.
    pub proxy_protocol: bool,
}

/// Makes connections to one origin.
pub(crate) struct Connector {
    address: OriginAddress,
    version: HttpVersion,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    proxy_protocol: bool,
}

/// A new connection.
pub(crate) enum Connected {
    Http1(Http1),
    /// Sends requests to the origin at this address.
    Http2(http2::SendRequest<Body>, SocketAddr),
}

/// The configuration does not allow connections to an origin.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTransport {
    /// The origin requires TLS, and no authorities are configured.
    #[error("{0} needs TLS, and no trusted authorities are configured")]
    NoTls(OriginAddress),
    /// The origin's address has no name that can be in a certificate.
    #[error("{0} needs TLS, and its host is not a valid certificate name")]
    NoName(OriginAddress),
}

impl Connector {
    pub(crate) fn new(address: &OriginAddress, transport: &Transport) -> Result<Self, InvalidTransport> {
        let tls = if address.is_tls() { Some(tls(address, transport)?) } else { None };
        let Transport { version, proxy_protocol, .. } = *transport;
        Ok(Self { address: address.clone(), version, tls, proxy_protocol })
    }

    /// Whether a connection can serve other clients, too.
    pub(crate) fn is_for_all(&self) -> bool {
        !self.proxy_protocol
    }

    /// Prepares a new connection: sends the PROXY header for `client` (`None`: for the proxy itself), and does the TLS
    /// and HTTP handshakes. With `http1_only`, the connection uses HTTP/1.1 in any case.
    pub(crate) async fn connect(
        &self,
        mut socket: TcpStream,
        client: Option<&Client>,
        http1_only: bool,
    ) -> io::Result<Connected> {
        let version = if http1_only { HttpVersion::Http1 } else { self.version };
        let peer = socket.peer_addr()?;
        socket.set_nodelay(true)?;
        if self.proxy_protocol {
            socket.write_all(&preface(client)).await?;
        }
        let Some((connector, name)) = &self.tls else {
            return self.speak(socket, peer, version == HttpVersion::Http2).await;
        };
        let stream = connector.with_alpn(version.alpn()).connect(name.clone(), socket).await?;
        let agreed = stream.get_ref().1.alpn_protocol() == Some(H2);
        if version == HttpVersion::Http2 && !agreed {
            return Err(io::Error::other("the origin did not select h2 (HTTP/2) by ALPN"));
        }
        self.speak(stream, peer, agreed).await
    }

    async fn speak<S>(&self, stream: S, peer: SocketAddr, http2: bool) -> io::Result<Connected>
    where
        S: ByteStream + 'static,
    {
        if !http2 {
            return Ok(Connected::Http1(Http1::new(stream, peer)));
        }
        let stream = TokioIo::new(Metered::new(stream));
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).initial_stream_window_size(STREAM_WINDOW_LEN);
        builder.initial_connection_window_size(CONNECTION_WINDOW_LEN).max_header_list_size(HEAD_LEN_MAX);
        let (sender, connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        tokio::spawn(ended(self.address.clone(), connection));
        Ok(Connected::Http2(sender, peer))
    }
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("address", &self.address)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

const H2: &[u8] = b"h2";
const HTTP_1_1: &[u8] = b"http/1.1";

fn tls(
    address: &OriginAddress,
    transport: &Transport,
) -> Result<(TlsConnector, ServerName<'static>), InvalidTransport> {
    let tls = transport.tls.as_ref().ok_or_else(|| InvalidTransport::NoTls(address.clone()))?;
    let own = || ServerName::try_from(address.host().to_owned());
    let name = tls.server_name.clone().map_or_else(own, Ok);
    let name = name.map_err(|_| InvalidTransport::NoName(address.clone()))?;
    Ok((TlsConnector::from(Arc::new(tls.config.clone())), name))
}

/// Logs the end of an HTTP/2 connection. The error also reaches the parts that wait for a response or its body.
async fn ended(origin: OriginAddress, connection: impl Future<Output = hyper::Result<()>>) {
    if let Err(error) = connection.await {
        tracing::debug!(%origin, %error, "connection ended");
    }
}

fn preface(client: Option<&Client>) -> Vec<u8> {
    let header = client.map_or(Header::Local, |client| Header::Tcp {
        client: client.address(),
        server: client.server(),
        tlvs: Vec::new(),
    });
    let mut bytes = Vec::new();
    header.encode(&mut bytes).expect("without values it always fits");
    bytes
}
