//! The content of a response, from a connection of either version of HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;

use crate::exchange::error::ExchangeError;
use crate::transport::connections::Stream;
use crate::transport::http1::{Exchange, Http1, Switched};
use crate::transport::relay::Relayed;

/// The content of a response. Dropping it before its end closes the connection, or resets the stream.
pub(crate) enum ResponseContent {
    /// There is none, or none any more.
    None,
    /// It failed before its end. It never appears complete.
    Failed,
    Http1(Box<Exchange>),
    /// As `Http1`, while the request is still being sent.
    Relayed(Relayed),
    Http2 {
        incoming: Incoming,
        /// Counts the stream until the content has ended.
        _stream: Stream,
    },
}

impl ResponseContent {
    /// The connection after a 101.
    pub(crate) fn into_switched(self) -> Option<Switched> {
        if let Self::Http1(exchange) = self { exchange.into_switched() } else { None }
    }

    /// The connection, if the content is at its end and another exchange can use it.
    pub(crate) fn into_connection(self) -> Option<Http1> {
        if let Self::Http1(exchange) = self { exchange.into_connection() } else { None }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ExchangeError>>> {
        match self {
            Self::None => Poll::Ready(None),
            Self::Failed => Poll::Ready(Some(Err(ExchangeError::Closed(io::ErrorKind::NotConnected.into())))),
            Self::Http1(exchange) => exchange.poll_frame(cx),
            Self::Relayed(relayed) => relayed.poll_frame(cx),
            Self::Http2 { incoming, .. } => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(ExchangeError::Http2)))
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Failed => false,
            Self::Http1(exchange) => exchange.is_end_stream(),
            Self::Relayed(relayed) => relayed.remaining() == Some(0),
            Self::Http2 { incoming, .. } => incoming.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let remaining = match self {
            Self::None => Some(0),
            Self::Failed => None,
            Self::Http1(exchange) => exchange.remaining(),
            Self::Relayed(relayed) => relayed.remaining(),
            Self::Http2 { incoming, .. } => return incoming.size_hint(),
        };
        remaining.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
