//! Early data that was rejected, and that the server skips (RFC 8446, section 4.2.10).
//!
//! rustls skips it, too, within a limit of one record. But what it skips stays in its buffer, and is charged again at each call; fed one
//! record at a time (see `record_cut`) it gives up after 8 KiB or two records. So records of rejected early data are dropped before rustls.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use watari_record::{Aead, CipherSuite, HEADER_LEN, derive_traffic_key};

use crate::extract::TrafficSecrets;

const APPLICATION_DATA: u8 = 23;
const TAG_LEN: usize = 16;

/// Rejected early data that a server skips, and how much more it may skip.
pub(crate) struct RejectedEarlyData {
    /// How many bytes may still be skipped, record headers included.
    left: usize,
    end: End,
}

/// How the server finds the end of early data.
enum End {
    /// After a `HelloRetryRequest` there are no keys: it is everything of the type `application_data` before the second `ClientHello`.
    SecondHello,
    /// The first record that the client's handshake key opens.
    Key(Box<HandshakeKey>),
}

/// What to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Rejected early data: drop it.
    Skip,
    /// Perhaps not early data: pass it to rustls.
    Take,
    /// Early data is over: pass this record and all later ones to rustls.
    TakeAll,
    /// Rejected early data beyond the limit.
    TooMuch,
}

impl RejectedEarlyData {
    /// The most that is skipped, in bytes with record headers. Which limit the client has is unknown: its ticket may be from
    /// another server. Ours allow 14 KiB; others commonly 14 to 16 KiB.
    pub(crate) const LEN_MAX: usize = 64 * 1024;

    /// Begins when the server has answered the first `ClientHello`: with a `HelloRetryRequest`, or with its whole flight; then
    /// rustls has logged the secret of the client's handshake key, and agreed on `suite`.
    pub(crate) fn new(suite: Option<CipherSuite>, secrets: &TrafficSecrets) -> Self {
        let key =
            suite.zip(secrets.take_client_handshake()).and_then(|(suite, secret)| HandshakeKey::new(suite, &secret));
        Self { left: Self::LEN_MAX, end: key.map_or(End::SecondHello, |key| End::Key(Box::new(key))) }
    }

    /// Whether the server is past the point where records without a key are early data.
    pub(crate) fn has_key(&self) -> bool {
        matches!(self.end, End::Key(_))
    }

    /// Classifies the next whole `record`.
    pub(crate) fn judge(&mut self, record: &[u8]) -> Verdict {
        match (&self.end, record[0]) {
            // A change_cipher_spec of middlebox compatibility mode (RFC 8446, appendix D.4), or an alert in plaintext.
            (End::Key(_), content_type) if content_type != APPLICATION_DATA => return Verdict::Take,
            (End::Key(key), _) if key.opens(record) => return Verdict::TakeAll,
            (End::SecondHello, HANDSHAKE) => return Verdict::TakeAll,
            (End::SecondHello, content_type) if content_type != APPLICATION_DATA => return Verdict::Take,
            _ => {}
        }
        match self.left.checked_sub(record.len()) {
            Some(left) => {
                self.left = left;
                Verdict::Skip
            }
            None => Verdict::TooMuch,
        }
    }
}

const HANDSHAKE: u8 = 22;

/// What the client seals its first handshake record with, at sequence number 0.
struct HandshakeKey {
    key: LessSafeKey,
    iv: [u8; 12],
}

impl HandshakeKey {
    fn new(suite: CipherSuite, secret: &[u8]) -> Option<Self> {
        let derived = derive_traffic_key(suite, secret).ok()?;
        let algorithm = match suite.aead() {
            Aead::Aes128Gcm => &AES_128_GCM,
            Aead::Aes256Gcm => &AES_256_GCM,
            Aead::ChaCha20Poly1305 => &CHACHA20_POLY1305,
        };
        let key = UnboundKey::new(algorithm, &derived.key).ok()?;
        Some(Self { key: LessSafeKey::new(key), iv: *derived.iv })
    }

    /// Whether `record` deprotects. Its content is left to rustls.
    fn opens(&self, record: &[u8]) -> bool {
        let (header, sealed) = record.split_at(HEADER_LEN);
        if sealed.len() <= TAG_LEN {
            return false;
        }
        // Sequence number 0 leaves the IV as it is (RFC 8446, section 5.3).
        let nonce = Nonce::assume_unique_for_key(self.iv);
        self.key.open_in_place(nonce, Aad::from(header), &mut sealed.to_vec()).is_ok()
    }
}
