#![allow(clippy::unwrap_used)]

use http::{HeaderMap, Method, Response};
use proptest::prelude::*;

use super::receiving::PREFACE;
use super::*;
use crate::frames::flags;
use crate::frames::tests::frame as encoded_frame;

const LIMITS: Limits = Limits { streams_max: 4, list_len_max: 1000, allows_protocol: true };
/// `GET https://a/`, with indexed fields, and `:authority: a` without.
const GET: &[u8] = &[0x82, 0x87, 0x84, 0x01, 1, b'a'];
const POST: &[u8] = &[0x83, 0x87, 0x84, 0x01, 1, b'a'];
const ENDS: u8 = flags::END_HEADERS | flags::END_STREAM;

/// A server and what it has written.
struct Scene {
    server: Server,
    out: Vec<u8>,
    now: Instant,
}

/// How the server takes a frame of the client.
#[derive(Debug, PartialEq)]
enum Outcome {
    Nothing,
    Begun { stream: StreamId, ends: bool },
    TooLong,
    Data { len: usize, ends: bool },
    Trailers,
    Reset(StreamId),
    Window(Option<StreamId>),
    Fault(Code),
}

/// A frame of the server: type, flags, stream, payload.
type Written = (u8, u8, StreamId, Vec<u8>);

impl Scene {
    /// A connection whose preface and settings were exchanged.
    fn set() -> Self {
        Self::with_settings(&[])
    }

    fn with_settings(settings: &[(u16, u32)]) -> Self {
        let (mut out, now) = (Vec::new(), Instant::now());
        let server = Server::new(LIMITS, now, &mut out);
        let mut scene = Self { server, out, now };
        assert_eq!(scene.receive(PREFACE), Outcome::Nothing);
        let payload: Vec<u8> = settings.iter().flat_map(|(name, value)| encoded(*name, *value)).collect();
        assert_eq!(scene.frame(kind::SETTINGS, 0, 0, &payload), Outcome::Window(None));
        assert_eq!(scene.frame(kind::SETTINGS, flags::ACK, 0, &[]), Outcome::Nothing);
        let kinds: Vec<_> = scene.written().iter().map(|(kind, flags, ..)| (*kind, *flags)).collect();
        assert_eq!(kinds, [(kind::SETTINGS, 0), (kind::WINDOW_UPDATE, 0), (kind::SETTINGS, flags::ACK)]);
        scene
    }

