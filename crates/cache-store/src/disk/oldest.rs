//! Which block is overwritten next.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use foyer::{EvictionInfo, EvictionPicker};

/// Picks the block that was written first, also before a restart. Foyer's own picker forgets the order then.
#[derive(Debug)]
pub(super) struct Oldest {
    /// The places of the blocks when the store opens.
    places: HashMap<u32, u64>,
    /// Set when the store is open: then `places` does not count any more.
    is_open: Arc<AtomicBool>,
    /// Blocks with entries, by their places.
    written: BTreeSet<(u64, u32)>,
    next: u64,
}

impl Oldest {
    /// `times`: when each block was written. `is_open` becomes true before the first write.
    pub(super) fn new(times: &[SystemTime], is_open: Arc<AtomicBool>) -> Self {
        let mut blocks: Vec<(SystemTime, u32)> = times.iter().copied().zip(0..).collect();
        blocks.sort_unstable();
        let places = blocks.into_iter().zip(0..).map(|((_, block), place)| (block, place)).collect();
        Self { places, is_open, written: BTreeSet::new(), next: times.len() as u64 }
    }
}

impl EvictionPicker for Oldest {
    fn pick(&mut self, info: EvictionInfo<'_>) -> Option<u32> {
        let soon = (info.blocks.len() / SOON).saturating_sub(info.clean);
        for (_, block) in self.written.iter().take(soon) {
            info.blocks[*block as usize].statistics().probation.store(true, Ordering::Relaxed);
        }
        self.written.first().map(|(_, block)| *block)
    }

    fn on_block_evictable(&mut self, _: EvictionInfo<'_>, block: u32) {
        let before = self.places.get(&block).filter(|_| !self.is_open.load(Ordering::Relaxed));
        let place = before.copied().unwrap_or(self.next);
        self.next += 1;
        self.written.insert((place, block));
    }

    fn on_block_evict(&mut self, _: EvictionInfo<'_>, block: u32) {
        self.written.retain(|(_, written)| *written != block);
    }
}

/// An entry that is used while it is in the oldest tenth of the blocks is written again.
const SOON: usize = 10;
