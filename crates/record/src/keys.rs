//! The key schedule of TLS 1.3 after the handshake.

use aws_lc_rs::hkdf;
use zeroize::Zeroizing;

use crate::{CipherSuite, SecretsError};

/// The key and IV that protect records under a traffic secret.
pub struct TrafficKey {
    /// The AEAD key.
    pub key: Zeroizing<Vec<u8>>,
    /// The IV. XOR with the sequence number makes it a nonce (RFC 8446, section 5.3).
    pub iv: Zeroizing<[u8; IV_LEN]>,
}

/// The nonce length of every supported AEAD, in bytes.
pub(crate) const IV_LEN: usize = 12;

/// Derives key and IV from a TLS 1.3 traffic secret (RFC 8446, section 7.3).
///
/// `secret` has the length of the suite's hash output. A TLS 1.2 suite has no traffic secrets and is refused.
pub fn derive_traffic_key(suite: CipherSuite, secret: &[u8]) -> Result<TrafficKey, SecretsError> {
    if suite.version() != crate::Version::Tls13 {
        return Err(SecretsError::WrongVersion(suite));
    }
    let expected = suite.hash().output_len();
    if secret.len() != expected {
        return Err(SecretsError::WrongLength { suite, len: secret.len(), expected });
    }
    let mut traffic_key =
        TrafficKey { key: Zeroizing::new(vec![0; suite.aead().key_len()]), iv: Zeroizing::new([0; IV_LEN]) };
    expand_label(suite, secret, b"key", &mut traffic_key.key);
    expand_label(suite, secret, b"iv", &mut *traffic_key.iv);
    Ok(traffic_key)
}

/// The traffic secret after `secret`, at a `KeyUpdate` (RFC 8446, section 7.2).
pub(crate) fn next_traffic_secret(suite: CipherSuite, secret: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut next = Zeroizing::new(vec![0; suite.hash().output_len()]);
    expand_label(suite, secret, b"traffic upd", &mut next);
    next
}

/// `HKDF-Expand-Label(secret, label, "", out.len())` (RFC 8446, section 7.1).
fn expand_label(suite: CipherSuite, secret: &[u8], label: &[u8], out: &mut [u8]) {
    const PREFIX: &[u8] = b"tls13 ";
    const NO_CONTEXT: u8 = 0;
    let out_len = (out.len() as u16).to_be_bytes();
    let label_len = (PREFIX.len() + label.len()) as u8;
    let info: [&[u8]; 5] = [&out_len, &[label_len], PREFIX, label, &[NO_CONTEXT]];
    hkdf::Prk::new_less_safe(suite.hash().hkdf(), secret)
        .expand(&info, OutputLen(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("HKDF can make a few dozen bytes");
}

struct OutputLen(usize);

impl hkdf::KeyType for OutputLen {
    fn len(&self) -> usize {
        self.0
    }
}
