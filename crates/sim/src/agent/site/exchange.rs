//! One request to an origin, and its response. Mirrors `transport/http1/exchange.rs` of `crates/proxy`.

use std::fmt;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{request, response};
use watari_http1::{Client, ContentSize, Limits, Next};

use super::Site;
use crate::agent::tunnel::OriginStream;
use crate::network::{NodeId, Reset};
use crate::socket::Socket;

/// An origin that sends nothing for so long has failed.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The most bytes of one read.
const READ_LEN: usize = 16 * 1024;

/// Why an origin's response does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure(pub(super) String);

impl Failure {
    fn new(cause: impl fmt::Display) -> Self {
        Self(cause.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) struct Exchange {
    pub(super) site: Site,
    pub(super) origin: NodeId,
    request: request::Parts,
    /// `None` once the connection is kept for another exchange.
    socket: Option<Socket>,
    state: Client,
    unsent: Vec<u8>,
    input: Vec<u8>,
    /// The connection has carried another exchange, and may have ended meanwhile.
    is_reused: bool,
    /// Since when nothing has come.
    waits: Option<Duration>,
    remaining: Option<u64>,
    is_complete: bool,
}

impl Exchange {
    pub(super) fn new(site: &Site, origin: NodeId, request: &request::Parts) -> Self {
        let mut idle = site.origins.idle.borrow_mut();
        let idle = idle.iter().position(|(node, _)| *node == origin).map(|at| idle.swap_remove(at).1);
        match idle {
            Some(socket) => Self::on(site, origin, request, socket, true),
            None => Self::on(site, origin, request, site.network.connect(site.node, origin, 0), false),
        }
    }

    fn on(site: &Site, origin: NodeId, request: &request::Parts, socket: Socket, is_reused: bool) -> Self {
        let (mut state, mut unsent) = (Client::new(Limits::default()), Vec::new());
        let started = state.start_request(request, ContentSize::None, &mut unsent);
        started.expect("a request without content can be written");
        let (site, request) = (site.clone(), request.clone());
        let (socket, input) = (Some(socket), Vec::new());
        Self {
            site,
            origin,
            request,
            socket,
            state,
            unsent,
            input,
            is_reused,
            waits: None,
            remaining: None,
            is_complete: false,
        }
    }

    /// The bytes of content to come, if their number is known.
    pub(super) fn remaining(&self) -> Option<u64> {
        self.remaining
    }

    /// The head of the response. A request on a connection that was used before is repeated on another one.
    pub(super) fn poll_head(&mut self) -> Poll<Result<response::Parts, Failure>> {
        loop {
            match self.state.parse_response(&self.input) {
                Ok(Some(response)) => {
                    self.input.drain(..response.consumed);
                    self.remaining = match response.content {
                        watari_http1::Content::None => Some(0),
                        watari_http1::Content::Length(len) => Some(len),
                        _ => None,
                    };
                    return Poll::Ready(Ok(response.head));
                }
                Ok(None) => {}
                Err(fault) => return Poll::Ready(Err(Failure::new(fault))),
            }
            match self.poll_read() {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) if self.is_reused && self.input.is_empty() => {
                    let socket = self.site.network.connect(self.site.node, self.origin, 0);
                    *self = Self::on(&self.site, self.origin, &self.request, socket, false);
                }
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
            }
        }
    }

    /// The next piece of content. `None`: it is complete.
    pub(super) fn poll_data(&mut self) -> Poll<Result<Option<Bytes>, Failure>> {
        loop {
            let decoded = match self.state.decode(&self.input) {
                Ok(decoded) => decoded,
                Err(fault) => return Poll::Ready(Err(Failure::new(fault))),
            };
            let data = Bytes::copy_from_slice(&self.input[decoded.data]);
            self.input.drain(..decoded.consumed);
            if !data.is_empty() {
                self.remaining = self.remaining.map(|remaining| remaining - data.len() as u64);
                self.is_complete = decoded.is_end;
                self.keep();
                return Poll::Ready(Ok(Some(data)));
            }
            if self.is_complete || decoded.is_end {
                self.is_complete = true;
                self.keep();
                return Poll::Ready(Ok(None));
            }
            match self.poll_read() {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(failure)) => return Poll::Ready(Err(failure)),
            }
        }
    }

    /// The connection after a 101.
    pub(super) fn into_switched(mut self) -> Option<OriginStream> {
        let is_switched = self.state.next_exchange() == Some(Next::Tunnel);
        let socket = self.socket.take().filter(|_| is_switched)?;
        Some(OriginStream { socket, ahead: self.input.into() })
    }

    /// Keeps the connection for another exchange, if that is possible.
    fn keep(&mut self) {
        let is_reusable = self.is_complete && self.input.is_empty() && self.state.next_exchange() == Some(Next::Idle);
        if let Some(socket) = self.socket.take_if(|_| is_reusable) {
            self.site.origins.idle.borrow_mut().push((self.origin, socket));
        }
    }

    /// Sends what is left of the request, and reads once.
    fn poll_read(&mut self) -> Poll<Result<(), Failure>> {
        let Some(socket) = &self.socket else { return Poll::Ready(Err(Failure::new("the response is complete"))) };
        let sent = socket.write(&self.unsent).unwrap_or(0);
        self.unsent.drain(..sent);
        match socket.read(READ_LEN) {
            Some(Ok(bytes)) if !bytes.is_empty() => {
                self.waits = None;
                self.input.extend(bytes);
                Poll::Ready(Ok(()))
            }
            Some(Ok(_)) => Poll::Ready(match self.state.end_of_input() {
                Ok(()) => Err(Failure::new("the origin has ended the connection")),
                Err(truncated) => Err(Failure::new(truncated)),
            }),
            Some(Err(Reset)) => Poll::Ready(Err(Failure::new("the origin has reset the connection"))),
            None => self.wait(),
        }
    }

    fn wait(&mut self) -> Poll<Result<(), Failure>> {
        let now = self.site.network.now();
        match self.waits {
            Some(since) if now >= since + SILENCE_MAX => Poll::Ready(Err(Failure::new("the origin is silent"))),
            Some(_) => Poll::Pending,
            None => {
                self.waits = Some(now);
                self.site.network.wake_in(self.site.node, SILENCE_MAX);
                Poll::Pending
            }
        }
    }
}
