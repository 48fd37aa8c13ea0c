//! Whole numbers in proportion.

use watari_bench_engine::round::{Round, RoundError};

/// Splits `total` in proportion to `weights` into whole numbers, by largest remainder. Of equal remainders, the first
/// wins. All shares are 0 if all weights are.
pub(super) fn apportion(total: u32, weights: &[u32]) -> Vec<u32> {
    let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    if all == 0 {
        return vec![0; weights.len()];
    }
    let exact = |weight: &u32| u64::from(total) * u64::from(*weight);
    let mut shares: Vec<_> = weights.iter().map(|weight| (exact(weight) / all) as u32).collect();
    let mut by_remainder: Vec<_> = (0..weights.len()).collect();
    by_remainder.sort_by_key(|at| (all - exact(&weights[*at]) % all, *at));
    let missing = total - shares.iter().sum::<u32>();
    by_remainder[..missing as usize].iter().for_each(|at| shares[*at] += 1);
    shares
}

/// Assigns items to lines, item `i` to `counts[i]` of them. Returns the item of each line.
///
/// `cells` contains the cell of each line, of `cell_count` cells. There is one interleaved order of items, and each
/// cell gets a contiguous stretch of it. So every cell has its share of each item to within a line or two, and the
/// totals are exactly `counts`. If lines simply took turns, two proportions could fall in step.
pub(super) fn deal(
    counts: &[u32],
    cell_count: usize,
    cells: impl Iterator<Item = u32> + Clone,
) -> Result<Vec<u32>, RoundError> {
    let order = Round::new(counts)?;
    let mut next = stretches(cell_count, cells.clone());
    let mut take = |cell| {
        let turn = &mut next[cell as usize];
        *turn += 1;
        order.nth(*turn - 1) as u32
    };
    Ok(cells.map(&mut take).collect())
}

/// The beginning of each cell's stretch.
fn stretches(cell_count: usize, cells: impl Iterator<Item = u32>) -> Vec<u64> {
    let mut sizes = vec![0; cell_count];
    cells.for_each(|cell| sizes[cell as usize] += 1);
    let mut begin = 0;
    for size in &mut sizes {
        begin += std::mem::replace(size, begin);
    }
    sizes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn remainders_go_to_the_largest() {
        assert_eq!(apportion(10_000, &[2, 8]), [2000, 8000]);
        assert_eq!(apportion(10, &[1, 1, 1]), [4, 3, 3]);
        // 1.25, 2.5, 1.25
        assert_eq!(apportion(5, &[1, 2, 1]), [1, 3, 1]);
        assert_eq!(apportion(5, &[0, 0]), [0, 0]);
    }

    #[test]
    fn two_equal_proportions_do_not_fall_in_step() {
        let nets = deal(&[50, 50], 1, (0..100).map(|_| 0)).unwrap();
        let tls = deal(&[50, 50], 2, nets.iter().copied()).unwrap();
        let both = nets.iter().zip(&tls).filter(|(net, tls)| **net == 1 && **tls == 1).count();
        assert_eq!(both, 25);
    }

    proptest! {
        #[test]
        fn shares_add_up_and_are_next_to_exact(total in 0_u32..100_000, weights in prop::collection::vec(any::<u32>(), 1..9)) {
            let all: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            prop_assume!(all > 0);
            let shares = apportion(total, &weights);
            prop_assert_eq!(shares.iter().sum::<u32>(), total);
            for (share, weight) in shares.iter().zip(&weights) {
                let exact = u64::from(total) * u64::from(*weight);
                prop_assert!((exact / all..=exact.div_ceil(all)).contains(&u64::from(*share)));
            }
        }

        #[test]
        fn all_is_dealt_and_every_cell_has_its_share(
            counts in prop::collection::vec(0_u32..50, 1..5), cell_count in 1_usize..5, seed in any::<u64>(),
        ) {
            let lines: u32 = counts.iter().sum();
            prop_assume!(lines > 0);
            let cells = (0..lines).map(|line| (seed.rotate_left(line) % cell_count as u64) as u32);
            let dealt = deal(&counts, cell_count, cells.clone()).unwrap();
            for (item, count) in counts.iter().enumerate() {
                let of_item = |line: &(u32, u32)| line.0 as usize == item;
                let lines_of = |cell| dealt.iter().copied().zip(cells.clone()).filter(move |line| line.1 == cell);
                prop_assert_eq!(dealt.iter().filter(|dealt| **dealt as usize == item).count(), *count as usize);
                for cell in 0..cell_count as u32 {
                    let (had, size) = (lines_of(cell).filter(of_item).count(), lines_of(cell).count());
                    let share = size * *count as usize;
                    prop_assert!((had * lines as usize).abs_diff(share) < 2 * lines as usize, "{} of {}", had, share);
                }
            }
        }
    }
}
