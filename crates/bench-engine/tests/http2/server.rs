//! HTTP/2 servers, plain or over TLS, that record their requests, and servers that break the protocol.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{Request, Response};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder as Runtime;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

/// What a server does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Responds.
    With(u16, Bytes),
    /// Responds with the body of the request.
    Echo,
    /// Responds when so many requests are in progress on the connection.
    Together(usize),
    /// Responds when the server has accepted so many connections.
    Joined(usize, Bytes),
    /// Announces a longer body than it sends.
    Short,
    /// Resets the stream.
    Reset(Reason),
    /// Sends a part of the response, and resets the stream.
    Break(Reason),
    /// Does nothing.
    Stall,
    /// Responds, and accepts no later request.
    GoAway,
    /// Does nothing until so many requests are in progress, and then closes the connection.
    Cut(usize),
}

/// The server. It ends with the test's process.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The number of requests on each connection.
    asked: Arc<Mutex<Vec<usize>>>,
}

/// By the numbers of the connection and of the request, both from 0.
type Replies = dyn Fn(usize, usize, &Request<RecvStream>) -> Reply + Send + Sync;

impl Server {
    /// Serves HTTP/2 without TLS.
    pub(crate) fn plain(reply: impl Fn(usize, usize, &Request<RecvStream>) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Builder::new(), None, reply)
    }

    /// Accepts these protocols by ALPN, and serves HTTP/2 regardless of the result.
    pub(crate) fn tls(
        alpn: &[&str],
        reply: impl Fn(usize, usize, &Request<RecvStream>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start(Builder::new(), Some(acceptor(alpn)), reply)
    }

    pub(crate) fn start(
        settings: Builder,
        tls: Option<TlsAcceptor>,
        reply: impl Fn(usize, usize, &Request<RecvStream>) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let reply: Arc<Replies> = Arc::new(reply);
        let asked: Arc<Mutex<Vec<usize>>> = Arc::default();
        let log = Arc::clone(&asked);
        let joined = watch::channel(0).0;
        let address = listen(move |stream, number| {
            joined.send_modify(|joined| *joined += 1);
            let (reply, asked, joined) = (Arc::clone(&reply), Arc::clone(&log), joined.subscribe());
            let serving = Serving { number, reply, asked, joined, open: watch::channel(0).0 };
            serving.asked.lock().unwrap().push(0);
            let (settings, tls) = (settings.clone(), tls.clone());
            async move {
                match tls {
                    None => serving.serve(&settings, stream).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serving.serve(&settings, stream).await;
                        }
                    }
                }
            }
        });
        Self { address, asked }
    }

    /// Sends these bytes on the first connection, and serves HTTP/2 on the others.
    pub(crate) fn beginning_with(bytes: &'static [u8]) -> Self {
        let asked: Arc<Mutex<Vec<usize>>> = Arc::default();
        let log = Arc::clone(&asked);
        let address = listen(move |mut stream, number| {
            let reply: Arc<Replies> = Arc::new(|_, _, _: &Request<RecvStream>| Reply::With(200, Bytes::new()));
            let (asked, joined) = (Arc::clone(&log), watch::channel(0).1);
            let serving = Serving { number, reply, asked, joined, open: watch::channel(0).0 };
            serving.asked.lock().unwrap().push(0);
            async move {
                if number == 0 {
                    stream.write_all(bytes).await.unwrap();
                    // Reads everything that arrives: closing earlier would be a reset.
                    let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
                } else {
                    serving.serve(&Builder::new(), stream).await;
                }
            }
        });
        Self { address, asked }
    }

    /// Accepts connections, and neither reads nor writes.
    pub(crate) fn deaf() -> Self {
        let address = listen(|stream, _| async move {
            let _held = stream;
            std::future::pending::<()>().await;
        });
        Self { address, asked: Arc::default() }
    }

    /// The number of requests on each connection.
    pub(crate) fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

/// Serves connections on a thread of its own.
fn listen<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream, usize) -> F + Send + 'static,
) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        Runtime::new_current_thread().enable_all().build().unwrap().block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(serve(stream, number));
            }
        });
    });
    address
}

