//! The protocol between controller and worker.
//!
//! ```text
//!  controller                                   worker
//!      | -- greeting: magic, version ------------> |
//!      | <------------ greeting: magic, version -- |
//!      | -- Job ---------------------------------> |   the plan, and the worker's part of it
//!      | <----------------------- Ready, or Refused |
//!      | -- Ping --------------------------------> |   a few times, to measure the round-trip time
//!      | <---------------------------------- Pong -- |
//!      | -- Start { after } ---------------------> |   all workers begin at the same instant
//!      | <------------------------------ Progress -- |   a tally, again and again
//!      | <--------------------------- Connections -- |   with a log: samples of some connections
//!      | -- Logged ------------------------------> |   for each such report, when the log has taken it
//!      | -- Take --------------------------------> |   to all workers at the same time
//!      | <--------------------------------- Taken -- |   a tally since the last Take; resets the counts
//!      | -- Ping, Cut ---------------------------> |
//!      | <---------------------------------- Done -- |   the last tally
//! ```
//! The greeting has the same layout in every version. The messages after it are compatible only within one version. A
//! message is its length in 4 bytes (big-endian) and its postcard encoding.

mod job;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use watari_bench_engine::sample::wire::{BadSamples, WireSamples};
use watari_bench_engine::tally::wire::{BadTally, WireTally};

pub(crate) use job::Job;

/// A message from the controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Prepare this job.
    Job(Box<Job>),
    /// Heartbeat, and measurement of the round-trip time.
    Ping,
    /// Begin.
    Start {
        /// In nanoseconds, counted from the arrival of this message.
        after_ns: u64,
    },
    /// The log has taken the connections of one report.
    Logged,
    /// Send a tally since the start or since the last `Take`, and reset the counts.
    Take,
    /// Drop the requests in progress, and send the last tally.
    Cut,
}

impl Order {
    /// The error that this message is not valid in the current state.
    pub(crate) fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Job(_) => "Job",
            Self::Ping => "Ping",
            Self::Start { .. } => "Start",
            Self::Logged => "Logged",
            Self::Take => "Take",
            Self::Cut => "Cut",
        })
    }
}

/// A message from the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The worker can begin.
    Ready,
    /// The worker rejects the job.
    Refused {
        /// The cause, as a sentence.
        why: String,
    },
    /// The response to `Ping`.
    Pong,
    /// The tally since the start or since the last `Take`.
    Progress(Box<WireTally>),
    /// Connections that have ended. There are never more than [`AHEAD_MAX`] such reports that the log has not taken.
    Connections(WireSamples),
    /// The response to `Take`.
    Taken {
        /// The tally since the start or since the last `Take`.
        tally: Box<WireTally>,
        /// When it was taken, in nanoseconds from the common start.
        at_ns: u64,
    },
    /// The load is over.
    Done(Box<WireDone>),
}

impl Report {
    /// The error that this message is not valid in the current state.
    pub(crate) fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Ready => "Ready",
            Self::Refused { .. } => "Refused",
            Self::Pong => "Pong",
            Self::Progress(_) => "Progress",
            Self::Connections(_) => "Connections",
            Self::Taken { .. } => "Taken",
            Self::Done(_) => "Done",
        })
    }
}

/// The results of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireDone {
    pub(crate) tally: WireTally,
    /// From the common start to the end of the load, in nanoseconds.
    pub(crate) elapsed_ns: u64,
    /// The causes of failures, each as a sentence with its count.
    pub(crate) causes: BTreeMap<String, u64>,
}

/// The link between controller and worker failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    /// The peer closed the connection.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer is not `watari bench`.
    #[error("it does not speak the protocol of watari bench")]
    Foreign,
    /// The peer has another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, and this program version {VERSION}: use the same Watari everywhere"
    )]
    Version {
        /// The peer's version.
        theirs: u16,
    },
    /// A message is longer than [`LEN_MAX`].
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// A message cannot be decoded.
    #[error("a message cannot be read: {0}")]
    Unreadable(postcard::Error),
    /// A message has bytes after its end.
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    /// A message is not valid in the current state.
    #[error("it sent {0} in the wrong state")]
    OutOfTurn(&'static str),
    /// The peer sent nothing for [`SILENCE_MAX`].
    #[error("it sent nothing for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// A tally is invalid.
    #[error(transparent)]
    Tally(#[from] BadTally),
    /// Samples of connections are invalid.
    #[error(transparent)]
    Samples(#[from] BadSamples),
}

impl From<io::Error> for TalkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// Sends the greeting, and checks the greeting of the peer.
pub(crate) async fn greet(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), TalkError> {
    let mut greeting = [0; GREETING_LEN];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    greeting[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
    to.write_all(&greeting).await?;
    to.flush().await?;
    from.read_exact(&mut greeting).await?;
    let theirs = greeting.strip_prefix(&MAGIC).ok_or(TalkError::Foreign)?;
    match u16::from_be_bytes([theirs[0], theirs[1]]) {
        VERSION => Ok(()),
        theirs => Err(TalkError::Version { theirs }),
    }
}

/// Sends a message.
pub(crate) async fn send(to: &mut (impl AsyncWrite + Unpin), message: &impl Serialize) -> Result<(), TalkError> {
    let mut bytes = vec![0; LEN_LEN];
    bytes = postcard::to_extend(message, bytes).map_err(TalkError::Unreadable)?;
    let len = bytes.len() - LEN_LEN;
    if len > LEN_MAX {
        return Err(TalkError::TooLong(len));
    }
    bytes[..LEN_LEN].copy_from_slice(&(len as u32).to_be_bytes());
    to.write_all(&bytes).await?;
    Ok(to.flush().await?)
}

/// Receives a message. Allocates memory for the bytes that have arrived, not for the announced length.
pub(crate) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    let len = length(from).await?;
    let mut bytes = Vec::new();
    if from.take(len as u64).read_to_end(&mut bytes).await? < len {
        return Err(TalkError::Closed);
    }
    let (message, rest) = postcard::take_from_bytes(&bytes).map_err(TalkError::Unreadable)?;
    if rest.is_empty() { Ok(message) } else { Err(TalkError::Trailing(rest.len())) }
}

/// Skips a message of any type.
pub(crate) async fn skip(from: &mut (impl AsyncRead + Unpin)) -> Result<(), TalkError> {
    let len = length(from).await? as u64;
    let skipped = tokio::io::copy(&mut from.take(len), &mut tokio::io::sink()).await?;
    if skipped < len { Err(TalkError::Closed) } else { Ok(()) }
}

async fn length(from: &mut (impl AsyncRead + Unpin)) -> Result<usize, TalkError> {
    let len = from.read_u32().await? as usize;
    if len > LEN_MAX { Err(TalkError::TooLong(len)) } else { Ok(len) }
}

/// The version of the messages after the greeting.
const VERSION: u16 = 1;
const MAGIC: [u8; 6] = *b"wbench";
const GREETING_LEN: usize = MAGIC.len() + 2;
const LEN_LEN: usize = 4;
/// The largest message, in bytes. A list of 10 million lines fits.
const LEN_MAX: usize = 256 << 20;
/// Reports of connections that may be on their way to the log. Enough for tens of thousands of connections per second
/// with a long round-trip time.
pub(crate) const AHEAD_MAX: usize = 4;
/// The interval at which both sides send a message.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// A peer that sends nothing for this long is given up. A machine under load may be slow.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
