//! A stream that hyper owns for a while.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use watari_stream::{ReadEnd, TlsStream};

use crate::activity::Activity;
use crate::client_end::ClientEnd;
use crate::early::{EarlyStream, Gate, Opening, Unfinished};
use crate::requests::Streams;

/// The longest last response that is held back until the end of the stream goes with it, in bytes.
const HELD_LEN_MAX: usize = 16 * 1024;

/// Gives the stream back to its owner when hyper drops it, however that comes about.
pub(crate) struct Lent {
    stream: Option<Stream>,
    back: Option<oneshot::Sender<Box<TlsStream<TcpStream>>>>,
    activity: Activity,
    /// Told when the connection should close soon, because its key is nearly used up.
    close_due: Arc<Notify>,
    close_told: bool,
    end: ClientEnd,
    /// What was written since the last flush, in bytes.
    unflushed: usize,
    /// The flush of the last response was put off once.
    is_held: bool,
    /// How many writes there were.
    writes: u64,
    /// How many writes there were, and how many requests had begun, at the last look for the end.
    seen: Option<(u64, usize)>,
    /// The last write has to wait for the client.
    is_blocked: bool,
    /// Wakes the reader that waits, after the client's end, until all responses are on their way.
    end_waits: Option<Waker>,
    /// The requests of HTTP/2; `None`: there is one at a time, and `activity` shows it.
    streams: Option<Arc<Streams>>,
}

/// What is lent.
pub(crate) enum Stream {
    /// Until the handshake is done, by an [`Opening`].
    Early(EarlyStream),
    Open(Box<TlsStream<TcpStream>>),
}

/// What the owner of a [`Lent`] keeps.
pub(crate) struct Receipt {
    back: oneshot::Receiver<Box<TlsStream<TcpStream>>>,
    /// Boxed: few connections have one, and none needs it for long.
    opening: Option<Box<Opening>>,
    pub(crate) activity: Activity,
    pub(crate) close_due: Arc<Notify>,
    /// Whether the client will send no more.
    pub(crate) end: ClientEnd,
}

impl Receipt {
    /// What requests have to pass.
    pub(crate) fn gate(&self) -> Gate {
        self.opening.as_ref().map(|opening| opening.gate()).unwrap_or_default()
    }

    /// Goes on with the handshake, if it is not done; `false`: it came to nothing. To be called before the borrower is polled.
    pub(crate) fn poll_opening(&mut self, cx: &mut Context<'_>) -> bool {
        self.opening.as_mut().is_none_or(|opening| opening.poll(cx) != Poll::Ready(false))
    }

    /// The stream, once it is dropped, and the handshake is done.
    pub(crate) async fn take_back(self) -> Result<Box<TlsStream<TcpStream>>, Box<Unfinished>> {
        match (self.back.await, self.opening) {
            (Ok(stream), _) => Ok(stream),
            (Err(_), Some(opening)) => opening.finish().await,
            (Err(_), None) => unreachable!("a lent stream is given back when it is dropped"),
        }
    }
}

/// Lends a stream; `opening` is what drives it, if it is an early one.
pub(crate) fn lend(stream: Stream, opening: Option<Opening>) -> (Lent, Receipt) {
    let (sender, back) = oneshot::channel();
    let opening = opening.map(Box::new);
    let (activity, end) = (Activity::default(), ClientEnd::default());
    let receipt = Receipt { back, opening, activity, close_due: Arc::default(), end };
    let lent = Lent {
        stream: Some(stream),
        back: Some(sender),
        activity: receipt.activity.clone(),
        close_due: receipt.close_due.clone(),
        close_told: false,
        end: receipt.end.clone(),
        unflushed: 0,
        is_held: false,
        writes: 0,
        seen: None,
        is_blocked: false,
        end_waits: None,
        streams: None,
    };
    (lent, receipt)
}

impl Lent {
    /// The same, for HTTP/2 with these requests.
    pub(crate) fn with_streams(mut self, streams: &Arc<Streams>) -> Self {
        self.streams = Some(streams.clone());
        self
    }

