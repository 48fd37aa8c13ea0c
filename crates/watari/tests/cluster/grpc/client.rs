//! A client of the library, over a TLS connection of the tests.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};
use tower_service::Service;

use super::LARGE;
use super::codec::Raw;
use crate::clients::tls::{Taste, dial};
use crate::harness::site::SITE;

/// Calls the methods of a service.
pub(super) struct Client {
    grpc: Grpc<Channel>,
    service: &'static str,
}

pub(super) fn text(text: impl Into<String>) -> Bytes {
    Bytes::from(text.into())
}

impl Client {
    /// Connects at its first use.
    pub(super) fn new(source: IpAddr, server: SocketAddr, service: &'static str) -> Self {
        let endpoint = Endpoint::from_shared(format!("https://{SITE}")).unwrap();
        let channel = endpoint.connect_with_connector_lazy(Connector { source, server });
        Self { grpc: Grpc::new(channel).max_decoding_message_size(LARGE as usize), service }
    }

    /// Compresses its messages, and accepts compressed ones.
    pub(super) fn with_gzip(self) -> Self {
        let Self { grpc, service } = self;
        let gzip = CompressionEncoding::Gzip;
        Self { grpc: grpc.send_compressed(gzip).accept_compressed(gzip), service }
    }

    /// One message in each direction.
    pub(super) async fn unary(&mut self, method: &str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.grpc.ready().await.unwrap();
        self.grpc.unary(request, self.path(method), Raw).await
    }

    /// All messages of the client at once.
    pub(super) async fn streamed(
        &mut self,
        method: &str,
        messages: Vec<Bytes>,
    ) -> Result<Response<Streaming<Bytes>>, Status> {
        self.grpc.ready().await.unwrap();
        self.grpc.streaming(Request::new(tokio_stream::iter(messages)), self.path(method), Raw).await
    }

    /// Messages of the client as the channel gets them.
    pub(super) async fn conversation(
        &mut self,
        method: &str,
    ) -> (UnboundedSender<Bytes>, Result<Response<Streaming<Bytes>>, Status>) {
        let (ask, asked) = unbounded_channel();
        self.grpc.ready().await.unwrap();
        let request = Request::new(UnboundedReceiverStream::new(asked));
        (ask, self.grpc.streaming(request, self.path(method), Raw).await)
    }

    fn path(&self, method: &str) -> PathAndQuery {
        format!("/{}/{method}", self.service).parse().unwrap()
    }
}

/// Connects from an address of its own.
#[derive(Clone, Copy)]
struct Connector {
    source: IpAddr,
    server: SocketAddr,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { source, server } = *self;
        Box::pin(async move {
            let stream = dial(source, server)?;
            stream.set_nonblocking(true)?;
            let mut config = Taste::default().config().as_ref().clone();
            config.alpn_protocols = vec![b"h2".to_vec()];
            let connector = TlsConnector::from(std::sync::Arc::new(config));
            let name = ServerName::try_from(SITE).unwrap();
            connector.connect(name, TcpStream::from_std(stream)?).await.map(TokioIo::new)
        })
    }
}