    fn receive(&mut self, input: &[u8]) -> Outcome {
        let received = match self.server.receive(input, || self.now, &mut self.out) {
            Ok(received) => received,
            Err(fault) => return Outcome::Fault(fault.code),
        };
        assert_eq!(received.taken, input.len());
        match received.event {
            None => Outcome::Nothing,
            Some(Event::Request { stream, ends, .. }) => Outcome::Begun { stream, ends },
            Some(Event::TooLong { .. }) => Outcome::TooLong,
            Some(Event::Data { data, ends, .. }) => Outcome::Data { len: data.len(), ends },
            Some(Event::Trailers { .. }) => Outcome::Trailers,
            Some(Event::Reset { stream }) => Outcome::Reset(stream),
            Some(Event::Window { stream }) => Outcome::Window(stream),
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: StreamId, payload: &[u8]) -> Outcome {
        self.receive(&encoded_frame(kind, flags, stream, payload))
    }

    fn get(&mut self, stream: StreamId) {
        assert_eq!(self.frame(kind::HEADERS, ENDS, stream, GET), Outcome::Begun { stream, ends: true });
    }

    fn post(&mut self, stream: StreamId) {
        let begun = Outcome::Begun { stream, ends: false };
        assert_eq!(self.frame(kind::HEADERS, flags::END_HEADERS, stream, POST), begun);
    }

    /// Takes what was written.
    fn written(&mut self) -> Vec<Written> {
        let (out, mut frames, mut rest) = (std::mem::take(&mut self.out), Vec::new(), &[][..]);
        rest = if out.is_empty() { rest } else { &out };
        while let Some((header, behind)) = rest.split_first_chunk() {
            let frame = frames::parse(header);
            let (payload, behind) = behind.split_at(frame.len as usize);
            frames.push((frame.kind, frame.flags, frame.stream, payload.to_vec()));
            rest = behind;
        }
        frames
    }

    fn written_resets(&mut self) -> Vec<(StreamId, u32)> {
        let resets = self.written().into_iter().filter(|(kind, ..)| *kind == kind::RST_STREAM);
        resets.map(|(_, _, stream, code)| (stream, u32::from_be_bytes(code.try_into().unwrap()))).collect()
    }

    fn respond(&mut self, stream: StreamId, ends: bool) {
        let head = Response::new(()).into_parts().0;
        self.server.send_head(stream, &head, ends, &mut self.out);
    }
}

fn reset(code: Code) -> u32 {
    code as u32
}

#[test]
fn a_request_and_its_response() {
    let mut scene = Scene::set();
    let input = encoded_frame(kind::HEADERS, ENDS, 1, GET);
    let received = scene.server.receive(&input, || scene.now, &mut scene.out).unwrap();
    let Some(Event::Request { stream: 1, head, content_len: None, ends: true }) = received.event else { panic!() };
    assert_eq!((&head.method, head.uri.to_string().as_str()), (&Method::GET, "https://a/"));
    scene.respond(1, false);
    assert_eq!(scene.server.capacity(1), 16_384);
    scene.server.start_data(1, 5, false, &mut scene.out);
    scene.out.extend(b"hello");
    let trailers = HeaderMap::from_iter([(http::header::ETAG, http::HeaderValue::from_static("x"))]);
    scene.server.send_trailers(1, &trailers, &mut scene.out);
    let written = scene.written();
    let [head, data, trailers] = &written[..] else { panic!("{written:?}") };
    assert_eq!(*head, (kind::HEADERS, flags::END_HEADERS, 1, vec![0x88]));
    assert_eq!(*data, (kind::DATA, 0, 1, b"hello".to_vec()));
    assert_eq!((trailers.0, trailers.1), (kind::HEADERS, ENDS));
    assert_eq!((scene.server.streams(), scene.server.capacity(1)), (0, 0));
    // The functions that send do nothing for a stream that is gone.
    scene.respond(1, true);
    scene.server.reset(1, Code::Cancel, &mut scene.out);
    assert!(scene.out.is_empty());
}

#[test]
fn content_is_reported_as_it_comes() {
    let mut scene = Scene::set();
    scene.post(1);
    let input = encoded_frame(kind::DATA, flags::PADDED | flags::END_STREAM, 1, b"\x02content\0\0");
    assert!(scene.server.receive(&input[..9], || scene.now, &mut scene.out).unwrap().taken == 0);
    assert_eq!(scene.receive(&input[..13]), Outcome::Data { len: 3, ends: false });
    assert_eq!(scene.receive(&input[13..14]), Outcome::Data { len: 1, ends: false });
    assert_eq!(scene.receive(&input[14..18]), Outcome::Data { len: 3, ends: true });
    assert_eq!(scene.receive(&input[18..]), Outcome::Nothing);
    scene.get(3);
}

#[test]
fn windows_return_when_content_is_released() {
    let mut scene = Scene::set();
    scene.post(1);
    let data = encoded_frame(kind::DATA, 0, 1, &[7; 16_384]);
    for _ in 0..64 {
        assert_eq!(scene.receive(&data), Outcome::Data { len: 16_384, ends: false });
    }
    assert!(scene.written().is_empty());
    scene.server.release(1, (WINDOW / 2) as usize - 1, &mut scene.out);
    assert!(scene.out.is_empty());
    scene.server.release(1, 1, &mut scene.out);
    let update = (WINDOW / 2).to_be_bytes().to_vec();
    assert_eq!(scene.written(), [(kind::WINDOW_UPDATE, 0, 1, update.clone()), (kind::WINDOW_UPDATE, 0, 0, update)]);
    // The rest of the connection's window returns when the stream ends.
    scene.server.reset(1, Code::Cancel, &mut scene.out);
    let written = scene.written();
    assert_eq!(written[0], (kind::WINDOW_UPDATE, 0, 0, (WINDOW / 2).to_be_bytes().to_vec()));
    assert_eq!(written[1].0, kind::RST_STREAM);
    // Content that was under way returns at once.
    for _ in 0..32 {
        assert_eq!(scene.receive(&data), Outcome::Nothing);
    }
    assert_eq!(scene.written().len(), 1);
}

/// The stream has ended, and its content is not read yet.
#[test]
fn content_of_a_stream_that_has_ended_keeps_its_window() {
    let mut scene = Scene::set();
    scene.post(1);
    let data = vec![7; 16_384];
    (0..63).for_each(|_| _ = scene.frame(kind::DATA, 0, 1, &data));
    scene.frame(kind::DATA, flags::END_STREAM, 1, &data);
    scene.respond(1, true);
    assert_eq!((scene.server.streams(), scene.written().len()), (0, 1));
    scene.post(3);
    assert_eq!(scene.frame(kind::DATA, 0, 3, b"x"), Outcome::Fault(Code::FlowControlError));
    let mut scene = Scene::set();
    scene.post(1);
    scene.frame(kind::DATA, flags::END_STREAM, 1, &data);
    scene.respond(1, true);
    (0..32).for_each(|_| scene.server.release(1, 16_384, &mut scene.out));
    assert_eq!(scene.written().last().unwrap().0, kind::WINDOW_UPDATE);
}

#[test]
fn content_beyond_a_window_is_refused() {
    let mut scene = Scene::set();
    scene.post(1);
    let data = encoded_frame(kind::DATA, 0, 1, &[7; 16_384]);
    (0..64).for_each(|_| _ = scene.receive(&data));
    assert_eq!(scene.receive(&data), Outcome::Fault(Code::FlowControlError));
}

#[test]
fn content_has_its_declared_length() {
    // `content-length: 3`
    let head = [POST, &[0x0f, 28 - 15, 1, b'3']].concat();
    for (pieces, refused_at) in [
        (&[("abc", true)][..], None),
        (&[("ab", false), ("c", true)], None),
        (&[("abc", false), ("", true)], None),
        (&[("abcd", true)], Some(0)),
        (&[("ab", true)], Some(0)),
        (&[("ab", false), ("cd", false)], Some(1)),
    ] {
        let mut scene = Scene::set();
        scene.frame(kind::HEADERS, flags::END_HEADERS, 1, &head);
        for (number, (content, ends)) in pieces.iter().enumerate() {
            let flags = if *ends { flags::END_STREAM } else { 0 };
            let outcome = scene.frame(kind::DATA, flags, 1, content.as_bytes());
            if refused_at == Some(number) {
                assert_eq!(outcome, Outcome::Reset(1));
                assert_eq!(scene.written_resets(), [(1, reset(Code::ProtocolError))]);
            } else {
                assert_eq!(outcome, Outcome::Data { len: content.len(), ends: *ends });
            }
        }
    }
    let mut scene = Scene::set();
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 1, &head), Outcome::Nothing);
    assert_eq!(scene.written_resets(), [(1, reset(Code::ProtocolError))]);
}

