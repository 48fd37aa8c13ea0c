//! What a client says before there is a leg for it.

use std::io;

use tokio::io::Interest;
use tokio::net::TcpStream;
use watari_wire::client_hello::{self, Hello};
use watari_wire::proxy::{self, Header, ProxyError};

/// The most that is kept of what a client says before it has an agent, in bytes; it waits in the system's buffer for
/// the rest.
const EARLY_LEN_MAX: usize = 16 * 1024;

/// The longest PROXY protocol header that is read: both addresses and the values that relays add, or a line of version
/// 1.
const PROXY_HEADER_LEN_MAX: usize = 2048;

/// Bytes that were read from a client and belong to its stream.
#[derive(Debug, Default)]
pub(crate) struct Early {
    bytes: Vec<u8>,
}

/// Why a connection does not begin with the header that it must begin with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HeaderError {
    #[error(transparent)]
    Malformed(#[from] ProxyError),
    #[error("the connection ended before its PROXY protocol header was complete")]
    Ended,
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
}

impl Early {
    /// Reads the PROXY protocol header that a connection begins with.
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

    /// Reads until the name is known that the client asks for. `Ok(None)`: it asks for none, or says more than
    /// is kept before it does; `Err`: it is gone.
    pub(crate) async fn server_name(&mut self, client: &TcpStream) -> io::Result<Option<String>> {
        loop {
            match client_hello::look(&self.bytes) {
                Hello::For(name) => return Ok(Some(name)),
                Hello::Incomplete if self.bytes.len() < EARLY_LEN_MAX => {}
                Hello::Incomplete | Hello::Nameless => return Ok(None),
            }
            if self.read(client, EARLY_LEN_MAX).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns when the client is gone, or has ended its stream: before it was answered, that is as good as gone.
    pub(crate) async fn until_gone(&mut self, client: &TcpStream) {
        while self.bytes.len() < EARLY_LEN_MAX {
            match self.read(client, EARLY_LEN_MAX).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
        // It has said all that is kept of it; a reset is noticed still.
        let _ = client.ready(Interest::ERROR).await;
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Reads what there is, up to `max` in all.
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
