//! Serves HTTP/1.1 over one connection, until it ends or leaves.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::AsyncWrite;
use watari_connection::leaving::{InResponse, Leaving, Situation, Step as LeavingStep};
use watari_connection::{Broken, Connection, Departure, End, Parts};
use watari_http1::{Limits, Server};
use watari_record::AlertDescription;
use watari_stream::TlsStream;
use watari_values::{ConnectionId, NodeName};
use watari_wire::{AgentToDispatcher, Established, OPENED_LEN_MAX, TAIL_LEN_MAX};

use super::ending::Ending;
use super::open_response::{OpenResponse, OpenRest};
use super::site::SiteService;
use super::source::Departure as Leaves;
use super::tunnel::Tunnel;
use super::{About, Owned, Site, Step, name, node};
use crate::message::Message;
use crate::network::NodeId;
use crate::tls::LegStream;

/// A connection that this agent serves.
pub(crate) struct Serving {
    site: Site,
    pub(crate) about: About,
    state: State,
    leaving: Leaving,
    /// The time limit of the last step to leave.
    limit: Option<Duration>,
    /// When the end of the handshake is announced again. In `crates/agent` each new link repeats it.
    announces: Duration,
    /// How often the connection was asked to leave.
    asked: u64,
}

/// The time between two announcements.
const ANNOUNCE: Duration = Duration::from_secs(1);

/// The alert at the end of a stream that is cut.
const ALERT: AlertDescription = AlertDescription::INTERNAL_ERROR;

enum State {
    Http(Box<Connection<LegStream, SiteService>>),
    Tunnel(Box<OpenTunnel>),
    /// HTTP is over, and an alert is sent.
    Closing(Box<LegStream>),
}

/// A connection that is a tunnel.
struct OpenTunnel {
    stream: LegStream,
    service: SiteService,
    http: Server,
    tunnel: Box<Tunnel>,
}

impl Serving {
    /// Serves from the first request on.
    pub(crate) fn new(site: Site, about: About, stream: LegStream) -> Self {
        let http = Connection::new(stream, Server::new(Limits::default()), site.service());
        Self::in_state(site, about, State::Http(Box::new(http)))
    }

    /// Serves on within a response.
    pub(crate) fn within(site: Site, about: About, parts: Parts<LegStream, SiteService>) -> Self {
        let http = Connection::resume(parts);
        Self::in_state(site, about, State::Http(Box::new(http)))
    }

    /// Serves on as a tunnel.
    pub(crate) fn tunnel(site: Site, about: About, (stream, http): (LegStream, Server), tunnel: Box<Tunnel>) -> Self {
        let service = site.service();
        Self::in_state(site, about, State::Tunnel(Box::new(OpenTunnel { stream, service, http, tunnel })))
    }

    fn in_state(site: Site, about: About, state: State) -> Self {
        let leaving = Leaving::new(site.network.now().as_nanos() as u32);
        Self { site, about, state, leaving, limit: None, announces: Duration::ZERO, asked: 0 }
    }

    pub(crate) fn id(&self) -> ConnectionId {
        self.about.id
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.limit.map_or(self.announces, |limit| limit.min(self.announces))
    }

    pub(crate) fn leave(&mut self, target: NodeName) {
        self.asked += 1;
        self.leaving.on_leave(Some(target));
    }

    /// An agent has answered the preparation `number`.
    pub(crate) fn on_prepared(&mut self, from: NodeId, number: u32, is_refused: bool) {
        self.leaving.on_prepared(&name(from), number, is_refused);
    }

    /// Continues as far as possible.
    pub(super) fn step(mut self: Box<Self>, cx: &mut Context<'_>) -> Step {
        self.announce();
        let mut ended = self.poll(cx);
        if ended.is_pending() && self.leaving.is_wanted() {
            if let Some((target, how)) = self.next_target() {
                return self.depart(&target, how);
            }
            // With another pace, the connection may go on.
            ended = self.poll(cx);
        }
        match ended {
            Poll::Ready(End::Complete) => self.end(),
            Poll::Ready(End::Cut(broken)) => {
                self.site.network.note(|| format!("{} cuts {}: {broken}", self.site.node, self.about.id));
                self.cut(&broken)
            }
            Poll::Ready(End::Tunnel) => self.begin_tunnel(),
            Poll::Pending => Step::Waits(Owned::Serving(self)),
        }
    }