#[test]
fn malformed_requests_reset_their_streams() {
    let field = |name: &str, value: &str| {
        [&[0, name.len() as u8][..], name.as_bytes(), &[value.len() as u8], value.as_bytes()].concat()
    };
    let behind = |name: &str, value: &str| [GET, &field(name, value)].concat();
    let cases = [
        behind("connection", "close"),
        behind("keep-alive", "1"),
        behind("proxy-connection", "close"),
        behind("transfer-encoding", "chunked"),
        behind("upgrade", "h2c"),
        behind("te", "gzip"),
        behind("Upper", "x"),
        behind("a", " x"),
        behind("a", "x\t"),
        behind("a", "x\r\ny"),
        behind("content-length", "x"),
        behind("content-length", "+1"),
        behind(":method", "GET"),
        behind(":status", "200"),
        behind(":unknown", "x"),
        [&field("a", "b"), GET].concat(),
        vec![0x82, 0x84, 0x01, 1, b'a'],
        vec![0x82, 0x87, 0x01, 1, b'a'],
        vec![0x87, 0x84, 0x01, 1, b'a'],
        [&[0x82, 0x87][..], &field(":path", "")].concat(),
        [GET, &field(":protocol", "websocket")].concat(),
        [&field(":method", "CONNECT")[..], &[0x87, 0x84, 0x01, 1, b'a']].concat(),
        field(":method", "CONNECT"),
    ];
    for block in cases {
        let mut scene = Scene::set();
        assert_eq!(scene.frame(kind::HEADERS, ENDS, 1, &block), Outcome::Nothing, "{block:?}");
        assert_eq!(scene.written_resets(), [(1, reset(Code::ProtocolError))], "{block:?}");
        scene.get(3);
    }
    for block in [
        behind("te", "trailers"),
        behind("a", ""),
        behind("content-length", "0"),
        [&field(":method", "CONNECT")[..], &field(":authority", "a:1")].concat(),
        [&field(":method", "CONNECT")[..], &[0x87, 0x84, 0x01, 1, b'a'], &field(":protocol", "websocket")].concat(),
    ] {
        let begun = Outcome::Begun { stream: 1, ends: true };
        assert_eq!(Scene::set().frame(kind::HEADERS, ENDS, 1, &block), begun, "{block:?}");
    }
}

