//! Properties of a `ClientHello` for which the RFCs require other alerts than TLS libraries send.

use crate::fields::{Body, Bytes, CLIENT_HELLO};

/// The parts of a `ClientHello` that decide whether a server continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outline {
    /// RFC 8446, section 4.1.2: 0x0303 for TLS 1.2 and TLS 1.3.
    pub legacy_version: u16,
    /// The versions in `supported_versions` (RFC 8446, section 4.2.1), at most 127. `None`: the extension is missing.
    pub supported_versions: Option<Vec<u16>>,
    /// Whether the cipher suites include `TLS_FALLBACK_SCSV` (RFC 7507).
    pub is_fallback: bool,
    /// Whether a `renegotiation_info` has a non-empty `renegotiated_connection` (RFC 5746, section 3.2).
    pub renegotiates: bool,
    /// The types of its extensions, in order.
    pub extensions: Vec<u16>,
}

impl Outline {
    /// `supported_groups` (RFC 8446, section 4.2.7).
    pub const SUPPORTED_GROUPS: u16 = 10;
    /// `signature_algorithms` (RFC 8446, section 4.2.3).
    pub const SIGNATURE_ALGORITHMS: u16 = 13;
    /// `pre_shared_key` (RFC 8446, section 4.2.11).
    pub const PRE_SHARED_KEY: u16 = 41;
    /// `psk_key_exchange_modes` (RFC 8446, section 4.2.9).
    pub const PSK_KEY_EXCHANGE_MODES: u16 = 45;
    /// `key_share` (RFC 8446, section 4.2.8).
    pub const KEY_SHARE: u16 = 51;

    /// Parses a handshake message: type, length and body. `None`: it is incomplete, no `ClientHello`, or malformed.
    pub fn of(message: &[u8]) -> Option<Self> {
        let [CLIENT_HELLO, a, b, c, rest @ ..] = message else { return None };
        let body = Body::read(rest.get(..u32::from_be_bytes([0, *a, *b, *c]) as usize)?)?;
        let mut outline = Self {
            legacy_version: body.version,
            supported_versions: None,
            is_fallback: body.suites.chunks_exact(2).any(|suite| suite == FALLBACK_SCSV),
            renegotiates: false,
            extensions: Vec::new(),
        };
        let mut extensions = body.extensions;
        while !extensions.0.is_empty() {
            let (kind, extension) = extensions.extension()?;
            outline.extensions.push(kind);
            match kind {
                SUPPORTED_VERSIONS => outline.supported_versions = Some(versions(extension)?),
                // In a first handshake its only field is empty: one length byte of 0.
                RENEGOTIATION_INFO => outline.renegotiates = extension.0.first()? != &0,
                _ => {}
            }
        }
        Some(outline)
    }

    /// Whether the message has an extension of this type.
    pub fn has(&self, extension: u16) -> bool {
        self.extensions.contains(&extension)
    }

    /// Whether the client offers this version, 0x0303 or 0x0304.
    pub fn offers(&self, version: u16) -> bool {
        match &self.supported_versions {
            Some(versions) => versions.contains(&version),
            None => version <= self.legacy_version.min(TLS12),
        }
    }
}

/// RFC 7507, section 2.
const FALLBACK_SCSV: [u8; 2] = [0x56, 0x00];
const TLS12: u16 = 0x0303;

/// Extension types.
const SUPPORTED_VERSIONS: u16 = 43;
const RENEGOTIATION_INFO: u16 = 0xff01;

fn versions(mut extension: Bytes<'_>) -> Option<Vec<u16>> {
    let list = extension.vector_u8()?.0;
    let is_whole = extension.0.is_empty() && list.len().is_multiple_of(2) && !list.is_empty();
    is_whole.then(|| list.chunks_exact(2).map(|version| u16::from_be_bytes([version[0], version[1]])).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{extension, hello};
    use super::*;

    #[test]
    fn extensions_are_found_in_their_order() {
        let extensions = [extension(Outline::KEY_SHARE, b"x"), extension(Outline::PRE_SHARED_KEY, b"")].concat();
        let outline = Outline::of(&hello(&extensions)).expect("it is a ClientHello");
        assert_eq!(outline.extensions, [Outline::KEY_SHARE, Outline::PRE_SHARED_KEY]);
        assert!(outline.has(Outline::KEY_SHARE) && !outline.has(Outline::SUPPORTED_GROUPS));
        assert!(!outline.is_fallback && !outline.renegotiates);
        let renegotiates = |body: &[u8]| {
            Outline::of(&hello(&extension(RENEGOTIATION_INFO, body))).is_some_and(|outline| outline.renegotiates)
        };
        assert!(renegotiates(&[1, 7]) && !renegotiates(&[0]));
    }

    #[test]
    fn versions_are_those_of_the_extension_or_up_to_that_of_the_hello() {
        let outline = |extensions: &[u8]| Outline::of(&hello(extensions));
        let old = outline(&[]).expect("it is a ClientHello");
        assert!(old.offers(0x0303) && !old.offers(0x0304));
        let new = outline(&extension(SUPPORTED_VERSIONS, &[4, 3, 4, 0x7a, 0x7a])).expect("it is a ClientHello");
        assert!(new.offers(0x0304) && !new.offers(0x0303));
        for malformed in [&[][..], &[0], &[3, 3, 4, 3], &[2, 3], &[2, 3, 4, 3]] {
            assert_eq!(outline(&extension(SUPPORTED_VERSIONS, malformed)), None, "{malformed:?}");
        }
    }

    #[test]
    fn a_fallback_is_found_among_the_suites() {
        let mut message = hello(&[]);
        let suites = message.windows(4).position(|bytes| bytes == [0x13, 0x01, 0x13, 0x02]).expect("its suites");
        message[suites + 2..][..2].copy_from_slice(&FALLBACK_SCSV);
        assert!(Outline::of(&message).is_some_and(|outline| outline.is_fallback));
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            Outline::of(&bytes);
            Outline::of(&hello(&bytes));
            Outline::of(&hello(&extension(SUPPORTED_VERSIONS, &bytes)));
        }
    }
}
