//! Converts the secrets of rustls to those of the record layer.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, KeyLog};
use watari_record::{CipherSuite, Direction, DirectionSecret, Secrets, Side, Version, derive_traffic_key};
use zeroize::Zeroizing;

use crate::error::HandshakeError;

/// Stores the application traffic secrets of one TLS 1.3 connection. `KeyUpdate` needs them, and rustls gives them only
/// to a key log. In TLS 1.2 it stays empty: the master secret is not stored.
#[derive(Default)]
pub(crate) struct TrafficSecrets {
    pair: Mutex<Pair>,
    /// The client's handshake traffic secret, if it is needed to find the end of rejected early data.
    client_handshake: Option<Mutex<Option<Secret>>>,
}

type Secret = Zeroizing<Vec<u8>>;

#[derive(Default)]
struct Pair {
    client: Option<Secret>,
    server: Option<Secret>,
}

const CLIENT_HANDSHAKE_LABEL: &str = "CLIENT_HANDSHAKE_TRAFFIC_SECRET";
const CLIENT_LABEL: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_LABEL: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for TrafficSecrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let secret = || Some(Zeroizing::new(secret.to_vec()));
        match (label, &self.client_handshake) {
            (CLIENT_LABEL, _) => lock(&self.pair).client = secret(),
            (SERVER_LABEL, _) => lock(&self.pair).server = secret(),
            (CLIENT_HANDSHAKE_LABEL, Some(place)) => *lock(place) = secret(),
            _ => {}
        }
    }

    fn will_log(&self, label: &str) -> bool {
        match label {
            CLIENT_LABEL | SERVER_LABEL => true,
            CLIENT_HANDSHAKE_LABEL => self.client_handshake.is_some(),
            _ => false,
        }
    }
}

impl TrafficSecrets {
    /// Also stores the client's handshake traffic secret if `with_handshake`.
    pub(crate) fn new(with_handshake: bool) -> Self {
        Self { pair: Mutex::default(), client_handshake: with_handshake.then(Mutex::default) }
    }

    /// Takes the client's handshake traffic secret, if it is stored.
    pub(crate) fn take_client_handshake(&self) -> Option<Secret> {
        self.client_handshake.as_ref().and_then(|place| lock(place).take())
    }

    /// Whether the server seals with its application traffic secret, which it does from its Finished on.
    pub(crate) fn has_server(&self) -> bool {
        lock(&self.pair).server.is_some()
    }

    /// The secrets to seal an alert after the server's Finished, when the server has sealed `sequence` records. `None`
    /// before the Finished.
    pub(crate) fn take_for_alert(&self, suite: CipherSuite, sequence: u64) -> Option<Secrets> {
        let Pair { client, server } = self.take();
        let direction = |sequence, secret| Direction { sequence, secret: DirectionSecret::Tls13(secret) };
        Some(Secrets { side: Side::Server, suite, tx: direction(sequence, server?), rx: direction(0, client?) })
    }

    fn take(&self) -> Pair {
        std::mem::take(&mut lock(&self.pair))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for TrafficSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficSecrets").finish_non_exhaustive()
    }
}

/// The secrets with which the record layer of a server continues after `extracted`.
///
/// Sequence numbers are those of the extraction. TLS 1.3 secrets come from the key log, and must derive exactly the
/// keys of the extraction. Otherwise the connection would stall at best, and reuse a nonce at worst.
pub(crate) fn server_secrets(
    suite: CipherSuite,
    extracted: ExtractedSecrets,
    traffic_secrets: &TrafficSecrets,
) -> Result<Secrets, HandshakeError> {
    let Pair { client, server } = traffic_secrets.take();
    let ExtractedSecrets { tx: (tx_sequence, tx), rx: (rx_sequence, rx) } = extracted;
    Ok(Secrets {
        side: Side::Server,
        suite,
        tx: Direction { sequence: tx_sequence, secret: direction_secret(suite, &tx, server)? },
        rx: Direction { sequence: rx_sequence, secret: direction_secret(suite, &rx, client)? },
    })
}

fn direction_secret(
    suite: CipherSuite,
    extracted: &ConnectionTrafficSecrets,
    traffic_secret: Option<Zeroizing<Vec<u8>>>,
) -> Result<DirectionSecret, HandshakeError> {
    let (key, iv) = key_and_iv(extracted)?;
    match (suite.version(), traffic_secret) {
        (Version::Tls12, None) if key.len() == suite.aead().key_len() => Ok(DirectionSecret::Tls12 { key, iv }),
        (Version::Tls13, Some(secret)) => {
            verify_derivation(suite, &secret, &key, iv.as_slice())?;
            Ok(DirectionSecret::Tls13(secret))
        }
        _ => Err(HandshakeError::SecretsMismatch),
    }
}

type KeyAndIv = (Zeroizing<Vec<u8>>, Zeroizing<[u8; 12]>);

