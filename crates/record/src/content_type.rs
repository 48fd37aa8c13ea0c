//! Types of records.

/// Record types (RFC 8446, section 5.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContentType {
    /// `change_cipher_spec`, 20.
    ChangeCipherSpec,
    /// `alert`, 21.
    Alert,
    /// `handshake`, 22.
    Handshake,
    /// `application_data`, 23.
    ApplicationData,
}

impl ContentType {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::ChangeCipherSpec => 20,
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::ApplicationData => 23,
        }
    }
}