    /// Whether the stream has ended by a FIN alone.
    fn is_truncated(&self) -> bool {
        matches!(&self.stream, Some(Stream::Open(stream)) if stream.read_end() == Some(ReadEnd::Truncated))
    }

    /// Whether h2, all of whose requests are over, has nothing left to do: then it may be given the client's end, at which it drops
    /// what it still holds. It reads all that there is before it hands over the requests in it, and takes whole bodies before it
    /// writes them. So it is polled again until it neither begins a request nor writes.
    fn is_quiet(&mut self, begun: usize, cx: &mut Context<'_>) -> bool {
        let now = (self.writes, begun);
        let is_quiet = self.seen.replace(now) == Some(now) && !self.is_blocked;
        // Where a write waits, the client wakes the connection.
        if !is_quiet && !self.is_blocked {
            cx.waker().wake_by_ref();
        }
        is_quiet
    }

    fn stream(&mut self) -> Pin<&mut dyn Duplex> {
        let stream = self.stream.as_mut().expect("a stream is given back only on drop");
        if let Stream::Early(early) = stream
            && let Some(open) = early.take_open()
        {
            *stream = Stream::Open(open);
        }
        Pin::new(match stream {
            Stream::Early(early) => early,
            Stream::Open(open) => &mut **open,
        })
    }

    /// Whether what is to be flushed goes with the end of the stream instead, which follows at once: the last response, if it is
    /// short, takes one write together with `close_notify`. Should the end not follow, the borrower is polled again, and flushes.
    fn holds_last(&mut self, cx: &mut Context<'_>) -> bool {
        let holds = !self.is_held
            && self.unflushed <= HELD_LEN_MAX
            && self.activity.only_ends()
            && matches!(self.stream, Some(Stream::Open(_)));
        if holds {
            self.is_held = true;
            cx.waker().wake_by_ref();
        }
        holds
    }

    fn after_write(&mut self) {
        if !self.close_told
            && let Some(Stream::Open(stream)) = &self.stream
            && stream.connection().close_due()
        {
            self.close_told = true;
            self.close_due.notify_one();
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(Stream::Open(stream)), Some(back)) = (self.stream.take(), self.back.take()) {
            // An owner that does not wait for it any more has ended; so has the connection.
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for Lent {
    /// Gives HTTP the client's end, however it came, when the requests in progress are answered (see `client_end`). Other errors, such as
    /// a reset, end them at once.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let filled = buf.filled().len();
        match ready!(this.stream().poll_read(cx, buf)) {
            Ok(()) if buf.filled().len() > filled => return Poll::Ready(Ok(())),
            Err(error) if !this.is_truncated() => return Poll::Ready(Err(error)),
            Ok(()) | Err(_) => {}
        }
        this.end.come();
        match &this.streams {
            None if !this.activity.is_answering() => return Poll::Ready(Ok(())),
            None => this.end_waits = Some(cx.waker().clone()),
            Some(streams) => {
                // Registered before the look: the last response may end meanwhile, in another thread.
                streams.wake_when_closed(cx.waker());
                if streams.are_over() {
                    let begun = streams.begun();
                    return if this.is_quiet(begun, cx) { Poll::Ready(Ok(())) } else { Poll::Pending };
                }
            }
        }
        Poll::Pending
    }
}

impl AsyncWrite for Lent {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = this.stream().poll_write_vectored(cx, parts);
        this.is_blocked = written.is_pending();
        if let Poll::Ready(Ok(written)) = written {
            this.unflushed += written;
            this.writes += 1;
        }
        this.after_write();
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.holds_last(cx) {
            return Poll::Ready(Ok(()));
        }
        ready!(this.stream().poll_flush(cx))?;
        this.unflushed = 0;
        this.activity.flushed();
        if !this.activity.is_answering() {
            this.end_waits.take().into_iter().for_each(Waker::wake);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }
}
