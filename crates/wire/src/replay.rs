//! Records which nonces of a key were used, in bounded memory.

/// Bits of a block.
const BLOCK_BITS: u64 = u64::BITS as u64;
/// Blocks in the ring. The newest is only partly filled.
const BLOCKS: u64 = 1024;
/// A nonce this far below the highest one cannot be distinguished from a used one.
pub(crate) const WINDOW: u64 = (BLOCKS - 1) * BLOCK_BITS;

/// A sliding window over nonces that count up from 1 (RFC 4303, section 3.4.3). It is a ring of blocks, so that it
/// slides without shifting (RFC 6479). 8 KiB.
pub(crate) struct ReplayWindow {
    highest: u64,
    used: Box<[u64; BLOCKS as usize]>,
}

/// The reason that a nonce is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It was accepted before, or is 0, which no signer uses.
    Used,
    /// It is below the window, so it may have been accepted before.
    TooOld,
}

impl ReplayWindow {
    pub(crate) fn new() -> Self {
        let mut used = Box::new([0; BLOCKS as usize]);
        used[0] = 1; // nonce 0
        Self { highest: 0, used }
    }

    /// Accepts `nonce` once, and moves the window. The caller has verified the nonce's authenticator.
    pub(crate) fn accept(&mut self, nonce: u64) -> Result<(), Stale> {
        if nonce > self.highest {
            self.slide_to(nonce);
        } else if self.highest - nonce >= WINDOW {
            return Err(Stale::TooOld);
        }
        let block = &mut self.used[(nonce / BLOCK_BITS % BLOCKS) as usize];
        let bit = 1 << (nonce % BLOCK_BITS);
        if *block & bit != 0 {
            return Err(Stale::Used);
        }
        *block |= bit;
        Ok(())
    }

    /// The highest nonce, and the blocks.
    pub(crate) fn export(&self) -> (u64, Vec<u64>) {
        (self.highest, self.used.to_vec())
    }

    /// The window of [`ReplayWindow::export`]. `None`: it has another size.
    pub(crate) fn import(highest: u64, used: Vec<u64>) -> Option<Self> {
        let used = used.into_boxed_slice().try_into().ok()?;
        Some(Self { highest, used })
    }

    fn slide_to(&mut self, nonce: u64) {
        let from = self.highest / BLOCK_BITS;
        let fresh = (nonce / BLOCK_BITS - from).min(BLOCKS);
        for block in from + 1..=from + fresh {
            self.used[(block % BLOCKS) as usize] = 0;
        }
        self.highest = nonce;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The specification of the window, with unbounded memory.
    #[derive(Default)]
    struct Model {
        highest: u64,
        used: HashSet<u64>,
    }

    impl Model {
        fn accept(&mut self, nonce: u64) -> Result<(), Stale> {
            if self.highest.saturating_sub(nonce) >= WINDOW {
                return Err(Stale::TooOld);
            }
            if nonce == 0 || !self.used.insert(nonce) {
                return Err(Stale::Used);
            }
            self.highest = self.highest.max(nonce);
            Ok(())
        }
    }

    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let window = WINDOW.cast_signed();
        vec(prop_oneof![8 => -70..70i64, 1 => -window - 130..window + 130, 1 => -3 * window..3 * window], 1..300)
    }

    proptest! {
        #[test]
        fn each_nonce_is_accepted_once(steps in steps()) {
            let (mut window, mut model) = (ReplayWindow::new(), Model::default());
            for step in steps {
                let nonce = model.highest.saturating_add_signed(step);
                prop_assert_eq!(window.accept(nonce), model.accept(nonce), "nonce {}", nonce);
            }
        }
    }

    #[test]
    fn the_window_has_its_edges() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.accept(0), Err(Stale::Used));
        assert_eq!(window.accept(WINDOW + 5), Ok(()));
        assert_eq!(window.accept(5), Err(Stale::TooOld));
        assert_eq!(window.accept(6), Ok(()));
        assert_eq!(window.accept(6), Err(Stale::Used));
        assert_eq!(window.accept(u64::MAX), Ok(()));
        assert_eq!(window.accept(u64::MAX), Err(Stale::Used));
        assert_eq!(window.accept(u64::MAX - 1), Ok(()));
        assert_eq!(window.accept(WINDOW + 5), Err(Stale::TooOld));
    }
}
