//! The sessions that a client offers to resume.

use crate::fields::{Body, Bytes, CLIENT_HELLO};

/// The fields of a `ClientHello` about sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offers<'a> {
    /// Whether the client offers TLS 1.3 (RFC 8446, section 4.2.1).
    pub tls13: bool,
    /// The id of an offered TLS 1.2 session (RFC 5246, section 7.4.1.2). Empty: none. In TLS 1.3 it has no meaning.
    pub session_id: &'a [u8],
    /// The ticket of an offered TLS 1.2 session (RFC 5077, section 3.2). Empty: none, but the client supports tickets.
    /// `None`: it does not.
    pub ticket: Option<&'a [u8]>,
    /// The tickets of offered TLS 1.3 sessions, in the client's order of preference (RFC 8446, section 4.2.11). At most
    /// [`Offers::IDENTITIES_MAX`].
    pub identities: Vec<&'a [u8]>,
    /// Whether the client announces early data (RFC 8446, section 4.2.10).
    pub early_data: bool,
}

impl<'a> Offers<'a> {
    /// The most identities that are read. Clients offer one or two.
    pub const IDENTITIES_MAX: usize = 8;

    /// Parses a complete handshake message: type, length and body. `None`: it is no `ClientHello`.
    pub fn of(message: &'a [u8]) -> Option<Self> {
        let [CLIENT_HELLO, a, b, c, rest @ ..] = message else { return None };
        let body = Body::read(rest.get(..u32::from_be_bytes([0, *a, *b, *c]) as usize)?)?;
        let mut extensions = body.extensions;
        let mut offers =
            Self { tls13: false, session_id: body.session_id, ticket: None, identities: Vec::new(), early_data: false };
        while let Some((kind, mut extension)) = extensions.extension() {
            match kind {
                SESSION_TICKET => offers.ticket = Some(extension.0),
                PRE_SHARED_KEY => offers.identities = identities(&mut extension)?,
                EARLY_DATA => offers.early_data = true,
                SUPPORTED_VERSIONS => offers.tls13 = offers_tls13(&mut extension)?,
                _ => {}
            }
        }
        Some(offers)
    }
}

/// Extension types.
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const SUPPORTED_VERSIONS: u16 = 43;

const TLS13: u16 = 0x0304;

fn offers_tls13(extension: &mut Bytes<'_>) -> Option<bool> {
    let mut versions = extension.vector_u8()?;
    while let Some(version) = versions.u16() {
        if version == TLS13 {
            return Some(true);
        }
    }
    Some(false)
}

fn identities<'a>(extension: &mut Bytes<'a>) -> Option<Vec<&'a [u8]>> {
    let mut offered = extension.vector_u16()?;
    let mut identities = Vec::new();
    while identities.len() < Offers::IDENTITIES_MAX && !offered.0.is_empty() {
        identities.push(offered.vector_u16()?.0);
        offered.take(4)?; // obfuscated_ticket_age
    }
    Some(identities)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::{extension, hello, vector_u16};
    use super::*;

    fn identity(ticket: &[u8]) -> Vec<u8> {
        [&vector_u16(ticket)[..], &[0; 4]].concat()
    }

    fn pre_shared_key(tickets: &[Vec<u8>]) -> Vec<u8> {
        let identities: Vec<u8> = tickets.iter().flat_map(|ticket| identity(ticket)).collect();
        let binders = vector_u16(&[&[32][..], &[0; 32]].concat());
        extension(PRE_SHARED_KEY, &[vector_u16(&identities), binders].concat())
    }

    #[test]
    fn all_ways_to_offer_a_session_are_found() {
        let extensions = [
            extension(SESSION_TICKET, b"ticket"),
            extension(SUPPORTED_VERSIONS, &[4, 3, 4, 3, 3]),
            extension(EARLY_DATA, b""),
            pre_shared_key(&[b"first".to_vec(), b"second".to_vec()]),
        ];
        let hello = hello(&extensions.concat());
        let offers = Offers::of(&hello).expect("it is a ClientHello");
        assert!(offers.tls13 && offers.early_data);
        assert_eq!(offers.session_id, [1, 2, 3, 4]);
        assert_eq!(offers.ticket, Some(&b"ticket"[..]));
        assert_eq!(offers.identities, [&b"first"[..], b"second"]);
    }

    #[test]
    fn a_client_may_offer_nothing() {
        let old = hello(&extension(SUPPORTED_VERSIONS, &[2, 3, 3]));
        let offers = Offers::of(&old).expect("it is a ClientHello");
        assert_eq!((offers.tls13, offers.ticket, offers.identities.len()), (false, None, 0));
        assert!(!offers.early_data);
        let willing = hello(&extension(SESSION_TICKET, b""));
        assert_eq!(Offers::of(&willing).and_then(|offers| offers.ticket), Some(&b""[..]));
    }

    #[test]
    fn what_is_cut_short_offers_nothing() {
        let whole = hello(&pre_shared_key(&[b"ticket".to_vec()]));
        for len in 0..whole.len() {
            assert_eq!(Offers::of(&whole[..len]), None, "{len} of {} bytes", whole.len());
        }
        assert_eq!(Offers::of(b"\x02\0\0\0"), None);
    }

    proptest! {
        #[test]
        fn a_bounded_number_of_identities_is_read(tickets in vec(vec(any::<u8>(), 0..40), 0..20)) {
            let hello = hello(&pre_shared_key(&tickets));
            let offers = Offers::of(&hello).expect("it is a ClientHello");
            let read = tickets.len().min(Offers::IDENTITIES_MAX);
            prop_assert_eq!(offers.identities, tickets[..read].iter().map(Vec::as_slice).collect::<Vec<_>>());
        }

        #[test]
        fn nothing_panics(bytes: Vec<u8>, at in any::<prop::sample::Index>(), to: u8) {
            Offers::of(&bytes);
            let mut changed = hello(&[extension(SUPPORTED_VERSIONS, &[2, 3, 4]), pre_shared_key(&[bytes])].concat());
            let at = at.index(changed.len());
            changed[at] = to;
            Offers::of(&changed);
        }
    }
}
