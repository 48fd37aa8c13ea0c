//! Checks that the model can fail: each error in the protocol violates the property that forbids it.

use stateright::{Checker, HasDiscoveries, Model};

use super::check::{NO_HARM, NO_TRUNCATION, NONCES, ONE_SEALER, RX_ORDER, TX_ORDER, ended_cleanly};
use super::progress::explore;
use super::scenario::{Budget, Sabotage, Scenario};

/// Asserts that a breadth-first search finds a state that violates `property`.
fn assert_violates(property: &'static str, sabotage: Sabotage, scenario: Scenario) {
    let scenario = Scenario { sabotage: Some(sabotage), ..scenario };
    let wanted = HasDiscoveries::AllOf([property].into());
    let checker = scenario.checker().finish_when(wanted).spawn_bfs().join();
    let way = checker.discovery(property).unwrap_or_else(|| panic!("{sabotage:?} goes unnoticed"));
    println!("{sabotage:?}, {property}:");
    for step in way.into_actions() {
        println!("  {step:?}");
    }
}

/// Asserts that a clean end can always be reached, and not any more with `sabotage`.
fn assert_stops(sabotage: Sabotage, scenario: Scenario) {
    assert_eq!(explore(&scenario, ended_cleanly).stuck, None);
    let sabotaged = Scenario { sabotage: Some(sabotage), ..scenario };
    assert_ne!(explore(&sabotaged, ended_cleanly).stuck, None, "{sabotage:?} goes unnoticed");
}

#[test]
fn a_source_that_thaws_by_itself_makes_two_sealers() {
    let scenario = Scenario { impatient: true, ..Scenario::CALM };
    assert_violates(ONE_SEALER, Sabotage::SourceThawsByTimeout, scenario);
    assert_violates(NONCES, Sabotage::SourceThawsByTimeout, scenario);
}

/// The late abort of the first attempt thaws the second, which is committed.
#[test]
fn a_source_that_ignores_epochs_makes_two_sealers() {
    let budget = Budget { proposals: 2, repeats: 1, ..Budget::default() };
    let scenario = Scenario { budget, rx_len: 0, ..Scenario::CALM };
    assert_violates(ONE_SEALER, Sabotage::SourceIgnoresEpochs, scenario);
}

#[test]
fn a_target_that_seals_what_it_holds_makes_two_sealers() {
    assert_violates(ONE_SEALER, Sabotage::TargetSealsWhenHeld, Scenario::CALM);
    assert_violates(NONCES, Sabotage::TargetSealsWhenHeld, Scenario::CALM);
}

#[test]
fn a_dispatcher_that_commits_on_suspicion_loses_connections() {
    assert_violates(NO_HARM, Sabotage::DispatcherCommitsOnSuspicion, Scenario::CALM);
}

#[test]
fn a_dispatcher_that_ignores_the_tail_loses_bytes() {
    assert_violates(TX_ORDER, Sabotage::DispatcherIgnoresTail, Scenario { tx_len: 2, ..Scenario::CALM });
}

#[test]
fn a_dispatcher_that_forgets_what_it_read_loses_bytes() {
    let scenario = Scenario { rx_len: 2, client_fin: true, ..Scenario::CALM };
    assert_violates(RX_ORDER, Sabotage::DispatcherForgetsWhatItRead, scenario);
}

#[test]
fn a_dispatcher_that_trusts_fin_ends_cut_streams_cleanly() {
    let budget = Budget { restarts: 1, ..Budget::default() };
    let scenario = Scenario { budget, ..Scenario::CALM };
    assert_violates(NO_TRUNCATION, Sabotage::DispatcherTrustsFin, scenario);
}

/// There and back: an agent that gets `Gone` about the first attempt holds the connection for the second.
#[test]
fn a_dispatcher_that_says_gone_to_a_late_proposal_loses_connections() {
    let budget = Budget { proposals: 2, repeats: 1, ..Budget::default() };
    let scenario = Scenario { budget, rx_len: 0, ..Scenario::CALM };
    assert_violates(NO_HARM, Sabotage::DispatcherSaysGoneToLateProposal, scenario);
}

#[test]
fn a_dispatcher_that_forgets_the_client_s_fin_leaves_it_waiting() {
    let scenario = Scenario { client_fin: true, ..Scenario::CALM };
    assert_stops(Sabotage::DispatcherForgetsClientFin, scenario);
}

/// The dispatcher sees the FIN of the leg, and waits for a `Final` that was lost.
#[test]
fn an_agent_that_says_final_once_may_cut_a_whole_stream() {
    let budget = Budget { losses: 1, ..Budget::default() };
    assert_stops(Sabotage::AgentSaysFinalOnce, Scenario { budget, ..Scenario::CALM });
}
