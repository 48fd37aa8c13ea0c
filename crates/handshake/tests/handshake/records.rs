//! A second implementation of record protection, to test extracted secrets against a real peer.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use watari_record::{Aead, CipherSuite, Direction, DirectionSecret, derive_traffic_key};

const APPLICATION_DATA: u8 = 23;

/// Opens one record and returns its plaintext, which must be application data.
pub(crate) fn open(suite: CipherSuite, direction: &mut Direction, record: &[u8]) -> Vec<u8> {
    let (header, payload) = record.split_at(5);
    assert_eq!(header[0], APPLICATION_DATA);
    let (key, iv) = key_and_iv(suite, direction);
    let explicit = if has_explicit_nonce(suite, direction) { 8 } else { 0 };
    let (explicit_nonce, sealed) = payload.split_at(explicit);
    let mut nonce = xor_sequence(iv, direction.sequence);
    nonce[12 - explicit..].copy_from_slice(explicit_nonce);
    let aad = aad(direction, sealed.len() - 16, header);
    let mut sealed = sealed.to_vec();
    let opened = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed).unwrap();
    direction.sequence += 1;
    match direction.secret {
        DirectionSecret::Tls12 { .. } => opened.to_vec(),
        DirectionSecret::Tls13(_) => {
            assert_eq!(opened.last(), Some(&APPLICATION_DATA));
            opened[..opened.len() - 1].to_vec()
        }
    }
}

/// Seals application data into one record.
pub(crate) fn seal(suite: CipherSuite, direction: &mut Direction, data: &[u8]) -> Vec<u8> {
    seal_as(APPLICATION_DATA, suite, direction, data)
}

/// The same, with another inner content type (TLS 1.3).
pub(crate) fn seal_as(content_type: u8, suite: CipherSuite, direction: &mut Direction, data: &[u8]) -> Vec<u8> {
    let (key, iv) = key_and_iv(suite, direction);
    let nonce = xor_sequence(iv, direction.sequence);
    let explicit: &[u8] = if has_explicit_nonce(suite, direction) { &nonce[4..] } else { &[] };
    let mut sealed = data.to_vec();
    if matches!(direction.secret, DirectionSecret::Tls13(_)) {
        sealed.push(content_type);
    }
    let payload_len = u16::try_from(explicit.len() + sealed.len() + 16).unwrap();
    let header = [&[APPLICATION_DATA, 3, 3][..], &payload_len.to_be_bytes()].concat();
    let aad = aad(direction, sealed.len(), &header);
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut sealed).unwrap();
    direction.sequence += 1;
    [&header, explicit, &sealed].concat()
}

fn key_and_iv(suite: CipherSuite, direction: &Direction) -> (LessSafeKey, [u8; 12]) {
    let (key, iv) = match &direction.secret {
        DirectionSecret::Tls12 { key, iv } => (key.clone(), iv.clone()),
        DirectionSecret::Tls13(secret) => {
            let derived = derive_traffic_key(suite, secret).unwrap();
            (derived.key, derived.iv)
        }
    };
    let algorithm = match suite.aead() {
        Aead::Aes128Gcm => &AES_128_GCM,
        Aead::Aes256Gcm => &AES_256_GCM,
        Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    (LessSafeKey::new(UnboundKey::new(algorithm, &key).unwrap()), *iv)
}

/// AES-GCM in TLS 1.2 sends 8 bytes of the nonce (RFC 5288, section 3).
fn has_explicit_nonce(suite: CipherSuite, direction: &Direction) -> bool {
    matches!(direction.secret, DirectionSecret::Tls12 { .. }) && suite.aead() != Aead::ChaCha20Poly1305
}

fn xor_sequence(iv: [u8; 12], sequence: u64) -> [u8; 12] {
    let mut nonce = iv;
    for (byte, other) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= other;
    }
    nonce
}

/// RFC 5246, section 6.2.3.3; RFC 8446, section 5.2.
fn aad(direction: &Direction, plaintext_len: usize, header: &[u8]) -> Vec<u8> {
    match direction.secret {
        DirectionSecret::Tls13(_) => header.to_vec(),
        DirectionSecret::Tls12 { .. } => {
            let len = u16::try_from(plaintext_len).unwrap().to_be_bytes();
            [&direction.sequence.to_be_bytes()[..], &header[..3], &len].concat()
        }
    }
}
