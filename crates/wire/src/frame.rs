//! Frames: the encoding of messages on a link.
//!
//! ```text
//!  0       4         5      6
//!  +-------+---------+------+--------------------------------+
//!  | len   | version | kind | body: postcard of the message  |
//!  +-------+---------+------+--------------------------------+
//!          |<----------------- len bytes ------------------->|
//! ```
//! `len` is big-endian and counts the bytes after it. Version 0 and the kinds 0 to 15 are those of [`LinkMessage`]s,
//! whose layout never changes. A [`Message`] has its sender's version. Frames follow each other without gaps.

use std::ops::RangeInclusive;

use postcard::ser_flavors::{Flavor, Size};
use serde::{Deserialize, Serialize};

use crate::{BadLength, Hello, LinkMessage, Members, Message, MessageKind};

/// The oldest message version that this build supports.
pub const VERSION_MIN: u8 = 1;
/// The newest message version that this build supports.
pub const VERSION_MAX: u8 = 1;
/// The longest frame with its length field, in bytes. A [`Ship`](crate::Ship) with all fields at their limits fits.
pub const FRAME_LEN_MAX: usize = 2 << 20;

const VERSIONS: RangeInclusive<u8> = VERSION_MIN..=VERSION_MAX;
const LINK_VERSION: u8 = 0;
const HELLO: u8 = 1;
const PING: u8 = 2;
const PONG: u8 = 3;
const UNSUPPORTED: u8 = 4;
const MEMBERS: u8 = 5;

/// The length of the length field, in bytes.
const LEN_LEN: usize = 4;
/// The length of a frame before its body, in bytes.
const HEAD_LEN: usize = LEN_LEN + 2;

/// The content of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message about the link.
    Link(LinkMessage),
    /// A message about connections.
    Message(Message),
    /// A message that this build does not support. It is skipped, and answered with [`LinkMessage::Unsupported`].
    Unknown {
        /// The version in the frame.
        version: u8,
        /// The kind in the frame.
        kind: u8,
    },
}

/// The peer sent no valid frame. The rest of the link cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length field is larger than [`FRAME_LEN_MAX`] allows.
    #[error("a frame of {len} bytes is longer than the limit of {FRAME_LEN_MAX} bytes")]
    TooLong {
        /// The length of the whole frame, in bytes.
        len: usize,
    },
    /// The frame has no room for version and kind.
    #[error("a frame of {len} bytes has no room for a version and a kind")]
    TooShort {
        /// The length of the whole frame, in bytes.
        len: usize,
    },
    /// The body is invalid for its kind.
    #[error("the body of a frame of kind {kind} cannot be read: {cause}")]
    Body {
        kind: u8,
        /// The decoder's error.
        cause: postcard::Error,
    },
    /// Bytes follow the message in the body.
    #[error("a frame of kind {kind} has {extra} bytes too many")]
    TrailingBytes {
        kind: u8,
        /// The number of these bytes.
        extra: usize,
    },
    /// A field is too long or too short.
    #[error("a frame of kind {kind} is refused: {cause}")]
    BadLength {
        kind: u8,
        /// The field and its length.
        cause: BadLength,
    },
}

