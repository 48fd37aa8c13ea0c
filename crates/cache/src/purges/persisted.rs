//! The persistent form of [`Purges`].
//!
//! ```text
//!  8 bytes: identifies the format and its version | postcard of `Persisted` | 16 bytes of SHA-256 of all before
//! ```

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::{Purge, PurgeId, Purges};

#[derive(Serialize, Deserialize)]
struct Persisted {
    generation: u64,
    sequence: u64,
    everything: u64,
    folded: BTreeMap<u64, u64>,
    /// By number.
    remembered: Vec<(u64, PurgeId, Purge)>,
}

impl Purges {
    /// The purges, for a file beside the stored entries. The driver writes the file:
    ///
    /// * after [`Purges::decode`] and after [`Purges::new`], before it stores an entry,
    /// * after each purge, before it confirms the purge.
    pub fn encode(&self) -> Vec<u8> {
        let remembered = self.remembered.iter().map(|(number, (id, purge))| (*number, *id, purge.clone())).collect();
        let (generation, sequence, everything) = (self.generation, self.sequence, self.index.everything());
        let persisted = Persisted { generation, sequence, everything, folded: self.folded.clone(), remembered };
        let mut bytes = postcard::to_extend(&persisted, MAGIC.to_vec()).expect("plain data can be written to memory");
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        bytes
    }

    /// The purges of an earlier process. `incarnation` is the random number of this one. `None`: the file is damaged,
    /// or of another version. Then the stored entries must not be used.
    ///
    /// Entries may have been stored after the file was written. So the numbers go on at a distance: each later purge
    /// has a greater number than all stored entries.
    pub fn decode(bytes: &[u8], incarnation: u64) -> Option<Self> {
        if bytes.len() > LEN_MAX {
            return None;
        }
        let (content, sum) = bytes.split_last_chunk::<SUM_LEN>()?;
        let body = content.strip_prefix(MAGIC)?;
        if checksum(content) != *sum {
            return None;
        }
        match postcard::take_from_bytes::<Persisted>(body) {
            Ok((persisted, [])) => Self::restored(persisted, incarnation),
            _ => None,
        }
    }

    fn restored(persisted: Persisted, incarnation: u64) -> Option<Self> {
        let Persisted { generation, sequence, everything, folded, remembered } = persisted;
        let mut purges = Self::new(incarnation);
        let limits = purges.limits;
        let is_possible = sequence < SEQUENCE_END && everything <= sequence && folded.len() <= limits.incarnations;
        if !is_possible || remembered.len() > limits.purges {
            return None;
        }
        (purges.generation, purges.folded) = (generation, folded);
        purges.index.purge_everything(everything);
        for (number, id, purge) in remembered {
            let is_next = purges.sequence < number && number <= sequence;
            if !is_next || purge.text().len() > Purge::TEXT_LEN_MAX || purges.numbers.contains_key(&id) {
                return None;
            }
            purges.sequence = number - 1;
            purges.remember(id, purge);
        }
        purges.sequence = sequence + DISTANCE;
        Some(purges)
    }
}

fn checksum(bytes: &[u8]) -> [u8; SUM_LEN] {
    let mut sum = [0; SUM_LEN];
    sum.copy_from_slice(&digest(&SHA256, bytes).as_ref()[..SUM_LEN]);
    sum
}

const MAGIC: &[u8; 8] = b"wpurges\x01";
const SUM_LEN: usize = 16;
/// More than the longest form.
const LEN_MAX: usize = 4 << 20;
/// More than the purges of one process.
const DISTANCE: u64 = 1 << 32;
/// More than the purges of all processes.
const SEQUENCE_END: u64 = 1 << 62;
