//! One client with one connection and some requests. At the end it asks the dispatcher which agent serves the
//! connection.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::header::{CONTENT_RANGE, HOST as HOST_FIELD, RANGE};
use http::{Method, Request, Response, StatusCode, Version as HttpVersion};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client_tls::{Aead, Class};
use super::content::SiteFile;
use super::origin::hex;
use super::site::HOST;
use crate::admin::{Answer, AskError, Connection, Topic, ask};

/// The client, its source address, and its requests.
pub(super) struct Plan {
    pub(super) class: Class,
    pub(super) aead: Aead,
    pub(super) is_http2: bool,
    pub(super) source: SocketAddr,
    pub(super) service: SocketAddr,
    pub(super) errands: Vec<Errand>,
}

/// One request, with the expected response.
pub(super) enum Errand {
    Download(SiteFile),
    /// The bytes `from..=to` of the file.
    Range {
        file: SiteFile,
        from: usize,
        to: usize,
    },
    Upload(Bytes),
}

/// The result of a visit.
pub(super) struct Visit {
    pub(super) requests: usize,
    /// Of bodies, in both directions.
    pub(super) bytes: usize,
    /// The connection, as the dispatcher reports it at the end.
    pub(super) connection: Connection,
}

/// A visit failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum VisitError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error("the handshake negotiated another value than requested: {0}")]
    Agreed(String),
    #[error("HTTP failed: {0}")]
    Http(#[from] hyper::Error),
    #[error("{method} {path} was answered with {status}")]
    Status { method: Method, path: String, status: StatusCode },
    #[error("{path} is wrong from byte {at} of {len} on")]
    Content { path: String, at: usize, len: usize },
    #[error("the origin's SHA-256 of an upload of {len} bytes differs from the client's")]
    Digest { len: usize },
    #[error("cannot query the dispatcher: {0}")]
    Ask(#[from] AskError),
    #[error("the dispatcher does not list the connection")]
    Unknown,
    #[error("the visit was not complete in time")]
    Timeout,
}

/// Makes the visit. `leaf` is the certificate (DER) that the server has to send, `admin` the dispatcher's socket.
pub(super) async fn visit(
    plan: Plan,
    tls: Arc<ClientConfig>,
    leaf: Arc<[u8]>,
    admin: &Path,
) -> Result<Visit, VisitError> {
    let stream = connect(&plan, tls).await?;
    check_agreed(&plan, &stream, &leaf)?;
    let local = stream.get_ref().0.local_addr().map_err(VisitError::Connect)?;
    let mut sender = Sender::start(stream, plan.is_http2).await?;
    let mut bytes = 0;
    for errand in &plan.errands {
        bytes += errand.run(&mut sender).await?;
    }
    // The connection is still open.
    let connection = find(admin, local).await?;
    Ok(Visit { requests: plan.errands.len(), bytes, connection })
}

async fn connect(plan: &Plan, tls: Arc<ClientConfig>) -> Result<TlsStream<TcpStream>, VisitError> {
    let tcp = dial(plan).await.map_err(VisitError::Connect)?;
    let name = ServerName::try_from(HOST).expect("the demo's host name is a host name");
    TlsConnector::from(tls).connect(name, tcp).await.map_err(VisitError::Handshake)
}

async fn dial(plan: &Plan) -> std::io::Result<TcpStream> {
    let socket = if plan.service.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.bind(plan.source)?;
    let stream = socket.connect(plan.service).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn check_agreed(plan: &Plan, stream: &TlsStream<TcpStream>, leaf: &[u8]) -> Result<(), VisitError> {
    let session = stream.get_ref().1;
    let suite = session.negotiated_cipher_suite().map(|suite| suite.suite());
    if suite != Some(plan.class.suite(plan.aead)) {
        return Err(VisitError::Agreed(format!("{suite:?}")));
    }
    if session.peer_certificates().and_then(|chain| chain.first()).is_none_or(|shown| shown.as_ref() != leaf) {
        return Err(VisitError::Agreed("another certificate".into()));
    }
    let alpn = session.alpn_protocol();
    if alpn != Some(if plan.is_http2 { b"h2" } else { b"http/1.1" }) {
        return Err(VisitError::Agreed(format!("ALPN {alpn:?}")));
    }
    Ok(())
}

async fn find(admin: &Path, client: SocketAddr) -> Result<Connection, VisitError> {
    match ask(admin, Topic::Connections).await? {
        Answer::Connections(connections) => {
            connections.into_iter().find(|connection| connection.client == client).ok_or(VisitError::Unknown)
        }
        _ => Err(VisitError::Unknown),
    }
}

/// The sending half of an HTTP connection. Its other half runs in a task of its own.
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Sender {
    async fn start<S>(stream: S, is_http2: bool) -> Result<Self, VisitError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = TokioIo::new(stream);
        if is_http2 {
            let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            tokio::spawn(connection);
            Ok(Self::Http2(sender))
        } else {
            let (sender, connection) = http1::handshake(stream).await?;
            tokio::spawn(connection);
            Ok(Self::Http1(sender))
        }
    }

    async fn send(&mut self, mut request: Request<Full<Bytes>>) -> Result<Response<Incoming>, VisitError> {
        match self {
            Self::Http1(sender) => {
                request.headers_mut().insert(HOST_FIELD, http::HeaderValue::from_static(HOST));
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
            Self::Http2(sender) => {
                let path = request.uri().path().to_owned();
                let uri = http::Uri::builder().scheme("https").authority(HOST).path_and_query(path).build();
                *request.uri_mut() = uri.expect("a path of the demo is a path");
                *request.version_mut() = HttpVersion::HTTP_2;
                sender.ready().await?;
                Ok(sender.send_request(request).await?)
            }
        }
    }
}

impl Errand {
    /// Sends the request and checks the response. Returns the number of bytes in the bodies.
    async fn run(&self, sender: &mut Sender) -> Result<usize, VisitError> {
        let response = sender.send(self.request()).await?;
        let (method, path, status) = match self {
            Self::Download(file) => (Method::GET, &*file.path, StatusCode::OK),
            Self::Range { file, .. } => (Method::GET, &*file.path, StatusCode::PARTIAL_CONTENT),
            Self::Upload(_) => (Method::PUT, UPLOAD, StatusCode::OK),
        };
        if response.status() != status {
            return Err(VisitError::Status { method, path: path.to_owned(), status: response.status() });
        }
        match self {
            Self::Download(file) => compare(response.into_body(), path, &file.bytes).await,
            Self::Range { file, from, to } => {
                let range = format!("bytes {from}-{to}/{}", file.bytes.len());
                if response.headers().get(CONTENT_RANGE).is_none_or(|shown| *shown != *range) {
                    return Err(VisitError::Content { path: path.to_owned(), at: 0, len: file.bytes.len() });
                }
                compare(response.into_body(), path, &file.bytes[*from..=*to]).await
            }
            Self::Upload(bytes) => {
                let answer = response.into_body().collect().await?.to_bytes();
                let expected = hex(digest(&SHA256, bytes).as_ref()) + "\n";
                if answer == expected { Ok(bytes.len()) } else { Err(VisitError::Digest { len: bytes.len() }) }
            }
        }
    }

    fn request(&self) -> Request<Full<Bytes>> {
        let request = match self {
            Self::Download(file) => Request::get(&file.path).body(Full::default()),
            Self::Range { file, from, to } => {
                Request::get(&file.path).header(RANGE, format!("bytes={from}-{to}")).body(Full::default())
            }
            Self::Upload(bytes) => Request::put(UPLOAD).body(Full::new(bytes.clone())),
        };
        request.expect("the demo's requests are well-formed")
    }
}

const UPLOAD: &str = "/upload";

/// Reads `body` to its end and compares it with `expected`, byte by byte.
async fn compare(mut body: Incoming, path: &str, expected: &[u8]) -> Result<usize, VisitError> {
    let wrong = |at| VisitError::Content { path: path.to_owned(), at, len: expected.len() };
    let mut at = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        let rest = &expected[at..];
        let same = data.iter().zip(rest).take_while(|(a, b)| a == b).count();
        if same < data.len() {
            return Err(wrong(at + same));
        }
        at += same;
    }
    if at == expected.len() { Ok(at) } else { Err(wrong(at)) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// Runs `errand` against a server that sends `response` and closes.
    async fn run(errand: &Errand, response: &str) -> Result<usize, VisitError> {
        let (client, mut server) = duplex(1 << 16);
        let mut sender = Sender::start(client, false).await?;
        let serve = async {
            let mut request = [0; 1024];
            let len = server.read(&mut request).await.unwrap();
            server.write_all(response.as_bytes()).await.unwrap();
            drop(server);
            String::from_utf8_lossy(&request[..len]).into_owned()
        };
        let (result, request) = tokio::join!(errand.run(&mut sender), serve);
        assert!(request.contains("\r\nhost: demo.watari.test\r\n"), "{request}");
        result
    }

    fn file() -> SiteFile {
        SiteFile { path: "/f".into(), bytes: Bytes::from_static(b"abcdef") }
    }

    #[tokio::test]
    async fn downloads_are_compared() {
        let download = Errand::Download(file());
        let with = |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        assert_eq!(run(&download, &with("abcdef")).await.unwrap(), 6);
        for (body, from) in [("abcdeX", 5), ("abc", 3), ("abcdefg", 6), ("", 0)] {
            let result = run(&download, &with(body)).await;
            assert!(matches!(&result, Err(VisitError::Content { at, .. }) if *at == from), "{body}");
        }
        let short = run(&download, "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nabc").await;
        assert!(matches!(short, Err(VisitError::Http(_))));
        let missing = run(&download, "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        assert!(matches!(missing, Err(VisitError::Status { status: StatusCode::NOT_FOUND, .. })));
    }

    #[tokio::test]
    async fn ranges_are_compared() {
        let range = Errand::Range { file: file(), from: 2, to: 4 };
        let with = |range: &str, body: &str| {
            format!("HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {range}\r\ncontent-length: 3\r\n\r\n{body}")
        };
        assert_eq!(run(&range, &with("2-4/6", "cde")).await.unwrap(), 3);
        for (shown, body) in [("1-3/6", "cde"), ("2-4/7", "cde"), ("2-4/6", "cdf")] {
            assert!(matches!(run(&range, &with(shown, body)).await, Err(VisitError::Content { .. })), "{shown} {body}");
        }
    }

    #[tokio::test]
    async fn digests_are_compared() {
        let upload = Errand::Upload(Bytes::from_static(b"abc"));
        let with = |digest: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: 65\r\n\r\n{digest}\n");
        // FIPS 180-2, appendix B.1.
        let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(run(&upload, &with(right)).await.unwrap(), 3);
        let wrong = right.replace("15ad", "15ae");
        assert!(matches!(run(&upload, &with(&wrong)).await, Err(VisitError::Digest { len: 3 })));
    }
}