#[test]
fn a_block_may_have_many_frames() {
    let mut scene = Scene::set();
    assert_eq!(scene.frame(kind::HEADERS, flags::END_STREAM, 1, &GET[..2]), Outcome::Nothing);
    assert_eq!(scene.frame(kind::CONTINUATION, 0, 1, &[]), Outcome::Nothing);
    let begun = Outcome::Begun { stream: 1, ends: true };
    assert_eq!(scene.frame(kind::CONTINUATION, flags::END_HEADERS, 1, &GET[2..]), begun);
    // Our blocks, too, if the client's frames are short.
    let mut head = Response::new(()).into_parts().0;
    let value = http::HeaderValue::from_bytes(&vec![b'~'; 40_000]).unwrap();
    head.headers.insert("long", value);
    scene.server.send_head(1, &head, true, &mut scene.out);
    let frames: Vec<_> =
        scene.written().into_iter().map(|(kind, flags, _, payload)| (kind, flags, payload.len())).collect();
    assert_eq!(frames[0], (kind::HEADERS, flags::END_STREAM, 16_384));
    assert_eq!(frames[1], (kind::CONTINUATION, 0, 16_384));
    assert_eq!((frames[2].0, frames[2].1, frames.len()), (kind::CONTINUATION, flags::END_HEADERS, 3));
}

/// The client reduces its table: the encoder has to answer (RFC 7541, section 4.2).
#[test]
fn a_reduced_table_is_acknowledged() {
    let mut scene = Scene::with_settings(&[(setting::HEADER_TABLE_SIZE, 0)]);
    scene.get(1);
    scene.get(3);
    scene.respond(1, true);
    scene.respond(3, true);
    let blocks: Vec<_> = scene.written().into_iter().map(|(.., block)| block).collect();
    assert_eq!(blocks, [vec![0x20, 0x88], vec![0x88]]);
}

