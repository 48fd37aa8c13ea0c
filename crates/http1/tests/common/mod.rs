//! Runs a connection on bytes of its peer, and describes what it reads.
//!
//! ```text
//! POST /a 'content' {x-sum: 1}; GET /next; close
//! 103; 200 'content'; Unsolicited
//! ```
//!
//! The last element is how the connection ends: `end` (the peer's end was expected), `close` (the rest of the input is
//! not read), `tunnel`, or a fault.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part")]
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, Request, Response};
use watari_http1::{Client, ContentSize, Decoded, Limits, Next, Server};

pub const DATE: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");

/// Serves a client that sends `input` in pieces and then ends. Each request has an empty response.
pub fn serve(input: &[u8], piece: usize) -> String {
    serve_by(input, piece, |_| {})
}

/// The same, by a server that moves before each piece.
pub fn serve_moving(input: &[u8], piece: usize) -> String {
    serve_by(input, piece, |server| {
        let mut state = Vec::new();
        server.export(&mut state);
        let moved = Server::import(&state, Limits::default()).unwrap();
        assert_eq!(moved, *server);
        *server = moved;
    })
}

/// Receives the response to a request. The server sends `input` in pieces and then ends. The method OPTIONS asks for
/// an upgrade to `x`.
pub fn receive(method: &str, input: &[u8], piece: usize) -> String {
    receive_by(method, input, piece, |_| {})
}

/// The same, by a client that moves before each piece.
pub fn receive_moving(method: &str, input: &[u8], piece: usize) -> String {
    receive_by(method, input, piece, |client| {
        let mut state = Vec::new();
        client.export(&mut state);
        let moved = Client::import(&state, Limits::default()).unwrap();
        assert_eq!(moved, *client);
        *client = moved;
    })
}

fn serve_by(input: &[u8], piece: usize, moves: impl Fn(&mut Server)) -> String {
    let (mut server, mut input, mut log) = (Server::new(Limits::default()), Input::new(input, piece), String::new());
    loop {
        moves(&mut server);
        match server.parse_request(input.seen()) {
            Ok(Some(request)) => {
                input.consume(request.consumed);
                write!(log, "{} {}", request.head.method, request.head.uri).unwrap();
            }
            Ok(None) if input.more() => continue,
            Ok(None) => return log + &end(server.end_of_input(input.seen())),
            Err(refused) => return format!("{log}{:?}", refused.fault),
        }
        let content = content(&mut input, |input| {
            moves(&mut server);
            server.decode(input).map_err(|fault| format!("{fault:?}"))
        });
        match content {
            Ok((content, true)) => log += &content,
            Ok(_) => return format!("{log} {}", end(server.end_of_input(input.seen()))),
            Err(fault) => return format!("{log} {fault}"),
        }
        let head = Response::new(()).into_parts().0;
        server.start_response(&head, ContentSize::None, &DATE, &mut Vec::new()).unwrap();
        log += "; ";
        if server.next_exchange() == Some(Next::Close) {
            return log + "close";
        }
    }
}

fn receive_by(method: &str, input: &[u8], piece: usize, moves: impl Fn(&mut Client)) -> String {
    let (mut client, mut input, mut log) = (Client::new(Limits::default()), Input::new(input, piece), String::new());
    let request = Request::builder().method(method).uri("http://a/");
    let request =
        if method == "OPTIONS" { request.header("upgrade", "x").header("connection", "upgrade") } else { request };
    let head = request.body(()).unwrap().into_parts().0;
    client.start_request(&head, ContentSize::None, &mut Vec::new()).unwrap();
    loop {
        moves(&mut client);
        match client.parse_response(input.seen()) {
            Ok(Some(response)) => {
                input.consume(response.consumed);
                write!(log, "{}", response.head.status.as_u16()).unwrap();
                if response.head.status.is_informational() && response.head.status != 101 {
                    log += "; ";
                    continue;
                }
            }
            Ok(None) if input.more() => continue,
            Ok(None) => return log + &end(client.end_of_input()),
            Err(fault) => return format!("{log}{fault:?}"),
        }
        let content = content(&mut input, |input| {
            moves(&mut client);
            client.decode(input).map_err(|fault| format!("{fault:?}"))
        });
        match content {
            Ok((content, is_end)) => match if is_end { Ok(()) } else { client.end_of_input() } {
                Ok(()) => log += &content,
                Err(fault) => return format!("{log} {fault:?}"),
            },
            Err(fault) => return format!("{log} {fault}"),
        }
        return log + "; " + &after(&mut client, &mut input);
    }
}

/// What a client finds after a response.
fn after(client: &mut Client, input: &mut Input<'_>) -> String {
    while input.more() {}
    match client.next_exchange() {
        Some(Next::Idle) => match client.parse_response(input.seen()) {
            Ok(_) => end(client.end_of_input()),
            Err(fault) => format!("{fault:?}"),
        },
        Some(Next::Close) => "close".to_owned(),
        Some(Next::Tunnel) => "tunnel".to_owned(),
        None => unreachable!("the exchange is complete"),
    }
}

fn end<E: std::fmt::Debug>(result: Result<(), E>) -> String {
    result.map_or_else(|fault| format!("{fault:?}"), |()| "end".to_owned())
}

/// Data and trailers, if there are any, and whether they are complete.
fn content(
    input: &mut Input<'_>,
    mut decode: impl FnMut(&[u8]) -> Result<Decoded, String>,
) -> Result<(String, bool), String> {
    let mut data = Vec::new();
    loop {
        let found = decode(input.seen())?;
        data.extend_from_slice(&input.seen()[found.data.clone()]);
        input.consume(found.consumed);
        let is_stuck = found.data.is_empty() && !found.is_end && !input.more();
        if found.is_end || is_stuck {
            let trailers = found.trailers.map_or(String::new(), |trailers| format!(" {{{}}}", fields(&trailers)));
            let data = if data.is_empty() { String::new() } else { format!(" '{}'", data.escape_ascii()) };
            return Ok((data + &trailers, found.is_end));
        }
    }
}

fn fields(fields: &HeaderMap) -> String {
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| format!("{name}: {}", value.as_bytes().escape_ascii())).collect();
    fields.join(", ")
}

/// Input that comes in pieces.
struct Input<'a> {
    all: &'a [u8],
    piece: usize,
    start: usize,
    end: usize,
}

impl<'a> Input<'a> {
    fn new(all: &'a [u8], piece: usize) -> Self {
        Self { all, piece, start: 0, end: 0 }
    }

    /// What has come and was not consumed.
    fn seen(&self) -> &'a [u8] {
        &self.all[self.start..self.end]
    }

    fn consume(&mut self, len: usize) {
        self.start += len;
    }

    /// Adds a piece. Returns whether there was one.
    fn more(&mut self) -> bool {
        let end = self.end.saturating_add(self.piece).min(self.all.len());
        std::mem::replace(&mut self.end, end) != end
    }
}
