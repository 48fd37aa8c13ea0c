//! How many connections stand still at a time.

/// The most connections that are asked together. The kernels get their flows in one order.
pub(super) const BATCH: usize = 16;

/// Limits the connections that wait to be shipped to as many as the link to the next dispatcher takes in the time that a
/// connection may wait. The limit grows by one with each connection, and is halved if connections have waited in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pacing {
    batch: usize,
}

impl Pacing {
    pub(super) fn new() -> Self {
        Self { batch: BATCH }
    }

    /// How many further connections are asked now, of which `waiting` are asked or stand still: none, or a batch. A second
    /// batch begins to stand still while the first is shipped.
    pub(super) fn asks(self, waiting: usize) -> usize {
        if waiting <= self.batch { self.batch } else { 0 }
    }

    /// A connection was given, and no other one waits to be shipped.
    pub(super) fn on_room(&mut self) {
        self.batch = BATCH.min(self.batch + 1);
    }

    /// Connections have waited for too long, because the link is slow.
    pub(super) fn on_congestion(&mut self) {
        self.batch = 1.max(self.batch / 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many connections wait in vain, and how many are given in each second, over a link that takes `per_second`.
    fn run(per_second: usize, seconds: usize) -> Vec<(usize, usize)> {
        let mut pacing = Pacing::new();
        let second = |_| {
            let mut waiting = 0;
            while pacing.asks(waiting) > 0 {
                waiting += pacing.asks(waiting);
            }
            let given = waiting.min(per_second);
            let in_vain = waiting - given;
            if in_vain > 0 {
                pacing.on_congestion();
            } else {
                (0..given).for_each(|_| pacing.on_room());
            }
            (in_vain, given)
        };
        (0..seconds).map(second).collect()
    }

    #[test]
    fn a_fast_link_has_two_batches() {
        assert!(run(1000, 10).iter().all(|second| *second == (0, 2 * BATCH)));
    }

    /// A slow link is used as far as it goes, and the connections that wait in vain are about as many as it takes.
    #[test]
    fn a_slow_link_has_what_it_takes() {
        for per_second in 2..2 * BATCH {
            let settled = &run(per_second, 100)[10..];
            let [in_vain, given] = [|second: &(usize, usize)| second.0, |second: &(usize, usize)| second.1]
                .map(|figure| settled.iter().map(figure).sum::<usize>());
            assert!(given >= settled.len() * per_second / 2, "{per_second}: {given} given");
            assert!(in_vain <= given, "{per_second}: {in_vain} in vain, {given} given");
        }
    }

    #[test]
    fn one_connection_is_always_asked() {
        let mut pacing = Pacing::new();
        (0..10).for_each(|_| pacing.on_congestion());
        assert_eq!((pacing.asks(0), pacing.asks(1), pacing.asks(2)), (1, 1, 0));
    }
}
