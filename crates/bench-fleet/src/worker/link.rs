//! The controller's side of the link to one worker.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;
use watari_link::{IdentifyError, Peer, SILENCE_MAX, TalkError, connect_to_role, greet, receive, send};
use watari_pki::Identity;
use watari_values::Role;

use super::wire::{Job, Order, PROTOCOL, Report};

/// A link to a worker after the greeting.
pub(crate) struct Link {
    /// The worker's name in reports.
    pub(crate) name: String,
    from: Box<dyn AsyncRead + Send + Unpin>,
    to: Box<dyn AsyncWrite + Send + Unpin>,
    /// The worker process on this machine. It ends with its link.
    child: Option<Child>,
}

/// The link to a worker cannot be established.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The worker cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS failed, or the peer is no load generator.
    #[error(transparent)]
    Peer(#[from] IdentifyError),
    /// A worker process cannot be started.
    #[error("cannot start it: {0}")]
    Spawn(io::Error),
    /// The worker did not respond in time.
    #[error("no answer within {} s", SILENCE_MAX.as_secs())]
    Slow,
    /// The worker refused.
    #[error("{0}")]
    Refused(String),
    /// An error of the protocol.
    #[error(transparent)]
    Talk(#[from] TalkError),
}

impl Link {
    /// Connects to the worker at `address`. Accepts any node name.
    pub(crate) async fn connect(address: &str, identity: &Identity) -> Result<Self, LinkError> {
        let tcp = in_time(async { TcpStream::connect(address).await.map_err(LinkError::Connect) }).await?;
        let peer = in_time(async { Ok(connect_to_role(tcp, Role::Bench, identity).await?) });
        let Peer { stream, node, .. } = peer.await?;
        let (from, to) = tokio::io::split(stream);
        let name = format!("{node} ({address})");
        Self { name, from: Box::new(from), to: Box::new(to), child: None }.greeted().await
    }

    /// Starts a worker process on this machine: `program` with the arguments that make it a worker.
    pub(crate) async fn spawn(program: &Path, number: usize) -> Result<Self, LinkError> {
        let mut child = Command::new(program)
            .args(["bench", "worker", "--with-parent"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The controller handles Ctrl-C, and sends the workers a message.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(LinkError::Spawn)?;
        let (from, to) = (child.stdout.take(), child.stdin.take());
        let (from, to) = from.zip(to).ok_or_else(|| LinkError::Spawn(io::ErrorKind::BrokenPipe.into()))?;
        let name = format!("process {number}");
        Self { name, from: Box::new(from), to: Box::new(to), child: Some(child) }.greeted().await
    }

    async fn greeted(mut self) -> Result<Self, LinkError> {
        in_time(async { Ok(greet(&PROTOCOL, &mut self.from, &mut self.to).await?) }).await?;
        Ok(self)
    }

    /// Sends the job, and waits until the worker is ready.
    pub(crate) async fn give(&mut self, job: Job) -> Result<(), LinkError> {
        in_time(async {
            send(&mut self.to, &Order::Job(Box::new(job))).await?;
            match receive(&mut self.from).await? {
                Report::Ready => Ok(()),
                Report::Refused { why } => Err(LinkError::Refused(why)),
                other => Err(other.out_of_turn().into()),
            }
        })
        .await
    }

    /// The shortest round-trip time of several pings.
    pub(crate) async fn round_trip(&mut self) -> Result<Duration, LinkError> {
        let mut shortest = SILENCE_MAX;
        for _ in 0..PINGS {
            let sent = Instant::now();
            let answer = in_time(async {
                send(&mut self.to, &Order::Ping).await?;
                Ok(receive(&mut self.from).await?)
            });
            match answer.await? {
                Report::Pong => shortest = shortest.min(sent.elapsed()),
                other => return Err(other.out_of_turn().into()),
            }
        }
        Ok(shortest)
    }

    /// Makes the worker begin `after` it receives this message.
    pub(crate) async fn start(&mut self, after: Duration) -> Result<(), LinkError> {
        let after_ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        in_time(async { Ok(send(&mut self.to, &Order::Start { after_ns }).await?) }).await
    }

    /// The two directions, and a guard to hold until both have ended.
    pub(crate) fn split(self) -> (Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>, Hold) {
        (self.from, self.to, Hold(self.child))
    }
}

/// The worker process, if the worker runs on this machine.
pub(crate) struct Hold(Option<Child>);

impl Hold {
    /// Waits until the process has ended. Kills it after [`SILENCE_MAX`].
    pub(crate) async fn end(self) {
        if let Some(mut child) = self.0
            && timeout(SILENCE_MAX, child.wait()).await.is_err()
        {
            let _ = child.kill().await;
        }
    }
}

async fn in_time<T>(doing: impl Future<Output = Result<T, LinkError>>) -> Result<T, LinkError> {
    timeout(SILENCE_MAX, doing).await.unwrap_or(Err(LinkError::Slow))
}

/// Number of pings, of which the shortest round trip counts.
const PINGS: usize = 5;
