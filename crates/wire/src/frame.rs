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

use crate::bounds::BadLength;
use crate::kind::MessageKind;
use crate::link::{Hello, LinkMessage, VERSION_MAX, VERSION_MIN};
use crate::members::Members;
use crate::message::{
    AgentToAgent, AgentToDispatcher, DispatcherToAgent, DispatcherToDispatcher, Message, SessionMessage,
    TakeoverMessage,
};

/// The longest frame with its length field, in bytes. A
/// [`ShipInResponse`](crate::ShipInResponse) with all fields at their limits fits.
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
    /// A message about connections, sessions, purges or service addresses.
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
    append_with(VERSION_MAX, message.kind() as u8, out, |out| write_body(message, Append(out)));
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
    HEAD_LEN + write_body(message, Size::default())
}

fn write_body<F: Flavor>(message: &Message, to: F) -> F::Output {
    match message {
        Message::AgentToDispatcher(message) => write_to_dispatcher(message, to),
        Message::DispatcherToAgent(message) => write_to_agent(message, to),
        Message::AgentToAgent(message) => write_between_agents(message, to),
        Message::DispatcherToDispatcher(message) => write_between_dispatchers(message, to),
        Message::Takeover(message) => write_takeover(message, to),
    }
}

fn write_to_dispatcher<F: Flavor>(message: &AgentToDispatcher, to: F) -> F::Output {
    match message {
        AgentToDispatcher::LegKey(body) => write(body, to),
        AgentToDispatcher::Established(body) => write(body, to),
        AgentToDispatcher::Propose(body) => write(body, to),
        AgentToDispatcher::Held(body) => write(body, to),
        AgentToDispatcher::Refused(body) => write(body, to),
        AgentToDispatcher::Cancel(body) => write(body, to),
        AgentToDispatcher::Final(body) => write(body, to),
        AgentToDispatcher::Stays(body) => write(body, to),
        AgentToDispatcher::Tunnel(body) => write(body, to),
        AgentToDispatcher::Draining => write(&(), to),
        AgentToDispatcher::LegDetached(body) => write(body, to),
        AgentToDispatcher::LegAttached(body) => write(body, to),
    }
}

fn write_to_agent<F: Flavor>(message: &DispatcherToAgent, to: F) -> F::Output {
    match message {
        DispatcherToAgent::Leave(body) => write(body, to),
        DispatcherToAgent::Freeze(body) => write(body, to),
        DispatcherToAgent::Committed(body) => write(body, to),
        DispatcherToAgent::LegKept(body) => write(body, to),
        DispatcherToAgent::Aborted(body) => write(body, to),
        DispatcherToAgent::Gone(body) => write(body, to),
        DispatcherToAgent::DetachLeg(body) => write(body, to),
        DispatcherToAgent::AttachLeg(body) => write(body, to),
    }
}

fn write_between_agents<F: Flavor>(message: &AgentToAgent, to: F) -> F::Output {
    match message {
        AgentToAgent::Ship(body) => write(body, to),
        AgentToAgent::Prepare(body) => write(body, to),
        AgentToAgent::Prepared(body) => write(body, to),
        AgentToAgent::ShipInResponse(body) => write(body, to),
        AgentToAgent::Anchored(body) => write(body, to),
        AgentToAgent::Rest(body) => write(body, to),
        AgentToAgent::TicketSeeds(body) => write(body, to),
        AgentToAgent::TicketSeedWanted(body) => write(body, to),
        AgentToAgent::Session(SessionMessage::Put(body)) => write(body, to),
        AgentToAgent::Session(SessionMessage::Stored(body)) => write(body, to),
        AgentToAgent::Session(SessionMessage::Get(body)) => write(body, to),
        AgentToAgent::Session(SessionMessage::Found(body)) => write(body, to),
        AgentToAgent::Session(SessionMessage::Spend(body)) => write(body, to),
        AgentToAgent::Session(SessionMessage::Spent(body)) => write(body, to),
        AgentToAgent::Purges(body) => write(body, to),
    }
}

fn write_between_dispatchers<F: Flavor>(message: &DispatcherToDispatcher, to: F) -> F::Output {
    match message {
        DispatcherToDispatcher::TakeWanted(body) => write(body, to),
        DispatcherToDispatcher::TakeReady(body) => write(body, to),
        DispatcherToDispatcher::TakeComing(body) => write(body, to),
        DispatcherToDispatcher::StatePart(body) => write(body, to),
        DispatcherToDispatcher::TakeRefused(body) => write(body, to),
        DispatcherToDispatcher::Steering(body) => write(body, to),
        DispatcherToDispatcher::TakeHeld(body)
        | DispatcherToDispatcher::Given(body)
        | DispatcherToDispatcher::Taken(body) => write(body, to),
    }
}

