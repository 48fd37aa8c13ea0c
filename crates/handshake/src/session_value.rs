//! Finds the client's certificates in a session in the encoding of rustls.
//!
//! rustls exposes them only after it has resumed the session. The encoding is internal to rustls. If a session cannot
//! be parsed, it counts as one without acceptable certificates. The tests fail if a version of rustls changes the
//! encoding.

use rustls::pki_types::CertificateDer;

/// The chain in `session`, the client's own certificate first. It is empty if the client sent none. `None` if it cannot
/// be parsed.
pub(crate) fn client_chain(session: &[u8]) -> Option<Vec<CertificateDer<'_>>> {
    let mut session = Reader(session);
    if session.flag()? {
        session.vector::<1>()?; // server name
    }
    session.take(2 + 2)?; // version, cipher suite
    session.vector::<1>()?; // master secret
    session.flag()?; // extended master secret
    if !session.flag()? {
        return Some(Vec::new());
    }
    let mut chain = Reader(session.vector::<3>()?);
    let mut certificates = Vec::new();
    while !chain.0.is_empty() {
        certificates.push(CertificateDer::from(chain.vector::<3>()?));
    }
    Some(certificates)
}

/// Reads bytes from the front.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take(1)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    /// Bytes with a length prefix of `LEN` bytes.
    fn vector<const LEN: usize>(&mut self) -> Option<&'a [u8]> {
        let len = self.take(LEN)?.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        self.take(len)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            client_chain(&bytes);
        }
    }
}