#[test]
fn long_heads_and_many_streams_are_refused() {
    let mut scene = Scene::set();
    let long = [GET, &[0, 1, b'a', 0x7f, 0xe9, 0x06], &[b'x'; 1000]].concat();
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 1, &long), Outcome::TooLong);
    scene.respond(1, true);
    for stream in [3, 5, 7, 9] {
        scene.get(stream);
    }
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 11, GET), Outcome::Nothing);
    assert_eq!(scene.written_resets(), [(11, reset(Code::RefusedStream))]);
    scene.respond(3, true);
    scene.get(13);
    assert_eq!(scene.frame(kind::HEADERS, 0, 15, GET), Outcome::Nothing);
    let end = (0..1_000)
        .map(|_| scene.frame(kind::CONTINUATION, 0, 15, &[0x82; 1000]))
        .find(|outcome| *outcome != Outcome::Nothing);
    assert_eq!(end, Some(Outcome::Fault(Code::EnhanceYourCalm)));
}

#[test]
fn a_window_of_the_client_bounds_the_content() {
    let mut scene = Scene::with_settings(&[(setting::INITIAL_WINDOW_SIZE, 10), (setting::MAX_FRAME_SIZE, 20_000)]);
    scene.get(1);
    scene.respond(1, false);
    assert_eq!(scene.server.capacity(1), 10);
    scene.server.start_data(1, 10, false, &mut scene.out);
    assert_eq!(scene.server.capacity(1), 0);
    // The window becomes negative.
    let smaller = encoded(setting::INITIAL_WINDOW_SIZE, 4);
    assert_eq!(scene.frame(kind::SETTINGS, 0, 0, &smaller), Outcome::Window(None));
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 1, &6_u32.to_be_bytes()), Outcome::Nothing);
    assert_eq!(scene.server.capacity(1), 0);
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 1, &100_000_u32.to_be_bytes()), Outcome::Window(Some(1)));
    assert_eq!(scene.server.capacity(1), 16_384);
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes()), Outcome::Nothing);
    // The connection has 65,535 bytes in all.
    for len in [16_384, 16_384, 16_384, 16_373] {
        assert_eq!(scene.server.capacity(1), len);
        scene.server.start_data(1, len, false, &mut scene.out);
    }
    assert_eq!(scene.server.capacity(1), 0);
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), Outcome::Window(None));
    assert_eq!(scene.server.capacity(1), 1);
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 1, &(1_u32 << 31).to_be_bytes()), Outcome::Reset(1));
    let larger = STREAM_MAX.to_be_bytes();
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 0, &larger), Outcome::Fault(Code::FlowControlError));
}

/// RFC 9113, section 5.1.
#[test]
fn frames_on_streams_that_have_ended() {
    // Reset here: the client may not know.
    let mut scene = Scene::set();
    scene.post(1);
    scene.server.reset(1, Code::Cancel, &mut scene.out);
    scene.written();
    assert_eq!(scene.frame(kind::DATA, 0, 1, b"late"), Outcome::Nothing);
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 1, GET), Outcome::Nothing);
    assert_eq!(scene.frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), Outcome::Nothing);
    assert_eq!(scene.frame(kind::RST_STREAM, 0, 1, &[0; 4]), Outcome::Nothing);
    assert!(scene.out.is_empty());
    // Reset by the client.
    scene.post(3);
    assert_eq!(scene.frame(kind::RST_STREAM, 0, 3, &[0; 4]), Outcome::Reset(3));
    assert_eq!(scene.frame(kind::DATA, 0, 3, b"wrong"), Outcome::Nothing);
    assert_eq!(scene.written_resets(), [(3, reset(Code::StreamClosed))]);
    // The request is complete.
    scene.get(5);
    assert_eq!(scene.frame(kind::DATA, 0, 5, b"wrong"), Outcome::Reset(5));
    assert_eq!(scene.written_resets(), [(5, reset(Code::StreamClosed))]);
    // Both sides have ended.
    scene.get(7);
    scene.respond(7, true);
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 7, GET), Outcome::Fault(Code::StreamClosed));
    // It was never used.
    let mut scene = Scene::set();
    scene.get(5);
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 3, GET), Outcome::Fault(Code::ProtocolError));
}

