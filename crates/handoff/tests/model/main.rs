//! scratch
#![allow(missing_docs, unreachable_pub)]

mod agent;
mod check;
mod cluster;
mod dispatcher;
mod driver;
mod scenario;
mod steps;

use check::check;
use scenario::{Budget, Scenario};

#[test]
fn calm() {
    check(Scenario::CALM);
}
#[test]
fn calm2() {
    check(Scenario { rx_len: 2, tx_len: 2, ..Scenario::CALM });
}
#[test]
fn two() {
    check(Scenario { budget: Budget { proposals: 2, ..Scenario::CALM.budget }, ..Scenario::CALM });
}
#[test]
fn two_rep() {
    check(Scenario {
        budget: Budget { proposals: 2, repeats: 1, retries: 1, ..Scenario::CALM.budget },
        ..Scenario::CALM
    });
}
#[test]
fn two_rep_dead() {
    check(Scenario {
        drops_dead_letters: true,
        budget: Budget { proposals: 2, repeats: 1, retries: 1, ..Scenario::CALM.budget },
        ..Scenario::CALM
    });
}
#[test]
fn mix() {
    check(Scenario {
        impatient: true,
        client_fin: true,
        budget: Budget {
            proposals: 1,
            repeats: 1,
            retries: 1,
            restarts: 1,
            client_resets: 1,
            leg_failures: 1,
            ..Scenario::CALM.budget
        },
        ..Scenario::CALM
    });
}
