//! Exports and imports the state of both sides at every byte of conversations. They continue alike.
#![allow(clippy::unwrap_used)]

use std::fmt::Write as _;

use http::{HeaderMap, HeaderValue, Request, Response};
use watari_http1::{Client, ContentSize, Limits, Next, Server};

const DATE: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");

/// Requests of a client, and responses of a server, with each kind of content.
const REQUESTS: [&str; 5] = [
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /2 HTTP/1.1\nHost: a\n\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabcHEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n3;x=y\r\nabc\r\n02 \r\nde\r\n0\r\nA: b\r\n\r\n",
    "GET /2 HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
];
const RESPONSES: [&str; 6] = [
    "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204 No Content\r\n\r\n",
    "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nabc",
    "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3;x=y\r\nabc\r\n02 \r\nde\r\n0\r\nA: b\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n",
    "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\naHTTP/1.0 200 OK\r\n\r\nabc",
    "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd",
];

fn moved_server(server: &Server) -> Server {
    let mut state = Vec::new();
    server.export(&mut state);
    let moved = Server::import(&state, Limits::default()).unwrap();
    assert_eq!(moved, *server);
    moved
}

fn moved_client(client: &Client) -> Client {
    let mut state = Vec::new();
    client.export(&mut state);
    let moved = Client::import(&state, Limits::default()).unwrap();
    assert_eq!(moved, *client);
    moved
}

/// One side of a conversation that gets a byte at a time.
struct Conversation<T> {
    side: T,
    /// Moves the side after each event.
    moves: bool,
    /// What was not consumed.
    input: Vec<u8>,
    /// What was read and written.
    log: String,
}

impl<T> Conversation<T> {
    fn new(side: T, moves: bool) -> Self {
        Self { side, moves, input: Vec::new(), log: String::new() }
    }

    fn consume(&mut self, len: usize) {
        self.input.drain(..len);
    }

    fn note(&mut self, what: &impl std::fmt::Debug) {
        writeln!(self.log, "{what:?}").unwrap();
    }
}

impl Conversation<Server> {
    fn moves(&mut self) {
        if self.moves {
            self.side = moved_server(&self.side);
        }
    }

    fn on_byte(&mut self, byte: u8) {
        self.input.push(byte);
        loop {
            self.moves();
            if !self.read() {
                return;
            }
        }
    }

    /// Reads what there is. Returns whether there may be more.
    fn read(&mut self) -> bool {
        match self.side.parse_request(&self.input) {
            Ok(Some(request)) => {
                self.note(&request.head);
                self.consume(request.consumed);
                self.respond(request.head.method == "HEAD" || request.head.uri == "/2");
            }
            Ok(None) => {}
            Err(refused) => {
                self.note(&refused);
                self.input.clear();
                self.respond(true);
            }
        }
        self.moves();
        match self.side.decode(&self.input) {
            Ok(found) => {
                let data = self.input[found.data.clone()].to_vec();
                if !data.is_empty() || found.trailers.is_some() {
                    self.note(&(data, &found.trailers));
                }
                self.consume(found.consumed);
            }
            Err(fault) => self.note(&fault),
        }
        self.moves();
        let next = self.side.next_exchange();
        if next.is_some() {
            self.note(&next);
        }
        next == Some(Next::Idle)
    }

    /// Responds in pieces, and moves between them.
    fn respond(&mut self, has_length: bool) {
        let mut out = Vec::new();
        self.moves();
        self.side.send_continue(&mut out);
        self.moves();
        let size = if has_length { ContentSize::Known(4) } else { ContentSize::Unknown };
        let head = Response::new(()).into_parts().0;
        let content = self.side.start_response(&head, size, &DATE, &mut out).unwrap();
        for piece in ["ab", "cd"].iter().filter(|_| !content.is_empty()) {
            self.moves();
            let framed = self.side.encode(piece.len()).unwrap();
            for part in [framed.prefix(), piece.as_bytes(), framed.suffix] {
                out.extend_from_slice(part);
            }
        }
        self.moves();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", DATE);
        self.side.finish(Some(&trailers), &mut out).unwrap();
        self.note(&String::from_utf8(out).unwrap());
    }
}

impl Conversation<Client> {
    fn moves(&mut self) {
        if self.moves {
            self.side = moved_client(&self.side);
        }
    }

    fn request(&mut self) {
        self.moves();
        let request = Request::put("http://a/").header("upgrade", "x").header("connection", "upgrade");
        let (head, mut out) = (request.body(()).unwrap().into_parts().0, Vec::new());
        self.side.start_request(&head, ContentSize::Known(4), &mut out).unwrap();
        for _ in 0..2 {
            self.moves();
            self.side.encode(2).unwrap();
        }
        self.moves();
        self.side.finish(None, &mut out).unwrap();
        self.note(&String::from_utf8(out).unwrap());
    }

    fn on_byte(&mut self, byte: u8) {
        if self.side.is_reusable() {
            self.request();
        }
        self.input.push(byte);
        self.moves();
        match self.side.parse_response(&self.input) {
            Ok(Some(response)) => {
                self.note(&response.head);
                self.consume(response.consumed);
            }
            Ok(None) => {}
            Err(fault) => self.note(&fault),
        }
        self.moves();
        match self.side.decode(&self.input) {
            Ok(found) => {
                let data = self.input[found.data.clone()].to_vec();
                if !data.is_empty() || found.trailers.is_some() {
                    self.note(&(data, &found.trailers));
                }
                self.consume(found.consumed);
            }
            Err(fault) => self.note(&fault),
        }
        self.moves();
        if let Some(next) = self.side.next_exchange() {
            self.note(&next);
        }
    }
}

#[test]
fn a_server_continues_after_each_byte() {
    for text in REQUESTS {
        let run = |moves| {
            let mut conversation = Conversation::new(Server::new(Limits::default()), moves);
            for byte in text.bytes() {
                conversation.on_byte(byte);
            }
            let end = conversation.side.end_of_input(&conversation.input);
            conversation.note(&end);
            conversation.log
        };
        let log = run(false);
        assert!(log.contains("200 OK"), "{log}");
        assert_eq!(run(true), log, "{text:?}");
    }
}

#[test]
fn a_client_continues_after_each_byte() {
    for text in RESPONSES {
        let run = |moves| {
            let mut conversation = Conversation::new(Client::new(Limits::default()), moves);
            for byte in text.bytes() {
                conversation.on_byte(byte);
            }
            conversation.moves();
            let end = conversation.side.end_of_input();
            let next = conversation.side.next_exchange();
            conversation.note(&(end, next));
            conversation.log
        };
        let log = run(false);
        assert!(log.contains("PUT / HTTP/1.1"), "{log}");
        assert_eq!(run(true), log, "{text:?}");
    }
}
