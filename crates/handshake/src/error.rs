//! Why a handshake failed.

use std::fmt;

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible, PeerMisbehaved};

/// A handshake that failed.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct Failed {
    pub cause: HandshakeError,
    /// Bytes to send to the client before the connection is closed: pending output, and an alert if one is required.
    pub output: Vec<u8>,
}

/// Why a handshake failed, sorted by the side at fault.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HandshakeError {
    // The input is not TLS.
    /// The input does not begin with a record.
    #[error("the client does not speak TLS")]
    Garbage,
    /// A request in HTTP.
    #[error("the client sent plain HTTP to a TLS port")]
    PlainHttp,
    /// A `ClientHello` in the format of SSL 2.0.
    #[error("the client sent a ClientHello in the format of SSL 2.0")]
    Sslv2Hello,

    // The client breaks the protocol.
    /// RFC 8446, sections 5.1 and 5.2.
    #[error("the client sent a record longer than TLS allows")]
    RecordTooLong,
    /// More than [`crate::Handshake::RECEIVED_MAX`].
    #[error("the client's part of the handshake is too large")]
    TooLarge,
    /// More rejected early data than the server skips: 64 KiB, with record headers (RFC 8446, section 4.2.10).
    #[error("the client sent more rejected early data than the server skips")]
    TooMuchEarlyData,
    /// RFC 8446, section 9.2.
    #[error("the client offers TLS 1.3 without the required extension {0}")]
    MissingExtension(&'static str),
    /// RFC 7507, section 3.
    #[error("the client fell back to an older version than both ends support (TLS_FALLBACK_SCSV)")]
    Fallback,
    /// RFC 5746, section 3.6.
    #[error("the client's renegotiation_info is not empty in a first handshake")]
    RenegotiationInfo,
    /// A message cannot be decoded.
    #[error("the client sent a malformed message: {0:?}")]
    Malformed(InvalidMessage),
    /// A message in the wrong state.
    #[error("the client sent an unexpected message: {0}")]
    Unexpected(String),
    /// A record or a Finished does not verify.
    #[error("a record or Finished of the client does not verify")]
    Undecryptable,
    /// Another violation of the protocol.
    #[error("the client broke the protocol: {0:?}")]
    Misbehaved(PeerMisbehaved),

    // Client and server have nothing in common.
    /// No certificate for the requested name, and no default.
    #[error("no certificate for the name that the client asks for: {0:?}")]
    UnknownName(String),
    /// The client sends no name, and there is no default certificate.
    #[error("the client asks for no name, and there is no default certificate")]
    NoName,
    /// RFC 7301, section 3.2.
    #[error("the client offers no supported application protocol")]
    NoCommonAlpn,
    /// Only TLS 1.1 or older.
    #[error("the client offers neither TLS 1.2 nor TLS 1.3")]
    NoCommonVersion,
    /// No common suite for the negotiated version and the available certificates.
    #[error("the client offers no supported cipher suite")]
    NoCommonSuite,
    /// No common key exchange group.
    #[error("the client offers no supported key exchange group")]
    NoCommonGroup,
    /// No signature scheme that a certificate for the name can use.
    #[error("the client supports no signature scheme of the certificates for the name")]
    NoCommonSignature,
    /// The client lacks another requirement.
    #[error("the client lacks a required feature: {0:?}")]
    Incompatible(PeerIncompatible),

    // Client certificates.
    /// The client sent none, and one is required.
    #[error("the client sent no certificate, but one is required")]
    NoClientCertificate,
    /// From another authority, expired, for another purpose, or similar.
    #[error("the client's certificate is not accepted: {0}")]
    BadClientCertificate(CertificateError),

    // The client ends the handshake.
    /// The client sent an alert. Often it does not trust the certificate.
    #[error("the client ended the handshake with the alert {0:?}")]
    PeerAlert(AlertDescription),
    /// For the driver: the connection ended.
    #[error("the client closed the connection {0}")]
    ClosedEarly(Stage),
    /// For the driver: the timeout of the handshake ended.
    #[error("the handshake timed out {0}")]
    TimedOut(Stage),

    // Faults of the server.
    /// The secrets for the record layer contradict each other. The connection must not continue.
    #[error("the secrets from rustls do not match the keys that it used")]
    SecretsMismatch,
    /// [`crate::Handshake::receive`] was called after the end of the handshake.
    #[error("the handshake has already ended")]
    Over,
    /// rustls negotiated a suite that the record layer does not have.
    #[error("the TLS library agreed on a cipher suite that the record layer does not have")]
    UnknownSuite,
    /// rustls failed for another reason.
    #[error("the TLS library failed: {0}")]
    Internal(#[source] Error),
}

/// The progress of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The `ClientHello` is not complete.
    ClientHello,
    /// The `ClientHello` is complete, and the driver looks for the sessions that it offers.
    Sessions,
    /// The server has sent its flight, and waits for the client's Finished.
    Finished,
    /// The handshake is complete, or has failed.
    Over,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientHello => "before its ClientHello was complete",
            Self::Sessions => "before the lookup of its sessions ended",
            Self::Finished => "before its Finished",
            Self::Over => "after the handshake",
        })
    }
}

