//! The client's certificates, found in a session as rustls encodes it.
//!
//! rustls shows them only after it has resumed the session. The encoding is its own, and not for others to rely on: what
//! does not read as expected has no certificates that could be accepted, and the tests fail if a version of rustls encodes otherwise.

use rustls::pki_types::CertificateDer;

/// The chain in `session`, the client's own certificate first, empty if it showed none; `None` if it cannot be read.
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

/// Bytes that are read from their front.
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

    /// Bytes behind their length, which has so many bytes itself.
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
