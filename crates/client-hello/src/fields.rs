//! The fields of a `ClientHello`, and bytes to read them from.

/// Handshake message type.
pub(crate) const CLIENT_HELLO: u8 = 1;

/// The relevant fields of a `ClientHello`.
pub(crate) struct Body<'a> {
    pub(crate) version: u16,
    pub(crate) session_id: &'a [u8],
    pub(crate) suites: &'a [u8],
    pub(crate) extensions: Bytes<'a>,
}

impl<'a> Body<'a> {
    pub(crate) fn read(hello: &'a [u8]) -> Option<Self> {
        let mut hello = Bytes(hello);
        let version = hello.u16()?;
        hello.take(32)?; // random
        let session_id = hello.vector_u8()?.0;
        let suites = hello.vector_u16()?.0;
        hello.vector_u8()?; // compression methods
        // TLS 1.2 clients may omit the whole field (RFC 5246, section 7.4.1.2).
        let extensions = if hello.0.is_empty() { hello } else { hello.vector_u16()? };
        Some(Self { version, session_id, suites, extensions })
    }
}

/// Bytes that are read from the front.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// The type and content of an extension.
    pub(crate) fn extension(&mut self) -> Option<(u16, Self)> {
        Some((self.u16()?, self.vector_u16()?))
    }

    pub(crate) fn vector_u8(&mut self) -> Option<Bytes<'a>> {
        let len = self.take(1)?[0];
        self.take(len.into()).map(Bytes)
    }

    pub(crate) fn vector_u16(&mut self) -> Option<Bytes<'a>> {
        let len = self.u16()?;
        self.take(len.into()).map(Bytes)
    }
}