#[test]
fn frames_that_end_the_connection() {
    for (kind, flags, stream, payload, code) in [
        (kind::DATA, 0, 0, &b"x"[..], Code::ProtocolError),
        (kind::DATA, 0, 1, b"x", Code::ProtocolError),
        (kind::DATA, flags::PADDED, 1, &[], Code::FrameSizeError),
        (kind::DATA, flags::PADDED, 1, &[1], Code::ProtocolError),
        (kind::HEADERS, ENDS, 0, GET, Code::ProtocolError),
        (kind::HEADERS, ENDS, 2, GET, Code::ProtocolError),
        (kind::HEADERS, ENDS | flags::PADDED, 1, &[9, 0x82], Code::ProtocolError),
        (kind::HEADERS, ENDS | flags::PRIORITY, 1, &[0; 4], Code::FrameSizeError),
        (kind::HEADERS, ENDS, 1, &[0x80], Code::CompressionError),
        (kind::PRIORITY, 0, 0, &[0; 5], Code::ProtocolError),
        (kind::RST_STREAM, 0, 1, &[0; 4], Code::ProtocolError),
        (kind::RST_STREAM, 0, 1, &[0; 5], Code::FrameSizeError),
        (kind::SETTINGS, 0, 1, &[], Code::ProtocolError),
        (kind::SETTINGS, 0, 0, &[0; 5], Code::FrameSizeError),
        (kind::SETTINGS, flags::ACK, 0, &[0; 6], Code::FrameSizeError),
        (kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2], Code::ProtocolError),
        (kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0], Code::FlowControlError),
        (kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff], Code::ProtocolError),
        (kind::PUSH_PROMISE, 0, 1, &[0; 4], Code::ProtocolError),
        (kind::PING, 0, 1, &[0; 8], Code::ProtocolError),
        (kind::PING, 0, 0, &[0; 7], Code::FrameSizeError),
        (kind::GOAWAY, 0, 1, &[0; 8], Code::ProtocolError),
        (kind::GOAWAY, 0, 0, &[0; 7], Code::FrameSizeError),
        (kind::WINDOW_UPDATE, 0, 0, &[0; 4], Code::ProtocolError),
        (kind::WINDOW_UPDATE, 0, 0, &[0; 3], Code::FrameSizeError),
        (kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1], Code::ProtocolError),
        (kind::CONTINUATION, 0, 1, &[], Code::ProtocolError),
        (kind::PING, 0, 0, &vec![0; 16_385], Code::FrameSizeError),
    ] {
        let mut scene = Scene::set();
        assert_eq!(scene.frame(kind, flags, stream, payload), Outcome::Fault(code), "type {kind}, {payload:?}");
        let written = scene.written();
        let (kind, .., payload) = written.last().unwrap();
        assert_eq!((*kind, &payload[4..]), (kind::GOAWAY, &(code as u32).to_be_bytes()[..]));
    }
    let mut scene = Scene::set();
    scene.frame(kind::HEADERS, 0, 1, GET);
    assert_eq!(scene.frame(kind::PING, 0, 0, &[0; 8]), Outcome::Fault(Code::ProtocolError));
    let (mut out, now) = (Vec::new(), Instant::now());
    let receive = |input: &[u8], out: &mut Vec<u8>| {
        Server::new(LIMITS, now, out).receive(input, || now, out).map(|received| received.taken)
    };
    assert_eq!(receive(b"GET / HTTP/1.1\r\n\r\n", &mut out).unwrap_err().code, Code::ProtocolError);
    assert_eq!(receive(&PREFACE[..10], &mut out), Ok(0));
}

