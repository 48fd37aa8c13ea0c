//! "Frequent switching must be prevented", says the paper: a load that swings from one origin to the other takes nothing with it.

use std::time::Duration;

use tokio::time::sleep;
use watari_handover::governor::{Damping, Settings};

use crate::loads::{Loads, unequal};

/// Clients that come to one origin, and go again.
const CROWD: [[usize; 2]; 2] = [[4, 0], [0, 4]];
/// How long they stay.
const HALF_PERIOD: Duration = Duration::from_millis(700);
/// How often it goes to and fro.
const PERIODS: usize = 3;

#[tokio::test]
async fn a_load_that_swings_moves_nothing() {
    let damping = Damping { stay_min: Duration::ZERO, ..Damping::default() };
    assert_eq!(moves(unequal(Duration::from_secs(30), damping)).await, 0);
}

/// So that the test above says something.
#[tokio::test]
async fn without_an_average_it_moves_something_each_time() {
    let damping = Damping { stay_min: Duration::ZERO, ..Damping::default() };
    assert!(moves(unequal(Duration::ZERO, damping)).await >= 2 * PERIODS as u32);
}

/// How many moves there are with clients that are there all the time, and a crowd that swings.
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
