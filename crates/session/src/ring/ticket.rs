//! The wire format of a ticket. Lengths are in bytes.
//!
//! ```text
//!  version 1 | seed 8 | epoch 4 | sealer 12 | nonce 12 | sealed: since 8, session | tag 16
//! ```
//!
//! The cipher is AES-256-GCM with the sealer's own key of the epoch. Everything before the sealed part, and the policy id,
//! are authenticated.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use watari_values::{SecretBytes, TicketSeedId};
use zeroize::Zeroizing;

use super::seed::{Secret, derive};

/// A session with the time when it was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dated<T> {
    /// Seconds of Unix time.
    pub since: u64,
    pub session: T,
}

/// The fields before the sealed part.
pub(super) struct Header {
    pub(super) seed: TicketSeedId,
    pub(super) epoch: u32,
    pub(super) sealer: [u8; 12],
    pub(super) nonce: [u8; 12],
}

const VERSION: u8 = 1;
const HEADER_LEN: usize = 1 + 8 + 4 + 12 + 12;
const TAG_LEN: usize = 16;
/// The limit for tickets, in bytes. A client may send any number; sessions with a certificate chain take some KiB.
const TICKET_LEN_MAX: usize = 64 << 10;

impl Header {
    /// Splits a ticket into its header and the rest.
    pub(super) fn read(ticket: &[u8]) -> Option<(Self, &[u8])> {
        if !(HEADER_LEN + TAG_LEN..=TICKET_LEN_MAX).contains(&ticket.len()) || ticket[0] != VERSION {
            return None;
        }
        let (seed, rest) = ticket[1..].split_first_chunk()?;
        let (epoch, rest) = rest.split_first_chunk()?;
        let (sealer, rest) = rest.split_first_chunk()?;
        let (nonce, content) = rest.split_first_chunk()?;
        Some((Self { seed: *seed, epoch: u32::from_be_bytes(*epoch), sealer: *sealer, nonce: *nonce }, content))
    }

    fn to_bytes(&self) -> Vec<u8> {
        [&[VERSION][..], &self.seed, &self.epoch.to_be_bytes(), &self.sealer, &self.nonce].concat()
    }
}

pub(super) fn seal(key: &Secret, header: &Header, policy_id: &[u8], session: Dated<&[u8]>) -> Vec<u8> {
    let mut ticket = header.to_bytes();
    let mut sealed = [&session.since.to_be_bytes()[..], session.session].concat();
    let aad = Aad::from([&ticket[..], policy_id].concat());
    let nonce = Nonce::assume_unique_for_key(header.nonce);
    let done = own(key, header).seal_in_place_append_tag(nonce, aad, &mut sealed);
    done.expect("a session is far shorter than the limit of the AEAD");
    ticket.append(&mut sealed);
    ticket
}

pub(super) fn open(key: &Secret, header: &Header, policy_id: &[u8], sealed: &[u8]) -> Option<Dated<SecretBytes>> {
    let mut opened = Zeroizing::new(sealed.to_vec());
    let aad = Aad::from([&header.to_bytes()[..], policy_id].concat());
    let nonce = Nonce::assume_unique_for_key(header.nonce);
    let opened = own(key, header).open_in_place(nonce, aad, &mut opened).ok()?;
    let (since, session) = opened.split_first_chunk()?;
    Some(Dated { since: u64::from_be_bytes(*since), session: SecretBytes::new(session.to_vec()) })
}

/// The key of the sealer that the header names.
fn own(key: &Secret, header: &Header) -> LessSafeKey {
    let own = derive(&key[..], &[b"watari sealer", &header.sealer]);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &own[..]).expect("the algorithm's keys have 32 bytes"))
}
