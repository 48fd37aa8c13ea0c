//! A client that shows what came, and understands as little of it as possible. It blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any answer takes that comes at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest head that is taken, in bytes.
const HEAD_LEN_MAX: usize = 256 * 1024;

/// What comes in a read timeout of a body that does not crawl, in bytes.
const CRAWL_LEN_MIN: usize = 1000;

/// What came until the connection ended.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Of the last head that came: interim ones are skipped.
    pub status: u16,
    /// Names in lower case, in the order in which they came.
    pub fields: Vec<(String, String)>,
    /// All that came behind the head, framing and surplus included.
    pub body: Vec<u8>,
    /// How it ended.
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
    /// The value of the first field of that name, which is given in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(candidate, _)| candidate == name).map(|(_, value)| value.as_str())
    }

    /// How often a field of that name came.
    pub fn count(&self, name: &str) -> usize {
        self.fields.iter().filter(|(candidate, _)| candidate == name).count()
    }
}

/// Asks once on a connection of its own, with `Host` and `Connection: close`, and reads until the connection ends.
///
/// # Errors
/// There is no connection, or what comes is no HTTP or does not come in time.
pub fn ask(address: SocketAddr, method: &str, target: &str, fields: &[(&str, &str)]) -> io::Result<Answer> {
    ask_within(PATIENCE, address, method, target, fields)
}

/// Likewise, but gives up a body after silence of that long.
///
/// # Errors
/// Likewise.
pub fn ask_within(
    patience: Duration,
    address: SocketAddr,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> io::Result<Answer> {
    Begun::ask(patience, address, method, target, fields)?.end()
}

/// An answer of which the head has come.
#[derive(Debug)]
pub struct Begun {
    /// With what of the body came with the head.
    answer: Answer,
    socket: TcpStream,
}

impl Begun {
    /// As [`ask`] does, but leaves the rest of the body where it is for now.
    ///
    /// # Errors
    /// Likewise.
    pub fn get(address: SocketAddr, target: &str) -> io::Result<Self> {
        Self::ask(PATIENCE, address, "GET", target, &[])
    }

    /// Reads until the connection ends, or crawls: hardly anything comes in a read timeout.
    ///
    /// # Errors
    /// It fails in another way than [`End`] knows.
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

    /// For the read timeout, or until `CRAWL_LEN_MIN` bytes have come. Returns how many have; 0 at the end, and only there.
    fn read_for_a_while(&mut self) -> io::Result<usize> {
        let (begun, patience) = (Instant::now(), self.socket.read_timeout()?.unwrap_or(PATIENCE));
        let (mut buffer, mut len) = ([0; 16 * 1024], 0);
        while len < CRAWL_LEN_MIN && begun.elapsed() < patience {
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
        patience: Duration,
        address: SocketAddr,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(patience))?;
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

/// Takes a head off `came`, after reading as much as that needs.
fn read_head(socket: &mut TcpStream, came: &mut Vec<u8>) -> io::Result<Answer> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = came.windows(4).position(|window| window == b"\r\n\r\n") {
            let rest = came.split_off(end + 4);
            let head = std::mem::replace(came, rest);
            return parse(&String::from_utf8_lossy(&head)).ok_or_else(|| io::Error::other("this is no HTTP"));
        }
        let len = socket.read(&mut buffer)?;
        if len == 0 || came.len() > HEAD_LEN_MAX {
            return Err(io::Error::other("there is no end of the head"));
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
