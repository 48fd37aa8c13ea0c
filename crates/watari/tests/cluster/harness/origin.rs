//! An origin server inside the test.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /bytes/N?S` | the first N bytes of the pattern of seed S |
//! | `GET /read/N?S` | the same, after the request has been read to its end |
//! | `GET /slow/N?S` | the same, in pieces with pauses |
//! | `GET /slow/M/N?S` | the same, with M milliseconds between the pieces |
//! | `GET /cut/N?S` | half of it, then the connection ends |
//! | `PUT /upload` | length and SHA-256 of the body |
//! | `GET /headers` | the fields of the request, one on each line |

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aws_lc_rs::digest;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::{Interval, interval};

use super::pattern::pattern;

/// The length of pieces of bodies, in bytes.
pub(crate) const PIECE_LEN: u64 = 32 << 10;

/// The pause between the pieces of a slow body.
const PAUSE: Duration = Duration::from_millis(20);

/// All origins of the process share it.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A running origin. It stops accepting when this is dropped.
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl Origin {
    pub(crate) fn start(address: SocketAddr) -> Self {
        let listener = RUNTIME.block_on(TcpListener::bind(address)).unwrap();
        let accepting = RUNTIME.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(converse(stream));
            }
        });
        Self { address, accepting }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn converse(stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let service = service_fn(|request| async { Ok::<_, Infallible>(answer(request).await) });
    // An agent that was killed, or cancelled a request, may end its connections in any way.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(request: Request<Incoming>) -> Response<Bytewise> {
    let path: Vec<_> = request.uri().path().split('/').skip(1).collect();
    let seed = || request.uri().query().and_then(|query| query.parse().ok()).unwrap_or(0);
    match path[..] {
        ["bytes", len] => Response::new(Bytewise::of(len.parse().unwrap(), seed(), None)),
        ["read", len] => {
            let answer = Response::new(Bytewise::of(len.parse().unwrap(), seed(), None));
            // An incomplete request gets no response.
            let _ = request.collect().await;
            answer
        }
        ["slow", len] => Response::new(Bytewise::of(len.parse().unwrap(), seed(), Some(interval(PAUSE)))),
        ["slow", pause_ms, len] => {
            let pause = Duration::from_millis(pause_ms.parse().unwrap());
            Response::new(Bytewise::of(len.parse().unwrap(), seed(), Some(interval(pause))))
        }
        ["cut", len] => Response::new(Bytewise::cut(len.parse().unwrap(), seed())),
        ["upload"] => text(receipt(request).await),
        ["headers"] => text(fields(&request)),
        _ => {
            let mut response = text("no such thing\n".to_owned());
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        }
    }
}

async fn receipt(request: Request<Incoming>) -> String {
    let (mut context, mut len) = (digest::Context::new(&digest::SHA256), 0);
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => {
                len += data.len();
                context.update(&data);
            }
            Ok(Err(_)) => {}
            Err(error) => return format!("cut short after {len}: {error}\n"),
        }
    }
    receipt_line(len, context.finish().as_ref())
}

/// The response of the origin to an upload of these bytes.
pub(crate) fn receipt_of(bytes: &[u8]) -> String {
    receipt_line(bytes.len(), digest::digest(&digest::SHA256, bytes).as_ref())
}

fn receipt_line(len: usize, digest: &[u8]) -> String {
    let hex = digest.iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    format!("{len} {hex}\n")
}

fn fields(request: &Request<Incoming>) -> String {
    let line = |(name, value): (&HeaderName, &HeaderValue)| format!("{name}: {}\n", value.to_str().unwrap());
    request.headers().iter().map(line).collect::<Vec<_>>().concat()
}

fn text(text: String) -> Response<Bytewise> {
    let mut response = Response::new(Bytewise::Text(Some(Bytes::from(text))));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    response
}

/// A body that is generated while it is sent.
enum Bytewise {
    Text(Option<Bytes>),
    Pattern { seed: u64, sent: u64, len: u64, cut_at: u64, pace: Option<Interval> },
}

impl Bytewise {
    fn of(len: u64, seed: u64, pace: Option<Interval>) -> Self {
        Self::Pattern { seed, sent: 0, len, cut_at: u64::MAX, pace }
    }

    fn cut(len: u64, seed: u64) -> Self {
        Self::Pattern { seed, sent: 0, len, cut_at: len / 2, pace: None }
    }
}

impl Body for Bytewise {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.get_mut() {
            Self::Text(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
            Self::Pattern { sent, len, .. } if sent == len => Poll::Ready(None),
            Self::Pattern { sent, cut_at, .. } if *sent >= *cut_at => Poll::Ready(Some(Err(io::Error::other("cut")))),
            Self::Pattern { seed, sent, len, pace, .. } => {
                if let Some(pace) = pace {
                    ready!(pace.poll_tick(cx));
                }
                let end = (*sent + PIECE_LEN).min(*len);
                let piece = pattern(*seed, *sent..end);
                *sent = end;
                Poll::Ready(Some(Ok(Frame::data(piece.into()))))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => SizeHint::with_exact(text.as_ref().map_or(0, Bytes::len) as u64),
            Self::Pattern { sent, len, .. } => SizeHint::with_exact(len - sent),
        }
    }
}
