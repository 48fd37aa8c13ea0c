//! Arbitrary bytes of an HTTP/2 client. Any segmentation yields the same requests and the same answers, and the server
//! sends no more than the client's windows permit.

use std::time::Instant;

use http::Response;
use watari_http2::server::{Event, Limits, Server};

const LIMITS: Limits = Limits { streams_max: 4, list_len_max: 2_000, allows_protocol: true };
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

pub(crate) fn run(input: &[u8]) {
    let Some((piece, bytes)) = input.split_first() else { return };
    let whole = serve(bytes, usize::MAX);
    assert_eq!(serve(bytes, usize::from(*piece) + 1), whole);
}

/// The events of a connection that receives `bytes` behind its preface in pieces, and what it sends. Each request gets a
/// response when it is complete.
fn serve(bytes: &[u8], piece: usize) -> (Vec<String>, Vec<u8>) {
    let (now, mut out, mut events, mut content, mut held) =
        (Instant::now(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut server = Server::new(LIMITS, now, &mut out);
    for piece in [PREFACE].into_iter().chain(bytes.chunks(piece)) {
        held.extend_from_slice(piece);
        loop {
            let received = match server.receive(&held, || now, &mut out) {
                Ok(received) => received,
                Err(fault) => {
                    events.push(format!("{fault:?}"));
                    return (events, out);
                }
            };
            match received.event {
                Some(Event::Data { stream, data, ends }) => {
                    content.extend_from_slice(&held[data.clone()]);
                    server.release(stream, data.len(), &mut out);
                    if ends {
                        events.push(format!("{stream} {:?}", std::mem::take(&mut content)));
                        respond(&mut server, stream, &mut out);
                    }
                }
                Some(event) => {
                    events.push(format!("{event:?}"));
                    match event {
                        Event::Request { stream, ends: true, .. }
                        | Event::TooLong { stream }
                        | Event::Trailers { stream, .. } => respond(&mut server, stream, &mut out),
                        _ => {}
                    }
                }
                None => {}
            }
            if received.taken == 0 {
                break;
            }
            held.drain(..received.taken);
        }
    }
    (events, out)
}

/// Sends as much as the client takes, and resets the stream if that is not all.
fn respond(server: &mut Server, stream: u32, out: &mut Vec<u8>) {
    server.send_head(stream, &Response::new(()).into_parts().0, false, out);
    let len = server.capacity(stream).min(100);
    server.start_data(stream, len, len == 100, out);
    out.resize(out.len() + len, 0);
    if len < 100 {
        assert_eq!(server.capacity(stream), 0);
        server.reset(stream, watari_http2::Code::Cancel, out);
    }
}
