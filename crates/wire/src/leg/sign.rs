//! The dispatcher's side.

use std::sync::atomic::{AtomicU64, Ordering};

use watari_values::NodeName;

use super::preface::{AUTHENTICATOR_LEN, BoundKey, Claim, PREFACE_LEN_MAX, Preface, TLV_KIND, VERSION};
use crate::message::LegKey;
use crate::proxy::{Header, Tlv};

/// Signs prefaces with one key.
///
/// A key must have only one signer: a second one would repeat nonces, and the agent would refuse its prefaces.
pub struct LegSigner {
    dispatcher: NodeName,
    key: BoundKey,
    nonces_used: AtomicU64,
}

impl LegSigner {
    /// A signer for legs from `dispatcher` to `agent`, with the key that the agent sent.
    pub fn new(dispatcher: NodeName, agent: &NodeName, key: &LegKey) -> Self {
        let key = BoundKey::new(agent, &dispatcher, key);
        Self { dispatcher, key, nonces_used: AtomicU64::new(0) }
    }

    /// Returns the bytes to open a leg with. Each result is valid for one leg.
    pub fn sign(&self, preface: &Preface) -> Vec<u8> {
        let claim = Claim {
            dispatcher: self.dispatcher.clone(),
            key_id: self.key.id,
            nonce: self.nonces_used.fetch_add(1, Ordering::Relaxed) + 1,
            connection: preface.connection,
            epoch: preface.epoch,
            kind: preface.kind.clone(),
        };
        let mut value = vec![VERSION];
        value.extend(postcard::to_allocvec(&claim).expect("plain data can be written to memory"));
        value.extend([0; AUTHENTICATOR_LEN]);
        let tlvs = vec![Tlv { kind: TLV_KIND, value }];
        let mut bytes = Vec::with_capacity(PREFACE_LEN_MAX);
        let header = Header::Tcp { client: preface.client, server: preface.server, tlvs };
        header.encode(&mut bytes).expect("names and numbers fit");
        let signed_len = bytes.len() - AUTHENTICATOR_LEN;
        let authenticator = self.key.authenticator(&bytes[..signed_len]);
        bytes[signed_len..].copy_from_slice(authenticator.as_ref());
        bytes
    }

    /// Skips this many nonces.
    #[cfg(test)]
    pub(super) fn nonces_used_for_test(&self, count: u64) {
        self.nonces_used.store(count, Ordering::Relaxed);
    }
}
