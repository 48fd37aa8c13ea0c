//! Connections with known secrets, for several targets.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use watari_record::{
    Aead, CipherSuite, Connection, Direction, DirectionSecret, Secrets, Side, Version, derive_traffic_key,
};
use zeroize::Zeroizing;

/// The suite for a byte of the input.
pub fn suite(choice: u8) -> CipherSuite {
    CipherSuite::ALL[usize::from(choice) % CipherSuite::ALL.len()]
}

/// Client and server of one connection, with both directions at this sequence number.
pub fn pair(suite: CipherSuite, sequence: u64) -> (Connection, Connection) {
    let direction = |filler| Direction { sequence, secret: secret(suite, filler) };
    let end = |side, tx, rx| {
        Connection::new(Secrets { side, suite, tx: direction(tx), rx: direction(rx) }).expect("the secrets fit")
    };
    (end(Side::Client, 1, 2), end(Side::Server, 2, 1))
}

fn secret(suite: CipherSuite, filler: u8) -> DirectionSecret {
    match suite.version() {
        Version::Tls13 => DirectionSecret::Tls13(Zeroizing::new(vec![filler; suite.hash().output_len()])),
        Version::Tls12 => DirectionSecret::Tls12 {
            key: Zeroizing::new(vec![filler; suite.aead().key_len()]),
            iv: Zeroizing::new([filler; 12]),
        },
    }
}

/// Seals records that no correct peer sends: any content type around any plaintext, as the next record that the
/// connection with this exported state will open. (RFC 8446, section 5.2; RFC 5246, section 6.2.3.3.)
pub fn seal_as_peer(suite: CipherSuite, state: &[u8], content_type: u8, plaintext: &[u8], padding: usize) -> Vec<u8> {
    let (key, iv, sequence) = rx_protection(suite, state);
    let mut nonce = iv;
    for (byte, of_sequence) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= of_sequence;
    }
    let header = |content_type, len: usize| [content_type, 3, 3, (len >> 8) as u8, len as u8];
    let mut content = plaintext.to_vec();
    let (header, explicit_nonce, aad) = match suite.version() {
        Version::Tls13 => {
            content.push(content_type);
            content.resize(content.len() + padding, 0);
            let header = header(23, content.len() + TAG_LEN);
            (header, &[][..], header.to_vec())
        }
        Version::Tls12 => {
            let explicit_nonce = if suite.aead() == Aead::ChaCha20Poly1305 { &[][..] } else { &nonce[4..] };
            let aad = [&sequence.to_be_bytes()[..], &header(content_type, content.len())].concat();
            (header(content_type, explicit_nonce.len() + content.len() + TAG_LEN), explicit_nonce, aad)
        }
    };
    let mut record = [&header[..], explicit_nonce].concat();
    let sealed = Nonce::assume_unique_for_key(nonce);
    key.seal_in_place_append_tag(sealed, Aad::from(aad), &mut content).expect("a record is short");
    record.append(&mut content);
    record
}

const TAG_LEN: usize = 16;

/// The key, the IV and the sequence number of the direction that the state's owner opens. They are at the end of the
/// state.
fn rx_protection(suite: CipherSuite, state: &[u8]) -> (LessSafeKey, [u8; 12], u64) {
    let secret_len = match suite.version() {
        Version::Tls13 => suite.hash().output_len(),
        Version::Tls12 => suite.aead().key_len() + 12,
    };
    let (front, secret) = state.split_at(state.len() - secret_len);
    let (key, iv) = match suite.version() {
        Version::Tls13 => {
            let traffic_key = derive_traffic_key(suite, secret).expect("the secret is as long as the hash");
            (traffic_key.key.to_vec(), *traffic_key.iv)
        }
        Version::Tls12 => {
            let (key, iv) = secret.split_at(suite.aead().key_len());
            (key.to_vec(), iv.try_into().expect("12 bytes are left"))
        }
    };
    let algorithm = match suite.aead() {
        Aead::Aes128Gcm => &AES_128_GCM,
        Aead::Aes256Gcm => &AES_256_GCM,
        Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
    };
    let sequence = front.last_chunk().copied().map_or(0, u64::from_be_bytes);
    (LessSafeKey::new(UnboundKey::new(algorithm, &key).expect("the key fits")), iv, sequence)
}
