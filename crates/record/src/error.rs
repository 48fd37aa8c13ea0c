//! Errors, sorted by which party is at fault.

use crate::{AlertDescription, CipherSuite, ContentType};

/// A record could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer violated the protocol.
    #[error("the peer misbehaved: {0}")]
    PeerMisbehaved(#[from] PeerMisbehaved),
    /// The record does not authenticate: the peer is at fault, or it was damaged or forged in transit.
    #[error("a record does not authenticate")]
    BadRecordMac,
    /// The caller passed bytes that are not exactly one record.
    #[error("not exactly one whole record")]
    NotOneRecord,
    /// The caller continued after an error or a fatal alert.
    #[error("the connection has failed already")]
    AlreadyFailed,
}

impl OpenError {
    /// The alert to send the peer.
    pub fn alert(self) -> AlertDescription {
        match self {
            Self::PeerMisbehaved(how) => how.alert(),
            Self::BadRecordMac => AlertDescription::BAD_RECORD_MAC,
            Self::NotOneRecord | Self::AlreadyFailed => AlertDescription::INTERNAL_ERROR,
        }
    }
}

/// The way in which the peer violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeerMisbehaved {
    /// RFC 8446, section 5: an unexpected record type is an `unexpected_message`.
    #[error("unknown record type {0}")]
    UnknownContentType(u8),
    /// After the handshake every record carries 0x0303, in both versions.
    #[error("record version {0:#06x} instead of 0x0303")]
    WrongRecordVersion(u16),
    /// RFC 8446, section 5.2; RFC 5246, section 6.2.3.
    #[error("a record of {0} bytes is too long")]
    RecordTooLong(u16),
    /// RFC 8446, section 5.4; RFC 5246, section 6.2.1.
    #[error("a record with more than 2^14 bytes of plaintext")]
    PlaintextTooLong,
    /// RFC 8446, section 5.2: after the handshake every record is protected, and so has the type of application data.
    #[error("an unprotected record ({0:?}) after the handshake")]
    Unprotected(ContentType),
    /// RFC 8446, section 5.4: a record has only zeros.
    #[error("a record without a content type")]
    NoContentType,
    /// RFC 8446, section 5; RFC 5246, section 7.1: it belongs to handshakes.
    #[error("a change_cipher_spec after the handshake")]
    ChangeCipherSpec,
    /// RFC 8446, section 5.1: only application data may be empty.
    #[error("an empty record of another type than application data")]
    EmptyFragment,
    /// RFC 8446, section 5.1: no other record between the fragments of a handshake message.
    #[error("a record in the middle of a fragmented handshake message")]
    Interleaved,
    /// A handshake message, given by its type, that is not allowed after the handshake.
    #[error("an unexpected handshake message (type {0})")]
    UnexpectedHandshakeMessage(u8),
    /// A handshake message of a length that its type does not allow.
    #[error("a handshake message (type {kind}) of {len} bytes")]
    WrongMessageLength {
        /// The message type.
        kind: u8,
        /// The length in its header, in bytes.
        len: u32,
    },
    /// RFC 8446, section 4.6.3: `request_update` is 0 or 1.
    #[error("a KeyUpdate that requests {0}")]
    IllegalKeyUpdate(u8),
    /// RFC 8446, section 5.1: handshake messages do not span key changes.
    #[error("a KeyUpdate that does not end its record")]
    KeyUpdateNotAtBoundary,
    /// RFC 8446, sections 5.1 and 6: an alert is one record of two bytes.
    #[error("an alert that is not two bytes long")]
    WrongAlertLength,
    /// RFC 5246, section 7.2: a level is 1 or 2.
    #[error("an alert of level {0}")]
    IllegalAlertLevel(u8),
    /// Records cost work. Many in a row without application data are an attack.
    #[error("too many records in a row without data")]
    TooManyRecordsWithoutData,
    /// RFC 8446, section 5.3; RFC 5246, section 6.1: sequence numbers do not wrap.
    #[error("the sequence numbers of its keys are used up")]
    SequenceExhausted,
}

impl PeerMisbehaved {
    /// The alert to send the peer.
    pub fn alert(self) -> AlertDescription {
        match self {
            Self::UnknownContentType(_)
            | Self::Unprotected(_)
            | Self::NoContentType
            | Self::ChangeCipherSpec
            | Self::EmptyFragment
            | Self::Interleaved
            | Self::UnexpectedHandshakeMessage(_)
            | Self::KeyUpdateNotAtBoundary
            | Self::TooManyRecordsWithoutData
            | Self::SequenceExhausted => AlertDescription::UNEXPECTED_MESSAGE,
            Self::RecordTooLong(_) | Self::PlaintextTooLong => AlertDescription::RECORD_OVERFLOW,
            Self::WrongRecordVersion(_) | Self::WrongMessageLength { .. } | Self::WrongAlertLength => {
                AlertDescription::DECODE_ERROR
            }
            Self::IllegalKeyUpdate(_) | Self::IllegalAlertLevel(_) => AlertDescription::ILLEGAL_PARAMETER,
        }
    }
}

/// Nothing was sealed. This end is always at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The caller continued after `close_notify`, a fatal alert or an error.
    #[error("the connection is closed for sealing")]
    Closed,
    /// The key may protect no more records, and TLS 1.2 cannot change it. An alert can still be sealed.
    #[error("the key has reached its limit of records")]
    Exhausted,
    /// TLS 1.2 cannot change its keys.
    #[error("TLS 1.2 has no KeyUpdate")]
    NoKeyUpdate,
}

impl SealError {
    /// The alert with the reason for the peer. `None`: no alert can be sealed.
    pub fn alert(self) -> Option<AlertDescription> {
        match self {
            Self::Exhausted => Some(AlertDescription::INTERNAL_ERROR),
            Self::Closed | Self::NoKeyUpdate => None,
        }
    }
}

/// Secrets do not fit their suite. Their maker is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// The secret is for the other TLS version than the suite.
    #[error("the secret is for another TLS version than {0}")]
    WrongVersion(CipherSuite),
    /// The traffic secret or key has the wrong length.
    #[error("a secret of {len} bytes, but {suite} needs {expected}")]
    WrongLength {
        suite: CipherSuite,
        /// The length of the secret, in bytes.
        len: usize,
        /// The length that the suite requires, in bytes.
        expected: usize,
    },
    /// The sequence number is higher than the key's limit of records.
    #[error("sequence number {0} is beyond what one key may protect")]
    SequenceTooHigh(u64),
}

/// A state could not be imported. The node that sent it is at fault, or its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// A version of the format that this build does not support.
    #[error("unknown state format {0}")]
    UnknownFormat(u8),
    /// A suite that this build does not support.
    #[error("unknown cipher suite {0:#06x}")]
    UnknownSuite(u16),
    /// The state ends too early.
    #[error("truncated state")]
    Truncated,
    /// Bytes follow the state.
    #[error("{0} bytes after the state")]
    TrailingBytes(usize),
    /// The field has a value that no export writes.
    #[error("invalid value of {0}")]
    Impossible(&'static str),
    /// The secrets do not fit the suite.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}
