//! Arbitrary bytes of a client. The handshake never panics, answers the same for any segmentation, and stores at most a
//! record.

use std::sync::{Arc, LazyLock};

use arbitrary::Arbitrary;
use rcgen::{CertificateParams, KeyPair};
use watari_handshake::{Certificate, Handshake, Progress, Provided, ServerConfig, ServerOptions, Sessions};

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    /// Bytes that arrive at once; 0 is all.
    piece: u8,
    sent: &'a [u8],
}

static CONFIG: LazyLock<ServerConfig> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec!["www.example.com".to_owned()]).expect("a name").self_signed(&key);
    let chain = leaf.expect("a certificate").pem();
    let certificate = Certificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).expect("a pair");
    let alpn = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let options = ServerOptions { certificates: vec![certificate], alpn, ..ServerOptions::default() };
    ServerConfig::new(&options).expect("a configuration")
});

/// The server looks up each offered session, and would accept early data.
static SESSIONS: LazyLock<Arc<Sessions>> = LazyLock::new(|| {
    Arc::new(Sessions { kept: true, tickets_per_handshake: 2, early_data: true, ..Sessions::default() })
});

pub(crate) fn run(input: Input<'_>) {
    let piece = if input.piece == 0 { usize::MAX } else { input.piece.into() };
    assert_eq!(shake(input.sent, piece), shake(input.sent, usize::MAX));
}

/// The number of bytes consumed, and the reason of a failure.
fn shake(sent: &[u8], piece: usize) -> (usize, Option<String>) {
    let mut handshake = Handshake::new(&CONFIG, &SESSIONS);
    let (mut unread, mut consumed) = (Vec::new(), 0);
    for bytes in sent.chunks(piece) {
        unread.extend_from_slice(bytes);
        // No session is found, and early data are approved.
        let step = handshake.receive(&unread).and_then(|progress| {
            if progress.wanted.is_empty() {
                return Ok(progress);
            }
            handshake.provide(Provided { early_data: progress.wanted.early_data, ..Provided::default() })?;
            let next = handshake.receive(&unread[progress.consumed..])?;
            Ok(Progress { consumed: progress.consumed + next.consumed, ..next })
        });
        match step {
            Ok(progress) => {
                assert!(progress.established.is_none(), "no peer has the keys");
                assert!(progress.early.is_empty(), "nothing was resumed");
                unread.drain(..progress.consumed);
                consumed += progress.consumed;
            }
            // The handshake consumed bytes before the fault. It does not return how many the failed call consumed.
            Err(failed) => return (0, Some(failed.cause.to_string())),
        }
        assert!(unread.len() <= Handshake::UNREAD_MAX);
    }
    (consumed, None)
}