fn key_and_iv(extracted: &ConnectionTrafficSecrets) -> Result<KeyAndIv, HandshakeError> {
    let (ConnectionTrafficSecrets::Aes128Gcm { key, iv }
    | ConnectionTrafficSecrets::Aes256Gcm { key, iv }
    | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = extracted
    else {
        return Err(HandshakeError::SecretsMismatch);
    };
    let iv: [u8; 12] = iv.as_ref().try_into().map_err(|_| HandshakeError::SecretsMismatch)?;
    Ok((Zeroizing::new(key.as_ref().to_vec()), Zeroizing::new(iv)))
}

fn verify_derivation(suite: CipherSuite, secret: &[u8], key: &[u8], iv: &[u8]) -> Result<(), HandshakeError> {
    let derived = derive_traffic_key(suite, secret).map_err(|_| HandshakeError::SecretsMismatch)?;
    verify_slices_are_equal(&derived.key, key)
        .and_then(|()| verify_slices_are_equal(derived.iv.as_slice(), iv))
        .map_err(|_| HandshakeError::SecretsMismatch)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use rustls::crypto::cipher::{AeadKey, Iv};

    use super::*;

    const TLS13: CipherSuite = CipherSuite::TLS_CHACHA20_POLY1305_SHA256;
    const TLS12: CipherSuite = CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;

    fn traffic_secrets(client: &[u8], server: &[u8]) -> TrafficSecrets {
        let log = TrafficSecrets::default();
        log.log(CLIENT_LABEL, &[0; 32], client);
        log.log(SERVER_LABEL, &[0; 32], server);
        log
    }

    /// Key and IV of a TLS 1.3 direction. The arguments flip bits of the first byte of each.
    fn derived(secret: &[u8], change_key: u8, change_iv: u8) -> ConnectionTrafficSecrets {
        let derived = derive_traffic_key(TLS13, secret).unwrap();
        let mut key: [u8; 32] = derived.key[..].try_into().unwrap();
        let mut iv = *derived.iv;
        key[0] ^= change_key;
        iv[0] ^= change_iv;
        ConnectionTrafficSecrets::Chacha20Poly1305 { key: AeadKey::from(key), iv: Iv::from(iv) }
    }

    fn plain(suite: CipherSuite, log: &TrafficSecrets) -> Result<Secrets, HandshakeError> {
        let direction =
            || ConnectionTrafficSecrets::Chacha20Poly1305 { key: AeadKey::from([5; 32]), iv: Iv::from([6; 12]) };
        server_secrets(suite, ExtractedSecrets { tx: (1, direction()), rx: (1, direction()) }, log)
    }

    #[test]
    fn secrets_that_derive_the_keys_go_to_their_directions() {
        let (client, server) = ([1; 32], [2; 32]);
        let extracted = ExtractedSecrets { tx: (7, derived(&server, 0, 0)), rx: (9, derived(&client, 0, 0)) };
        let secrets = server_secrets(TLS13, extracted, &traffic_secrets(&client, &server)).unwrap();
        for (direction, sequence, expected) in [(secrets.tx, 7, server), (secrets.rx, 9, client)] {
            assert_eq!(direction.sequence, sequence);
            assert!(matches!(direction.secret, DirectionSecret::Tls13(secret) if secret[..] == expected));
        }
    }

    #[test]
    fn secrets_that_derive_other_keys_are_refused() {
        let (client, server) = ([1; 32], [2; 32]);
        let right = || traffic_secrets(&client, &server);
        let short = traffic_secrets(&client[1..], &server);
        for (rx, tx, log) in [
            (derived(&client, 1, 0), derived(&server, 0, 0), right()),
            (derived(&client, 0, 1), derived(&server, 0, 0), right()),
            (derived(&client, 0, 0), derived(&server, 1, 0), right()),
            (derived(&client, 0, 0), derived(&server, 0, 1), right()),
            (derived(&server, 0, 0), derived(&client, 0, 0), right()),
            (derived(&client, 0, 0), derived(&server, 0, 0), short),
            (derived(&client, 0, 0), derived(&server, 0, 0), TrafficSecrets::default()),
        ] {
            let extracted = ExtractedSecrets { tx: (0, tx), rx: (0, rx) };
            let error = server_secrets(TLS13, extracted, &log).err();
            assert_eq!(error, Some(HandshakeError::SecretsMismatch));
        }
    }

    #[test]
    fn tls12_takes_keys_as_they_are() {
        let secrets = plain(TLS12, &TrafficSecrets::default()).unwrap();
        let is_plain = |secret: &DirectionSecret| match secret {
            DirectionSecret::Tls12 { key, iv } => key[..] == [5; 32] && **iv == [6; 12],
            DirectionSecret::Tls13(_) => false,
        };
        assert!(is_plain(&secrets.tx.secret) && is_plain(&secrets.rx.secret));
        // A key of 32 bytes does not fit AES-128, and TLS 1.2 has no traffic secrets.
        let aes_128 = plain(CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, &TrafficSecrets::default());
        assert_eq!(aes_128.err(), Some(HandshakeError::SecretsMismatch));
        assert_eq!(plain(TLS12, &traffic_secrets(&[1; 32], &[2; 32])).err(), Some(HandshakeError::SecretsMismatch));
    }

    #[test]
    fn nothing_but_application_secrets_is_kept() {
        let log = TrafficSecrets::default();
        for label in ["CLIENT_RANDOM", "EXPORTER_SECRET", "CLIENT_HANDSHAKE_TRAFFIC_SECRET"] {
            assert!(!log.will_log(label));
            log.log(label, &[0; 32], &[1; 32]);
        }
        let Pair { client, server } = log.take();
        assert!(client.is_none() && server.is_none() && log.take_client_handshake().is_none());
    }

    #[test]
    fn the_handshake_secret_is_kept_where_it_is_wanted_until_it_is_taken() {
        let log = TrafficSecrets::new(true);
        assert!(log.will_log(CLIENT_HANDSHAKE_LABEL) && log.take_client_handshake().is_none());
        log.log(CLIENT_HANDSHAKE_LABEL, &[0; 32], &[1; 32]);
        assert_eq!(log.take_client_handshake().as_deref(), Some(&vec![1; 32]));
        assert!(log.take_client_handshake().is_none());
    }
}
