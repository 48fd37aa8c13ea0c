//! An origin whose responses follow from a function of the request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use watari_wire::proxy::{self, Header};

use crate::harness::pattern::pattern;

/// The most bytes of one write.
const WRITE_LEN: u64 = 64 << 10;

/// It listens as long as the process lives, because a thread that waits for connections cannot be stopped.
#[derive(Clone)]
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request as it came.
#[derive(Debug, Clone, Default)]
pub(crate) struct Asked {
    /// Up to the empty line.
    pub(crate) head: String,
    pub(crate) content: Vec<u8>,
    /// The number of requests with this target before this one.
    pub(crate) earlier: usize,
    /// The address that the client connected to, if a PROXY protocol header says so.
    pub(crate) server: Option<SocketAddr>,
}

/// A response.
pub(crate) struct Reply {
    /// With the empty line behind it.
    head: String,
    content: Content,
    closes: bool,
}

pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// This range of the pattern of a seed.
    Pattern(u64, Range<u64>),
    /// The same, as far as the gate lets it.
    Gated(u64, Range<u64>, Gate),
    /// The pattern of a seed, without an end.
    Endless(u64),
}

/// How many bytes of a response may leave the origin.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<u64>, Condvar)>);

impl Script {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let script = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let (asked, answer) = (script.asked.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (asked, answer) = (asked.clone(), answer.clone());
                thread::spawn(move || converse(&stream.unwrap(), &asked, &*answer));
            }
        });
        script
    }

    /// The requests so far for this target.
    pub(crate) fn asked(&self, target: &str) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.target() == target).cloned().collect()
    }

    /// The number of requests so far for this target.
    pub(crate) fn count(&self, target: &str) -> usize {
        self.asked(target).len()
    }

    /// The number of all requests so far.
    pub(crate) fn total(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

impl Asked {
    pub(crate) fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    pub(crate) fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// The value of the first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The requested range of a content of `len` bytes, if the request names the current version.
    fn range(&self, len: u64, etag: &str) -> Option<Range<u64>> {
        if self.field("if-range").is_some_and(|version| version != etag) {
            return None;
        }
        let (first, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (first.parse::<u64>().ok()?, last.parse().unwrap_or(len - 1));
        (first < len).then(|| first..(last + 1).min(len))
    }
}

impl Reply {
    /// 200 with these lines of the head, each with its line end, and this content.
    pub(crate) fn ok(lines: &str, content: impl Into<Vec<u8>>) -> Self {
        Self::status("200 OK", lines, content)
    }

    pub(crate) fn status(status: &str, lines: &str, content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        let head = format!("HTTP/1.1 {status}\r\n{lines}content-length: {}\r\n\r\n", content.len());
        Self { head, content: Content::Bytes(content), closes: false }
    }

    /// These bytes, and then the end of the connection.
    pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { head: String::new(), content: Content::Bytes(bytes.into()), closes: true }
    }

    /// A head with its empty line, and content that the end of the connection delimits.
    pub(crate) fn until_close(head: impl Into<String>, content: Content) -> Self {
        Self { head: head.into(), content, closes: true }
    }

    /// The response of an origin with conditions and ranges, for the pattern of `seed`.
    pub(crate) fn object(asked: &Asked, seed: u64, len: u64, etag: &str, lines: &str) -> Self {
        let lines = format!("etag: {etag}\r\naccept-ranges: bytes\r\n{lines}");
        if asked.field("if-none-match").is_some_and(|tags| tags == etag) {
            let head = format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n");
            return Self { head, content: Content::Bytes(Vec::new()), closes: false };
        }
        let range = asked.range(len, etag);
        let status = match &range {
            Some(Range { start, end }) => {
                format!("206 Partial Content\r\ncontent-range: bytes {start}-{}/{len}", end - 1)
            }
            None => "200 OK".to_owned(),
        };
        let range = range.unwrap_or(0..len);
        let head = format!("HTTP/1.1 {status}\r\n{lines}content-length: {}\r\n\r\n", range.end - range.start);
        Self { head, content: Content::Pattern(seed, range), closes: false }
    }

    /// The same response, and bytes behind it.
    pub(crate) fn followed_by(mut self, surplus: &str) -> Self {
        if let Content::Bytes(bytes) = &mut self.content {
            bytes.extend_from_slice(surplus.as_bytes());
        }
        self
    }

    /// The same response, whose content waits at a gate.
    pub(crate) fn behind(self, gate: &Gate) -> Self {
        let content = match self.content {
            Content::Pattern(seed, range) => Content::Gated(seed, range, gate.clone()),
            content => content,
        };
        Self { content, ..self }
    }
}

impl Gate {
    /// Lets so many bytes of each response pass.
    pub(crate) fn open(&self, len: u64) {
        *self.0.0.lock().unwrap() = len;
        self.0.1.notify_all();
    }

    pub(crate) fn wait_until_open(&self) {
        self.wait(0);
    }

    /// Waits until more than `sent` bytes may pass. Returns their number.
    fn wait(&self, sent: u64) -> u64 {
        *self.0.1.wait_while(self.0.0.lock().unwrap(), |open| *open <= sent).unwrap()
    }
}

fn converse(stream: &TcpStream, asked: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Reply) {
    let mut reader = BufReader::new(stream);
    let server = read_proxy_header(&mut reader);
    while let Some(mut request) = read(&mut reader) {
        request.server = server;
        {
            let mut asked = asked.lock().unwrap();
            request.earlier = asked.iter().filter(|earlier| earlier.target() == request.target()).count();
            asked.push(request.clone());
        }
        let reply = answer(&request);
        let has_content = request.method() != "HEAD";
        // A client that has closed the connection gets no response.
        if send(stream, &reply, has_content).is_err() || reply.closes {
            return;
        }
    }
}

/// Sends the head together with the first content, unless that waits for a gate: the agent has short responses at once.
fn send(mut stream: &TcpStream, reply: &Reply, has_content: bool) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut unsent = reply.head.clone().into_bytes();
    let (seed, mut range, gate) = match &reply.content {
        _ if !has_content => return stream.write_all(&unsent),
        Content::Bytes(bytes) => {
            unsent.extend_from_slice(bytes);
            return stream.write_all(&unsent);
        }
        Content::Pattern(seed, range) => (*seed, range.clone(), None),
        Content::Gated(seed, range, gate) => (*seed, range.clone(), Some(gate)),
        Content::Endless(seed) => (*seed, 0..u64::MAX, None),
    };
    if gate.is_some() || range.is_empty() {
        stream.write_all(&unsent)?;
        unsent.clear();
    }
    let start = range.start;
    while !range.is_empty() {
        let open = gate.map_or(u64::MAX, |gate| start.saturating_add(gate.wait(range.start - start)));
        let end = range.end.min(open).min(range.start + WRITE_LEN);
        unsent.extend_from_slice(&pattern(seed, range.start..end));
        stream.write_all(&unsent)?;
        unsent.clear();
        range.start = end;
    }
    Ok(())
}