#[test]
fn frames_that_are_answered_or_ignored() {
    let mut scene = Scene::set();
    assert_eq!(scene.frame(kind::PING, 0, 0, b"12345678"), Outcome::Nothing);
    assert_eq!(scene.written(), [(kind::PING, flags::ACK, 0, b"12345678".to_vec())]);
    scene.server.ping(&mut scene.out);
    assert_eq!(scene.frame(kind::PING, flags::ACK, 0, &PING), Outcome::Nothing);
    scene.written();
    assert_eq!(scene.frame(kind::GOAWAY, 0, 0, &[0; 9]), Outcome::Nothing);
    assert_eq!(scene.frame(0xfe, 0xff, 77, b"unknown"), Outcome::Nothing);
    assert_eq!(scene.frame(kind::PRIORITY, 0, 77, &[0, 0, 0, 1, 5]), Outcome::Nothing);
    assert!(scene.out.is_empty());
    for (payload, code) in [(&[0, 0, 0, 5, 5][..], Code::ProtocolError), (&[0; 4], Code::FrameSizeError)] {
        let mut scene = Scene::set();
        scene.get(5);
        assert_eq!(scene.frame(kind::PRIORITY, 0, 5, payload), Outcome::Reset(5));
        assert_eq!(scene.written_resets(), [(5, reset(code))]);
        assert_eq!(scene.frame(kind::PRIORITY, 0, 5, payload), Outcome::Nothing);
        assert_eq!(scene.written_resets(), [(5, reset(code))]);
        // RST_STREAM is not for streams that have not begun (RFC 9113, section 6.4).
        assert!(matches!(scene.frame(kind::PRIORITY, 0, 7, &[0; 4]), Outcome::Fault(_)));
    }
}

#[test]
fn a_shutdown_lets_streams_end() {
    let mut scene = Scene::set();
    scene.get(1);
    scene.server.shut_down(&mut scene.out);
    scene.server.shut_down(&mut scene.out);
    let written = scene.written();
    assert_eq!(written.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), [kind::GOAWAY, kind::PING]);
    assert_eq!(written[0].3, [STREAM_MAX.to_be_bytes(), [0; 4]].concat());
    // The client has not seen it yet.
    scene.post(3);
    assert_eq!(scene.frame(kind::PING, flags::ACK, 0, &SHUTDOWN_PING), Outcome::Nothing);
    assert_eq!(scene.written()[0].3, [3_u32.to_be_bytes(), [0; 4]].concat());
    // Later streams are ignored. The table of the decoder is not.
    let block = [GET, &[0x40, 1, b'a', 1, b'b']].concat();
    assert_eq!(scene.frame(kind::HEADERS, flags::END_HEADERS, 5, &block), Outcome::Nothing);
    assert_eq!(scene.frame(kind::DATA, 0, 5, b"ignored"), Outcome::Nothing);
    assert_eq!(scene.frame(kind::HEADERS, ENDS, 5, &[0x80 | 0x3e]), Outcome::Nothing);
    assert_eq!(scene.frame(kind::RST_STREAM, 0, 7, &[0; 4]), Outcome::Nothing);
    scene.respond(1, true);
    assert!(!scene.server.is_over());
    assert_eq!(scene.frame(kind::DATA, flags::END_STREAM, 3, b"all"), Outcome::Data { len: 3, ends: true });
    scene.respond(3, true);
    assert!(scene.server.is_over());
}

/// A client begins streams and has them reset (CVE-2025-8671).
#[test]
fn streams_that_a_client_has_reset_are_counted() {
    for (kind, payload) in [(kind::WINDOW_UPDATE, &[0; 4][..]), (kind::DATA, b"late")] {
        let mut scene = Scene::set();
        let refused = (0..5_000).find(|number| {
            let stream = 1 + 2 * number;
            let begun = scene.frame(kind::HEADERS, ENDS, stream, GET);
            let outcomes = [begun, scene.frame(kind, 0, stream, payload)];
            outcomes.contains(&Outcome::Fault(Code::EnhanceYourCalm))
        });
        assert!(refused.is_some_and(|number| number < 700), "{refused:?} streams");
    }
}

