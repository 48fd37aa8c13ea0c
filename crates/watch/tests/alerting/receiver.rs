//! An HTTP server that accepts or refuses notices.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// An answer to a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// A status, and `Retry-After`.
    Status(u16, Option<&'static str>),
    /// No answer.
    Nothing,
    /// The end of the connection.
    Cut,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) at: Instant,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

/// The server. Dropping it stops it.
pub(crate) struct HttpReceiver {
    pub(crate) address: SocketAddr,
    asked: UnboundedReceiver<Asked>,
    _tasks: JoinSet<()>,
}

struct Script {
    answers: Mutex<VecDeque<Answer>>,
    asked: UnboundedSender<Asked>,
}

/// A reserved port without a listener.
pub(crate) struct Port(TcpSocket);

impl Port {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?key=1", self.address())
    }

    /// Starts a server there, which stops when it is dropped.
    pub(crate) fn listen(&self, answers: &[Answer]) -> HttpReceiver {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(self.address()).unwrap();
        HttpReceiver::of(socket.listen(64).unwrap(), None, answers)
    }
}

impl HttpReceiver {
    /// Answers the first requests with these answers, and later ones with 200.
    pub(crate) async fn new(answers: &[Answer]) -> Self {
        Self::of(TcpListener::bind("127.0.0.1:0").await.unwrap(), None, answers)
    }

    pub(crate) async fn with_tls(tls: TlsAcceptor) -> Self {
        Self::of(TcpListener::bind("127.0.0.1:0").await.unwrap(), Some(tls), &[])
    }

    fn of(listener: TcpListener, tls: Option<TlsAcceptor>, answers: &[Answer]) -> Self {
        let (sender, asked) = unbounded_channel();
        let script = Arc::new(Script { answers: Mutex::new(answers.iter().copied().collect()), asked: sender });
        let address = listener.local_addr().unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, tls, script));
        Self { address, asked, _tasks: tasks }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?key=1", self.address)
    }

    /// The next request.
    pub(crate) async fn asked(&mut self) -> Asked {
        super::in_time(self.asked.recv()).await.unwrap()
    }

    pub(crate) fn has_been_asked(&self) -> bool {
        !self.asked.is_empty()
    }

    /// The status and the begin in the next notice.
    pub(crate) async fn delivered(&mut self) -> (String, String) {
        let body = self.asked().await.body;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&body["status"]), text(&body["alerts"][0]["startsAt"]))
    }
}

/// Connections end with this task.
async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let (script, tls) = (Arc::clone(&script), tls.clone());
        connections.spawn(async move {
            match tls {
                None => serve(socket, script).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(socket).await {
                        serve(stream, script).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, script: Arc<Script>) {
    let service = service_fn(|request| answer(request, Arc::clone(&script)));
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>, script: Arc<Script>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap();
    let answer = script.answers.lock().unwrap().pop_front().unwrap_or(Answer::Status(200, None));
    let _ = script.asked.send(Asked { at: Instant::now(), path: head.uri.to_string(), headers: head.headers, body });
    match answer {
        Answer::Status(code, retry_after) => {
            let mut response = Response::new(Full::new(Bytes::from_static(b"as it says")));
            *response.status_mut() = StatusCode::from_u16(code).unwrap();
            if let Some(value) = retry_after {
                response.headers_mut().insert("retry-after", value.parse().unwrap());
            }
            Ok(response)
        }
        Answer::Nothing => {
            std::future::pending::<Infallible>().await;
            unreachable!()
        }
        Answer::Cut => Err(std::io::Error::other("cut")),
    }
}
