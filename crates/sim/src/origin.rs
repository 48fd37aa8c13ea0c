//! An origin: it answers requests of agents, well or badly. `watari_http1::Server` frames its responses.

mod tunnel;

use std::time::Duration;

use http::header::{
    ACCEPT_RANGES, CONNECTION, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_RANGE, RANGE, UPGRADE,
};
use http::{Response, StatusCode};
use watari_http1::{ContentSize, Limits, Next, Request, Server};

use self::tunnel::{Progress, Tunnel};
use crate::network::{Network, NodeId};
use crate::resource::{Kind, Resource};
use crate::socket::Socket;

/// The longest piece of a body, in bytes.
const PIECE_LEN_MAX: u64 = 24 * 1024;

/// The field with the version of the bytes, for the client's check.
pub(crate) const VERSION: &str = "x-version";

/// How an origin behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OriginHabits {
    /// One response in so many is cut in the middle. 0: none is.
    pub(crate) cuts: u64,
    /// The longest pause between two pieces of a body, in milliseconds.
    pub(crate) pause_ms_max: u64,
    /// It sends the whole resource to requests for a range.
    pub(crate) ignores_ranges: bool,
}

pub(crate) struct Origin {
    network: Network,
    node: NodeId,
    /// Its number among the origins.
    number: u64,
    restarts: u64,
    habits: OriginHabits,
    exchanges: Vec<Exchange>,
}

/// A connection of an agent.
struct Exchange {
    socket: Socket,
    http: Server,
    input: Vec<u8>,
    output: Vec<u8>,
    work: Work,
}

/// What follows on a connection.
enum Work {
    Request,
    Response(Responding),
    Tunnel(Tunnel),
}

/// A response of which bytes are left.
struct Responding {
    resource: Resource,
    version: u64,
    position: u64,
    end: u64,
    /// Where the origin cuts it, and whether by a reset.
    cut: Option<(u64, bool)>,
    /// When the next piece is there.
    next: Duration,
}

impl Origin {
    pub(crate) fn new(network: Network, node: NodeId, (number, restarts): (u64, u64), habits: OriginHabits) -> Self {
        Self { network, node, number, restarts, habits, exchanges: Vec::new() }
    }

    pub(crate) fn accept(&mut self, socket: Socket) {
        let http = Server::new(Limits::default());
        self.exchanges.push(Exchange { socket, http, input: Vec::new(), output: Vec::new(), work: Work::Request });
    }

    /// Continues all exchanges as far as possible.
    pub(crate) fn step(&mut self) {
        let exchanges = std::mem::take(&mut self.exchanges);
        for mut exchange in exchanges {
            if self.step_one(&mut exchange) {
                self.exchanges.push(exchange);
            }
        }
    }

    /// Returns whether the connection goes on.
    fn step_one(&self, exchange: &mut Exchange) -> bool {
        loop {
            if let Work::Tunnel(_) = exchange.work {
                return self.step_tunnel(exchange);
            }
            match exchange.socket.read(4096) {
                Some(Ok(bytes)) if !bytes.is_empty() => exchange.input.extend(bytes),
                Some(_) => return false,
                None => {}
            }
            let Ok(written) = exchange.socket.write(&exchange.output) else { return false };
            exchange.output.drain(..written);
            if !exchange.output.is_empty() {
                return true;
            }
            let has_more = match std::mem::replace(&mut exchange.work, Work::Request) {
                Work::Response(responding) => self.respond(exchange, responding),
                Work::Request | Work::Tunnel(_) => self.take_request(exchange),
            };
            match has_more {
                None => return false,
                Some(false) => return true,
                Some(true) => {}
            }
        }
    }

    fn step_tunnel(&self, exchange: &mut Exchange) -> bool {
        let Exchange { socket, input, work: Work::Tunnel(tunnel), .. } = exchange else { return false };
        let pause = Duration::from_millis(self.network.random(|random| random.below(1 + tunnel.pause_ms_max())));
        match tunnel.step(&self.network, socket, input, pause) {
            Progress::Over => false,
            Progress::Waits => true,
            Progress::Pauses => {
                self.network.wake_in(self.node, pause);
                true
            }
        }
    }

    /// Returns whether there is something to write. `None`: the connection ends.
    fn take_request(&self, exchange: &mut Exchange) -> Option<bool> {
        if exchange.input.is_empty() {
            return Some(false);
        }
        let parsed = exchange.http.parse_request(&exchange.input);
        let Ok(parsed) = parsed else {
            self.network.violation("an agent sent an origin a malformed request".to_owned());
            return None;
        };
        let Some(request) = parsed else { return Some(false) };
        exchange.input.drain(..request.consumed);
        self.answer(exchange, &request)?;
        Some(true)
    }

