//! What can go wrong, sorted by whose fault it is.

use crate::{AlertDescription, CipherSuite, ContentType};

/// A record could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The peer broke the protocol.
    #[error("the peer misbehaved: {0}")]
    PeerMisbehaved(#[from] PeerMisbehaved),
    /// The record does not authenticate: the peer's fault, or it was damaged or forged on its way.
    #[error("a record does not authenticate")]
    BadRecordMac,
    /// The caller passed something else than one whole record.
    #[error("not exactly one whole record")]
    NotOneRecord,
    /// The caller went on after an error or a fatal alert.
    #[error("the connection has failed already")]
    AlreadyFailed,
}

impl OpenError {
    /// The alert to tell the peer.
    pub fn alert(self) -> AlertDescription {
        match self {
            Self::PeerMisbehaved(how) => how.alert(),
            Self::BadRecordMac => AlertDescription::BAD_RECORD_MAC,
            Self::NotOneRecord | Self::AlreadyFailed => AlertDescription::INTERNAL_ERROR,
        }
    }
}

/// How the peer broke the protocol.
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
    /// RFC 8446, section 5.2: after the handshake every record is protected, and so looks like application data.
    #[error("an unprotected record ({0:?}) after the handshake")]
    Unprotected(ContentType),
    /// RFC 8446, section 5.4: nothing but zeros in a record.
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
    /// A handshake message (by its type) that no longer has a place in the connection.
    #[error("an unexpected handshake message (type {0})")]
    UnexpectedHandshakeMessage(u8),
    /// The length of a handshake message is not one that its type may have.
    #[error("a handshake message (type {kind}) of {len} bytes")]
    WrongMessageLength {
        /// The message's type.
        kind: u8,
        /// The length in its header.
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
    /// Records cost work; many in a row that carry nothing for the application are an attack.
    #[error("too many records in a row without data")]
    TooManyRecordsWithoutData,
    /// RFC 8446, section 5.3; RFC 5246, section 6.1: sequence numbers do not wrap.
    #[error("the sequence numbers of its keys are used up")]
    SequenceExhausted,
}

impl PeerMisbehaved {
    /// The alert to tell the peer.
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

/// Nothing was sealed. Always this end's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The caller went on after `close_notify`, a fatal alert or an error.
    #[error("the connection is closed for sealing")]
    Closed,
    /// The key may protect no more records, and TLS 1.2 has no other. An alert can still be sealed.
    #[error("the key has protected as many records as it may")]
    Exhausted,
    /// TLS 1.2 cannot change its keys.
    #[error("TLS 1.2 has no KeyUpdate")]
    NoKeyUpdate,
}

impl SealError {
    /// The alert that tells the peer why the stream ends here, where one can still be sealed.
    pub fn alert(self) -> Option<AlertDescription> {
        match self {
            Self::Exhausted => Some(AlertDescription::INTERNAL_ERROR),
            Self::Closed | Self::NoKeyUpdate => None,
        }
    }
}

/// Secrets do not fit their suite: the fault of whoever made them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// A TLS 1.2 secret for a TLS 1.3 suite or the other way round.
    #[error("the form of a secret is not that of {0}")]
    WrongVersion(CipherSuite),
    /// A traffic secret or key of the wrong length.
    #[error("a secret of {len} bytes where {suite} has {expected}")]
    WrongLength {
        /// The suite.
        suite: CipherSuite,
        /// The secret's length, in bytes.
        len: usize,
        /// The length that the suite asks for, in bytes.
        expected: usize,
    },
    /// More records than one key may protect.
    #[error("sequence number {0} is beyond what one key may protect")]
    SequenceTooHigh(u64),
}

/// A state could not be imported: the fault of the node that sent it, or of its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// Another version of the format.
    #[error("unknown state format {0}")]
    UnknownFormat(u8),
    /// A suite this build does not protect.
    #[error("unknown cipher suite {0:#06x}")]
    UnknownSuite(u16),
    /// The state ends too early.
    #[error("truncated state")]
    Truncated,
    /// Something follows the state.
    #[error("{0} bytes behind the state")]
    TrailingBytes(usize),
    /// A field has a value that no export writes.
    #[error("impossible value of {0}")]
    Impossible(&'static str),
    /// The secrets do not fit.
    #[error(transparent)]
    Secrets(#[from] SecretsError),
}
