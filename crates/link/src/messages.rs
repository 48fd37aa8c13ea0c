//! Greetings, and messages with their length before them.
//!
//! A greeting is 6 bytes that identify the protocol and its version in 2 bytes (big-endian). It has the same layout in
//! every version. A message is its length in 4 bytes (big-endian) and its postcard encoding.

use std::error::Error;
use std::io;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// A protocol over a connection between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Protocol {
    /// The first bytes of a greeting.
    pub magic: [u8; MAGIC_LEN],
    /// The version of the messages after the greeting. They are compatible only within one version.
    pub version: u16,
    /// The program that has this protocol, for errors.
    pub program: &'static str,
}

/// A message of one side, with its maximum length.
pub trait LinkFrame: Serialize + DeserializeOwned {
    /// Of the encoding, in bytes.
    const LEN_MAX: usize;
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
    /// The peer has another protocol. The value is the program of this one.
    #[error("it does not speak the protocol of {0}")]
    Foreign(&'static str),
    /// The peer has another version of the protocol.
    #[error(
        "it speaks version {theirs} of the protocol, and this program version {ours}: use the same Watari everywhere"
    )]
    Version {
        /// The peer's version.
        theirs: u16,
        ours: u16,
    },
    /// A message is longer than [`LinkFrame::LEN_MAX`]. The value is its length in bytes.
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
    /// The content of a message is invalid.
    #[error(transparent)]
    Content(Box<dyn Error + Send + Sync>),
}

impl TalkError {
    /// The content of a message is invalid, with this cause.
    pub fn content(cause: impl Error + Send + Sync + 'static) -> Self {
        Self::Content(Box::new(cause))
    }
}

impl From<io::Error> for TalkError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => Self::Closed,
            _ => Self::Io(error),
        }
    }
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

/// Sends the greeting, and checks the peer's. The caller limits the time.
pub async fn greet(
    protocol: &Protocol,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<(), TalkError> {
    let mut greeting = [0; GREETING_LEN];
    greeting[..MAGIC_LEN].copy_from_slice(&protocol.magic);
    greeting[MAGIC_LEN..].copy_from_slice(&protocol.version.to_be_bytes());
    write(to, &greeting).await?;
    from.read_exact(&mut greeting).await?;
    let theirs = greeting.strip_prefix(&protocol.magic).ok_or(TalkError::Foreign(protocol.program))?;
    match u16::from_be_bytes([theirs[0], theirs[1]]) {
        theirs if theirs == protocol.version => Ok(()),
        theirs => Err(TalkError::Version { theirs, ours: protocol.version }),
    }
}

/// Sends a message. Fails if the peer reads nothing for [`SILENCE_MAX`].
pub async fn send<T: LinkFrame>(to: &mut (impl AsyncWrite + Unpin), message: &T) -> Result<(), TalkError> {
    write(to, &encode(message)?).await
}

/// Sends an encoded message. Fails if the peer reads nothing for [`SILENCE_MAX`].
pub async fn write(to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), TalkError> {
    let written = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    Ok(timeout(SILENCE_MAX, written).await.map_err(|_| TalkError::Silent)??)
}

/// Receives a message. It allocates memory as bytes arrive, not by the announced length. Fails if the message is not
/// complete after [`SILENCE_MAX`].
pub async fn receive<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    timeout(SILENCE_MAX, read(from)).await.map_err(|_| TalkError::Silent)?
}

/// Skips a message. The caller limits the time.
pub async fn skip<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<(), TalkError> {
    let len = length::<T>(from).await? as u64;
    let skipped = tokio::io::copy(&mut from.take(len), &mut tokio::io::sink()).await?;
    if skipped < len { Err(TalkError::Closed) } else { Ok(()) }
}

async fn read<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<T, TalkError> {
    let len = length::<T>(from).await?;
    let mut bytes = Vec::new();
    if from.take(len as u64).read_to_end(&mut bytes).await? < len {
        return Err(TalkError::Closed);
    }
    decode(&bytes)
}

