//! Client connections that the benchmark drives by itself, without `watari_bench_engine`:
//!
//! * thousands of idle connections, which show later whether they still work;
//! * downloads in which the arrival time of each piece counts.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use socket2::{Domain, Socket, Type};
use watari_record::CipherSuite;

use crate::failure::{Failure, tls};
use crate::offer;
use crate::site::{Item, Key, SMALL, Site};

/// How long an attempt to connect and to get the file may take, for [`Opener::until_answered`].
const ATTEMPT_MAX: Duration = Duration::from_millis(50);
/// The pause after an attempt that failed at once.
const PAUSE: Duration = Duration::from_millis(5);

/// Opens connections, each with a full handshake.
pub(crate) struct Opener {
    tls: Arc<ClientConfig>,
    /// Source addresses, in turn.
    sources: Vec<IpAddr>,
    opened: AtomicUsize,
}

/// An HTTP/1.1 connection over TLS.
pub(crate) struct Connection {
    service: SocketAddr,
    stream: Stream,
}

type Stream = StreamOwned<ClientConnection, TcpStream>;

impl Opener {
    pub(crate) fn coming_from(sources: Vec<IpAddr>, site: &Site) -> Result<Self, Failure> {
        let tls = offer::config(site, CipherSuite::TLS_AES_128_GCM_SHA256)?;
        Ok(Self { tls: Arc::new(tls), sources, opened: AtomicUsize::new(0) })
    }

    /// Connects to `service`, and does the handshake.
    pub(crate) fn open(&self, service: SocketAddr) -> Result<Connection, Failure> {
        self.open_within(service, WAIT_MAX)
    }

    /// Like [`Opener::open`]. `limit` is the longest time for the connect, and for each later wait.
    pub(crate) fn open_within(&self, service: SocketAddr, limit: Duration) -> Result<Connection, Failure> {
        let name = ServerName::try_from(Key::P256.host()).map_err(tls("naming a server"))?;
        let tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(tls("beginning a handshake"))?;
        let secured = self.connect(service, limit).and_then(|tcp| secure(StreamOwned::new(tls, tcp)));
        Ok(Connection { service, stream: secured.map_err(|error| wrong(service, &error))? })
    }

    /// Opens connections until one gets the small file. Returns the last error after `limit`.
    pub(crate) fn until_answered(&self, service: SocketAddr, limit: Duration) -> Result<(), Failure> {
        let deadline = Instant::now() + limit;
        loop {
            let opened = self.open_within(service, ATTEMPT_MAX);
            match opened.and_then(|mut connection| connection.get()) {
                Ok(_) => return Ok(()),
                Err(failure) if Instant::now() > deadline => return Err(failure),
                Err(_) => sleep(PAUSE),
            }
        }
    }

    fn connect(&self, service: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        let turn = self.opened.fetch_add(1, Ordering::Relaxed) % self.sources.len();
        socket.bind(&SocketAddr::new(self.sources[turn], 0).into())?;
        socket.connect_timeout(&service.into(), limit)?;
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(limit))?;
        Ok(tcp)
    }
}

impl Connection {
    /// Gets the small file, and checks status and length. Returns the time from the request to the first byte.
    pub(crate) fn get(&mut self) -> Result<Duration, Failure> {
        let asked = Instant::now();
        let first_byte = self.ask(SMALL.path).and_then(|()| self.receive());
        Ok(first_byte.map_err(|error| wrong(self.service, &error))? - asked)
    }

    /// Gets `path`, which has `len` bytes. Calls `piece` for each piece that arrives, with its offset and its bytes.
    pub(crate) fn download(
        &mut self,
        path: &str,
        len: u64,
        piece: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let done = self.ask(path).and_then(|()| self.receive_all(len, piece));
        done.map_err(|error| wrong(self.service, &error))
    }

    /// Requests `item`, and reads the head of the response.
    pub(crate) fn begin(&mut self, item: Item) -> Result<(), Failure> {
        let begun = self.ask(item.path).and_then(|()| self.read_head(item.len)).map(drop);
        begun.map_err(|error| wrong(self.service, &error))
    }

    /// Gets `item`, checks status and length, and returns the head of the response.
    pub(crate) fn get_with_head(&mut self, item: Item) -> Result<String, Failure> {
        let done = self.ask(item.path).and_then(|()| self.read_head(item.len)).and_then(|head| {
            let mut left = item.len;
            let mut piece = vec![0; PIECE_LEN];
            while left > 0 {
                left = left.checked_sub(self.read(&mut piece)? as u64).ok_or(io::ErrorKind::InvalidData)?;
            }
            Ok(String::from_utf8_lossy(&head).into_owned())
        });
        done.map_err(|error| wrong(self.service, &error))
    }

