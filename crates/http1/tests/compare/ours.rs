//! Reads with this crate.

use http::{HeaderValue, Request, Response};
use watari_http1::{Client, Content, ContentFault, ContentSize, Decoded, Framed, Limits, Misuse, Next, Server};

use super::{Fault, Message, Outcome, Written};

/// A server that reads each request with its content, and responds without content.
pub(super) fn requests(input: &[u8]) -> Outcome<Fault> {
    let (mut server, mut at, mut messages) = (Server::new(Limits::default()), 0, Vec::new());
    let end = loop {
        match request(&mut server, &input[at..]) {
            Ok(Some((message, consumed))) => {
                messages.push(message);
                at += consumed;
            }
            Ok(None) => break server.end_of_input(&input[at..]).map_err(|_| Fault::Truncated),
            Err(fault) => break Err(fault),
        }
        if server.next_exchange() == Some(Next::Close) {
            break Ok(());
        }
    };
    Outcome { messages, end }
}

fn request(server: &mut Server, input: &[u8]) -> Result<Option<(Message, usize)>, Fault> {
    let request = server.parse_request(input).map_err(|refused| Fault::Request(refused.fault))?;
    let Some(request) = request else { return Ok(None) };
    let start = format!("{} {}", request.head.method, request.head.uri);
    let mut message = Message::new(start, request.head.version, &request.head.headers);
    let rest = &input[request.consumed..];
    let (consumed, is_end) = content(&mut message, rest, |input| server.decode(input))?;
    if !is_end {
        return Err(Fault::Truncated);
    }
    let head = Response::new(()).into_parts().0;
    server.start_response(&head, ContentSize::None, &DATE, &mut Vec::new()).unwrap();
    Ok(Some((message, request.consumed + consumed)))
}

/// A client that reads the response to one request. What follows the response is not read.
pub(super) fn response(is_head: bool, input: &[u8]) -> Outcome<Fault> {
    let mut messages = Vec::new();
    let end = read_response(is_head, input).map(|message| messages.push(message));
    Outcome { messages, end }
}

fn read_response(is_head: bool, input: &[u8]) -> Result<Message, Fault> {
    let (mut client, mut at) = (Client::new(Limits::default()), 0);
    let request = Request::builder().method(if is_head { "HEAD" } else { "GET" }).uri("http://a/");
    let head = request.body(()).unwrap().into_parts().0;
    client.start_request(&head, ContentSize::None, &mut Vec::new()).unwrap();
    let head = loop {
        let response = client.parse_response(&input[at..]).map_err(Fault::Response)?.ok_or(Fault::Truncated)?;
        at += response.consumed;
        if !response.head.status.is_informational() {
            break response.head;
        }
    };
    let mut message = Message::new(head.status.as_str().to_owned(), head.version, &head.headers);
    let (_, is_end) = content(&mut message, &input[at..], |input| client.decode(input))?;
    if !is_end {
        client.end_of_input().map_err(|_| Fault::Truncated)?;
    }
    Ok(message)
}

/// The bytes of a request, and how its content is framed.
pub(super) fn write_request(method: &str, written: &Written) -> (Vec<u8>, Content) {
    let (mut client, mut out) = (Client::new(Limits::default()), Vec::new());
    let mut head = Request::builder().method(method).uri("http://a/b?c").body(()).unwrap().into_parts().0;
    head.headers = written.fields();
    let content = client.start_request(&head, written.size(), &mut out).unwrap();
    write_content(written, &mut out, |len| client.encode(len));
    client.finish(Some(&written.trailers()), &mut out).unwrap();
    (out, content)
}

/// The bytes of a response, and how its content is framed.
pub(super) fn write_response(status: u16, is_head: bool, written: &Written) -> (Vec<u8>, Content) {
    let (mut server, mut out) = (Server::new(Limits::default()), Vec::new());
    let method = if is_head { "HEAD" } else { "GET" };
    server.parse_request(format!("{method} / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n").as_bytes()).unwrap();
    let mut head = Response::builder().status(status).body(()).unwrap().into_parts().0;
    head.headers = written.fields();
    let content = server.start_response(&head, written.size(), &DATE, &mut out).unwrap();
    if content != Content::None {
        write_content(written, &mut out, |len| server.encode(len));
    }
    server.finish(Some(&written.trailers()), &mut out).unwrap();
    (out, content)
}

fn write_content(written: &Written, out: &mut Vec<u8>, mut encode: impl FnMut(usize) -> Result<Framed, Misuse>) {
    for piece in &written.pieces {
        let framed = encode(piece.len()).unwrap();
        for part in [framed.prefix(), piece, framed.suffix] {
            out.extend_from_slice(part);
        }
    }
}

const DATE: HeaderValue = HeaderValue::from_static("Thu, 01 Jan 1970 00:00:00 GMT");

/// Reads content. Returns the number of consumed bytes, and whether the content is complete.
fn content(
    message: &mut Message,
    input: &[u8],
    mut decode: impl FnMut(&[u8]) -> Result<Decoded, ContentFault>,
) -> Result<(usize, bool), Fault> {
    let mut at = 0;
    loop {
        let found = decode(&input[at..]).map_err(Fault::Content)?;
        message.content.extend_from_slice(&input[at..][found.data.clone()]);
        at += found.consumed;
        if let Some(trailers) = found.trailers {
            message.set_trailers(&trailers);
        }
        if found.is_end || found.data.is_empty() {
            return Ok((at, found.is_end));
        }
    }
}