    /// Continues as a tunnel after its response.
    fn begin_tunnel(self) -> Step {
        let Self { site, about, state, leaving, limit, announces, asked } = self;
        let State::Http(http) = state else { return Step::Gone };
        let Parts { stream, service, http, opened, .. } = http.into_parts();
        let mut parts = stream.tls.into_parts();
        parts.opened.splice(..0, opened);
        let stream = LegStream::new(TlsStream::from_parts(parts));
        let Some(tunnel) = service.agreed.take() else { return Step::Gone };
        let state = State::Tunnel(Box::new(OpenTunnel { stream, service, http, tunnel }));
        let serving = Self { site, about, state, leaving, limit, announces, asked };
        Step::GoesOn(Owned::Serving(Box::new(serving)))
    }

    /// Ends the stream so that the client notices that it is cut.
    fn cut(self, broken: &Broken) -> Step {
        let Self { site, about, state, .. } = self;
        if let Broken::Stream(_) = broken {
            return Step::Gone;
        }
        let stream = match state {
            State::Http(http) => http.into_parts().stream,
            State::Tunnel(open) => open.stream,
            State::Closing(_) => return Step::Gone,
        };
        let mut parts = stream.tls.into_parts();
        let before = parts.connection.tx_sequence();
        if parts.connection.is_write_closed() || parts.connection.seal_alert(ALERT, &mut parts.unsent).is_err() {
            return Step::Gone;
        }
        site.ledger.seal(site.node, about.id, about.key, before..parts.connection.tx_sequence());
        let state = State::Closing(Box::new(LegStream::new(TlsStream::from_parts(parts))));
        Step::GoesOn(Owned::Serving(Box::new(Self::in_state(site, about, state))))
    }

    /// Records what was sealed since the sequence number was `before`. It counts from 0 under a new key.
    fn note_sealed(&mut self, before: u64) {
        let after = self.stream().tls.connection().tx_sequence();
        let is_new_key = after < before;
        self.about.key += u64::from(is_new_key);
        let sealed = if is_new_key { 0..after } else { before..after };
        self.site.ledger.seal(self.site.node, self.about.id, self.about.key, sealed);
    }

