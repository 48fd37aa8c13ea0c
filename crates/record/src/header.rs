//! Record headers.

use crate::{ContentType, PeerMisbehaved, Version};

/// The length of a record header, in bytes.
pub const HEADER_LEN: usize = 5;
/// The most plaintext of a record, in bytes (RFC 8446, section 5.1; RFC 5246, section 6.2.1).
pub const FRAGMENT_LEN_MAX: usize = 1 << 14;
/// The longest record of either version with its header, in bytes.
pub const RECORD_LEN_MAX: usize = HEADER_LEN + FRAGMENT_LEN_MAX + EXPANSION_LEN_MAX_TLS12;

/// The version in every record after the handshake, also in TLS 1.3 (RFC 8446, section 5.2).
pub(crate) const RECORD_VERSION: u16 = 0x0303;

const EXPANSION_LEN_MAX_TLS12: usize = 2048;
const EXPANSION_LEN_MAX_TLS13: usize = 256;

impl TryFrom<u8> for ContentType {
    type Error = PeerMisbehaved;

    fn try_from(number: u8) -> Result<Self, PeerMisbehaved> {
        match number {
            20 => Ok(Self::ChangeCipherSpec),
            21 => Ok(Self::Alert),
            22 => Ok(Self::Handshake),
            23 => Ok(Self::ApplicationData),
            _ => Err(PeerMisbehaved::UnknownContentType(number)),
        }
    }
}

/// The header of a record after the handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHeader {
    /// The outer type. In TLS 1.3 it is always [`ContentType::ApplicationData`].
    pub content_type: ContentType,
    /// The length of the payload after the header, in bytes.
    pub payload_len: usize,
}

impl RecordHeader {
    /// Reads the header at the start of `bytes`. `None`: there are fewer than [`HEADER_LEN`].
    ///
    /// Refuses a header that no record of `version` can have after the handshake at once, before the rest of the record
    /// arrives.
    pub fn parse(version: Version, bytes: &[u8]) -> Result<Option<Self>, PeerMisbehaved> {
        let Some(&[content_type, major, minor, len_high, len_low]) = bytes.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let content_type = ContentType::try_from(content_type)?;
        let record_version = u16::from_be_bytes([major, minor]);
        if record_version != RECORD_VERSION {
            return Err(PeerMisbehaved::WrongRecordVersion(record_version));
        }
        let len = u16::from_be_bytes([len_high, len_low]);
        let payload_len = usize::from(len);
        if payload_len > payload_len_max(version) {
            return Err(PeerMisbehaved::RecordTooLong(len));
        }
        if version == Version::Tls13 && content_type != ContentType::ApplicationData {
            return Err(PeerMisbehaved::Unprotected(content_type));
        }
        Ok(Some(Self { content_type, payload_len }))
    }

    /// The length of the whole record with its header, in bytes.
    pub fn record_len(&self) -> usize {
        HEADER_LEN + self.payload_len
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [major, minor] = RECORD_VERSION.to_be_bytes();
        let [len_high, len_low] = (self.payload_len as u16).to_be_bytes();
        [self.content_type.number(), major, minor, len_high, len_low]
    }
}

/// RFC 8446, section 5.2; RFC 5246, section 6.2.3.
const fn payload_len_max(version: Version) -> usize {
    match version {
        Version::Tls12 => FRAGMENT_LEN_MAX + EXPANSION_LEN_MAX_TLS12,
        Version::Tls13 => FRAGMENT_LEN_MAX + EXPANSION_LEN_MAX_TLS13,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_once_it_is_whole() {
        let bytes = [23, 3, 3, 0x12, 0x34, 0xff];
        for len in 0..HEADER_LEN {
            assert_eq!(RecordHeader::parse(Version::Tls13, &bytes[..len]), Ok(None));
        }
        let header = RecordHeader { content_type: ContentType::ApplicationData, payload_len: 0x1234 };
        assert_eq!(RecordHeader::parse(Version::Tls13, &bytes), Ok(Some(header)));
        assert_eq!(header.record_len(), 0x1239);
        assert_eq!(header.to_bytes(), bytes[..HEADER_LEN]);
    }

    #[test]
    fn each_version_has_its_limit() {
        for (version, longest) in [(Version::Tls13, 0x4100_u16), (Version::Tls12, 0x4800)] {
            let header = |len: u16| [&[23, 3, 3][..], &len.to_be_bytes()].concat();
            let parsed = RecordHeader::parse(version, &header(longest));
            assert_eq!(parsed.map(|header| header.map(|header| header.payload_len)), Ok(Some(usize::from(longest))));
            let refused = RecordHeader::parse(version, &header(longest + 1));
            assert_eq!(refused, Err(PeerMisbehaved::RecordTooLong(longest + 1)));
        }
    }

    #[test]
    fn what_cannot_be_a_record_is_refused_by_its_header() {
        let parse = RecordHeader::parse;
        assert_eq!(parse(Version::Tls12, b"GET /"), Err(PeerMisbehaved::UnknownContentType(b'G')));
        assert_eq!(parse(Version::Tls12, &[23, 3, 1, 0, 1]), Err(PeerMisbehaved::WrongRecordVersion(0x0301)));
        for content_type in [ContentType::Alert, ContentType::Handshake, ContentType::ChangeCipherSpec] {
            let bytes = [content_type.number(), 3, 3, 0, 2];
            assert_eq!(parse(Version::Tls13, &bytes), Err(PeerMisbehaved::Unprotected(content_type)));
            assert_eq!(parse(Version::Tls12, &bytes), Ok(Some(RecordHeader { content_type, payload_len: 2 })));
        }
    }
}
