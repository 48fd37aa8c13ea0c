//! The paper's table of gains: the clients of two origins before and after the more loaded one has given some away.

use std::time::Duration;

use tokio::task::JoinSet;
use watari_handover::governor::Damping;

use crate::common::download::until;
use crate::loads::{Loads, unequal};

/// A row of the table.
struct Row {
    before: [usize; 2],
    /// The correct result; in the paper's second row, one client is missing.
    after: [usize; 2],
    /// The paper's values in percent: the gain of the mean, and of the slowest client.
    paper: [f64; 2],
}

static ROWS: [Row; 4] = [
    Row { before: [1, 3], after: [2, 2], paper: [18.70, 31.14] },
    Row { before: [2, 5], after: [3, 4], paper: [8.29, 22.56] },
    Row { before: [3, 5], after: [4, 4], paper: [5.93, 19.11] },
    Row { before: [4, 6], after: [5, 5], paper: [3.69, 16.05] },
];

/// The time over which rates are measured.
const MEASURED: Duration = Duration::from_secs(2);
/// The time until the first rates are measured, and transfers may move.
const STAY_MIN: Duration = Duration::from_secs(4);

#[tokio::test]
async fn unequal_origins_become_equal_and_the_slowest_client_gains() {
    println!("clients          gain of the mean (paper)    of the slowest (paper)");
    let mut rows = JoinSet::new();
    for row in &ROWS {
        rows.spawn(row.play());
    }
    rows.join_all().await;
}

impl Row {
    async fn play(&self) {
        let damping = Damping { stay_min: STAY_MIN, ..Damping::default() };
        let mut loads = Loads::new(unequal(Duration::from_millis(500), damping));
        loads.come_and_stay(self.before).await;
        assert_eq!(loads.counts(), self.before);
        let before = loads.rates(MEASURED).await;
        assert_eq!(loads.counts(), self.before, "it is too soon for anything to move");
        until(|| loads.moves().iter().sum::<u32>() > 0).await;
        until(|| loads.counts() == self.after).await;
        let after = loads.rates(MEASURED).await;
        self.print(&before, &after);
        assert!(slowest(&after) > slowest(&before), "{:?}", self.before);
        assert_eq!(loads.counts(), self.after, "and so it stays");
        assert_eq!(loads.moves().iter().sum::<u32>(), 1, "one has moved, once");
    }

    fn print(&self, before: &[f64], after: &[f64]) {
        let [mean_gain, slowest_gain] = [mean, slowest].map(|of| 100.0 * (of(after) / of(before) - 1.0));
        let [paper_mean, paper_slowest] = self.paper;
        let (from, to) = (format!("{:?}", self.before), format!("{:?}", self.after));
        println!("{from} -> {to} {mean_gain:8.2} % ({paper_mean:5.2} %) {slowest_gain:16.2} % ({paper_slowest:5.2} %)");
    }
}

fn mean(rates: &[f64]) -> f64 {
    rates.iter().sum::<f64>() / rates.len() as f64
}

fn slowest(rates: &[f64]) -> f64 {
    rates.iter().copied().fold(f64::INFINITY, f64::min)
}