/// Appends the frame of `message` to `out`. On an error, `out` stays unchanged.
///
/// Messages may contain secrets. So the caller reserves [`encoded_len`] bytes before (a vector that grows leaves a copy
/// behind), and zeroizes `out` after use.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), BadLength> {
    message.check_bounds()?;
    let kind = message.kind() as u8;
    match message {
        Message::LegKey(body) => append(VERSION_MAX, kind, body, out),
        Message::Established(body) => append(VERSION_MAX, kind, body, out),
        Message::Propose(body) => append(VERSION_MAX, kind, body, out),
        Message::Freeze(body) => append(VERSION_MAX, kind, body, out),
        Message::Ship(body) => append(VERSION_MAX, kind, body, out),
        Message::Rest(body) => append(VERSION_MAX, kind, body, out),
        Message::Held(body) => append(VERSION_MAX, kind, body, out),
        Message::Refused(body) => append(VERSION_MAX, kind, body, out),
        Message::Cancel(body) => append(VERSION_MAX, kind, body, out),
        Message::Committed(body) => append(VERSION_MAX, kind, body, out),
        Message::Aborted(body) => append(VERSION_MAX, kind, body, out),
        Message::Gone(body) | Message::Tunnel(body) => append(VERSION_MAX, kind, body, out),
        Message::Final(body) => append(VERSION_MAX, kind, body, out),
        Message::Leave(body) => append(VERSION_MAX, kind, body, out),
        Message::Stays(body) => append(VERSION_MAX, kind, body, out),
        Message::Draining => append(VERSION_MAX, kind, &(), out),
        Message::LegKept(body) => append(VERSION_MAX, kind, body, out),
        Message::TicketSeeds(body) => append(VERSION_MAX, kind, body, out),
        Message::TicketSeedWanted(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionPut(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionStored(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionGet(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionFound(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionSpend(body) => append(VERSION_MAX, kind, body, out),
        Message::SessionSpent(body) => append(VERSION_MAX, kind, body, out),
    }
    Ok(())
}

/// Appends the frame of `message` to `out`.
pub fn encode_link(message: &LinkMessage, out: &mut Vec<u8>) {
    match message {
        LinkMessage::Hello(hello) => append(LINK_VERSION, HELLO, hello, out),
        LinkMessage::Ping => append(LINK_VERSION, PING, &(), out),
        LinkMessage::Pong => append(LINK_VERSION, PONG, &(), out),
        LinkMessage::Unsupported { version, kind } => append(LINK_VERSION, UNSUPPORTED, &(version, kind), out),
        LinkMessage::Members(members) => append(LINK_VERSION, MEMBERS, members, out),
    }
}

/// The number of bytes that [`encode`] appends.
pub fn encoded_len(message: &Message) -> usize {
    let body = match message {
        Message::LegKey(body) => body_len(body),
        Message::Established(body) => body_len(body),
        Message::Propose(body) => body_len(body),
        Message::Freeze(body) => body_len(body),
        Message::Ship(body) => body_len(body),
        Message::Rest(body) => body_len(body),
        Message::Held(body) => body_len(body),
        Message::Refused(body) => body_len(body),
        Message::Cancel(body) => body_len(body),
        Message::Committed(body) => body_len(body),
        Message::Aborted(body) => body_len(body),
        Message::Gone(body) | Message::Tunnel(body) => body_len(body),
        Message::Final(body) => body_len(body),
        Message::Leave(body) => body_len(body),
        Message::Stays(body) => body_len(body),
        Message::Draining => 0,
        Message::LegKept(body) => body_len(body),
        Message::TicketSeeds(body) => body_len(body),
        Message::TicketSeedWanted(body) => body_len(body),
        Message::SessionPut(body) => body_len(body),
        Message::SessionStored(body) => body_len(body),
        Message::SessionGet(body) => body_len(body),
        Message::SessionFound(body) => body_len(body),
        Message::SessionSpend(body) => body_len(body),
        Message::SessionSpent(body) => body_len(body),
    };
    HEAD_LEN + body
}

/// Decodes the first frame of `bytes`. Returns it and its length. `None`: it is incomplete.
///
/// Refuses a length of more than [`FRAME_LEN_MAX`] at once. So a caller with a buffer of this size never needs more.
pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
    let Some((len_field, after)) = bytes.split_first_chunk::<LEN_LEN>() else {
        return Ok(None);
    };
    let announced = u32::from_be_bytes(*len_field) as usize;
    let len = announced.saturating_add(LEN_LEN);
    if len > FRAME_LEN_MAX {
        return Err(FrameError::TooLong { len });
    }
    if len < HEAD_LEN {
        return Err(FrameError::TooShort { len });
    }
    match after.get(..announced) {
        Some([version, kind, body @ ..]) => Ok(Some((decode_body(*version, *kind, body)?, len))),
        _ => Ok(None),
    }
}

fn decode_body(version: u8, kind: u8, body: &[u8]) -> Result<Frame, FrameError> {
    match (version, MessageKind::from_u8(kind)) {
        (LINK_VERSION, _) => decode_link(kind, body),
        (version, Some(kind)) if VERSIONS.contains(&version) => decode_message(kind, body).map(Frame::Message),
        _ => Ok(Frame::Unknown { version, kind }),
    }
}

fn decode_link(kind: u8, body: &[u8]) -> Result<Frame, FrameError> {
    let message = match kind {
        HELLO => {
            let hello: Hello = exactly(kind, body)?;
            hello.check_bounds().map_err(|cause| FrameError::BadLength { kind, cause })?;
            LinkMessage::Hello(hello)
        }
        PING => exactly(kind, body).map(|()| LinkMessage::Ping)?,
        PONG => exactly(kind, body).map(|()| LinkMessage::Pong)?,
        UNSUPPORTED => {
            let (version, kind) = exactly(kind, body)?;
            LinkMessage::Unsupported { version, kind }
        }
        MEMBERS => {
            let members: Members = exactly(kind, body)?;
            members.check_bounds().map_err(|cause| FrameError::BadLength { kind, cause })?;
            LinkMessage::Members(members)
        }
        _ => {
            return Ok(Frame::Unknown { version: LINK_VERSION, kind });
        }
    };
    Ok(Frame::Link(message))
}

fn decode_message(kind: MessageKind, body: &[u8]) -> Result<Message, FrameError> {
    let number = kind as u8;
    let message = match kind {
        MessageKind::LegKey => Message::LegKey(exactly(number, body)?),
        MessageKind::Established => Message::Established(exactly(number, body)?),
        MessageKind::Propose => Message::Propose(exactly(number, body)?),
        MessageKind::Freeze => Message::Freeze(exactly(number, body)?),
        MessageKind::Ship => Message::Ship(exactly(number, body)?),
        MessageKind::Rest => Message::Rest(exactly(number, body)?),
        MessageKind::Held => Message::Held(exactly(number, body)?),
        MessageKind::Refused => Message::Refused(exactly(number, body)?),
        MessageKind::Cancel => Message::Cancel(exactly(number, body)?),
        MessageKind::Committed => Message::Committed(exactly(number, body)?),
        MessageKind::Aborted => Message::Aborted(exactly(number, body)?),
        MessageKind::Gone => Message::Gone(exactly(number, body)?),
        MessageKind::Final => Message::Final(exactly(number, body)?),
        MessageKind::Leave => Message::Leave(exactly(number, body)?),
        MessageKind::Stays => Message::Stays(exactly(number, body)?),
        MessageKind::Draining => exactly(number, body).map(|()| Message::Draining)?,
        MessageKind::LegKept => Message::LegKept(exactly(number, body)?),
        MessageKind::TicketSeeds => Message::TicketSeeds(exactly(number, body)?),
        MessageKind::TicketSeedWanted => Message::TicketSeedWanted(exactly(number, body)?),
        MessageKind::SessionPut => Message::SessionPut(exactly(number, body)?),
        MessageKind::SessionStored => Message::SessionStored(exactly(number, body)?),
        MessageKind::SessionGet => Message::SessionGet(exactly(number, body)?),
        MessageKind::SessionFound => Message::SessionFound(exactly(number, body)?),
        MessageKind::SessionSpend => Message::SessionSpend(exactly(number, body)?),
        MessageKind::SessionSpent => Message::SessionSpent(exactly(number, body)?),
        MessageKind::Tunnel => Message::Tunnel(exactly(number, body)?),
    };
    message.check_bounds().map_err(|cause| FrameError::BadLength { kind: number, cause })?;
    Ok(message)
}

/// Decodes a body that ends with its message. No field can be longer than the body, whose length the frame bounds.
fn exactly<'a, T: Deserialize<'a>>(kind: u8, body: &'a [u8]) -> Result<T, FrameError> {
    let (value, rest) = postcard::take_from_bytes(body).map_err(|cause| FrameError::Body { kind, cause })?;
    if rest.is_empty() { Ok(value) } else { Err(FrameError::TrailingBytes { kind, extra: rest.len() }) }
}

fn append<T: Serialize>(version: u8, kind: u8, body: &T, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; LEN_LEN]);
    out.extend_from_slice(&[version, kind]);
    postcard::serialize_with_flavor(body, Append(out)).expect("plain data can be written to memory");
    let len = u32::try_from(out.len() - start - LEN_LEN).expect("the fields of a message are bounded");
    out[start..start + LEN_LEN].copy_from_slice(&len.to_be_bytes());
}

fn body_len<T: Serialize>(body: &T) -> usize {
    postcard::serialize_with_flavor(body, Size::default()).expect("plain data has a length")
}

/// Appends to a vector that already has other frames.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