    /// Requests `path`, for [`Connection::response`].
    pub(crate) fn request(&mut self, path: &str) -> Result<(), Failure> {
        self.ask(path).map_err(|error| wrong(self.service, &error))
    }

    /// Receives a response with content of `len` bytes.
    pub(crate) fn response(&mut self, len: u64) -> Result<(), Failure> {
        self.receive_all(len, |_, _| Ok(())).map_err(|error| wrong(self.service, &error))
    }

    /// The connection's socket, to wait for bytes.
    pub(crate) fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The next piece of a response that has begun.
    pub(crate) fn piece(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = vec![0; PIECE_LEN];
        let read = self.read(&mut piece)?;
        piece.truncate(read);
        Ok(piece)
    }

    /// Reads byte by byte, so that no content is taken.
    fn read_head(&mut self, len: u64) -> io::Result<Vec<u8>> {
        let mut head = Vec::new();
        while head_len(&head).is_none() {
            let mut byte = [0];
            self.read(&mut byte)?;
            head.extend_from_slice(&byte);
        }
        if content_len(&head) == Some(len) { Ok(head) } else { Err(io::Error::other(String::from_utf8_lossy(&head))) }
    }

    fn receive_all(&mut self, len: u64, mut piece: impl FnMut(u64, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut buffer = vec![0; PIECE_LEN_MAX];
        let mut filled = 0;
        let head_len = loop {
            filled += self.read(&mut buffer[filled..])?;
            if let Some(head_len) = head_len(&buffer[..filled]) {
                break head_len;
            }
        };
        if content_len(&buffer[..head_len]) != Some(len) {
            return Err(io::Error::other(String::from_utf8_lossy(&buffer[..head_len])));
        }
        let (mut from, mut position) = (head_len, 0);
        loop {
            piece(position, &buffer[from..filled])?;
            position += (filled - from) as u64;
            if position >= len {
                return if position == len { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) };
            }
            (from, filled) = (0, self.read(&mut buffer)?);
        }
    }

    fn ask(&mut self, path: &str) -> io::Result<()> {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", Key::P256.host());
        self.stream.write_all(request.as_bytes())?;
        self.stream.flush()
    }

    /// Returns the time at which the first byte arrived.
    fn receive(&mut self) -> io::Result<Instant> {
        let mut response = [0; RESPONSE_LEN_MAX];
        let mut filled = self.read(&mut response)?;
        let first_byte = Instant::now();
        while !is_whole(&response[..filled])? {
            filled += self.read(&mut response[filled..])?;
        }
        Ok(first_byte)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(into)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

fn secure(mut stream: Stream) -> io::Result<Stream> {
    while stream.conn.is_handshaking() || stream.conn.wants_write() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

fn wrong(service: SocketAddr, error: &io::Error) -> Failure {
    Failure::Answer { service, what: error.to_string() }
}

/// Whether `response` has all of the small file. Returns an error if it is another response.
fn is_whole(response: &[u8]) -> io::Result<bool> {
    let Some(head_len) = head_len(response) else { return Ok(false) };
    let (head, body) = response.split_at(head_len);
    if content_len(head) != Some(SMALL.len) || body.len() as u64 > SMALL.len {
        return Err(io::Error::other(String::from_utf8_lossy(head)));
    }
    Ok(body.len() as u64 == SMALL.len)
}

fn head_len(response: &[u8]) -> Option<usize> {
    response.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// `Content-Length` of the head of a successful response.
fn content_len(head: &[u8]) -> Option<u64> {
    let mut lines = std::str::from_utf8(head).ok()?.lines();
    lines.next()?.starts_with("HTTP/1.1 200 ").then_some(())?;
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut lens = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lens.next()?.1.trim().parse().ok()
}

/// Larger than the small file with the head of its response, in bytes.
const RESPONSE_LEN_MAX: usize = 4 * 1024;
/// Bytes of a download that are read at once. The head of its response is shorter.
const PIECE_LEN_MAX: usize = 64 * 1024;
/// Bytes of a piece of a download that is read slowly.
const PIECE_LEN: usize = 16 * 1024;
/// Timeout of a connect and of a read. Only a defect reaches it.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_the_whole_file_counts() {
        let head = b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 1024\r\n\r\n";
        let response = [&head[..], &SMALL.content()].concat();
        assert!(is_whole(&response).unwrap());
        for cut in [0, 10, head.len(), response.len() - 1] {
            assert!(!is_whole(&response[..cut]).unwrap(), "{cut}");
        }
        assert!(is_whole(&[&response[..], b"x"].concat()).is_err());
    }

    #[test]
    fn only_a_success_with_the_length_counts() {
        for head in ["404 Not Found\r\nContent-Length: 1024", "200 OK", "200 OK\r\nContent-Length: 1023"] {
            assert!(is_whole(format!("HTTP/1.1 {head}\r\n\r\n").as_bytes()).is_err(), "{head}");
        }
    }
}
