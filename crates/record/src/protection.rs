//! Protects the records of one direction.

use std::ops::Range;

use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::keys::{IV_LEN, derive_traffic_key, next_traffic_secret};
use crate::{
    Aead, CipherSuite, ContentType, Direction, DirectionSecret, FRAGMENT_LEN_MAX, HEADER_LEN, OpenError,
    PeerMisbehaved, RecordHeader, SecretsError, Version,
};

/// One direction of a connection: its secret, the derived key, and the sequence number of the next record.
pub(crate) struct Protection {
    suite: CipherSuite,
    secret: DirectionSecret,
    key: LessSafeKey,
    iv: Zeroizing<[u8; IV_LEN]>,
    sequence: u64,
}

/// The most bytes that protection adds to a fragment: header, explicit nonce or content type, tag.
pub(crate) const OVERHEAD_LEN_MAX: usize = HEADER_LEN + EXPLICIT_NONCE_LEN + TAG_LEN;

const TAG_LEN: usize = 16;
const EXPLICIT_NONCE_LEN: usize = 8;

impl Protection {
    pub(crate) fn new(suite: CipherSuite, direction: Direction) -> Result<Self, SecretsError> {
        direction.check(suite)?;
        let Direction { sequence, secret } = direction;
        let (key, iv) = match &secret {
            DirectionSecret::Tls13(secret) => {
                let traffic_key = derive_traffic_key(suite, secret)?;
                (aead_key(suite, &traffic_key.key), traffic_key.iv)
            }
            DirectionSecret::Tls12 { key, iv } => (aead_key(suite, key), iv.clone()),
        };
        Ok(Self { suite, secret, key, iv, sequence })
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    pub(crate) fn secret(&self) -> &DirectionSecret {
        &self.secret
    }

    /// Changes to the next traffic secret (RFC 8446, section 7.2). Does nothing in TLS 1.2, which has none.
    pub(crate) fn update(&mut self) {
        let DirectionSecret::Tls13(secret) = &self.secret else {
            return;
        };
        let secret = DirectionSecret::Tls13(next_traffic_secret(self.suite, secret));
        *self = Self::new(self.suite, Direction { sequence: 0, secret })
            .expect("the next secret has the length of the last, and 0 is below the limit");
    }

    /// Appends one record to `out`. `append` appends its `len` bytes of plaintext.
    ///
    /// The caller makes sure that `len` is at most [`FRAGMENT_LEN_MAX`] and that the key may protect another record.
    pub(crate) fn seal(
        &mut self,
        content_type: ContentType,
        len: usize,
        append: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) {
        debug_assert!(len <= FRAGMENT_LEN_MAX);
        let nonce = self.nonce();
        let header = self.header(content_type, len);
        out.reserve(header.record_len());
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(&nonce[IV_LEN - self.explicit_nonce_len()..]);
        let plaintext_start = out.len();
        append(out);
        debug_assert_eq!(out.len() - plaintext_start, len);
        if self.version() == Version::Tls13 {
            out.push(content_type.number());
        }
        let aad = self.additional_data(header, len);
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), aad, &mut out[plaintext_start..])
            .expect("a fragment is far shorter than the limit of an AEAD");
        out.extend_from_slice(tag.as_ref());
        self.sequence += 1;
    }

    /// Opens one complete record in place. Returns its type and the range of the plaintext in `record`.
    pub(crate) fn open(
        &mut self,
        header: RecordHeader,
        record: &mut [u8],
    ) -> Result<(ContentType, Range<usize>), OpenError> {
        let next_sequence = self.sequence.checked_add(1).ok_or(PeerMisbehaved::SequenceExhausted)?;
        let start = HEADER_LEN + self.explicit_nonce_len();
        let sealed_len = record.len().checked_sub(start + TAG_LEN).ok_or(OpenError::BadRecordMac)?;
        let mut nonce = self.nonce();
        let explicit_nonce = &record[HEADER_LEN..start];
        nonce[IV_LEN - explicit_nonce.len()..].copy_from_slice(explicit_nonce);
        let aad = self.additional_data(header, sealed_len);
        let plaintext = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut record[start..])
            .map_err(|_| OpenError::BadRecordMac)?;
        self.sequence = next_sequence;
        let (content_type, len) = match self.version() {
            Version::Tls12 => (header.content_type, plaintext.len()),
            Version::Tls13 => inner_content(plaintext)?,
        };
        if len > FRAGMENT_LEN_MAX {
            return Err(PeerMisbehaved::PlaintextTooLong.into());
        }
        Ok((content_type, start..start + len))
    }

    fn version(&self) -> Version {
        self.suite.version()
    }

    /// IV XOR sequence number (RFC 8446, section 5.3; RFC 7905, section 2). For TLS 1.2 with AES-GCM, RFC 5288, section
    /// 3, lets the sender choose any unique explicit nonce.
    fn nonce(&self) -> [u8; IV_LEN] {
        let mut nonce = *self.iv;
        for (byte, sequence_byte) in nonce[IV_LEN - 8..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= sequence_byte;
        }
        nonce
    }

    /// The number of bytes at the end of the nonce that are sent with each record.
    fn explicit_nonce_len(&self) -> usize {
        match (self.version(), self.suite.aead()) {
            (Version::Tls12, Aead::Aes128Gcm | Aead::Aes256Gcm) => EXPLICIT_NONCE_LEN,
            _ => 0,
        }
    }

    /// The header of a record with `len` bytes of plaintext.
    fn header(&self, content_type: ContentType, len: usize) -> RecordHeader {
        match self.version() {
            Version::Tls12 => RecordHeader { content_type, payload_len: self.explicit_nonce_len() + len + TAG_LEN },
            Version::Tls13 => {
                RecordHeader { content_type: ContentType::ApplicationData, payload_len: len + 1 + TAG_LEN }
            }
        }
    }

    /// RFC 8446, section 5.2: the header as sent. RFC 5246, section 6.2.3.3: the sequence number, and a header with the
    /// length of the plaintext.
    fn additional_data(&self, header: RecordHeader, len: usize) -> Aad<AdditionalData> {
        let mut bytes = [0; SEQUENCE_LEN + HEADER_LEN];
        let (sequence, fields) = bytes.split_at_mut(SEQUENCE_LEN);
        sequence.copy_from_slice(&self.sequence.to_be_bytes());
        Aad::from(match self.version() {
            Version::Tls12 => {
                fields.copy_from_slice(&RecordHeader { payload_len: len, ..header }.to_bytes());
                AdditionalData { bytes, start: 0 }
            }
            Version::Tls13 => {
                fields.copy_from_slice(&header.to_bytes());
                AdditionalData { bytes, start: SEQUENCE_LEN }
            }
        })
    }
}

struct AdditionalData {
    bytes: [u8; SEQUENCE_LEN + HEADER_LEN],
    start: usize,
}

const SEQUENCE_LEN: usize = 8;

impl AsRef<[u8]> for AdditionalData {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

fn aead_key(suite: CipherSuite, key: &[u8]) -> LessSafeKey {
    let key = UnboundKey::new(suite.aead().algorithm(), key);
    LessSafeKey::new(key.expect("the key's length was checked against the suite's"))
}

/// Returns type and length of the content of a `TLSInnerPlaintext` (RFC 8446, sections 5.2 and 5.4). The content is
/// followed by its type and any number of zeros.
fn inner_content(inner: &[u8]) -> Result<(ContentType, usize), PeerMisbehaved> {
    if inner.len() > FRAGMENT_LEN_MAX + 1 {
        return Err(PeerMisbehaved::PlaintextTooLong);
    }
    let type_at = inner.iter().rposition(|&byte| byte != 0).ok_or(PeerMisbehaved::NoContentType)?;
    Ok((ContentType::try_from(inner[type_at])?, type_at))
}