    fn answer(&self, exchange: &mut Exchange, Request { head, .. }: &Request) -> Option<()> {
        let resource = Resource::parse(head.uri.path())?;
        if resource.kind == Kind::Tunnel {
            return self.switch(exchange, resource);
        }
        let version = resource.version_at(self.number, self.restarts);
        let range = self.range(&resource, version, &head.headers);
        let (first, end) = range.unwrap_or((0, resource.len));
        let mut response = Response::new(()).into_parts().0;
        let mut set = |name: &'static str, value: String| {
            response.headers.insert(name, HeaderValue::try_from(value).expect("digits and names"));
        };
        set(ETAG.as_str(), resource.etag(version));
        set(VERSION, version.to_string());
        set(ACCEPT_RANGES.as_str(), "bytes".to_owned());
        if range.is_some() {
            set(CONTENT_RANGE.as_str(), format!("bytes {first}-{}/{}", end - 1, resource.len));
            response.status = StatusCode::PARTIAL_CONTENT;
        }
        if resource.kind == Kind::Events {
            set(CONTENT_TYPE.as_str(), "text/event-stream".to_owned());
        }
        let size = if resource.kind.has_no_len() { ContentSize::Unknown } else { ContentSize::Known(end - first) };
        let date = HeaderValue::from_static("Wed, 25 Nov 2026 00:00:00 GMT");
        exchange.http.start_response(&response, size, &date, &mut exchange.output).ok()?;
        let cut = self.cut(first, end);
        let next = self.next_piece();
        exchange.work = Work::Response(Responding { resource, version, position: first, end, cut, next });
        Some(())
    }

    fn switch(&self, exchange: &mut Exchange, resource: Resource) -> Option<()> {
        let mut response = Response::new(()).into_parts().0;
        response.status = StatusCode::SWITCHING_PROTOCOLS;
        response.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        response.headers.insert(UPGRADE, HeaderValue::from_static("bytes"));
        let date = HeaderValue::from_static("");
        exchange.http.start_response(&response, ContentSize::None, &date, &mut exchange.output).ok()?;
        let cut = self.cut(0, resource.len).map(|(at, _)| at);
        exchange.work = Work::Tunnel(Tunnel::new(resource, std::mem::take(&mut exchange.output), cut));
        Some(())
    }

    /// Where the origin cuts a response, and whether by a reset.
    fn cut(&self, first: u64, end: u64) -> Option<(u64, bool)> {
        let OriginHabits { cuts, .. } = self.habits;
        self.network
            .random(|random| (cuts > 0 && random.one_in(cuts)).then(|| (random.within(first..end), random.one_in(2))))
    }

    /// The requested range, if it is to be sent: offsets of its first byte and of the byte behind it.
    fn range(&self, resource: &Resource, version: u64, headers: &HeaderMap) -> Option<(u64, u64)> {
        let is_same = headers.get(IF_RANGE).is_none_or(|known| known == resource.etag(version).as_str());
        if self.habits.ignores_ranges || !is_same || resource.kind.has_no_len() {
            return None;
        }
        let (first, last) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse::<u64>().ok()?);
        (first <= last && last < resource.len).then_some((first, last + 1))
    }

    /// Frames the next piece.
    fn respond(&self, exchange: &mut Exchange, mut responding: Responding) -> Option<bool> {
        if let Some((_, by_reset)) = responding.cut.filter(|(at, _)| *at == responding.position) {
            self.network.count(|figures| figures.cut_by_origins += 1);
            if !by_reset {
                exchange.socket.fin_on_close();
            }
            return None;
        }
        if self.network.now() < responding.next {
            exchange.work = Work::Response(responding);
            return Some(false);
        }
        let Responding { resource, version, position, end, cut, .. } = responding;
        if position == end {
            exchange.http.finish(None, &mut exchange.output).ok()?;
            return (exchange.http.next_exchange() == Some(Next::Idle)).then_some(true);
        }
        let stop = cut.map_or(end, |(at, _)| at);
        let len = self.network.random(|random| random.within(1..PIECE_LEN_MAX)).min(stop - position);
        let framed = exchange.http.encode(len as usize).ok()?;
        exchange.output.extend(framed.prefix());
        exchange.output.extend(resource.bytes(version, position..position + len));
        exchange.output.extend(framed.suffix);
        responding.position += len;
        responding.next = self.next_piece();
        exchange.work = Work::Response(responding);
        Some(true)
    }

    fn pause(&self) -> Duration {
        let max = self.habits.pause_ms_max;
        if max == 0 { Duration::ZERO } else { self.network.random(|random| random.millis(0..max)) }
    }

    fn next_piece(&self) -> Duration {
        let pause = self.pause();
        if !pause.is_zero() {
            self.network.wake_in(self.node, pause);
        }
        self.network.now() + pause
    }
}
