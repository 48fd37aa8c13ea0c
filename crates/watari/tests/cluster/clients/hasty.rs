//! A client that sends its first request as early data, and its Finished only when the test calls for it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::tls::{dial, receive, reset, send};
use crate::harness::site::SITE;

/// A TLS connection that sends only what it must.
pub(crate) struct Hasty {
    tls: ClientConnection,
    tcp: TcpStream,
    /// The bytes it sent before it had anything from the server.
    pub(crate) flight: Vec<u8>,
    has_finished: bool,
}

impl Hasty {
    /// Connects from `source` and sends `request`. `None`: the client has no session that allows early data.
    pub(crate) fn connect(
        source: IpAddr,
        service: SocketAddr,
        config: &Arc<ClientConfig>,
        request: &[u8],
    ) -> Option<Self> {
        let name = ServerName::try_from(SITE).unwrap();
        let mut tls = ClientConnection::new(config.clone(), name).unwrap();
        tls.early_data()?.write_all(request).unwrap();
        let mut flight = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut flight).unwrap();
        }
        let mut tcp = dial(source, service).unwrap();
        tcp.write_all(&flight).unwrap();
        Some(Self { tls, tcp, flight, has_finished: false })
    }

    /// Reads from the server until the handshake is complete on this side.
    pub(crate) fn finish_reading(&mut self) {
        while self.tls.is_handshaking() {
            receive(&mut self.tls, &mut self.tcp).unwrap();
        }
    }

    /// Sends its Finished. From now on, the client sends as usual.
    pub(crate) fn finish(&mut self) {
        self.finish_reading();
        self.has_finished = true;
        self.flush().unwrap();
    }

    pub(crate) fn is_accepted(&self) -> bool {
        self.tls.is_early_data_accepted()
    }

    /// Whether the server has sent nothing that was not read.
    pub(crate) fn has_nothing_to_read(&mut self) -> bool {
        self.tcp.set_nonblocking(true).unwrap();
        let peeked = self.tcp.peek(&mut [0]);
        self.tcp.set_nonblocking(false).unwrap();
        peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Ends its stream, without a `close_notify`.
    pub(crate) fn shut_down(&self) {
        self.tcp.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends with a TCP reset.
    pub(crate) fn reset(&self) {
        reset(&self.tcp);
    }

    /// Sends bytes that no client would send here.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.tcp.write_all(bytes).unwrap();
    }
}

impl Read for Hasty {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => receive(&mut self.tls, &mut self.tcp)?,
                read => return read,
            }
        }
    }
}

impl Write for Hasty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.tls.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.has_finished { send(&mut self.tls, &mut self.tcp) } else { Ok(()) }
    }
}