fn write_takeover<F: Flavor>(message: &TakeoverMessage, to: F) -> F::Output {
    match message {
        TakeoverMessage::LeaseWanted(body) => write(body, to),
        TakeoverMessage::LeaseReturned(body) => write(body, to),
        TakeoverMessage::LeaseGranted(body) => write(body, to),
        TakeoverMessage::LeaseRefused(body) => write(body, to),
        TakeoverMessage::Advert(body) => write(body, to),
        TakeoverMessage::SwitchWanted(body) => write(body, to),
        TakeoverMessage::Yielded(body) => write(body, to),
    }
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
    let message: Message = match kind {
        MessageKind::LegKey => AgentToDispatcher::LegKey(exactly(number, body)?).into(),
        MessageKind::Established => AgentToDispatcher::Established(exactly(number, body)?).into(),
        MessageKind::Propose => AgentToDispatcher::Propose(exactly(number, body)?).into(),
        MessageKind::Freeze => DispatcherToAgent::Freeze(exactly(number, body)?).into(),
        MessageKind::Ship => AgentToAgent::Ship(exactly(number, body)?).into(),
        MessageKind::Rest => AgentToAgent::Rest(exactly(number, body)?).into(),
        MessageKind::Held => AgentToDispatcher::Held(exactly(number, body)?).into(),
        MessageKind::Refused => AgentToDispatcher::Refused(exactly(number, body)?).into(),
        MessageKind::Cancel => AgentToDispatcher::Cancel(exactly(number, body)?).into(),
        MessageKind::Committed => DispatcherToAgent::Committed(exactly(number, body)?).into(),
        MessageKind::Aborted => DispatcherToAgent::Aborted(exactly(number, body)?).into(),
        MessageKind::Gone => DispatcherToAgent::Gone(exactly(number, body)?).into(),
        MessageKind::Final => AgentToDispatcher::Final(exactly(number, body)?).into(),
        MessageKind::Leave => DispatcherToAgent::Leave(exactly(number, body)?).into(),
        MessageKind::Stays => AgentToDispatcher::Stays(exactly(number, body)?).into(),
        MessageKind::Draining => exactly(number, body).map(|()| AgentToDispatcher::Draining)?.into(),
        MessageKind::LegKept => DispatcherToAgent::LegKept(exactly(number, body)?).into(),
        MessageKind::TicketSeeds => AgentToAgent::TicketSeeds(exactly(number, body)?).into(),
        MessageKind::TicketSeedWanted => AgentToAgent::TicketSeedWanted(exactly(number, body)?).into(),
        MessageKind::SessionPut => SessionMessage::Put(exactly(number, body)?).into(),
        MessageKind::SessionStored => SessionMessage::Stored(exactly(number, body)?).into(),
        MessageKind::SessionGet => SessionMessage::Get(exactly(number, body)?).into(),
        MessageKind::SessionFound => SessionMessage::Found(exactly(number, body)?).into(),
        MessageKind::SessionSpend => SessionMessage::Spend(exactly(number, body)?).into(),
        MessageKind::SessionSpent => SessionMessage::Spent(exactly(number, body)?).into(),
        MessageKind::Tunnel => AgentToDispatcher::Tunnel(exactly(number, body)?).into(),
        MessageKind::Prepare => AgentToAgent::Prepare(exactly(number, body)?).into(),
        MessageKind::Prepared => AgentToAgent::Prepared(exactly(number, body)?).into(),
        MessageKind::ShipInResponse => AgentToAgent::ShipInResponse(exactly(number, body)?).into(),
        MessageKind::Anchored => AgentToAgent::Anchored(exactly(number, body)?).into(),
        MessageKind::LeaseWanted => TakeoverMessage::LeaseWanted(exactly(number, body)?).into(),
        MessageKind::LeaseReturned => TakeoverMessage::LeaseReturned(exactly(number, body)?).into(),
        MessageKind::LeaseGranted => TakeoverMessage::LeaseGranted(exactly(number, body)?).into(),
        MessageKind::LeaseRefused => TakeoverMessage::LeaseRefused(exactly(number, body)?).into(),
        MessageKind::Advert => TakeoverMessage::Advert(exactly(number, body)?).into(),
        MessageKind::SwitchWanted => TakeoverMessage::SwitchWanted(exactly(number, body)?).into(),
        MessageKind::Yielded => TakeoverMessage::Yielded(exactly(number, body)?).into(),
        MessageKind::DetachLeg => DispatcherToAgent::DetachLeg(exactly(number, body)?).into(),
        MessageKind::LegDetached => AgentToDispatcher::LegDetached(exactly(number, body)?).into(),
        MessageKind::AttachLeg => DispatcherToAgent::AttachLeg(exactly(number, body)?).into(),
        MessageKind::LegAttached => AgentToDispatcher::LegAttached(exactly(number, body)?).into(),
        MessageKind::TakeWanted => DispatcherToDispatcher::TakeWanted(exactly(number, body)?).into(),
        MessageKind::TakeReady => DispatcherToDispatcher::TakeReady(exactly(number, body)?).into(),
        MessageKind::StatePart => DispatcherToDispatcher::StatePart(exactly(number, body)?).into(),
        MessageKind::TakeHeld => DispatcherToDispatcher::TakeHeld(exactly(number, body)?).into(),
        MessageKind::TakeRefused => DispatcherToDispatcher::TakeRefused(exactly(number, body)?).into(),
        MessageKind::Given => DispatcherToDispatcher::Given(exactly(number, body)?).into(),
        MessageKind::Taken => DispatcherToDispatcher::Taken(exactly(number, body)?).into(),
        MessageKind::TakeComing => DispatcherToDispatcher::TakeComing(exactly(number, body)?).into(),
        MessageKind::Steering => DispatcherToDispatcher::Steering(exactly(number, body)?).into(),
        MessageKind::Purges => AgentToAgent::Purges(exactly(number, body)?).into(),
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
    append_with(version, kind, out, |out| write(body, Append(out)));
}

fn append_with(version: u8, kind: u8, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LEN_LEN]);
    out.extend_from_slice(&[version, kind]);
    body(out);
    let len = u32::try_from(out.len() - start - LEN_LEN).expect("the fields of a message are bounded");
    out[start..start + LEN_LEN].copy_from_slice(&len.to_be_bytes());
}

fn write<T: Serialize + ?Sized, F: Flavor>(body: &T, to: F) -> F::Output {
    postcard::serialize_with_flavor(body, to).expect("plain data can be written to memory")
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
