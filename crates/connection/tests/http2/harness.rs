//! A connection over a pipe, and a service.

use std::fmt::Display;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, BufReader, DuplexStream, ReadBuf};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use watari_connection::{Content, Http2Connection, Http2End, Interim, InterimSender, Plaintext, STREAMS_MAX, Service};
use watari_http2::server::Limits;

const LIMITS: Limits = Limits { streams_max: STREAMS_MAX, list_len_max: 16_384, allows_protocol: true };

pub(crate) struct Scene {
    pub(crate) client: DuplexStream,
    /// Ends with a panic if the client is silent.
    pub(crate) server: JoinHandle<Http2End>,
    /// Closes the connection.
    pub(crate) close: Arc<Notify>,
    /// Looks whether the client is silent.
    pub(crate) look: Arc<Notify>,
    /// The number of polls of the connection.
    pub(crate) polls: Arc<AtomicUsize>,
}

impl Scene {
    /// `pipe`: the most bytes under way in each direction.
    pub(crate) fn begin(pipe: usize) -> Self {
        let (client, server) = tokio::io::duplex(pipe);
        let (close, look) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let connection = Http2Connection::new(Stream(BufReader::new(server)), LIMITS, Site, Instant::now);
        let polls = Arc::<AtomicUsize>::default();
        let server = tokio::spawn(run(connection, close.clone(), look.clone(), polls.clone()));
        Self { client, server, close, look, polls }
    }
}

async fn run(
    mut connection: Http2Connection<Stream, Site>,
    close: Arc<Notify>,
    look: Arc<Notify>,
    polls: Arc<AtomicUsize>,
) -> Http2End {
    loop {
        let (mut closing, mut looking) = (pin!(close.notified()), pin!(look.notified()));
        let end = poll_fn(|cx| {
            if closing.as_mut().poll(cx).is_ready() {
                connection.close();
                return Poll::Ready(None);
            }
            if looking.as_mut().poll(cx).is_ready() {
                assert!(connection.look(), "the client is silent");
                return Poll::Ready(None);
            }
            polls.fetch_add(1, Ordering::Relaxed);
            connection.poll(cx).map(Some)
        });
        if let Some(end) = end.await {
            return end;
        }
    }
}

/// Bytes that differ at each place.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|place| (place * 31 + place / 251) as u8).collect()
}

/// Answers `/LENGTH?PIECE` with a pattern in pieces, and with what it received in a trailer.
struct Site;

impl Service for Site {
    type Body = Pieces;
    type Answering = Pin<Box<dyn Future<Output = Response<Pieces>> + Send>>;

    fn answer(&mut self, request: Request<Content>, interim: &mut Interim) -> Self::Answering {
        if request.uri().path() == "/hints" {
            return Box::pin(hint(interim.sender()));
        }
        Box::pin(answer(request))
    }

    fn refuse(&mut self, status: StatusCode, _: &dyn Display) -> Response<Pieces> {
        let mut response = Response::new(Pieces::default());
        *response.status_mut() = status;
        response
    }

    fn date(&self) -> HeaderValue {
        HeaderValue::from_static("Sun, 06 Nov 1994 08:49:37 GMT")
    }
}

/// The informational responses to `/hints`.
pub(crate) const HINTS_MAX: usize = 5_000;
/// Those that were sent.
pub(crate) static HINTS: AtomicUsize = AtomicUsize::new(0);

async fn hint(sender: InterimSender) -> Response<Pieces> {
    let fields =
        HeaderMap::from_iter([(http::header::LINK, HeaderValue::from_static("</a-style-sheet-with-a-name.css>"))]);
    for _ in 0..HINTS_MAX {
        sender.send(StatusCode::EARLY_HINTS, fields.clone());
        HINTS.fetch_add(1, Ordering::Relaxed);
        tokio::task::yield_now().await;
    }
    Response::new(Pieces::default())
}

async fn answer(request: Request<Content>) -> Response<Pieces> {
    let (head, content) = request.into_parts();
    match head.uri.path() {
        "/ignore" => return Response::new(Pieces::default()),
        "/slow" => {
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            return Response::new(Pieces::default());
        }
        "/cut" => {
            return Response::new(Pieces {
                frames: vec![Ok(Frame::data("begun".into())), Err("cut")],
                ..Pieces::default()
            });
        }
        _ => {}
    }
    let has_content = head.method == http::Method::POST;
    let Ok(received) = content.collect().await else {
        return Response::new(Pieces { frames: vec![Err("the content failed")], ..Pieces::default() });
    };
    let has_trailers = received.trailers().is_some();
    let bytes = received.to_bytes();
    assert!(bytes == pattern(bytes.len()), "other bytes");
    let received = if has_content { format!("{} {has_trailers}", bytes.len()) } else { String::new() };
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("received"), received.parse().unwrap())]);
    let (len, piece) = (head.uri.path()[1..].parse().unwrap(), head.uri.query().unwrap().parse().unwrap());
    let data = pattern(len).chunks(piece).map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece)))).collect();
    Response::new(Pieces { frames: data, trailers: Some(trailers), is_pending: false })
}

/// A body that is pending before each piece.
#[derive(Default)]
pub(crate) struct Pieces {
    frames: Vec<Result<Frame<Bytes>, &'static str>>,
    trailers: Option<HeaderMap>,
    is_pending: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        self.is_pending = !self.is_pending;
        if self.is_pending {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.frames.is_empty() {
            return Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(Some(self.frames.remove(0)))
    }

    fn is_end_stream(&self) -> bool {
        self.frames.is_empty() && self.trailers.is_none()
    }
}

struct Stream(BufReader<DuplexStream>);

impl Plaintext for Stream {
    fn is_close_due(&self) -> bool {
        false
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncBufRead for Stream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().0).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, len: usize) {
        Pin::new(&mut self.0).consume(len);
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, parts)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
