//! A client: it asks for resources and checks every byte.

mod cache;
mod habits;
mod handshake;
mod responses;
mod tunnel;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::HandshakeKind;
use rustls::client::Resumption;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::cache::ConnectionCache;
pub(crate) use self::cache::SessionCache;
pub(crate) use self::habits::{Ask, Fate, Habits};
pub(crate) use self::handshake::Offer;
use self::handshake::{Handshake, Step, Stream};
use self::responses::Responses;
use self::tunnel::Tunnel;
use crate::network::{Network, NodeId};
use crate::resource::{Kind, Resource, bytes};
use crate::socket::Socket;

pub(crate) struct Client {
    network: Network,
    node: NodeId,
    number: u64,
    /// `None` after the end.
    tls: Option<Box<Stream>>,
    handshake: Option<Box<Handshake>>,
    cache: Arc<ConnectionCache>,
    habits: Habits,
    /// The request whose response is read.
    current: usize,
    /// The requests that were begun.
    begun: usize,
    state: State,
    responses: Responses,
    /// Requests that are not sent.
    unsent: Vec<u8>,
    /// The client has sent `close_notify` and FIN.
    has_ended: bool,
    read_again: Duration,
    content: u64,
    fate: Option<Fate>,
}

/// The agent's alert at the end of a stream that is cut.
const CUT_ALERT: &str = "internal_error";

enum State {
    Pausing(Duration),
    Reading,
    Tunnel(Tunnel),
    /// All is read. The client ends its stream.
    Done,
}

impl Client {
    pub(crate) fn new(
        network: Network,
        (node, number): (NodeId, u64),
        socket: Socket,
        habits: Habits,
        sessions: &Arc<SessionCache>,
    ) -> Self {
        let cache = ConnectionCache::new(sessions);
        let handshake = Handshake::new(socket, habits.offer, Resumption::store(cache.clone()), habits.pause.is_zero());
        let state = State::Pausing(network.now() + habits.pause);
        Self {
            responses: Responses::new(network.clone(), number),
            network,
            node,
            number,
            tls: None,
            handshake: Some(Box::new(handshake)),
            cache,
            habits,
            current: 0,
            begun: 0,
            state,
            unsent: Vec::new(),
            has_ended: false,
            read_again: Duration::ZERO,
            content: 0,
            fate: None,
        }
    }

    pub(crate) fn fate(&self) -> Option<&Fate> {
        self.fate.as_ref()
    }

    /// Whether the responses that it waits for may be cut although no node fails.
    pub(crate) fn needs_an_origin(&self) -> bool {
        let waits_for = &self.habits.requests[self.current..self.begun];
        waits_for.iter().any(|ask| !ask.is_upload && ask.resource.kind.needs_its_origin())
    }

    pub(crate) fn vanish(&mut self) {
        if self.fate.is_none() {
            self.end(Fate::Vanished);
        }
    }

    pub(crate) fn step(&mut self) {
        while self.fate.is_none() && self.step_once() {}
    }

    /// Returns whether more may be possible at once.
    fn step_once(&mut self) -> bool {
        if !self.step_handshake() {
            return false;
        }
        let now = self.network.now();
        if let State::Pausing(until) = self.state {
            if let Some(left) = until.checked_sub(now).filter(|left| !left.is_zero()) {
                self.network.wake_in(self.node, left);
                return false;
            }
            let end = if self.habits.pipelines { self.habits.requests.len() } else { self.current + 1 };
            while self.begun < end {
                self.begin();
            }
            self.state = State::Reading;
        }
        self.send_tunnel();
        self.send();
        if self.is_read() && self.has_ended {
            self.network.count(|figures| figures.tunnels += 1);
            self.end(Fate::Complete);
            return false;
        }
        if self.is_read() && self.tls.as_ref().is_some_and(|tls| tls.io().socket.is_reset()) {
            self.end(Fate::Cut);
            return false;
        }
        if now < self.read_again || self.is_read() {
            return false;
        }
        self.read()
    }