impl HandshakeError {
    /// The cause as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Garbage => "garbage",
            Self::PlainHttp => "plain_http",
            Self::Sslv2Hello => "sslv2_hello",
            Self::RecordTooLong => "record_too_long",
            Self::TooLarge => "too_large",
            Self::TooMuchEarlyData => "too_much_early_data",
            Self::MissingExtension(_) => "missing_extension",
            Self::Fallback => "fallback",
            Self::RenegotiationInfo => "renegotiation_info",
            Self::Malformed(_) => "malformed",
            Self::Unexpected(_) => "unexpected_message",
            Self::Undecryptable => "undecryptable",
            Self::Misbehaved(_) => "misbehaved",
            Self::UnknownName(_) => "unknown_sni",
            Self::NoName => "no_sni",
            Self::NoCommonAlpn => "no_common_alpn",
            Self::NoCommonVersion => "no_common_version",
            Self::NoCommonSuite => "no_common_suite",
            Self::NoCommonGroup => "no_common_group",
            Self::NoCommonSignature => "no_common_signature",
            Self::Incompatible(_) => "incompatible",
            Self::NoClientCertificate => "no_client_certificate",
            Self::BadClientCertificate(_) => "bad_client_certificate",
            Self::PeerAlert(_) => "peer_alert",
            Self::ClosedEarly(_) => "closed_early",
            Self::TimedOut(_) => "timed_out",
            Self::SecretsMismatch => "secrets_mismatch",
            Self::Over => "over",
            Self::UnknownSuite => "unknown_suite",
            Self::Internal(_) => "internal",
        }
    }

    /// The alert for this cause, as a plaintext record: valid until keys are negotiated.
    pub(crate) fn plaintext_alert(&self) -> Option<[u8; 7]> {
        const ALERT: u8 = 21;
        const FATAL: u8 = 2;
        self.alert().map(|alert| [ALERT, 3, 3, 0, 2, FATAL, alert.into()])
    }

    /// The alert of RFC 8446, section 6.2, for causes for which rustls has sent none.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        Some(match self {
            Self::Garbage | Self::PlainHttp | Self::Unexpected(_) | Self::TooMuchEarlyData => {
                AlertDescription::UnexpectedMessage
            }
            Self::Sslv2Hello | Self::NoCommonVersion => AlertDescription::ProtocolVersion,
            Self::RecordTooLong => AlertDescription::RecordOverflow,
            Self::TooLarge | Self::Malformed(_) => AlertDescription::DecodeError,
            Self::Undecryptable => AlertDescription::BadRecordMac,
            Self::Misbehaved(how) => alert_of(how),
            Self::UnknownName(_) => AlertDescription::UnrecognisedName,
            // RFC 8446, section 9.2.
            Self::NoName | Self::MissingExtension(_) => AlertDescription::MissingExtension,
            Self::NoCommonAlpn => AlertDescription::NoApplicationProtocol,
            Self::Fallback => AlertDescription::InappropriateFallback,
            Self::NoCommonSuite
            | Self::NoCommonGroup
            | Self::NoCommonSignature
            | Self::Incompatible(_)
            | Self::RenegotiationInfo => AlertDescription::HandshakeFailure,
            Self::NoClientCertificate => AlertDescription::CertificateRequired,
            Self::BadClientCertificate(error) => error.clone().into(),
            Self::SecretsMismatch | Self::UnknownSuite | Self::Internal(_) => AlertDescription::InternalError,
            // The client has ended the handshake, or the handshake is over.
            Self::PeerAlert(_) | Self::ClosedEarly(_) | Self::TimedOut(_) | Self::Over => return None,
        })
    }
}

/// The alert for an error for which rustls sends none.
fn alert_of(how: &PeerMisbehaved) -> AlertDescription {
    match how {
        // RFC 8446, section 5.4: a record without a content type.
        PeerMisbehaved::IllegalTlsInnerPlaintext
        // RFC 8446, section 5.1.
        | PeerMisbehaved::MessageInterleavedWithHandshakeMessage
        | PeerMisbehaved::RejectedEarlyDataInterleavedWithHandshakeMessage
        | PeerMisbehaved::KeyEpochWithPendingFragment
        | PeerMisbehaved::IllegalMiddleboxChangeCipherSpec
        | PeerMisbehaved::TooManyEmptyFragments
        | PeerMisbehaved::TooManyWarningAlertsReceived
        // RFC 8446, section 4.6.1.
        | PeerMisbehaved::TooMuchEarlyDataReceived => AlertDescription::UnexpectedMessage,
        _ => AlertDescription::IllegalParameter,
    }
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> Self {
        match error {
            Error::InappropriateMessage { got_type, .. } => Self::Unexpected(format!("{got_type:?}")),
            Error::InappropriateHandshakeMessage { got_type, .. } => Self::Unexpected(format!("{got_type:?}")),
            Error::InvalidMessage(invalid) => Self::Malformed(invalid),
            Error::PeerSentOversizedRecord => Self::RecordTooLong,
            Error::DecryptError => Self::Undecryptable,
            Error::PeerMisbehaved(how) => Self::Misbehaved(how),
            Error::PeerIncompatible(how) => how.into(),
            Error::NoApplicationProtocol => Self::NoCommonAlpn,
            Error::NoCertificatesPresented => Self::NoClientCertificate,
            Error::InvalidCertificate(error) => Self::BadClientCertificate(error),
            Error::AlertReceived(alert) => Self::PeerAlert(alert),
            error => Self::Internal(error),
        }
    }
}

impl From<PeerIncompatible> for HandshakeError {
    fn from(how: PeerIncompatible) -> Self {
        match how {
            PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
            // A client that offers only TLS 1.2, which the server does not accept.
            | PeerIncompatible::SupportedVersionsExtensionRequired => Self::NoCommonVersion,
            PeerIncompatible::NoCipherSuitesInCommon => Self::NoCommonSuite,
            PeerIncompatible::NoKxGroupsInCommon => Self::NoCommonGroup,
            PeerIncompatible::NoSignatureSchemesInCommon => Self::NoCommonSignature,
            how => Self::Incompatible(how),
        }
    }
}
