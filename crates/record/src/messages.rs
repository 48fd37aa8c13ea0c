//! Handshake messages after the handshake: the allowed ones, and their fragments in records.

use crate::{PeerMisbehaved, Side, Version};

/// Assembles handshake messages from the fragments in records.
///
/// No relevant message has a body longer than a byte. So only a message's header and the number of missing body bytes
/// are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MessageReader {
    header: [u8; MESSAGE_HEADER_LEN],
    header_len: usize,
    body_left: u32,
}

/// The requests in the messages of one record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// A `KeyUpdate` arrived.
    pub(crate) key_update: Option<KeyUpdateRequest>,
    /// The peer requests renegotiation (TLS 1.2).
    pub(crate) renegotiation: bool,
}

/// `KeyUpdateRequest` (RFC 8446, section 4.6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyUpdateRequest {
    NotRequested = 0,
    Requested = 1,
}

impl KeyUpdateRequest {
    /// The `KeyUpdate` message with this request.
    pub(crate) fn message(self) -> [u8; MESSAGE_HEADER_LEN + 1] {
        [KEY_UPDATE, 0, 0, 1, self as u8]
    }
}

pub(crate) const MESSAGE_HEADER_LEN: usize = 4;

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// `ClientHello` and `NewSessionTicket` cannot be longer: their longest fields add up to a little over 2^17 bytes.
const BODY_LEN_MAX: u32 = 1 << 18;

impl MessageReader {
    /// Whether a message is incomplete.
    pub(crate) fn is_within_message(&self) -> bool {
        self.header_len > 0
    }

    /// Handles the content of one handshake record that `side` received.
    pub(crate) fn read(&mut self, side: Side, version: Version, mut fragment: &[u8]) -> Result<Asked, PeerMisbehaved> {
        let mut asked = Asked::default();
        while !fragment.is_empty() {
            if self.header_len < MESSAGE_HEADER_LEN {
                self.read_header(side, version, &mut fragment)?;
            } else {
                self.read_body(&mut fragment, &mut asked)?;
            }
            if self.header_len == MESSAGE_HEADER_LEN && self.body_left == 0 {
                asked.renegotiation |= matches!(self.kind(), CLIENT_HELLO | HELLO_REQUEST);
                *self = Self::default();
            }
            if asked.key_update.is_some() && !fragment.is_empty() {
                return Err(PeerMisbehaved::KeyUpdateNotAtBoundary);
            }
        }
        Ok(asked)
    }

    fn read_header(&mut self, side: Side, version: Version, fragment: &mut &[u8]) -> Result<(), PeerMisbehaved> {
        let piece = take(fragment, MESSAGE_HEADER_LEN - self.header_len);
        self.header[self.header_len..][..piece.len()].copy_from_slice(piece);
        self.header_len += piece.len();
        self.check_kind(side, version)?;
        if self.header_len == MESSAGE_HEADER_LEN {
            self.body_left = self.checked_body_len()?;
        }
        Ok(())
    }

    fn read_body(&mut self, fragment: &mut &[u8], asked: &mut Asked) -> Result<(), PeerMisbehaved> {
        let piece = take(fragment, self.body_left as usize);
        self.body_left -= piece.len() as u32;
        if self.kind() == KEY_UPDATE {
            asked.key_update = Some(match piece {
                [0] => KeyUpdateRequest::NotRequested,
                [1] => KeyUpdateRequest::Requested,
                _ => return Err(PeerMisbehaved::IllegalKeyUpdate(piece[0])),
            });
        }
        Ok(())
    }

    fn kind(&self) -> u8 {
        self.header[0]
    }

    /// Whether `side` may receive such a message: a `KeyUpdate`, a server's ticket, a request to renegotiate. Tickets
    /// are skipped, because this client never resumes.
    fn check_kind(&self, side: Side, version: Version) -> Result<(), PeerMisbehaved> {
        match (version, side, self.kind()) {
            (Version::Tls13, _, KEY_UPDATE)
            | (Version::Tls13, Side::Client, NEW_SESSION_TICKET)
            | (Version::Tls12, Side::Server, CLIENT_HELLO)
            | (Version::Tls12, Side::Client, HELLO_REQUEST) => Ok(()),
            (_, _, kind) => Err(PeerMisbehaved::UnexpectedHandshakeMessage(kind)),
        }
    }

