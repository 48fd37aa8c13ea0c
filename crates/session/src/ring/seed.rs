//! One seed: its chain of states, and the keys of past epochs.

use std::collections::BTreeMap;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use watari_values::{SecretBytes, TicketSeedId};
use zeroize::Zeroizing;

/// The number of random bytes for a seed.
pub const RANDOM_LEN: usize = 32;

/// A seed of ticket keys, as nodes exchange it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TicketSeed {
    pub id: TicketSeedId,
    /// The Unix time in seconds when it was made, by its maker's clock. The newest seed is used.
    pub made: u64,
    /// The state from which the keys of its epoch and of all later ones are derived. `None`: a newer seed has replaced
    /// it.
    pub state: Option<EpochSecret>,
    /// The keys of earlier epochs whose tickets are still valid.
    pub keys: Vec<EpochSecret>,
}

/// A secret of one epoch of ticket keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochSecret {
    pub epoch: u32,
    /// 32 bytes.
    pub secret: SecretBytes,
}

pub(super) type Secret = Zeroizing<[u8; 32]>;

/// The state and the keys of one seed.
pub(super) struct Seed {
    made: u64,
    /// The time when this node got the seed.
    since: u64,
    chain: Option<Chain>,
    /// By epoch.
    keys: BTreeMap<u32, Secret>,
}

/// The state of an epoch. All later states follow from it.
struct Chain {
    epoch: u32,
    state: Secret,
}

impl Seed {
    /// Makes a seed from random bytes, and from `newest` so that poor randomness does no harm. Its keys begin with
    /// `epoch`.
    pub(super) fn make(
        random: &[u8; RANDOM_LEN],
        newest: Option<&Self>,
        epoch: u32,
        made: u64,
        since: u64,
    ) -> (TicketSeedId, Self) {
        let salt = newest.and_then(|newest| newest.chain.as_ref()).map_or(&[][..], |chain| &chain.state[..]);
        let state = derive(salt, &[b"watari seed", random]);
        let name = derive(&state[..], &[b"watari seed id"]);
        let id = *name.first_chunk().expect("a secret is longer than a name");
        (id, Self { made, since, chain: Some(Chain { epoch, state }), keys: BTreeMap::new() })
    }

    /// Makes a seed from one that another node sent. `None` if its secrets have the wrong length.
    pub(super) fn learned(shared: TicketSeed, since: u64) -> Option<Self> {
        let chain = match shared.state {
            Some(state) => Some(Chain { epoch: state.epoch, state: secret(&state.secret)? }),
            None => None,
        };
        let mut seed = Self { made: shared.made, since, chain, keys: BTreeMap::new() };
        seed.learn(shared.keys);
        Some(seed)
    }

    /// Adds keys of epochs that the seed has no key of. Ignores keys that follow from the seed's own state.
    pub(super) fn learn(&mut self, keys: Vec<EpochSecret>) {
        let follows = self.chain.as_ref().map_or(u32::MAX, |chain| chain.epoch);
        for shared in keys {
            if let Some(key) = secret(&shared.secret)
                && shared.epoch < follows
            {
                self.keys.entry(shared.epoch).or_insert(key);
            }
        }
    }

    pub(super) fn share(&self, id: TicketSeedId) -> TicketSeed {
        let shared = |epoch, key: &Secret| EpochSecret { epoch, secret: SecretBytes::new(key.to_vec()) };
        TicketSeed {
            id,
            made: self.made,
            state: self.chain.as_ref().map(|chain| shared(chain.epoch, &chain.state)),
            keys: self.keys.iter().map(|(epoch, key)| shared(*epoch, key)).collect(),
        }
    }

    /// Advances to the state of `epoch`, and destroys the keys of epochs before `first_good`.
    pub(super) fn advance(&mut self, epoch: u32, first_good: u32) {
        if let Some(chain) = &mut self.chain {
            while chain.epoch < epoch {
                if chain.epoch >= first_good {
                    self.keys.insert(chain.epoch, chain.key());
                }
                chain.step();
            }
        }
        self.keys = self.keys.split_off(&first_good);
    }

    /// Destroys the state. Stores the keys up to `last_epoch`, the last epoch that a node may have used; no later key
    /// can be derived.
    pub(super) fn retire(&mut self, last_epoch: u32) {
        if let Some(mut chain) = self.chain.take() {
            while chain.epoch <= last_epoch {
                self.keys.insert(chain.epoch, chain.key());
                chain.step();
            }
        }
    }

    /// The key of an epoch. For epochs after that of the state, derives it without a change of the state.
    pub(super) fn key(&self, epoch: u32) -> Option<Secret> {
        let Some(chain) = self.chain.as_ref().filter(|chain| chain.epoch <= epoch) else {
            return self.keys.get(&epoch).cloned();
        };
        let mut ahead = Chain { epoch: chain.epoch, state: chain.state.clone() };
        while ahead.epoch < epoch {
            ahead.step();
        }
        Some(ahead.key())
    }

    /// The epoch of the state. `None` if the seed seals no more tickets.
    pub(super) fn first_epoch(&self) -> Option<u32> {
        self.chain.as_ref().map(|chain| chain.epoch)
    }

    pub(super) fn made(&self) -> u64 {
        self.made
    }

    pub(super) fn since(&self) -> u64 {
        self.since
    }

    pub(super) fn is_of_use(&self) -> bool {
        self.chain.is_some() || !self.keys.is_empty()
    }
}

impl Chain {
    fn key(&self) -> Secret {
        derive(&self.state[..], &[b"watari ticket key"])
    }

    fn step(&mut self) {
        self.state = derive(&self.state[..], &[b"watari next state"]);
        self.epoch += 1;
    }
}

/// Derives a key for a purpose from another key (HMAC-SHA256 as in RFC 5869: one block is as long as a key).
pub(super) fn derive(key: &[u8], purpose: &[&[u8]]) -> Secret {
    let mut context = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, key));
    for part in purpose {
        context.update(part);
    }
    let mut derived = Secret::default();
    derived.copy_from_slice(context.sign().as_ref());
    derived
}

fn secret(bytes: &SecretBytes) -> Option<Secret> {
    bytes.as_slice().try_into().ok().map(Zeroizing::new)
}
