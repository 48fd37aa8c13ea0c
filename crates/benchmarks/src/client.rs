//! A client that costs little and checks what it gets.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{self, kx_group};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use socket2::{Domain, Socket, Type};

use crate::failure::{Failure, tls};
use crate::site::{Item, Key, Site};

/// How much is read from the socket at once, in bytes: several records. rustls by itself reads 4 KiB.
const READ_LEN: usize = 128 * 1024;
/// The same for thousands of connections.
const READ_LEN_OF_MANY: usize = 4 * 1024;
/// Nothing here takes so long; without an end a mistake would.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connects as often as is asked, each time with a full handshake.
pub(crate) struct Client {
    tls: Arc<ClientConfig>,
    /// The addresses it comes from in turn, if that matters: one would run out of ports.
    sources: Vec<IpAddr>,
    connections: AtomicUsize,
    /// How much is read from a socket at once, in bytes.
    read_len: usize,
}

impl Client {
    /// A client that offers TLS 1.3 with AES-128-GCM and X25519 and nothing else, which all servers have, so that all do
    /// the same work.
    pub(crate) fn new(site: &Site) -> Result<Self, Failure> {
        Self::coming_from(Vec::new(), site)
    }

    /// The same, coming from each of `sources` in turn.
    pub(crate) fn coming_from(sources: Vec<IpAddr>, site: &Site) -> Result<Self, Failure> {
        let tls = config(site, CipherSuite::TLS13_AES_128_GCM_SHA256)?;
        Ok(Self { tls: Arc::new(tls), sources, connections: AtomicUsize::new(0), read_len: READ_LEN })
    }

    /// The same, for thousands of connections that get little.
    pub(crate) fn of_many(sources: Vec<IpAddr>, site: &Site) -> Result<Self, Failure> {
        Ok(Self { read_len: READ_LEN_OF_MANY, ..Self::coming_from(sources, site)? })
    }

    /// Connects to `service` and does the handshake, with the kind of certificate that is asked for.
    pub(crate) fn connect(&self, service: SocketAddr, key: Key) -> Result<Connection, Failure> {
        let wrong = |error: io::Error| Failure::Answer { service: service.to_string(), what: error.to_string() };
        let name = ServerName::try_from(key.host()).map_err(tls("naming a server"))?;
        let tls = ClientConnection::new(Arc::clone(&self.tls), name).map_err(tls("beginning a handshake"))?;
        let tcp = self.open(service).map_err(wrong)?;
        let mut stream = StreamOwned::new(tls, Buffered(BufReader::with_capacity(self.read_len, tcp)));
        while stream.conn.is_handshaking() || stream.conn.wants_write() {
            stream.conn.complete_io(&mut stream.sock).map_err(wrong)?;
        }
        Ok(Connection { service, key, stream, plaintext: vec![0; self.read_len] })
    }

    fn open(&self, service: SocketAddr) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        if !self.sources.is_empty() {
            let turn = self.connections.fetch_add(1, Ordering::Relaxed) % self.sources.len();
            socket.bind(&SocketAddr::new(self.sources[turn], 0).into())?;
        }
        socket.connect(&service.into())?;
        let tcp = TcpStream::from(socket);
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        Ok(tcp)
    }
}

/// The configuration of a client that offers `offered`, and X25519.
pub(crate) fn config(site: &Site, offered: CipherSuite) -> Result<ClientConfig, Failure> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites.retain(|suite| suite.suite() == offered);
    provider.kx_groups = vec![kx_group::X25519];
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(&site.authority[..])).map_err(tls("trusting the authority"))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(provider));
    let builder = builder.with_protocol_versions(&[&rustls::version::TLS13]).map_err(tls("configuring a client"))?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// An HTTP/1.1 connection over TLS.
pub(crate) struct Connection {
    service: SocketAddr,
    key: Key,
    stream: StreamOwned<ClientConnection, Buffered>,
    plaintext: Vec<u8>,
}

impl Connection {
    /// Gets `item`, and checks status and length. Tells how long it took from the request to the first byte of the answer.
    pub(crate) fn get(&mut self, item: Item) -> Result<Duration, Failure> {
        let service = self.service;
        let asked = Instant::now();
        let got = self.ask(item).and_then(|()| self.receive(item));
        let first_byte = got.map_err(|error| Failure::Answer { service: service.to_string(), what: error.to_string() });
        Ok(first_byte? - asked)
    }

    /// Says goodbye, and waits until the server has closed too: then its work is done.
    pub(crate) fn finish(mut self) {
        self.stream.conn.send_close_notify();
        let mut close = || -> io::Result<()> {
            self.stream.flush()?;
            self.stream.sock.0.get_ref().shutdown(Shutdown::Write)?;
            while self.stream.sock.read(&mut self.plaintext)? > 0 {}
            Ok(())
        };
        // What was asked for is there: how a server ends a connection behind that is its own affair.
        let _ = close();
    }

    fn ask(&mut self, item: Item) -> io::Result<()> {
        let (path, host) = (item.path, self.key.host());
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.stream.write_all(request.as_bytes())?;
        self.stream.flush()
    }

    /// Receives `item`; tells when its first byte was there.
    fn receive(&mut self, item: Item) -> io::Result<Instant> {
        let mut filled = self.read(0)?;
        let first_byte = Instant::now();
        let head_len = loop {
            if let Some(end) = self.plaintext[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            filled += self.read(filled)?;
        };
        let len = content_len(&self.plaintext[..head_len]).filter(|len| *len == item.len);
        let len = len.ok_or_else(|| io::Error::other(String::from_utf8_lossy(&self.plaintext[..head_len])))?;
        let mut received = (filled - head_len) as u64;
        while received < len {
            received += self.read(0)? as u64;
        }
        if received > len { Err(io::Error::other("more than was announced")) } else { Ok(first_byte) }
    }

    fn read(&mut self, from: usize) -> io::Result<usize> {
        match self.stream.read(&mut self.plaintext[from..])? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => Ok(read),
        }
    }
}

/// `Content-Length` of the head of a successful response.
fn content_len(head: &[u8]) -> Option<u64> {
    let mut lines = std::str::from_utf8(head).ok()?.lines();
    lines.next()?.starts_with("HTTP/1.1 200 ").then_some(())?;
    let fields = lines.filter_map(|line| line.split_once(':'));
    let mut lens = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lens.next()?.1.trim().parse().ok()
}

/// Reads much at a time, and writes directly.
struct Buffered(BufReader<TcpStream>);

impl Read for Buffered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Buffered {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get_ref().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_success_with_a_length_counts() {
        assert_eq!(content_len(b"HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 1024\r\n\r\n"), Some(1024));
        assert_eq!(content_len(b"HTTP/1.1 404 Not Found\r\nContent-Length: 1024\r\n\r\n"), None);
        assert_eq!(content_len(b"HTTP/1.1 200 OK\r\n\r\n"), None);
    }
}