    fn announce(&mut self) {
        let now = self.site.network.now();
        if now >= self.announces {
            self.announces = now + ANNOUNCE;
            let established = Established { connection: self.about.id, tls: self.about.tls.clone() };
            self.site.send_to_dispatcher(AgentToDispatcher::Established(established));
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let before = self.stream().tls.connection().tx_sequence();
        let ended = self.poll_state(cx);
        self.note_sealed(before);
        ended
    }

    fn poll_state(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        match &mut self.state {
            State::Http(http) => {
                // The tail of a previous agent is sent also if nothing follows.
                let _ = Pin::new(&mut http.stream_mut().tls).poll_flush(cx);
                http.poll(cx)
            }
            State::Tunnel(open) => {
                let _ = Pin::new(&mut open.stream.tls).poll_flush(cx);
                open.tunnel.poll(&mut open.stream, cx).map(|result| match result {
                    Ok(()) => End::Complete,
                    Err(error) => End::Cut(Broken::Source(error.to_string())),
                })
            }
            State::Closing(stream) => Pin::new(&mut **stream).poll_shutdown(cx).map(|_| End::Complete),
        }
    }

    fn stream(&self) -> &LegStream {
        match &self.state {
            State::Http(http) => http.stream(),
            State::Tunnel(open) => &open.stream,
            State::Closing(stream) => stream,
        }
    }

    /// Sends `close_notify` after the last response. Then announces the end.
    fn end(self) -> Step {
        let Self { site, about, state, .. } = self;
        match state {
            State::Http(http) => {
                let state = State::Closing(Box::new(http.into_parts().stream));
                Step::GoesOn(Owned::Serving(Box::new(Self::in_state(site, about, state))))
            }
            State::Tunnel(open) => {
                let state = State::Closing(Box::new(open.stream));
                Step::GoesOn(Owned::Serving(Box::new(Self::in_state(site, about, state))))
            }
            State::Closing(stream) => {
                let parts = stream.tls.into_parts();
                // Otherwise the leg has failed.
                if parts.unsent.is_empty() {
                    Step::GoesOn(Owned::Ending(Box::new(Ending::new(site, about, parts))))
                } else {
                    Step::Gone
                }
            }
        }
    }

    /// The agent that the connection leaves for now, if it can. Otherwise does what it takes.
    fn next_target(&mut self) -> Option<(NodeName, Option<InResponse>)> {
        let now = self.site.network.now();
        if self.limit.is_some_and(|limit| limit <= now) {
            self.limit = None;
            self.leaving.on_timeout();
        }
        loop {
            let (situation, anchor) = self.situation()?;
            let step = self.leaving.next(situation);
            if let State::Http(http) = &mut self.state {
                http.set_pace(self.leaving.pace());
            }
            match step {
                LeavingStep::Serve => return None,
                LeavingStep::Report => {}
                LeavingStep::Park(target, how) => return Some((target, how)),
                LeavingStep::Prepare { target, number, rest, timeout } => {
                    let connection = self.about.id;
                    self.site.send(node(&target), &Message::Prepare { connection, number, rest, anchor });
                    self.limit = Some(now + timeout);
                }
                LeavingStep::Wait { timeout } => self.limit = Some(now + timeout),
            }
        }
    }

    /// What the connection needs to leave, and the agent that has the connection to the origin.
    fn situation(&self) -> Option<(Situation, NodeId)> {
        let (situation, anchored) = match &self.state {
            State::Http(http) => {
                let situation = Situation {
                    departure: http.departure(),
                    is_idle: http.is_idle(),
                    is_flushed: http.is_flushed(),
                    request: http.requests(),
                };
                (situation, http.responding().and_then(|responding| responding.body.anchored()))
            }
            State::Tunnel(open) => {
                let departure = if open.tunnel.can_leave() { Departure::Events } else { Departure::Response };
                // Each time that it is asked to leave, its target may be asked again.
                let situation = Situation { departure, is_idle: false, is_flushed: true, request: self.asked };
                (situation, open.tunnel.anchor().map(|(stream, _)| stream))
            }
            State::Closing(_) => return None,
        };
        Some((situation, anchored.map_or(self.site.node, |stream| node(stream.anchor()))))
    }

    /// Gives the connection away, unless too much would have to travel.
    fn depart(self, target: &NodeName, how: Option<InResponse>) -> Step {
        let Self { site, about, state, .. } = self;
        let (tls, response) = match state {
            State::Http(http) => {
                let Parts { stream, service, http, opened, unwritten, responding } = http.into_parts();
                let mut tls = stream.tls.into_parts();
                tls.opened.splice(..0, opened);
                let rest = OpenRest::Response(responding.map(Box::new));
                (tls, OpenResponse { service, http, unwritten, rest, how })
            }
            State::Tunnel(open) => {
                let OpenTunnel { stream, service, http, tunnel } = *open;
                let (unwritten, rest) = (Vec::new(), OpenRest::Tunnel(tunnel));
                (stream.tls.into_parts(), OpenResponse { service, http, unwritten, rest, how })
            }
            State::Closing(_) => return Step::Gone,
        };
        let departure = Leaves::new(site, about, tls, response);
        if departure.opened.len() > OPENED_LEN_MAX || departure.unsent.len() > TAIL_LEN_MAX {
            return Step::Waits(Owned::Serving(Box::new(departure.stay())));
        }
        Step::GoesOn(Owned::Fenced(Box::new(departure.begin(target.clone()))))
    }
}
