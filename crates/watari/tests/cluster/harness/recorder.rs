//! An origin that records requests byte for byte, and whose responses follow from the path.
//!
//! | path | answer |
//! | --- | --- |
//! | `/refused..` | 413, before any content is read |
//! | `/hinted..` | 103 and 104 before the content is read, 200 after it |
//! | `/continued..` | 100 before the content is read, 200 after it |
//! | `/trailers..` | 200 with a trailer |
//! | `/nothing..`, `/same..` | 204, 304 with the length of what would have been sent |
//! | any other | 200 with `ok`, or only its length |

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// It listens as long as the process lives, because a thread that waits for connections cannot be stopped.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Recorded>>>,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recorded {
    /// Up to the empty line.
    pub(crate) head: String,
    /// Without its framing.
    pub(crate) content: Vec<u8>,
    /// The lines behind the last chunk.
    pub(crate) trailers: String,
    /// Whether all of it has come.
    pub(crate) is_whole: bool,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let recorder = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = recorder.requests.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let requests = requests.clone();
                thread::spawn(move || converse(&stream.unwrap(), &requests));
            }
        });
        recorder
    }

    /// The requests so far whose target contains `part`.
    pub(crate) fn requests_with(&self, part: &str) -> Vec<Recorded> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.target().contains(part)).cloned().collect()
    }
}

impl Recorded {
    fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The values of all fields of this name.
    pub(crate) fn fields(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }
}

fn converse(stream: &TcpStream, requests: &Mutex<Vec<Recorded>>) {
    let mut reader = BufReader::new(stream);
    while let Some(head) = read_lines(&mut reader) {
        let mut request = Recorded { head, ..Recorded::default() };
        // The request is recorded when its head is complete. The rest comes later, or never.
        let number = push(requests, &request);
        let is_answered = answer_early(stream, request.target());
        if !is_answered {
            request.is_whole = read_content(&mut reader, &mut request).is_some();
        }
        let go_on = !is_answered && request.is_whole;
        let answer = answer(&request);
        requests.lock().unwrap()[number] = request;
        // A client that has closed the connection gets no response.
        if !go_on || (&*stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn push(requests: &Mutex<Vec<Recorded>>, request: &Recorded) -> usize {
    let mut requests = requests.lock().unwrap();
    requests.push(request.clone());
    requests.len() - 1
}

/// Answers a head. Returns true if the response is complete.
fn answer_early(mut stream: &TcpStream, target: &str) -> bool {
    if target.starts_with("/refused") {
        // A client that has closed the connection gets no response.
        let _ = stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        return true;
    }
    if target.starts_with("/hinted") {
        let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\nconnection: x-hop\r\nx-hop: 1\r\n\r\n";
        let resumable = "HTTP/1.1 104 Upload Resumption Supported\r\nlocation: /upload\r\n\r\n";
        let _ = stream.write_all([hints, resumable].concat().as_bytes());
    }
    if target.starts_with("/continued") {
        let _ = stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n");
    }
    false
}

fn answer(request: &Recorded) -> String {
    match request.target() {
        target if target.starts_with("/trailers") => {
            let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
            format!("{head}2\r\nok\r\n0\r\nx-sum: 42\r\ncontent-length: 9\r\n\r\n")
        }
        target if target.starts_with("/nothing") => "HTTP/1.1 204 No Content\r\n\r\n".to_owned(),
        target if target.starts_with("/same") => "HTTP/1.1 304 Not Modified\r\ncontent-length: 2\r\n\r\n".to_owned(),
        _ => {
            let content = if request.head.starts_with("HEAD ") { "" } else { "ok" };
            format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{content}")
        }
    }
}

/// Lines up to an empty one, which is left out.
fn read_lines(reader: &mut impl BufRead) -> Option<String> {
    let mut lines = String::new();
    loop {
        let line = read_line(reader)?;
        if line.is_empty() {
            return Some(lines);
        }
        lines += &line;
        lines += "\n";
    }
}

/// A line, which must end in CRLF.
fn read_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    reader.read_until(b'\n', &mut line).ok()?;
    if line.is_empty() {
        return None;
    }
    let line = String::from_utf8_lossy(&line).into_owned();
    Some(line.strip_suffix("\r\n").unwrap_or_else(|| panic!("no line: {line:?}")).to_owned())
}

/// Reads the content that the head announces. `None`: it ends early.
fn read_content(reader: &mut impl BufRead, request: &mut Recorded) -> Option<()> {
    match (&request.fields("transfer-encoding")[..], &request.fields("content-length")[..]) {
        ([], []) => Some(()),
        ([], [len]) => read_exact(reader, len.parse().unwrap(), &mut request.content),
        (["chunked"], []) => read_chunks(reader, request),
        framing => panic!("the end of this is unknown: {framing:?}"),
    }
}

fn read_chunks(reader: &mut impl BufRead, request: &mut Recorded) -> Option<()> {
    loop {
        let len = usize::from_str_radix(&read_line(reader)?, 16).unwrap();
        if len == 0 {
            request.trailers = read_lines(reader)?;
            return Some(());
        }
        read_exact(reader, len, &mut request.content)?;
        assert_eq!(read_line(reader)?, "");
    }
}

fn read_exact(reader: &mut impl BufRead, len: usize, content: &mut Vec<u8>) -> Option<()> {
    let read = reader.take(len as u64).read_to_end(content).ok()?;
    (read == len).then_some(())
}
