//! TLS alerts.

use std::fmt;

/// An alert description (RFC 8446, section 6; RFC 5246, section 7.2). A peer may send any number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AlertDescription(pub u8);

impl AlertDescription {
    /// The sender will send no more.
    pub const CLOSE_NOTIFY: Self = Self(0);
    /// A message that is not allowed at this point.
    pub const UNEXPECTED_MESSAGE: Self = Self(10);
    /// A record that does not authenticate.
    pub const BAD_RECORD_MAC: Self = Self(20);
    /// A record, or its plaintext, that is too long.
    pub const RECORD_OVERFLOW: Self = Self(22);
    /// A field that is incorrect or contradicts another.
    pub const ILLEGAL_PARAMETER: Self = Self(47);
    /// A message that cannot be decoded.
    pub const DECODE_ERROR: Self = Self(50);
    /// A failure of the sender, independent of the peer.
    pub const INTERNAL_ERROR: Self = Self(80);
    /// The user has cancelled. A `close_notify` follows.
    pub const USER_CANCELED: Self = Self(90);
    /// Renegotiation is refused (RFC 5246 only). Always a warning.
    pub const NO_RENEGOTIATION: Self = Self(100);

    /// The name from the RFCs. `None`: the number is unassigned there.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            0 => "close_notify",
            10 => "unexpected_message",
            20 => "bad_record_mac",
            22 => "record_overflow",
            40 => "handshake_failure",
            42 => "bad_certificate",
            43 => "unsupported_certificate",
            44 => "certificate_revoked",
            45 => "certificate_expired",
            46 => "certificate_unknown",
            47 => "illegal_parameter",
            48 => "unknown_ca",
            49 => "access_denied",
            50 => "decode_error",
            51 => "decrypt_error",
            70 => "protocol_version",
            71 => "insufficient_security",
            80 => "internal_error",
            86 => "inappropriate_fallback",
            90 => "user_canceled",
            100 => "no_renegotiation",
            109 => "missing_extension",
            110 => "unsupported_extension",
            112 => "unrecognized_name",
            113 => "bad_certificate_status_response",
            115 => "unknown_psk_identity",
            116 => "certificate_required",
            120 => "no_application_protocol",
            _ => return None,
        })
    }

    /// The level to send the alert with.
    ///
    /// RFC 8446, section 6: `close_notify` and `user_canceled` are closure alerts, all others are fatal. RFC 5246,
    /// section 7.2.2: `no_renegotiation` must be a warning.
    pub(crate) const fn level(self) -> u8 {
        match self {
            Self::CLOSE_NOTIFY | Self::USER_CANCELED | Self::NO_RENEGOTIATION => LEVEL_WARNING,
            _ => LEVEL_FATAL,
        }
    }
}

impl fmt::Display for AlertDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "alert {}", self.0),
        }
    }
}

impl fmt::Debug for AlertDescription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) const LEVEL_WARNING: u8 = 1;
pub(crate) const LEVEL_FATAL: u8 = 2;