    /// Returns whether the handshake is done.
    fn step_handshake(&mut self) -> bool {
        let Some(handshake) = self.handshake.take() else { return true };
        match handshake.step() {
            Step::Waits(handshake) => self.handshake = Some(handshake),
            Step::Done(stream, kind) => {
                self.check_resumption(kind);
                self.tls = Some(stream);
                return true;
            }
            Step::Cut => self.end(Fate::Cut),
            Step::Failed(cause) => {
                self.network.violation(format!("the handshake of client {} failed: {cause}", self.number));
                self.end(Fate::Cut);
            }
        }
        false
    }

    fn check_resumption(&self, kind: HandshakeKind) {
        let (has_offered, is_resumed) = (self.cache.has_offered(), kind == HandshakeKind::Resumed);
        self.network.count(|figures| {
            figures.offered += u64::from(has_offered);
            figures.resumed += u64::from(is_resumed);
        });
        self.network.note(|| format!("client {} offers {has_offered}, resumes {is_resumed}", self.number));
        if self.habits.resumes_surely && has_offered && !is_resumed {
            self.network.violation(format!("the session of client {} was not resumed", self.number));
        }
    }

    fn begin(&mut self) {
        let Ask { resource, is_upload } = self.habits.requests[self.begun];
        let Resource { file, len, .. } = resource;
        self.begun += 1;
        let path = resource.path();
        if is_upload {
            let head = format!("PUT {path} HTTP/1.1\r\nHost: site.test\r\nContent-Length: {len}\r\n\r\n");
            self.unsent.extend(head.bytes());
            self.unsent.extend(bytes(file, 0..len));
        } else {
            let upgrade = if resource.kind == Kind::Tunnel { "Connection: upgrade\r\nUpgrade: bytes\r\n" } else { "" };
            self.unsent.extend(format!("GET {path} HTTP/1.1\r\nHost: site.test\r\n{upgrade}\r\n").bytes());
        }
    }

    /// Whether nothing follows in the stream to the client.
    fn is_read(&self) -> bool {
        matches!(&self.state, State::Tunnel(tunnel) if tunnel.has_origin_ended)
    }

    fn send_tunnel(&mut self) {
        while self.unsent.is_empty()
            && let State::Tunnel(tunnel) = &mut self.state
        {
            let Some(piece) = tunnel.next_piece(&self.network, self.node) else { return };
            self.unsent.extend(piece);
            self.send();
        }
    }

    fn send(&mut self) {
        let half_closes = self.habits.half_closes && !self.asks_tunnel();
        let Some(tls) = &mut self.tls else { return };
        let mut cx = Context::from_waker(Waker::noop());
        while !self.unsent.is_empty() {
            let Poll::Ready(Ok(taken)) = Pin::new(&mut **tls).poll_write(&mut cx, &self.unsent) else { break };
            self.unsent.drain(..taken);
        }
        let is_last = self.begun == self.habits.requests.len() && self.unsent.is_empty();
        let ends = match &self.state {
            State::Tunnel(tunnel) => tunnel.is_sent() && self.unsent.is_empty(),
            State::Done => true,
            _ => half_closes && is_last,
        };
        if !ends {
            let _ = Pin::new(&mut **tls).poll_flush(&mut cx);
        } else if !self.has_ended && Pin::new(&mut **tls).poll_shutdown(&mut cx).is_ready() {
            tls.io().socket.shut_down();
            self.has_ended = true;
        }
    }

