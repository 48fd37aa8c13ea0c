//! The agent's end.

use std::collections::HashMap;
use std::net::SocketAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::{AUTHENTICATOR_LEN, BoundKey, Claim, PREFACE_LEN_MAX, Preface, TLV_KIND, VERSION};
use crate::proxy::{self, Header, ProxyError};
use crate::replay::{ReplayWindow, Stale};
use crate::{LegKey, NodeName};

/// Accepts each preface that a live key signed, once.
///
/// Holds two keys for each dispatcher: the last one handed out and the one before it, under which legs may still be on
/// their way.
pub struct LegVerifier {
    agent: NodeName,
    keys: HashMap<NodeName, Keys>,
}

struct Keys {
    current: LiveKey,
    previous: Option<LiveKey>,
}

struct LiveKey {
    bound: BoundKey,
    nonces: ReplayWindow,
}

/// A preface that was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// What it says.
    pub preface: Preface,
    /// Who signed it.
    pub dispatcher: NodeName,
    /// Its length in bytes: the connection's own begin there.
    pub len: usize,
}

/// The leg is to be closed without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefaceError {
    /// What came is no preface.
    #[error("no preface: {0}")]
    Malformed(#[from] Malformed),
    /// The key was never handed out, or has been replaced.
    #[error("a preface in the name of {dispatcher} under key {key_id}, which is unknown or expired")]
    UnknownKey {
        /// Who signed, as the preface claims.
        dispatcher: NodeName,
        /// Under which key, as the preface claims.
        key_id: u32,
    },
    /// The key did not make this authenticator for this agent.
    #[error("a preface in the name of {dispatcher} whose authenticator is wrong")]
    BadAuthenticator {
        /// Who signed, as the preface claims.
        dispatcher: NodeName,
    },
    /// The preface was accepted before.
    #[error("a preface of {dispatcher} that was used before (nonce {nonce})")]
    Replayed {
        /// Who signed.
        dispatcher: NodeName,
        /// The number of the preface under its key.
        nonce: u64,
    },
    /// So many prefaces came since that this one may have been used.
    #[error("a preface of {dispatcher} that is too old to tell whether it was used before (nonce {nonce})")]
    TooOld {
        /// Who signed.
        dispatcher: NodeName,
        /// The number of the preface under its key.
        nonce: u64,
    },
}

/// Why bytes are no preface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They are no PROXY protocol header, or one that is too long.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// A PROXY protocol header that carries something else.
    #[error("a PROXY protocol header without exactly one preface in it")]
    NoPreface,
    /// A preface of another version.
    #[error("a preface of the unknown version {0}")]
    Version(u8),
    /// The claim cannot be read.
    #[error("its claim cannot be read: {0}")]
    Claim(postcard::Error),
    /// The claim ends before its value does.
    #[error("its claim has trailing bytes")]
    TrailingBytes,
}

impl PrefaceError {
    /// The error as a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::UnknownKey { .. } => "unknown_key",
            Self::BadAuthenticator { .. } => "bad_authenticator",
            Self::Replayed { .. } => "replayed",
            Self::TooOld { .. } => "too_old",
        }
    }
}

impl LegVerifier {
    /// A verifier for legs to `agent`, which accepts none yet.
    pub fn new(agent: NodeName) -> Self {
        Self { agent, keys: HashMap::new() }
    }

    /// Accepts `key` from `dispatcher` from now on, and of its earlier keys only the last.
    ///
    /// Each key is handed out once: a dispatcher that gets the same one twice begins its nonces again.
    pub fn rotate(&mut self, dispatcher: &NodeName, key: &LegKey) {
        let current = LiveKey { bound: BoundKey::new(&self.agent, dispatcher, key), nonces: ReplayWindow::new() };
        let previous = self.keys.remove(dispatcher).map(|keys| keys.current);
        self.keys.insert(dispatcher.clone(), Keys { current, previous });
    }

    /// Accepts nothing from `dispatcher` any more.
    pub fn forget(&mut self, dispatcher: &NodeName) {
        self.keys.remove(dispatcher);
    }

    /// Verifies the preface at the front of `received`; `None` where not all of it is there yet, which is never the case
    /// with [`PREFACE_LEN_MAX`] bytes.
    pub fn verify(&mut self, received: &[u8]) -> Result<Option<Accepted>, PrefaceError> {
        let Some(parsed) = parse(received)? else {
            return Ok(None);
        };
        let Parsed { claim, client, server, len } = parsed;
        let Claim { dispatcher, key_id, nonce, connection, epoch, kind } = claim;
        let Some(key) = self.keys.get_mut(&dispatcher).and_then(|keys| keys.find(key_id)) else {
            return Err(PrefaceError::UnknownKey { dispatcher, key_id });
        };
        let (signed, authenticator) = received[..len].split_at(len - AUTHENTICATOR_LEN);
        if verify_slices_are_equal(key.bound.authenticator(signed).as_ref(), authenticator).is_err() {
            return Err(PrefaceError::BadAuthenticator { dispatcher });
        }
        match key.nonces.accept(nonce) {
            Err(Stale::Used) => return Err(PrefaceError::Replayed { dispatcher, nonce }),
            Err(Stale::TooOld) => return Err(PrefaceError::TooOld { dispatcher, nonce }),
            Ok(()) => {}
        }
        Ok(Some(Accepted { preface: Preface { kind, connection, epoch, client, server }, dispatcher, len }))
    }
}

impl Keys {
    fn find(&mut self, id: u32) -> Option<&mut LiveKey> {
        [Some(&mut self.current), self.previous.as_mut()].into_iter().flatten().find(|key| key.bound.id == id)
    }
}

/// What the preface says, before anything of it is believed.
struct Parsed {
    claim: Claim,
    client: SocketAddr,
    server: SocketAddr,
    len: usize,
}

fn parse(received: &[u8]) -> Result<Option<Parsed>, Malformed> {
    let Some((header, len)) = proxy::parse(received, PREFACE_LEN_MAX)? else {
        return Ok(None);
    };
    let Header::Tcp { client, server, tlvs } = header else {
        return Err(Malformed::NoPreface);
    };
    // The only value ends where the header ends: its authenticator covers all that stands before it.
    let [tlv] = &tlvs[..] else {
        return Err(Malformed::NoPreface);
    };
    if tlv.kind != TLV_KIND {
        return Err(Malformed::NoPreface);
    }
    let claim = parse_claim(&tlv.value)?;
    Ok(Some(Parsed { claim, client, server, len }))
}

fn parse_claim(value: &[u8]) -> Result<Claim, Malformed> {
    let [version, after @ ..] = value else {
        return Err(Malformed::NoPreface);
    };
    if *version != VERSION {
        return Err(Malformed::Version(*version));
    }
    let (claim, rest) = postcard::take_from_bytes(after).map_err(Malformed::Claim)?;
    if rest.len() == AUTHENTICATOR_LEN { Ok(claim) } else { Err(Malformed::TrailingBytes) }
}
