//! What a controller and a worker say to each other.
//!
//! ```text
//!  controller                                   worker
//!      | -- greeting: magic, version ------------> |
//!      | <------------ greeting: magic, version -- |
//!      | -- Job ---------------------------------> |   plan, which part of it
//!      | <----------------------- Ready, or Refused |
//!      | -- Ping --------------------------------> |   a few times: how far away is it?
//!      | <---------------------------------- Pong -- |
//!      | -- Start { after } ---------------------> |   all workers at the same instant
//!      | <------------------------------ Progress -- |   a tally, again and again
//!      | <--------------------------- Connections -- |   if there is a log: some at a time
//!      | -- Logged ------------------------------> |   for each such report, when the log has taken it
//!      | -- Take --------------------------------> |   everybody at the same time
//!      | <--------------------------------- Taken -- |   a tally of what has ended since; counting begins anew
//!      | -- Ping, Cut ---------------------------> |
//!      | <---------------------------------- Done -- |   the last tally
//! ```
//! The greeting has the same layout in every version; what follows is understood only by the same version. A message is its
//! length in 4 bytes (big-endian) and its postcard encoding.

mod job;

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) use job::Job;

use crate::sample::{BadSamples, WireSamples};
use crate::tally::{BadTally, WireTally};

/// What a controller says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Be ready for this.
    Job(Box<Job>),
    /// Is anybody there?
    Ping,
    /// Begin.
    Start {
        /// So long after this has come, in nanoseconds.
        after_ns: u64,
    },
    /// The log has taken the connections of one report.
    Logged,
    /// Say what has ended since the start, or since this was last asked, and begin to count anew.
    Take,
    /// Drop what is in progress, and say what became of the rest.
    Cut,
}

impl Order {
    /// That it came when it made no sense.
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

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It could begin.
    Ready,
    /// It will do nothing.
    Refused {
        /// Why, in a sentence.
        why: String,
    },
    /// Yes.
    Pong,
    /// What has become of what has ended so far, or since it was last taken.
    Progress(Box<WireTally>),
    /// Connections that have ended. There are never more than [`AHEAD_MAX`] such reports that the log has not taken.
    Connections(WireSamples),
    /// What has ended until now.
    Taken {
        /// What has become of it.
        tally: Box<WireTally>,
        /// When that was, counted from the common start, in nanoseconds.
        at_ns: u64,
    },
    /// The load is over.
    Done(Box<WireDone>),
}

impl Report {
    /// That it came when it made no sense.
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

/// What a load came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireDone {
    pub(crate) tally: WireTally,
    /// From the common start to its end.
    pub(crate) elapsed_ns: u64,
    /// Why things failed, in sentences, and how often.
    pub(crate) causes: BTreeMap<String, u64>,
}

/// A conversation between controller and worker is over before its time. Named by who is at fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    /// The peer is gone.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer is no `watari bench`.
    #[error("it does not speak the protocol of watari bench")]
    Foreign,
    /// The peer is another version.
    #[error(
        "it speaks version {theirs} of the protocol, and this program version {VERSION}: use the same Watari everywhere"
    )]
    Version {
        /// The peer's.
        theirs: u16,
    },
    /// A message is longer than any may be.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// A message cannot be read.
    #[error("a message cannot be read: {0}")]
    Unreadable(postcard::Error),
    /// A message goes on behind its end.
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    /// It is not the turn of this message.
    #[error("it said {0} when that made no sense")]
    OutOfTurn(&'static str),
    /// The peer said nothing for too long.
    #[error("nothing came from it for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// A tally that cannot be.
    #[error(transparent)]
    Tally(#[from] BadTally),
    /// Connections that cannot be.
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

/// Says what this is, and finds out what the peer is.
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

/// Receives a message. Memory is taken as bytes come, not as they are announced.
pub(crate) async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    let len = length(from).await?;
    let mut bytes = Vec::new();
    if from.take(len as u64).read_to_end(&mut bytes).await? < len {
        return Err(TalkError::Closed);
    }
    let (message, rest) = postcard::take_from_bytes(&bytes).map_err(TalkError::Unreadable)?;
    if rest.is_empty() { Ok(message) } else { Err(TalkError::Trailing(rest.len())) }
}

/// Passes a message over, whatever it is.
pub(crate) async fn skip(from: &mut (impl AsyncRead + Unpin)) -> Result<(), TalkError> {
    let len = length(from).await? as u64;
    let skipped = tokio::io::copy(&mut from.take(len), &mut tokio::io::sink()).await?;
    if skipped < len { Err(TalkError::Closed) } else { Ok(()) }
}

async fn length(from: &mut (impl AsyncRead + Unpin)) -> Result<usize, TalkError> {
    let len = from.read_u32().await? as usize;
    if len > LEN_MAX { Err(TalkError::TooLong(len)) } else { Ok(len) }
}

/// Of what follows the greeting.
const VERSION: u16 = 1;
const MAGIC: [u8; 6] = *b"wbench";
const GREETING_LEN: usize = MAGIC.len() + 2;
const LEN_LEN: usize = 4;
/// Of a message: a list of 10 million lines fits.
const LEN_MAX: usize = 256 << 20;
/// Reports of connections that may be on their way to the log: enough for tens of thousands of connections a second over a long way.
pub(crate) const AHEAD_MAX: usize = 4;
/// How often both sides show that they are there.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Who says nothing for so long is given up. A machine under load may be slow.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