    fn checked_body_len(&self) -> Result<u32, PeerMisbehaved> {
        let [kind, high, middle, low] = self.header;
        let len = u32::from_be_bytes([0, high, middle, low]);
        let possible = match kind {
            KEY_UPDATE => len == 1,
            HELLO_REQUEST => len == 0,
            _ => len <= BODY_LEN_MAX,
        };
        if possible { Ok(len) } else { Err(PeerMisbehaved::WrongMessageLength { kind, len }) }
    }
}

/// Export and import.
impl MessageReader {
    pub(crate) const EXPORT_LEN: usize = MESSAGE_HEADER_LEN + 1 + 4;

    pub(crate) fn export(&self) -> [u8; Self::EXPORT_LEN] {
        let mut bytes = [0; Self::EXPORT_LEN];
        bytes[..MESSAGE_HEADER_LEN].copy_from_slice(&self.header);
        bytes[MESSAGE_HEADER_LEN] = self.header_len as u8;
        bytes[MESSAGE_HEADER_LEN + 1..].copy_from_slice(&self.body_left.to_be_bytes());
        bytes
    }

    /// `None`: no [`MessageReader::export`] of `side` and `version` returns these bytes.
    pub(crate) fn import(side: Side, version: Version, bytes: [u8; Self::EXPORT_LEN]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk()?;
        let (header_len, body_left) = rest.split_first()?;
        let reader = Self {
            header: *header,
            header_len: usize::from(*header_len),
            body_left: u32::from_be_bytes(body_left.try_into().ok()?),
        };
        reader.is_possible(side, version).then_some(reader)
    }

    fn is_possible(&self, side: Side, version: Version) -> bool {
        match self.header_len {
            0 => *self == Self::default(),
            MESSAGE_HEADER_LEN => {
                let body_len = self.checked_body_len().unwrap_or(0);
                self.check_kind(side, version).is_ok() && (1..=body_len).contains(&self.body_left)
            }
            1..MESSAGE_HEADER_LEN => {
                let unread = &self.header[self.header_len..];
                self.check_kind(side, version).is_ok() && unread.iter().all(|&byte| byte == 0) && self.body_left == 0
            }
            _ => false,
        }
    }
}

