//! A blocking client that returns the answer with as little parsing as possible.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any answer takes that arrives at all.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// The longest accepted head, in bytes.
const HEAD_LEN_MAX: usize = 256 * 1024;

/// A body crawls if it brings less than this in a read timeout, in bytes.
const CRAWL_LEN_MIN: usize = 1000;

/// The answer, up to the end of the connection.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The status of the last head; interim heads are skipped.
    pub status: u16,
    /// Names in lower case, in the order in which they came.
    pub fields: Vec<(String, String)>,
    /// All bytes behind the head, with framing and surplus.
    pub body: Vec<u8>,
    pub end: End,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// By a FIN.
    #[default]
    Closed,
    /// By a RST.
    Reset,
    /// Not at all, and nothing more came.
    Silent,
}

impl Answer {
    /// The value of the first field of this name, which is in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// How often a field of this name came.
    pub fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(candidate, _)| candidate == name).count()
    }
}

/// Sends one request on a connection of its own, with `Host` and `Connection: close`, and reads until the connection
/// ends.
///
/// # Errors
/// There is no connection, or the answer is not HTTP or does not come in time.
pub fn ask(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> io::Result<Answer> {
    ask_within(WAIT_MAX, address, method, target, fields)
}

/// As [`ask`], but stops reading a body after a silence of this length.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(
    timeout: Duration,
    address: SocketAddr,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> io::Result<Answer> {
    RunningResponse::ask(timeout, address, method, target, fields)?.end()
}

/// An answer whose head has arrived.
#[derive(Debug)]
pub struct RunningResponse {
    /// With the part of the body that came with the head.
    answer: Answer,
    socket: TcpStream,
}

impl RunningResponse {
    /// As [`ask`], but leaves the rest of the body unread for now.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn get(address: SocketAddr, target: &str) -> io::Result<Self> {
        Self::ask(WAIT_MAX, address, "GET", target, &[])
    }

    /// Reads until the connection ends or crawls: hardly any bytes come in a read timeout.
    ///
    /// # Errors
    /// The connection fails in a way that [`End`] does not have.
    pub fn end(mut self) -> io::Result<Answer> {
        self.answer.end = loop {
            match self.read_for_a_while().map_err(|error| error.kind()) {
                Ok(CRAWL_LEN_MIN..) => {}
                Ok(0) => break End::Closed,
                Ok(_) | Err(ErrorKind::WouldBlock) => break End::Silent,
                Err(ErrorKind::ConnectionReset) => break End::Reset,
                Err(kind) => return Err(kind.into()),
            }
        };
        Ok(self.answer)
    }

    /// Reads for the read timeout, or until `CRAWL_LEN_MIN` bytes have come. Returns their number, which is 0 only at
    /// the end.
    fn read_for_a_while(&mut self) -> io::Result<usize> {
        let (begun, timeout) = (Instant::now(), self.socket.read_timeout()?.unwrap_or(WAIT_MAX));
        let (mut buffer, mut len) = ([0; 16 * 1024], 0);
        while len < CRAWL_LEN_MIN && begun.elapsed() < timeout {
            let read = self.socket.read(&mut buffer)?;
            self.answer.body.extend_from_slice(&buffer[..read]);
            len += read;
            if read == 0 {
                return Ok(0);
            }
        }
        Ok(len)
    }

    fn ask(
        timeout: Duration,
        address: SocketAddr,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.write_all(head(address, method, target, fields).as_bytes())?;
        let mut came = Vec::new();
        let mut answer = read_head(&mut socket, &mut came)?;
        while answer.status / 100 == 1 {
            answer = read_head(&mut socket, &mut came)?;
        }
        answer.body = came;
        Ok(Self { answer, socket })
    }
}

fn head(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    for (name, value) in fields {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head + "\r\n"
}

/// Removes a head from `came`, after reading as much as that needs.
fn read_head(socket: &mut TcpStream, came: &mut Vec<u8>) -> io::Result<Answer> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = came.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = came.split_off(end + 4);
            let head = std::mem::replace(came, rest);
            return parse(&String::from_utf8_lossy(&head)).ok_or_else(|| io::Error::other("the response is not HTTP"));
        }
        let len = socket.read(&mut buffer)?;
        if len == 0 || came.len() > HEAD_LEN_MAX {
            return Err(io::Error::other("the head of the response has no end"));
        }
        came.extend_from_slice(&buffer[..len]);
    }
}

fn parse(head: &str) -> Option<Answer> {
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    });
    Some(Answer { status, fields: fields.collect(), ..Answer::default() })
}