async fn length<T: LinkFrame>(from: &mut (impl AsyncRead + Unpin)) -> Result<usize, TalkError> {
    let len = from.read_u32().await? as usize;
    if len > T::LEN_MAX { Err(TalkError::TooLong(len)) } else { Ok(len) }
}

/// The idle timeout: a connection ends if the peer sends or reads nothing for this time. A machine under load may be
/// slow.
pub const SILENCE_MAX: Duration = Duration::from_secs(20);
const MAGIC_LEN: usize = 6;
const GREETING_LEN: usize = MAGIC_LEN + 2;
const LEN_LEN: usize = 4;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde::Deserialize;
    use tokio::io::duplex;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    enum Said {
        Word(String),
        Number(u64),
    }

    impl LinkFrame for Said {
        const LEN_MAX: usize = 1 << 10;
    }

    const PROTOCOL: Protocol = Protocol { magic: *b"wtests", version: 3, program: "the tests" };

    async fn greeted_with(greeting: &[u8]) -> Result<(), TalkError> {
        let mut from = greeting;
        greet(&PROTOCOL, &mut from, &mut tokio::io::sink()).await
    }

    #[tokio::test]
    async fn another_version_is_distinguished_from_another_program() {
        assert!(matches!(greeted_with(b"wtests\0\x04").await, Err(TalkError::Version { theirs: 4, ours: 3 })));
        assert!(matches!(greeted_with(b"HTTP/1.1 400 Bad Request").await, Err(TalkError::Foreign("the tests"))));
        assert!(matches!(greeted_with(b"wt").await, Err(TalkError::Closed)));
        greeted_with(b"wtests\0\x03").await.unwrap();
    }

    #[tokio::test]
    async fn messages_follow_each_other() {
        let (mut ours, mut theirs) = duplex(64);
        for number in [7, 300] {
            send(&mut ours, &Said::Number(number)).await.unwrap();
        }
        drop(ours);
        skip::<Said>(&mut theirs).await.unwrap();
        assert_eq!(receive::<Said>(&mut theirs).await.unwrap(), Said::Number(300));
        assert!(matches!(receive::<Said>(&mut theirs).await, Err(TalkError::Closed)));
    }

    #[test]
    fn bytes_behind_a_message_are_refused() {
        let bytes = encode(&Said::Number(1)).unwrap();
        assert_eq!(bytes, [0, 0, 0, 2, 1, 1]);
        assert!(matches!(decode::<Said>(&[&bytes[4..], &[0]].concat()), Err(TalkError::Trailing(1))));
        assert!(matches!(decode::<Said>(&bytes[4..5]), Err(TalkError::Unreadable(_))));
        assert!(matches!(encode(&Said::Word("x".repeat(2_000))), Err(TalkError::TooLong(2_003))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_given_up() {
        let (mut near, mut far) = duplex(64);
        assert!(matches!(receive::<Said>(&mut near).await, Err(TalkError::Silent)));
        // A partial message is followed by silence, too; and a peer that reads nothing times out.
        write(&mut far, &[0, 0, 0, 9, 1]).await.unwrap();
        assert!(matches!(receive::<Said>(&mut near).await, Err(TalkError::Silent)));
        assert!(matches!(write(&mut near, &[0; 100]).await, Err(TalkError::Silent)));
    }

    #[tokio::test]
    async fn lengths_are_checked_before_anything_is_read() {
        let read = |bytes: &'static [u8]| async move { receive::<Said>(&mut &*bytes).await };
        assert!(matches!(read(b"\xff\xff\xff\xff").await, Err(TalkError::TooLong(0xffff_ffff))));
        assert!(matches!(read(b"\0\0\x04\x01").await, Err(TalkError::TooLong(1_025))));
        assert!(matches!(read(b"\0\0\x04\0abc").await, Err(TalkError::Closed)));
        assert!(matches!(read(b"\0\0").await, Err(TalkError::Closed)));
    }
}