/// Content that breaks its declared length returns its window once.
#[test]
fn a_window_returns_once() {
    let mut scene = Scene::set();
    let head = [POST, &[0x0f, 28 - 15, 1, b'3']].concat();
    for number in 0..31 {
        let stream = 1 + 2 * number;
        scene.frame(kind::HEADERS, flags::END_HEADERS, stream, &head);
        assert_eq!(scene.frame(kind::DATA, 0, stream, &[7; 16_384]), Outcome::Reset(stream));
    }
    assert!(scene.written().iter().all(|(kind, ..)| *kind != kind::WINDOW_UPDATE));
}

#[test]
fn floods_end_the_connection() {
    let mut scene = Scene::set();
    let outcome = (0..20_000)
        .map(|_| scene.frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]))
        .find(|outcome| *outcome != Outcome::Nothing);
    assert_eq!(outcome, Some(Outcome::Fault(Code::EnhanceYourCalm)));
}

#[test]
fn trailers() {
    for (fields, ends, expected) in [
        (&[0_u8, 1, b'a', 1, b'b'][..], true, Outcome::Trailers),
        (&[0, 1, b'a', 1, b'b'], false, Outcome::Reset(1)),
        (&[0x84], true, Outcome::Reset(1)),
        (&[0, 1, b'A', 1, b'b'], true, Outcome::Reset(1)),
    ] {
        let mut scene = Scene::set();
        scene.post(1);
        let flags = if ends { ENDS } else { flags::END_HEADERS };
        assert_eq!(scene.frame(kind::HEADERS, flags, 1, fields), expected, "{fields:?}");
    }
}

proptest! {
    /// Any frames are taken or refused, wherever reads end, with the same events and answers.
    #[test]
    fn any_frames_are_taken_or_refused(
        frames in prop::collection::vec(
            (0_u8..11, any::<u8>(), 0_u32..9, prop_oneof![
                prop::collection::vec(any::<u8>(), 0..12),
                Just(GET.to_vec()),
                Just(POST.to_vec()),
                Just(vec![0, 0, 0, 9]),
            ]),
            1..30,
        ),
        cuts in prop::collection::vec(1_usize..40, 1..20),
    ) {
        let bytes: Vec<u8> =
            frames.iter().flat_map(|(kind, flags, stream, payload)| encoded_frame(*kind, *flags, *stream, payload)).collect();
        let whole = run(&bytes, &[bytes.len()]);
        prop_assert_eq!(run(&bytes, &cuts), whole);
    }
}

/// The events and answers of a connection that receives these bytes, with reads of these lengths. Content is joined.
fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let mut scene = Scene::set();
    let (mut events, mut content, mut held, mut rest) = (Vec::new(), Vec::new(), Vec::new(), bytes);
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, behind) = rest.split_at((*cut).min(rest.len()));
        held.extend_from_slice(piece);
        rest = behind;
        loop {
            let received = match scene.server.receive(&held, || scene.now, &mut scene.out) {
                Ok(received) => received,
                Err(fault) => {
                    events.push(format!("{fault:?}"));
                    return (events, scene.out);
                }
            };
            match received.event {
                Some(Event::Data { stream, data, ends }) => {
                    content.extend_from_slice(&held[data]);
                    if ends {
                        events.push(format!("{stream} {:?}", std::mem::take(&mut content)));
                    }
                }
                Some(event) => events.push(format!("{event:?}")),
                None => {}
            }
            if received.taken == 0 {
                break;
            }
            held.drain(..received.taken);
        }
    }
    (events, scene.out)
}
