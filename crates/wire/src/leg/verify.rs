//! The agent's side.

use std::collections::HashMap;
use std::net::SocketAddr;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use serde::{Deserialize, Serialize};
use watari_values::{NodeName, SecretBytes};

use super::preface::{AUTHENTICATOR_LEN, BoundKey, Claim, PREFACE_LEN_MAX, Preface, TLV_KIND, VERSION};
use crate::message::LegKey;
use crate::proxy::{self, Header, ProxyError};
use crate::replay::{ReplayWindow, Stale};

/// Accepts each preface under a valid key once.
///
/// Stores two keys for each dispatcher: the latest and the one before it, because prefaces under that may still be on
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
    /// The key itself, for [`LegVerifier::export`].
    secret: SecretBytes,
    nonces: ReplayWindow,
}

/// A key of a verifier with its used nonces, for another process of the same agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedLegKey {
    pub dispatcher: NodeName,
    id: u32,
    secret: SecretBytes,
    highest: u64,
    used: Vec<u64>,
}

#[cfg(test)]
impl ExportedLegKey {
    pub(super) fn truncate_window(&mut self) {
        self.used.pop();
    }
}

/// A verified preface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub preface: Preface,
    /// The dispatcher that signed it.
    pub dispatcher: NodeName,
    /// The length of the preface in bytes. The bytes after it belong to the connection.
    pub len: usize,
}

/// The preface is invalid. The agent closes the leg without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefaceError {
    /// The bytes are no preface.
    #[error("not a preface: {0}")]
    Malformed(#[from] Malformed),
    /// The key was never sent, or has been replaced.
    #[error("a preface that names {dispatcher} and key {key_id}, which is unknown or expired")]
    UnknownKey {
        /// The signer, as the preface claims.
        dispatcher: NodeName,
        /// The id of the key, as the preface claims.
        key_id: u32,
    },
    /// The authenticator does not match the key and this agent.
    #[error("a preface that names {dispatcher} has a wrong authenticator")]
    BadAuthenticator {
        /// The signer, as the preface claims.
        dispatcher: NodeName,
    },
    /// The preface was accepted before.
    #[error("a preface of {dispatcher} that was used before (nonce {nonce})")]
    Replayed {
        dispatcher: NodeName,
        /// The number of the preface under its key.
        nonce: u64,
    },
    /// So many later prefaces have arrived that this one may have been used.
    #[error("a preface of {dispatcher} is too old: it may have been used before (nonce {nonce})")]
    TooOld {
        dispatcher: NodeName,
        /// The number of the preface under its key.
        nonce: u64,
    },
}

/// The reason that bytes are no preface.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// They are no PROXY protocol header, or one that is too long.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// The PROXY protocol header has other content.
    #[error("a PROXY protocol header without exactly one preface in it")]
    NoPreface,
    /// The preface has another version.
    #[error("a preface of the unknown version {0}")]
    Version(u8),
    #[error("its claim cannot be read: {0}")]
    Claim(postcard::Error),
    /// Bytes follow the claim in its value.
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
    /// A verifier for legs to `agent`. It has no keys yet.
    pub fn new(agent: NodeName) -> Self {
        Self { agent, keys: HashMap::new() }
    }

    /// Accepts `key` from `dispatcher` from now on. Of its earlier keys, only the previous one stays valid.
    ///
    /// Each key is sent once: a dispatcher that gets the same key twice would repeat its nonces.
    pub fn rotate(&mut self, dispatcher: &NodeName, key: &LegKey) {
        let current = self.live(dispatcher, key, ReplayWindow::new());
        let previous = self.keys.remove(dispatcher).map(|keys| keys.current);
        self.keys.insert(dispatcher.clone(), Keys { current, previous });
    }

    /// The keys of all dispatchers, those of one from the previous to the current. The caller must not verify with this
    /// verifier any more, or prefaces are accepted twice.
    pub fn export(&self) -> Vec<ExportedLegKey> {
        let export = |dispatcher: &NodeName, key: &LiveKey| {
            let (highest, used) = key.nonces.export();
            ExportedLegKey {
                dispatcher: dispatcher.clone(),
                id: key.bound.id,
                secret: key.secret.clone(),
                highest,
                used,
            }
        };
        let of = |(dispatcher, keys): (&NodeName, &Keys)| {
            keys.previous.iter().chain([&keys.current]).map(|key| export(dispatcher, key)).collect::<Vec<_>>()
        };
        self.keys.iter().flat_map(of).collect()
    }

    /// Takes over a key of [`LegVerifier::export`], as [`LegVerifier::rotate`] does. Returns `false` if it is malformed.
    pub fn import(&mut self, exported: ExportedLegKey) -> bool {
        let ExportedLegKey { dispatcher, id, secret, highest, used } = exported;
        let Some(nonces) = ReplayWindow::import(highest, used) else { return false };
        let current = self.live(&dispatcher, &LegKey { id, key: secret, handshakes: false }, nonces);
        let previous = self.keys.remove(&dispatcher).map(|keys| keys.current);
        self.keys.insert(dispatcher, Keys { current, previous });
        true
    }

    fn live(&self, dispatcher: &NodeName, key: &LegKey, nonces: ReplayWindow) -> LiveKey {
        LiveKey { bound: BoundKey::new(&self.agent, dispatcher, key), secret: key.key.clone(), nonces }
    }

    /// Accepts nothing from `dispatcher` any more.
    pub fn forget(&mut self, dispatcher: &NodeName) {
        self.keys.remove(dispatcher);
    }

    /// Verifies the preface at the start of `received`. `None`: it is incomplete. With [`PREFACE_LEN_MAX`] bytes it
    /// never is.
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

/// The content of a preface before verification. It is not trusted.
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
    // The header ends with its only value: the authenticator covers all bytes before it.
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
