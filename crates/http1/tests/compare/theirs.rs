//! Reads with hyper, over a stream in memory that is always ready. No runtime is needed.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{client, server};

use super::{Message, Outcome};

/// The polls after which a future that is not ready never is.
const POLLS_MAX: usize = 100_000;

pub(super) fn requests(input: &[u8], piece: usize) -> Outcome<String> {
    let messages = Rc::new(RefCell::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let messages = messages.clone();
        async move {
            let (head, body) = request.into_parts();
            let start = format!("{} {}", head.method, head.uri);
            let message = collect(Message::new(start, head.version, &head.headers), body).await?;
            messages.borrow_mut().push(message);
            Ok::<_, hyper::Error>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let wire = Wire { input, piece, is_open: true };
    let mut builder = server::conn::http1::Builder::new();
    builder.half_close(true).max_buf_size(64 << 10);
    let end = run(builder.serve_connection(wire, service)).map_err(|error| error.to_string());
    Outcome { messages: messages.take(), end }
}

pub(super) fn response(is_head: bool, input: &[u8], piece: usize) -> Outcome<String> {
    let mut messages = Vec::new();
    let end = run(read_response(is_head, Wire { input, piece, is_open: false }));
    let end = end.map(|message| messages.push(message)).map_err(|error| error.to_string());
    Outcome { messages, end }
}

async fn read_response(is_head: bool, wire: Wire<'_>) -> hyper::Result<Message> {
    let mut builder = client::conn::http1::Builder::new();
    builder.max_buf_size(64 << 10);
    let (mut sender, connection) = builder.handshake(wire).await?;
    let request = Request::builder().method(if is_head { "HEAD" } else { "GET" }).uri("/").header("host", "a");
    let request = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
    let response = async {
        let (head, body) = request.await?.into_parts();
        collect(Message::new(head.status.as_str().to_owned(), head.version, &head.headers), body).await
    };
    let (mut response, mut connection) = (pin!(response), pin!(connection));
    let mut is_connected = true;
    std::future::poll_fn(move |cx| {
        // What follows the response, and so the end of the connection, is of no interest.
        is_connected = is_connected && connection.as_mut().poll(cx).is_pending();
        response.as_mut().poll(cx)
    })
    .await
}

async fn collect(mut message: Message, body: Incoming) -> hyper::Result<Message> {
    let body = body.collect().await?;
    message.set_trailers(body.trailers().unwrap_or(&HeaderMap::new()));
    message.content = body.to_bytes().to_vec();
    Ok(message)
}

/// Polls until the result is there. Nothing wakes it: the stream is ready, or waits for a write.
fn run<T>(future: impl Future<Output = T>) -> T {
    let (mut future, mut cx) = (pin!(future), Context::from_waker(Waker::noop()));
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
            return result;
        }
    }
    panic!("hyper waits for something that does not come");
}

/// The stream of a peer that sends `input` and then ends.
struct Wire<'a> {
    input: &'a [u8],
    /// The most bytes of a read.
    piece: usize,
    /// The peer of a client sends nothing before the request.
    is_open: bool,
}

impl Read for Wire<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, mut room: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        if !self.is_open {
            return Poll::Pending;
        }
        let (read, rest) = self.input.split_at(self.input.len().min(self.piece).min(room.remaining()));
        room.put_slice(read);
        self.input = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for Wire<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, written: &[u8]) -> Poll<io::Result<usize>> {
        self.is_open = true;
        Poll::Ready(Ok(written.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
