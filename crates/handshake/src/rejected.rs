//! Skips rejected early data (RFC 8446, section 4.2.10).
//!
//! rustls skips it too, within a limit of one record. But skipped bytes stay in its buffer, and count again at each
//! call. With one record at a time (see `record_cut`), it fails after 8 KiB or two records. So this module drops such
//! records before rustls gets them.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use watari_record::{Aead, CipherSuite, HEADER_LEN, derive_traffic_key};

use crate::extract::TrafficSecrets;

const APPLICATION_DATA: u8 = 23;
const TAG_LEN: usize = 16;

/// The state of skipping rejected early data.
pub(crate) struct RejectedEarlyData {
    /// The number of bytes that may still be skipped, record headers included.
    left: usize,
    end: End,
}

/// How the server detects the end of early data.
enum End {
    /// After a `HelloRetryRequest` there are no keys. Every record of type `application_data` before the second
    /// `ClientHello` is early data.
    SecondHello,
    /// Early data ends before the first record that the client's handshake key opens.
    Key(Box<HandshakeKey>),
}

/// The decision on a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Rejected early data: drop it.
    Skip,
    /// Perhaps not early data: pass it to rustls.
    Take,
    /// Early data has ended: pass this record and all later ones to rustls.
    TakeAll,
    /// Rejected early data beyond the limit.
    TooMuch,
}

impl RejectedEarlyData {
    /// The limit of skipped bytes, with record headers. The client's own limit is unknown, because its ticket may be
    /// from another server. Our tickets allow 14 KiB; others commonly 14 to 16 KiB.
    pub(crate) const LEN_MAX: usize = 64 * 1024;

    /// Called when the server has responded to the first `ClientHello`: with a `HelloRetryRequest`, or with its whole
    /// flight. In the latter case, rustls has negotiated `suite` and logged the client's handshake secret.
    pub(crate) fn new(suite: Option<CipherSuite>, secrets: &TrafficSecrets) -> Self {
        let key =
            suite.zip(secrets.take_client_handshake()).and_then(|(suite, secret)| HandshakeKey::new(suite, &secret));
        Self { left: Self::LEN_MAX, end: key.map_or(End::SecondHello, |key| End::Key(Box::new(key))) }
    }

    /// Whether the client's handshake key is available.
    pub(crate) fn has_key(&self) -> bool {
        matches!(self.end, End::Key(_))
    }

    /// Classifies the next complete `record`.
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

/// The key of the client's first handshake record, at sequence number 0.
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

    /// Whether `record` deprotects. rustls handles its content.
    fn opens(&self, record: &[u8]) -> bool {
        let (header, sealed) = record.split_at(HEADER_LEN);
        if sealed.len() <= TAG_LEN {
            return false;
        }
        // Sequence number 0 does not change the IV (RFC 8446, section 5.3).
        let nonce = Nonce::assume_unique_for_key(self.iv);
        self.key.open_in_place(nonce, Aad::from(header), &mut sealed.to_vec()).is_ok()
    }
}
