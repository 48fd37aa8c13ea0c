//! A server of the library, with and without TLS.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional, duplex};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::{ReceiverStream, UnboundedReceiverStream};
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, StreamingService};
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status, Streaming};
use tower_service::Service;

use super::codec::Raw;
use super::{LARGE, client::text};
use crate::harness::site::renew;

/// The addresses of the server.
pub(super) struct Origin {
    pub(super) plain: SocketAddr,
    pub(super) tls: SocketAddr,
    methods: Methods,
}

impl Origin {
    pub(super) async fn start() -> Self {
        let methods = Methods::default();
        Self { plain: serve(&methods, None).await, tls: serve(&methods, Some(acceptor())).await, methods }
    }

    /// The number of calls that ended before their response.
    pub(super) fn given_up(&self) -> usize {
        self.methods.given_up.load(Ordering::SeqCst)
    }
}

async fn serve(methods: &Methods, acceptor: Option<TlsAcceptor>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (accepted, incoming) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Some(acceptor) = &acceptor else {
                hand_over(stream, &accepted);
                continue;
            };
            let stream = acceptor.accept(stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
            hand_over(stream, &accepted);
        }
    });
    let server = Server::builder().serve_with_incoming(methods.clone(), UnboundedReceiverStream::new(incoming));
    tokio::spawn(server);
    address
}

/// Has the library serve a connection through a duplex stream, so that it serves TLS and plain connections alike.
fn hand_over<S>(mut stream: S, accepted: &mpsc::UnboundedSender<Result<tokio::io::DuplexStream, Infallible>>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (near, mut far) = duplex(1 << 16);
    tokio::spawn(async move { copy_bidirectional(&mut stream, &mut far).await });
    accepted.send(Ok(near)).unwrap();
}

fn acceptor() -> TlsAcceptor {
    let site = renew(false);
    let key = PrivateKeyDer::from_pem_slice(site.key_pem.as_bytes()).unwrap();
    let chain = CertificateDer::pem_slice_iter(site.chain_pem.as_bytes()).map(Result::unwrap).collect();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Arc::new(config).into()
}

type Answers = ReceiverStream<Result<Bytes, Status>>;
type Future<T, E> = Pin<Box<dyn std::future::Future<Output = Result<T, E>> + Send>>;

/// The methods, by the last part of the path.
#[derive(Clone, Default)]
struct Methods {
    given_up: Arc<AtomicUsize>,
}

impl Service<http::Request<Body>> for Methods {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Future<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
        let method = Method { name, given_up: Arc::clone(&self.given_up) };
        let gzip = CompressionEncoding::Gzip;
        let grpc = Grpc::new(Raw).accept_compressed(gzip).send_compressed(gzip);
        let mut grpc = grpc.max_decoding_message_size(LARGE as usize);
        Box::pin(async move { Ok(grpc.streaming(method, request).await) })
    }
}

/// A call.
struct Method {
    name: String,
    given_up: Arc<AtomicUsize>,
}

impl StreamingService<Bytes> for Method {
    type Response = Bytes;
    type ResponseStream = Answers;
    type Future = Future<Response<Answers>, Status>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        let method = Self { name: self.name.clone(), given_up: Arc::clone(&self.given_up) };
        Box::pin(method.begin(request))
    }
}

impl Method {
    async fn begin(self, request: Request<Streaming<Bytes>>) -> Result<Response<Answers>, Status> {
        match self.name.as_str() {
            "echo" | "count" | "length" | "fail" | "wait" => {}
            "refuse" => return Err(failure()),
            "sleep" => {
                let _unanswered = GivenUp(self.given_up);
                return std::future::pending().await;
            }
            _ => return Err(Status::unimplemented("there is no such method")),
        }
        let (metadata, _, asked) = request.into_parts();
        let (answer, answers) = mpsc::channel(1);
        tokio::spawn(async move { self.go_on(asked, answer).await });
        let mut response = Response::new(ReceiverStream::new(answers));
        give_back(&metadata, response.metadata_mut());
        Ok(response)
    }

    async fn go_on(self, mut asked: Streaming<Bytes>, answer: mpsc::Sender<Result<Bytes, Status>>) -> Option<()> {
        let say = async |message: String| answer.send(Ok(text(message))).await.ok();
        match self.name.as_str() {
            "echo" => {
                while let Some(message) = asked.message().await.ok()? {
                    answer.send(Ok(message)).await.ok()?;
                }
            }
            "count" => {
                let count = asked.message().await.ok()??;
                let count: usize = std::str::from_utf8(&count).ok()?.parse().ok()?;
                for number in 0..count {
                    say(number.to_string()).await?;
                }
            }
            "length" => {
                let mut length = 0;
                while let Some(message) = asked.message().await.ok()? {
                    length += message.len();
                }
                say(length.to_string()).await?;
            }
            "fail" => {
                say("so far".to_owned()).await?;
                answer.send(Err(failure())).await.ok()?;
            }
            _ => {
                let _unanswered = GivenUp(self.given_up);
                say("wait".to_owned()).await?;
                answer.closed().await;
            }
        }
        Some(())
    }
}

/// Returns the client's metadata, and the deadline that its library has sent.
fn give_back(asked: &MetadataMap, answered: &mut MetadataMap) {
    for name in ["x-asked", "x-asked-bin"] {
        if let Some(value) = asked.as_ref().get(name) {
            answered.as_mut().insert(name, value.clone());
        }
    }
    if let Some(deadline) = asked.get("grpc-timeout") {
        answered.insert("x-deadline", deadline.clone());
    }
}

/// An error with every kind of trailer.
fn failure() -> Status {
    let mut metadata = MetadataMap::new();
    metadata.insert("x-left", "0".parse().unwrap());
    let details = Bytes::from_static(&[1, 2, 3]);
    Status::with_details_and_metadata(Code::ResourceExhausted, "no more – 100 % used", details, metadata)
}

/// A call without a response. It counts when it ends.
struct GivenUp(Arc<AtomicUsize>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