struct Serving {
    number: usize,
    reply: Arc<Replies>,
    asked: Arc<Mutex<Vec<usize>>>,
    /// The number of connections that the server has accepted.
    joined: watch::Receiver<usize>,
    /// The number of requests that wait for each other.
    open: watch::Sender<usize>,
}

impl Serving {
    async fn serve(self, settings: &Builder, stream: impl AsyncRead + AsyncWrite + Unpin) {
        let Ok(mut connection) = settings.handshake::<_, Bytes>(stream).await else { return };
        let cut = Arc::new(Semaphore::new(0));
        for request in 0.. {
            let accepted = tokio::select! {
                accepted = connection.accept() => accepted,
                _ = cut.acquire() => return,
            };
            let Some(Ok((asked, respond))) = accepted else { return };
            self.asked.lock().unwrap()[self.number] += 1;
            let reply = (self.reply)(self.number, request, &asked);
            match reply {
                Reply::GoAway => connection.graceful_shutdown(),
                Reply::Cut(_) | Reply::Together(_) => self.open.send_modify(|open| *open += 1),
                _ => {}
            }
            let (open, cut) = (self.open.subscribe(), Arc::clone(&cut));
            tokio::spawn(answer(reply, asked, respond, (open, self.joined.clone()), cut));
        }
    }
}

async fn answer(
    reply: Reply,
    asked: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    (mut open, mut joined): (watch::Receiver<usize>, watch::Receiver<usize>),
    cut: Arc<Semaphore>,
) {
    match reply {
        Reply::With(status, body) => send(&mut respond, status, body),
        Reply::Echo => {
            let body = read(asked.into_body()).await;
            send(&mut respond, 200, body);
        }
        Reply::GoAway => send(&mut respond, 200, Bytes::new()),
        Reply::Together(count) => {
            open.wait_for(|&open| open >= count).await.unwrap();
            send(&mut respond, 200, Bytes::new());
        }
        Reply::Joined(count, body) => {
            joined.wait_for(|&joined| joined >= count).await.unwrap();
            send(&mut respond, 200, body);
        }
        Reply::Short => {
            let response = Response::builder().header("content-length", 9).body(()).unwrap();
            let mut body = respond.send_response(response, false).unwrap();
            body.send_data(Bytes::from_static(b"12345678"), true).unwrap();
        }
        Reply::Reset(reason) => respond.send_reset(reason),
        Reply::Break(reason) => {
            let mut body = respond.send_response(Response::new(()), false).unwrap();
            body.reserve_capacity(1);
            body.send_data(Bytes::from_static(b"x"), false).unwrap();
            // A reset overtakes frames in the send queue, so the head has to be written first.
            tokio::time::timeout(Duration::from_millis(50), poll_fn(|_| Poll::<()>::Pending)).await.unwrap_err();
            body.send_reset(reason);
        }
        Reply::Stall => {
            let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
        }
        Reply::Cut(count) => {
            open.wait_for(|&open| open >= count).await.unwrap();
            cut.add_permits(1);
            // If dropped now, the stream would be reset before.
            let _ = poll_fn(|cx| respond.poll_reset(cx)).await;
        }
    }
}

fn send(respond: &mut SendResponse<Bytes>, status: u16, body: Bytes) {
    let response = Response::builder().status(status).header("x-path", "/taken").body(()).unwrap();
    // Sending fails if the client has given up the request.
    if let Ok(mut stream) = respond.send_response(response, body.is_empty())
        && !body.is_empty()
    {
        let _ = stream.send_data(body, true);
    }
}

async fn read(mut body: RecvStream) -> Bytes {
    let mut read = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        read.extend_from_slice(&data);
    }
    read.into()
}

/// Accepts these protocols by ALPN.
pub(crate) fn acceptor(alpn: &[&str]) -> TlsAcceptor {
    let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(pair.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_no_client_auth().with_single_cert(vec![pair.cert.der().clone()], key).unwrap();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}
