//! The protocol between sensors and a judge.
//!
//! ```text
//!  sensor                                        judge
//!    | -- greeting: magic, version ----------------> |
//!    | <---------------- greeting: magic, version -- |
//!    | -- Hello { run, taken } --------------------> |   what this or another judge has taken of this run before
//!    | <-------- Welcome { run, taken }, or Refused -- |   what this judge has taken: the sensor continues behind it
//!    | -- Report { number, before, report } -------> |
//!    | <--------------------------------- Taken(..) -- |   for each
//!    | -- Beat { clock_offset_ns } ----------------> |   every second, if the one before was answered
//!    | <------------------------------ Beat { at } -- |
//! ```
//! The greeting has the same layout in every version. The rest is compatible only within a version. A message is its
//! length in 4 bytes (big-endian) and its postcard encoding. Either side may close at any time. A judge first sends the
//! reason (`Refused`), if it can.

mod report;

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use report::{BadReport, TALLIES_MAX, WireReport};

/// A message of a sensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSensor {
    /// The first message.
    Hello {
        /// A random number from the start of the reporter.
        run: u64,
        /// The reports that judges have taken; zeros if none.
        taken: Taken,
    },
    /// A report.
    Report {
        /// Counts up from 1 in a run.
        number: u64,
        /// The number of tallies in all earlier reports.
        before: u64,
        report: Box<WireReport>,
    },
    /// A heartbeat.
    Beat {
        /// How far the sensor's clock is ahead of the judge's, in nanoseconds, if measured.
        clock_offset_ns: Option<i64>,
    },
}

/// A message of a judge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJudge {
    /// The first message.
    Welcome {
        /// A random number from the start of the judge.
        run: u64,
        /// The reports that it has taken of the sensor's run; number 0 if none.
        taken: Taken,
    },
    /// The judge closes the connection.
    Refused {
        /// The reason, as a sentence.
        why: String,
    },
    /// The judge has taken another report.
    Taken(Taken),
    /// The answer to a heartbeat.
    Beat {
        /// The time of the judge's clock, in nanoseconds since the Unix epoch.
        at_ns: u64,
    },
}

/// The reports of a run that judges have taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The number of the last one taken.
    pub number: u64,
    /// The number of tallies up to that report, taken or not.
    pub told: u64,
    /// How many of those no judge has got.
    pub missed: u64,
}

/// A connection failed. Named by the side at fault.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The peer has closed.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer is not `watari watch`.
    #[error("it does not speak the protocol of watari watch")]
    Foreign,
    /// The peer has another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, and this program version {VERSION}: use the same Watari everywhere"
    )]
    Version {
        /// The peer's version.
        theirs: u16,
    },
    /// A message is longer than allowed. The value is its length in bytes.
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    /// A message cannot be decoded or encoded.
    #[error("a message cannot be read: {0}")]
    Unreadable(postcard::Error),
    /// A message has bytes behind its end. The value is their number.
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    /// A message came in the wrong state of the protocol.
    #[error("it sent {0} in the wrong state of the protocol")]
    OutOfTurn(&'static str),
    /// The peer sent nothing, or read nothing, for [`SILENCE_MAX`].
    #[error("it was silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// A report is invalid.
    #[error(transparent)]
    Report(#[from] BadReport),
    /// A judge acknowledged reports that were not sent.
    #[error(transparent)]
    Taking(#[from] super::FalseTaking),
}

impl From<io::Error> for TalkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

impl FromSensor {
    /// The error if it came in the wrong state.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Hello { .. } => "Hello",
            Self::Report { .. } => "Report",
            Self::Beat { .. } => "Beat",
        })
    }
}

impl FromJudge {
    /// The error if it came in the wrong state.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Welcome { .. } => "Welcome",
            Self::Refused { .. } => "Refused",
            Self::Taken(_) => "Taken",
            Self::Beat { .. } => "Beat",
        })
    }
}

/// A message of one side, with its maximum length.
pub trait LinkFrame: Serialize + DeserializeOwned {
    /// Of the encoding, in bytes.
    const LEN_MAX: usize;
}

impl LinkFrame for FromSensor {
    /// The largest report fits.
    const LEN_MAX: usize = 288 << 10;
}

impl LinkFrame for FromJudge {
    const LEN_MAX: usize = 1 << 10;
}

/// A message with its length before it.
pub fn encode<T: LinkFrame>(message: &T) -> Result<Vec<u8>, TalkError> {
    let mut bytes = postcard::to_extend(message, vec![0; LEN_LEN]).map_err(TalkError::Unreadable)?;
    let len = bytes.len() - LEN_LEN;
    if len > T::LEN_MAX {
        return Err(TalkError::TooLong(len));
    }
    bytes[..LEN_LEN].copy_from_slice(&(len as u32).to_be_bytes());
    Ok(bytes)
}

/// Decodes the bytes behind a length.
pub fn decode<T: LinkFrame>(bytes: &[u8]) -> Result<T, TalkError> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(TalkError::Unreadable)?;
    if rest.is_empty() { Ok(message) } else { Err(TalkError::Trailing(rest.len())) }
}

/// Sends the greeting, and checks the peer's.
pub(super) async fn greet(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), TalkError> {
    let mut greeting = [0; GREETING_LEN];
    greeting[..MAGIC.len()].copy_from_slice(&MAGIC);
    greeting[MAGIC.len()..].copy_from_slice(&VERSION.to_be_bytes());
    write(to, &greeting).await?;
    from.read_exact(&mut greeting).await?;
    let theirs = greeting.strip_prefix(&MAGIC).ok_or(TalkError::Foreign)?;
    match u16::from_be_bytes([theirs[0], theirs[1]]) {
        VERSION => Ok(()),
        theirs => Err(TalkError::Version { theirs }),
    }
}

/// Sends a message.
pub(super) async fn send<T: LinkFrame>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> Result<(), TalkError> {
    write(to, &encode(message)?).await
}

/// Sends an encoded message. Fails if the peer reads nothing for [`SILENCE_MAX`].
pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), TalkError> {
    let written = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    Ok(tokio::time::timeout(SILENCE_MAX, written).await.map_err(|_| TalkError::Silent)??)
}

/// Receives a message. It allocates memory as bytes arrive, not by the announced length. Fails if the peer sends
/// nothing for [`SILENCE_MAX`].
pub(super) async fn receive<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    tokio::time::timeout(SILENCE_MAX, read(from)).await.map_err(|_| TalkError::Silent)?
}

async fn read<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    let len = from.read_u32().await? as usize;
    if len > T::LEN_MAX {
        return Err(TalkError::TooLong(len));
    }
    let mut bytes = Vec::new();
    if from.take(len as u64).read_to_end(&mut bytes).await? < len {
        return Err(TalkError::Closed);
    }
    decode(&bytes)
}

/// The version of the protocol behind the greeting.
pub const VERSION: u16 = 3;
const MAGIC: [u8; 6] = *b"wwatch";
const GREETING_LEN: usize = MAGIC.len() + 2;
const LEN_LEN: usize = 4;
/// The interval of a sensor's heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// The idle timeout: a connection ends if the peer sends or reads nothing for this time.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