    fn read(&mut self) -> bool {
        let (len_max, pause) = self.habits.reads;
        let Some(tls) = &mut self.tls else { return false };
        let mut cx = Context::from_waker(Waker::noop());
        let mut buffer = vec![0; len_max];
        let mut read = ReadBuf::new(&mut buffer);
        match Pin::new(&mut **tls).poll_read(&mut cx, &mut read) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) if read.filled().is_empty() => self.on_clean_end(),
            Poll::Ready(Ok(())) => {
                let plaintext = read.filled().to_vec();
                self.take(&plaintext);
                self.pause_reading(pause);
            }
            Poll::Ready(Err(error)) => self.on_error(&error),
        }
        true
    }

    fn pause_reading(&mut self, pause: Duration) {
        let mut pause = pause;
        if let Some((after, long)) = self.habits.stall.filter(|(after, _)| self.content >= *after) {
            self.network.note(|| format!("client {} stalls after {after}", self.number));
            self.habits.stall = None;
            pause = long;
        }
        if pause > Duration::ZERO {
            self.read_again = self.network.now() + pause;
            self.network.wake_in(self.node, pause);
        }
    }

    /// Whether the last request is an upgrade.
    fn asks_tunnel(&self) -> bool {
        self.habits.requests.last().is_some_and(|ask| ask.resource.kind == Kind::Tunnel)
    }

    /// Takes plaintext, and checks it.
    fn take(&mut self, plaintext: &[u8]) {
        if let State::Tunnel(tunnel) = &mut self.state {
            self.content += plaintext.len() as u64;
            if !tunnel.take(plaintext) {
                self.network.violation(format!("client {} got a wrong byte in a tunnel", self.number));
            }
            return;
        }
        self.responses.push(plaintext);
        while !self.responses.is_empty() {
            if !matches!(self.state, State::Reading) {
                let violation = format!("client {} got bytes that it has not asked for", self.number);
                return self.network.violation(violation);
            }
            let (len, is_complete) = self.responses.take(&self.habits.requests[self.current]);
            self.content += len;
            if !is_complete {
                return;
            }
            self.on_response();
            if let State::Tunnel(_) = self.state {
                let rest = self.responses.take_rest();
                return self.take(&rest);
            }
        }
    }

    fn on_response(&mut self) {
        self.network.note(|| format!("client {} has response {}", self.number, self.current));
        let resource = self.habits.requests[self.current].resource;
        if resource.kind == Kind::Tunnel && !self.responses.is_unavailable {
            self.state = State::Tunnel(Tunnel::new(resource, &self.network));
            return;
        }
        self.current += 1;
        if let Some(tls) = self.tls.as_mut().filter(|_| self.habits.updates_keys && !self.has_ended) {
            // Fails once the client has sent `close_notify`.
            let _ = tls.update_keys(true);
        }
        if self.current < self.habits.requests.len() {
            let pause = State::Pausing(self.network.now() + self.habits.pause);
            self.state = if self.habits.pipelines { State::Reading } else { pause };
            return;
        }
        self.state = State::Done;
    }

    /// `close_notify` has come.
    fn on_clean_end(&mut self) {
        if let State::Tunnel(tunnel) = &mut self.state
            && tunnel.has_all()
        {
            // The client goes on sending.
            tunnel.has_origin_ended = true;
            return;
        }
        if !matches!(self.state, State::Done) {
            self.network.violation(format!("client {} got a clean end of a cut stream", self.number));
        }
        self.end(Fate::Complete);
    }

    fn on_error(&mut self, error: &io::Error) {
        match error.kind() {
            io::ErrorKind::ConnectionReset => {}
            // The agent cuts the stream.
            io::ErrorKind::ConnectionAborted if error.to_string().contains(CUT_ALERT) => {}
            // The dispatcher may end TCP only after the agent has ended TLS.
            io::ErrorKind::UnexpectedEof => {
                self.network.violation(format!("client {} got a FIN without close_notify", self.number));
            }
            _ => self.network.violation(format!("client {}: {error:?}", self.number)),
        }
        // All that it has asked for is here.
        self.end(if matches!(self.state, State::Done) { Fate::Complete } else { Fate::Cut });
    }

    fn end(&mut self, fate: Fate) {
        self.network.note(|| format!("client {}: {fate:?}", self.number));
        self.network.count(|figures| match fate {
            Fate::Complete => figures.complete += 1,
            Fate::Cut => figures.cut += 1,
            Fate::Vanished => figures.vanished += 1,
        });
        if let Some(tls) = self.tls.take()
            && fate != Fate::Vanished
        {
            tls.into_parts().io.socket.fin_on_close();
        }
        self.fate = Some(fate);
    }
}
