//! Versions of TLS.

/// A TLS version, by its number on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TlsVersion(pub u16);

impl TlsVersion {
    /// RFC 5246.
    pub const TLS_1_2: Self = Self(0x0303);
    /// RFC 8446.
    pub const TLS_1_3: Self = Self(0x0304);

    /// The usual name, such as `TLS 1.3`.
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            0x0300 => "SSL 3.0",
            0x0301 => "TLS 1.0",
            0x0302 => "TLS 1.1",
            0x0303 => "TLS 1.2",
            0x0304 => "TLS 1.3",
            _ => "TLS",
        }
    }
}
