//! What a sensor and a judge say to each other.
//!
//! ```text
//!  sensor                                        judge
//!    | -- greeting: magic, version ----------------> |
//!    | <---------------- greeting: magic, version -- |
//!    | -- Hello { run, taken } --------------------> |   what this or another judge has taken of this run before
//!    | <-------- Welcome { run, taken }, or Refused -- |   what this one has: sending goes on behind it
//!    | -- Report { number, before, report } -------> |
//!    | <--------------------------------- Taken(..) -- |   for each
//!    | -- Beat { clock_offset_ns } ----------------> |   every second, if the one before was answered
//!    | <------------------------------ Beat { at } -- |
//! ```
//! The greeting has the same layout in every version; what follows is understood only by the same version. A message is its
//! length in 4 bytes (big-endian) and its postcard encoding. Either side may hang up at any time; a judge says why
//! (`Refused`), if it can.

mod report;

use std::io;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub use report::{BadReport, TALLIES_MAX, WireReport};

/// What a sensor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSensor {
    /// The first message.
    Hello {
        /// Drawn at random when the reporter starts.
        run: u64,
        /// How far judges have taken its reports; of none yet, zeros.
        taken: Taken,
    },
    /// What happened.
    Report {
        /// Counts up from 1 in a run.
        number: u64,
        /// How many tallies all reports before it have.
        before: u64,
        /// The rest of it.
        report: Box<WireReport>,
    },
    /// Is anybody there?
    Beat {
        /// How far the sensor's clock is ahead of the judge's, in nanoseconds, if that is known.
        clock_offset_ns: Option<i64>,
    },
}

/// What a judge says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromJudge {
    /// The first message.
    Welcome {
        /// Drawn at random when the judge starts.
        run: u64,
        /// How far it has taken reports of the sensor's run; number 0: it had none.
        taken: Taken,
    },
    /// It hangs up.
    Refused {
        /// Why, in a sentence.
        why: String,
    },
    /// It has taken another report.
    Taken(Taken),
    /// Yes.
    Beat {
        /// The judge's clock.
        at_ns: u64,
    },
}

/// How far reports of a run have been taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The last that was taken.
    pub number: u64,
    /// How many tallies were told up to here, taken or not.
    pub told: u64,
    /// How many of those no judge has had.
    pub missed: u64,
}

/// A conversation is over before its time. Named by who is at fault.
#[derive(Debug, thiserror::Error)]
pub enum TalkError {
    /// The peer is gone.
    #[error("the connection was closed")]
    Closed,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(io::Error),
    /// The peer is no `watari watch`.
    #[error("it does not speak the protocol of watari watch")]
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
    /// A message cannot be read, or cannot be written.
    #[error("a message cannot be read: {0}")]
    Unreadable(postcard::Error),
    /// A message goes on behind its end.
    #[error("a message has {0} bytes too many")]
    Trailing(usize),
    /// It is not the turn of this message.
    #[error("it said {0} when that made no sense")]
    OutOfTurn(&'static str),
    /// The peer said nothing, or took nothing, for too long.
    #[error("it was silent for {} s", SILENCE_MAX.as_secs())]
    Silent,
    /// A report that cannot be.
    #[error(transparent)]
    Report(#[from] BadReport),
    /// A judge has taken what it was not sent.
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
    /// That it came when it made no sense.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Hello { .. } => "Hello",
            Self::Report { .. } => "Report",
            Self::Beat { .. } => "Beat",
        })
    }
}

impl FromJudge {
    /// That it came when it made no sense.
    pub(super) const fn out_of_turn(&self) -> TalkError {
        TalkError::OutOfTurn(match self {
            Self::Welcome { .. } => "Welcome",
            Self::Refused { .. } => "Refused",
            Self::Taken(_) => "Taken",
            Self::Beat { .. } => "Beat",
        })
    }
}

/// A message that one side may say, and how long it may be.
pub trait Spoken: Serialize + DeserializeOwned {
    /// Of its encoding, in bytes.
    const LEN_MAX: usize;
}

impl Spoken for FromSensor {
    /// The fullest report fits.
    const LEN_MAX: usize = 288 << 10;
}

impl Spoken for FromJudge {
    const LEN_MAX: usize = 1 << 10;
}

/// A message with its length in front.
pub fn encode<T: Spoken>(message: &T) -> Result<Vec<u8>, TalkError> {
    let mut bytes = postcard::to_extend(message, vec![0; LEN_LEN]).map_err(TalkError::Unreadable)?;
    let len = bytes.len() - LEN_LEN;
    if len > T::LEN_MAX {
        return Err(TalkError::TooLong(len));
    }
    bytes[..LEN_LEN].copy_from_slice(&(len as u32).to_be_bytes());
    Ok(bytes)
}

/// What follows a length.
pub fn decode<T: Spoken>(bytes: &[u8]) -> Result<T, TalkError> {
    let (message, rest) = postcard::take_from_bytes(bytes).map_err(TalkError::Unreadable)?;
    if rest.is_empty() { Ok(message) } else { Err(TalkError::Trailing(rest.len())) }
}

/// Says what this is, and finds out what the peer is.
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
pub(super) async fn send<T: Spoken>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> Result<(), TalkError> {
    write(to, &encode(message)?).await
}

/// Sends what is encoded. Who takes nothing for too long is gone.
pub(super) async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), TalkError> {
    let written = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    Ok(tokio::time::timeout(SILENCE_MAX, written).await.map_err(|_| TalkError::Silent)??)
}

/// Receives a message. Memory is taken as bytes come, not as they are announced. Who says nothing for too long is gone.
pub(super) async fn receive<T: Spoken>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    tokio::time::timeout(SILENCE_MAX, read(from)).await.map_err(|_| TalkError::Silent)?
}

async fn read<T: Spoken>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
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

/// Of what follows the greeting.
pub const VERSION: u16 = 3;
const MAGIC: [u8; 6] = *b"wwatch";
const GREETING_LEN: usize = MAGIC.len() + 2;
const LEN_LEN: usize = 4;
/// How often a sensor shows that it is there.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(1);
/// Who says or takes nothing for so long is given up.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
