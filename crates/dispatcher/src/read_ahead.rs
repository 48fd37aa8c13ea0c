//! The bytes that a client sends before the dispatcher has a leg for it.

use std::io;

use tokio::io::Interest;
use tokio::net::TcpStream;
use watari_client_hello::{Hello, look};
use watari_wire::proxy::{self, Header, ProxyError};

/// The most bytes that the dispatcher reads from a client without an agent. The rest waits in the kernel's buffer.
const READ_AHEAD_LEN_MAX: usize = 16 * 1024;

/// The longest PROXY protocol header, in bytes: both addresses and the values that relays add, or a line of version 1.
const PROXY_HEADER_LEN_MAX: usize = 2048;

/// Bytes that the dispatcher has read from a client and that belong to its stream.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    bytes: Vec<u8>,
}

/// The reason that a connection does not begin with a PROXY protocol header.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error(transparent)]
    Malformed(#[from] ProxyError),
    #[error("the connection ended before its PROXY protocol header was complete")]
    Ended,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

impl From<Vec<u8>> for ReadAhead {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}

impl ReadAhead {
    /// Reads the PROXY protocol header at the start of the connection.
    pub(crate) async fn proxy_header(&mut self, client: &TcpStream) -> Result<Header, HeaderError> {
        loop {
            if let Some((header, len)) = proxy::parse(&self.bytes, PROXY_HEADER_LEN_MAX)? {
                self.bytes.drain(..len);
                return Ok(header);
            }
            if self.read(client, PROXY_HEADER_LEN_MAX).await? == 0 {
                return Err(HeaderError::Ended);
            }
        }
    }

    /// Reads until the server name (SNI) is complete. `Ok(None)`: the client sends no name, or none within the first
    /// [`READ_AHEAD_LEN_MAX`] bytes. `Err`: the connection failed or ended.
    pub(crate) async fn server_name(&mut self, client: &TcpStream) -> io::Result<Option<String>> {
        loop {
            match look(&self.bytes) {
                Hello::For(name) => return Ok(Some(name)),
                Hello::Incomplete if self.bytes.len() < READ_AHEAD_LEN_MAX => {}
                Hello::Incomplete | Hello::Nameless => return Ok(None),
            }
            if self.read(client, READ_AHEAD_LEN_MAX).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns when the client has reset the connection or ended its stream. An end before any answer counts as a
    /// reset.
    pub(crate) async fn until_gone(&mut self, client: &TcpStream) {
        while self.bytes.len() < READ_AHEAD_LEN_MAX {
            match self.read(client, READ_AHEAD_LEN_MAX).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        // The buffer is full. A reset is still noticed.
        let _ = client.ready(Interest::ERROR).await;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Reads once, as soon as there is data, until `max` bytes are stored.
    async fn read(&mut self, client: &TcpStream, max: usize) -> io::Result<usize> {
        loop {
            client.readable().await?;
            let mut buffer = [0; 2048];
            let room = buffer.len().min(max - self.bytes.len());
            match client.try_read(&mut buffer[..room]) {
                Ok(read) => {
                    self.bytes.extend_from_slice(&buffer[..read]);
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}