/// The server's address in a PROXY protocol header of version 2. `None`: the connection begins with a request.
fn read_proxy_header(reader: &mut impl BufRead) -> Option<SocketAddr> {
    // No request begins with an empty line here.
    if reader.fill_buf().ok()?.first() != Some(&b'\r') {
        return None;
    }
    let mut bytes = vec![0; 16];
    reader.read_exact(&mut bytes).ok()?;
    let len = 16 + usize::from(u16::from_be_bytes([bytes[14], bytes[15]]));
    bytes.resize(len, 0);
    reader.read_exact(&mut bytes[16..]).ok()?;
    match proxy::parse(&bytes, len).unwrap()?.0 {
        Header::Tcp { server, .. } => Some(server),
        Header::Local | Header::Unspecified => None,
    }
}

fn read(reader: &mut impl BufRead) -> Option<Asked> {
    let mut request = Asked::default();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end() {
            "" if line.is_empty() => return None,
            "" => break,
            line => request.head.extend([line, "\n"]),
        }
    }
    let len = request.field("content-length").map_or(0, |len| len.parse().unwrap());
    assert!(request.field("transfer-encoding").is_none(), "the script reads no chunks: {}", request.head);
    reader.take(len).read_to_end(&mut request.content).ok()?;
    Some(request)
}
