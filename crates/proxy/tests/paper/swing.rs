//! "Frequent switching must be prevented" (the paper): a load that swings between the origins moves no transfers.

use std::time::Duration;

use tokio::time::sleep;
use watari_handover::governor::{Damping, Settings};

use crate::loads::{Loads, unequal};

/// Clients that come to one origin, and leave again.
const CROWD: [[usize; 2]; 2] = [[4, 0], [0, 4]];
/// How long they stay.
const HALF_PERIOD: Duration = Duration::from_millis(700);
/// The number of swings.
const PERIODS: usize = 3;

#[tokio::test]
async fn a_load_that_swings_moves_nothing() {
    let damping = Damping { stay_min: Duration::ZERO, ..Damping::default() };
    assert_eq!(moves(unequal(Duration::from_secs(30), damping)).await, 0);
}

/// Shows that the test above would detect moves.
#[tokio::test]
async fn without_an_average_it_moves_something_each_time() {
    let damping = Damping { stay_min: Duration::ZERO, ..Damping::default() };
    assert!(moves(unequal(Duration::ZERO, damping)).await >= 2 * PERIODS as u32);
}

/// The number of moves with some permanent clients, and a crowd that swings.
async fn moves(governor: Settings) -> u32 {
    let mut loads = Loads::new(governor);
    loads.come_and_stay([2, 2]).await;
    let stayers = loads.ids();
    let mut moves = 0;
    for crowd in CROWD.repeat(PERIODS) {
        loads.come_and_stay(crowd).await;
        sleep(HALF_PERIOD).await;
        let crowd: Vec<_> = loads.ids().into_iter().filter(|id| !stayers.contains(id)).collect();
        moves += crowd.iter().map(|id| loads.status(*id).moves).sum::<u32>();
        loads.leave(&crowd).await;
    }
    moves + stayers.iter().map(|id| loads.status(*id).moves).sum::<u32>()
}