/// Splits up to `len` bytes off the front of `bytes`.
fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (front, rest) = bytes.split_at(len.min(bytes.len()));
    *bytes = rest;
    front
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const TICKET: [u8; 7] = [NEW_SESSION_TICKET, 0, 0, 3, 9, 9, 9];

    fn key_update(request: KeyUpdateRequest) -> Asked {
        Asked { key_update: Some(request), renegotiation: false }
    }

    #[test]
    fn a_key_update_is_understood_however_it_is_fragmented() {
        for request in [KeyUpdateRequest::Requested, KeyUpdateRequest::NotRequested] {
            let message = request.message();
            for cut in 1..message.len() {
                let mut reader = MessageReader::default();
                let first = reader.read(Side::Server, Version::Tls13, &message[..cut]);
                assert_eq!(first, Ok(Asked::default()));
                assert!(reader.is_within_message());
                let second = reader.read(Side::Server, Version::Tls13, &message[cut..]);
                assert_eq!(second, Ok(key_update(request)));
                assert_eq!(reader, MessageReader::default());
            }
        }
    }

    #[test]
    fn a_client_skips_tickets_even_in_one_record_with_a_key_update() {
        let record = [&TICKET[..], &TICKET, &KeyUpdateRequest::Requested.message()].concat();
        let asked = MessageReader::default().read(Side::Client, Version::Tls13, &record);
        assert_eq!(asked, Ok(key_update(KeyUpdateRequest::Requested)));
    }

    /// RFC 8446, section 5.1.
    #[test]
    fn nothing_may_follow_a_key_update_in_its_record() {
        let record = [&KeyUpdateRequest::Requested.message()[..], &TICKET[..1]].concat();
        let refused = MessageReader::default().read(Side::Client, Version::Tls13, &record);
        assert_eq!(refused, Err(PeerMisbehaved::KeyUpdateNotAtBoundary));
    }

    #[test]
    fn a_wish_to_renegotiate_is_seen_once_its_message_is_whole() {
        let mut reader = MessageReader::default();
        let mut hello = vec![CLIENT_HELLO, 0, 1, 0];
        hello.resize(4 + 255, 7);
        assert_eq!(reader.read(Side::Server, Version::Tls12, &hello), Ok(Asked::default()));
        let wish = Asked { key_update: None, renegotiation: true };
        assert_eq!(reader.read(Side::Server, Version::Tls12, &[7]), Ok(wish));
        assert_eq!(reader.read(Side::Client, Version::Tls12, &[HELLO_REQUEST, 0, 0, 0]), Ok(wish));
    }

    #[test]
    fn every_other_message_is_refused_by_its_first_byte() {
        let accepted = |side, version| {
            let refused = |kind: &u8| {
                let error = Err(PeerMisbehaved::UnexpectedHandshakeMessage(*kind));
                MessageReader::default().read(side, version, &[*kind]) == error
            };
            (0..=u8::MAX).filter(|kind| !refused(kind)).collect::<Vec<u8>>()
        };
        assert_eq!(accepted(Side::Server, Version::Tls13), [KEY_UPDATE]);
        assert_eq!(accepted(Side::Client, Version::Tls13), [NEW_SESSION_TICKET, KEY_UPDATE]);
        assert_eq!(accepted(Side::Server, Version::Tls12), [CLIENT_HELLO]);
        assert_eq!(accepted(Side::Client, Version::Tls12), [HELLO_REQUEST]);
    }

    #[test]
    fn impossible_lengths_and_values_are_refused() {
        let read = |side, version, bytes: &[u8]| MessageReader::default().read(side, version, bytes).unwrap_err();
        assert_eq!(
            read(Side::Server, Version::Tls13, &[KEY_UPDATE, 0, 0, 2]),
            PeerMisbehaved::WrongMessageLength { kind: KEY_UPDATE, len: 2 }
        );
        assert_eq!(
            read(Side::Server, Version::Tls12, &[CLIENT_HELLO, 4, 0, 1]),
            PeerMisbehaved::WrongMessageLength { kind: CLIENT_HELLO, len: BODY_LEN_MAX + 1 }
        );
        assert_eq!(read(Side::Server, Version::Tls13, &[KEY_UPDATE, 0, 0, 1, 2]), PeerMisbehaved::IllegalKeyUpdate(2));
    }

    #[test]
    fn only_what_an_export_gives_is_imported() {
        let import = |bytes| MessageReader::import(Side::Client, Version::Tls13, bytes);
        let mut reader = MessageReader::default();
        assert_eq!(import(reader.export()), Some(reader));
        for byte in TICKET {
            reader.read(Side::Client, Version::Tls13, &[byte]).unwrap();
            assert_eq!(import(reader.export()), Some(reader));
        }
        for impossible in [
            [NEW_SESSION_TICKET, 0, 0, 3, 4, 0, 0, 0, 4],
            [NEW_SESSION_TICKET, 0, 0, 3, 4, 0, 0, 0, 0],
            [NEW_SESSION_TICKET, 0, 0, 3, 3, 0, 0, 0, 0],
            [NEW_SESSION_TICKET, 0, 0, 0, 1, 0, 0, 0, 1],
            [NEW_SESSION_TICKET, 0, 0, 0, 0, 0, 0, 0, 0],
            [CLIENT_HELLO, 0, 0, 0, 1, 0, 0, 0, 0],
            [NEW_SESSION_TICKET, 0, 0, 9, 5, 0, 0, 0, 1],
        ] {
            assert_eq!(import(impossible), None, "{impossible:?}");
        }
    }
}
