//! A fake server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Responds to pings like a server, and to all other commands according to [`Manners`].
pub(crate) struct Fake {
    pub(crate) address: SocketAddr,
    sent: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

/// The response to commands.
#[derive(Debug, Clone)]
pub(crate) enum Manners {
    /// No response, not even to pings.
    Mute,
    /// No response, except to pings.
    Deaf,
    /// These bytes.
    Say(Vec<u8>),
    /// These bytes, and then others without end.
    Endless(Vec<u8>),
    /// Closes the connection.
    HangUp,
}

impl Fake {
    pub(crate) async fn start(manners: Manners) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, sent) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = Arc::clone(&sent);
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, manners.clone(), Arc::clone(&counted)));
            }
        });
        Self { address, sent, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// The number of bytes that it could send in response to commands.
    pub(crate) fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, manners: Manners, sent: Arc<AtomicUsize>) {
    let mut buf = vec![0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut buf).await {
        let is_ping = buf[..len].ends_with(b"PING\r\n");
        let written = match &manners {
            Manners::Mute => Ok(()),
            _ if is_ping => stream.write_all(b"+PONG\r\n").await,
            Manners::Deaf => Ok(()),
            Manners::Say(bytes) => stream.write_all(bytes).await,
            Manners::Endless(bytes) => endless(&mut stream, bytes, &sent).await,
            Manners::HangUp => return,
        };
        if written.is_err() {
            return;
        }
    }
}

async fn endless(stream: &mut TcpStream, first: &[u8], sent: &AtomicUsize) -> std::io::Result<()> {
    stream.write_all(first).await?;
    loop {
        sent.fetch_add(stream.write(&[b'a'; 8192]).await?, Ordering::Relaxed);
    }
}
