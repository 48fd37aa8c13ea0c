//! A stream that hyper owns for a while.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use watari_stream::TlsStream;

use crate::activity::Activity;

/// Gives the stream back to its owner when hyper drops it, however that comes about.
pub(crate) struct Lent {
    stream: Option<Box<TlsStream<TcpStream>>>,
    back: Option<oneshot::Sender<Box<TlsStream<TcpStream>>>>,
    activity: Activity,
    /// Told when the connection should close soon, because its key is nearly used up.
    close_due: Arc<Notify>,
    close_told: bool,
}

/// What the owner of a [`Lent`] keeps.
pub(crate) struct Receipt {
    pub(crate) back: oneshot::Receiver<Box<TlsStream<TcpStream>>>,
    pub(crate) activity: Activity,
    pub(crate) close_due: Arc<Notify>,
}

pub(crate) fn lend(stream: Box<TlsStream<TcpStream>>) -> (Lent, Receipt) {
    let (sender, back) = oneshot::channel();
    let receipt = Receipt { back, activity: Activity::default(), close_due: Arc::default() };
    let lent = Lent {
        stream: Some(stream),
        back: Some(sender),
        activity: receipt.activity.clone(),
        close_due: receipt.close_due.clone(),
        close_told: false,
    };
    (lent, receipt)
}

impl Lent {
    fn stream(&mut self) -> Pin<&mut TlsStream<TcpStream>> {
        Pin::new(self.stream.as_deref_mut().expect("a stream is given back only on drop"))
    }

    fn after_write(&mut self) {
        if !self.close_told && self.stream().connection().close_due() {
            self.close_told = true;
            self.close_due.notify_one();
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(stream), Some(back)) = (self.stream.take(), self.back.take()) {
            // An owner that does not wait for it any more has ended; so has the connection.
            let _ = back.send(stream);
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_read(cx, buf)
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
        this.after_write();
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.stream().poll_flush(cx))?;
        this.activity.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream().poll_shutdown(cx)
    }
}
