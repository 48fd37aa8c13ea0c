//! Moves that do not wait: drains, stalls, failures, and those of the operator.

use super::*;

#[test]
fn draining_moves_all_as_fast_as_budgets_allow() {
    let settings = Settings { damping: Damping { origin_moves_per_s: 3, ..none().damping }, ..none() };
    let mut stage = Stage::new(settings, &[5, 4, 1]);
    stage.origins[0].availability = Availability::Draining;
    let orders = stage.look();
    assert!(orders.iter().all(|order| order.cause == Cause::Draining && order.from == OriginId(0)));
    assert_eq!(orders.iter().map(|order| order.to.0).collect::<Vec<_>>(), [2, 2, 2]);
    stage.carry_out(&orders);
    assert_eq!(stage.look_after(SECOND / 2), []);
    assert_eq!(stage.look_after(SECOND).len(), 2);
}

#[test]
fn nothing_is_drained_to_where_it_was_refused() {
    let mut stage = Stage::new(none(), &[1, 9, 0]);
    stage.origins[0].availability = Availability::Draining;
    stage.governor.refused(stage.now, ResourceId(0), OriginId(2));
    assert_eq!(stage.look(), [order(0, 0, 1, Cause::Draining)]);
    stage.governor.refused(stage.now, ResourceId(0), OriginId(1));
    assert_eq!(stage.look(), []);
    let memory = stage.governor.settings.damping.refusal_memory;
    assert_eq!(stage.look_after(memory), [order(0, 0, 2, Cause::Draining)]);
}

#[test]
fn the_stalled_leave_and_do_not_come_straight_back() {
    let settings = stalling();
    let mut stage = Stage::new(settings, &[1, 0, 5]);
    stage.look();
    stage.transfers[0].waiting_since = Some(stage.now);
    assert_eq!(stage.look_after(9 * SECOND), []);
    let orders = stage.look_after(SECOND);
    assert_eq!(orders, [order(0, 0, 1, Cause::Stalled)]);
    stage.carry_out(&orders);
    assert_eq!(stage.look_after(9 * SECOND), [], "it waits still, but now for another");
    assert_eq!(stage.look_after(10 * SECOND), [order(0, 1, 2, Cause::Stalled)]);
    stage.governor.refused(stage.now, ResourceId(0), OriginId(2));
    assert_eq!(stage.look_after(10 * SECOND), [], "it has only just left the other one");
    assert_eq!(stage.look_after(10 * SECOND), [order(0, 1, 0, Cause::Stalled)]);
}

/// The second origin is asked and does not respond either: the third is asked.
#[test]
fn a_move_to_a_silent_origin_is_replaced() {
    let mut stage = Stage::new(stalling(), &[1, 0, 5]);
    stage.look();
    stage.transfers[0].waiting_since = Some(stage.now);
    assert_eq!(stage.look_after(10 * SECOND), [order(0, 0, 1, Cause::Stalled)]);
    stage.transfers[0].moving_to = Some(OriginId(1));
    assert_eq!(stage.look_after(9 * SECOND), []);
    assert_eq!(stage.look_after(SECOND), [order(0, 0, 2, Cause::Stalled)]);
    stage.transfers[0].moving_to = Some(OriginId(2));
    stage.governor.refused(stage.now, ResourceId(0), OriginId(1));
    assert_eq!(stage.look_after(10 * SECOND), [], "no other origin is left");
}

/// This includes a transfer that was ordered away for another cause, while its origin still sent bytes.
#[test]
fn an_origin_that_falls_silent_during_a_move_has_stalled() {
    let mut stage = Stage::new(stalling(), &[1, 0, 5]);
    stage.origins[0].availability = Availability::Draining;
    assert_eq!(stage.look(), [order(0, 0, 1, Cause::Draining)]);
    stage.transfers[0].moving_to = Some(OriginId(1));
    stage.now += SECOND;
    stage.transfers[0].waiting_since = Some(stage.now);
    assert_eq!(stage.look_after(9 * SECOND), []);
    assert_eq!(stage.look_after(SECOND), [order(0, 0, 2, Cause::Stalled)]);
}

#[test]
fn after_a_refusal_the_next_origin_is_asked_without_delay() {
    let mut stage = Stage::new(stalling(), &[1, 0, 5]);
    stage.look();
    stage.transfers[0].waiting_since = Some(stage.now);
    assert_eq!(stage.look_after(10 * SECOND), [order(0, 0, 1, Cause::Stalled)]);
    stage.governor.refused(stage.now, ResourceId(0), OriginId(1));
    stage.governor.stays(TransferId(0));
    assert_eq!(stage.look(), [order(0, 0, 2, Cause::Stalled)]);
}

/// One byte in half a second is no progress. The time in which the client takes nothing does not count.
#[test]
fn the_crawling_leave_as_the_silent_do() {
    for (bytes_per_s, expected) in [(2, true), (239, true), (240, false), (1_000_000, false)] {
        let mut stage = Stage::new(stalling(), &[1, 0]);
        stage.look();
        let mut orders = Vec::new();
        for _ in 0..10 {
            stage.transfers[0].delivered += bytes_per_s;
            stage.transfers[0].waited += SECOND;
            orders.extend(stage.look_after(SECOND));
        }
        let left = if expected { vec![order(0, 0, 1, Cause::Stalled)] } else { Vec::new() };
        assert_eq!(orders, left, "{bytes_per_s}");
    }
    let mut stage = Stage::new(stalling(), &[1, 0]);
    stage.look();
    for _ in 0..100 {
        stage.transfers[0].delivered += 2;
        stage.transfers[0].waited += SECOND / 20;
        assert_eq!(stage.look_after(SECOND / 2), [], "it is the client that takes two bytes at a time");
        stage.transfers[0].delivered += 1_000_000;
    }
}

#[test]
fn a_client_that_takes_nothing_does_not_stall() {
    let mut stage = Stage::new(stalling(), &[1, 0]);
    stage.look();
    assert_eq!(stage.look_after(100 * SECOND), []);
}

#[test]
fn a_failure_goes_on_where_there_is_least_to_do() {
    let mut stage = Stage::new(none(), &[1, 3, 2]);
    let failed = |stage: &mut Stage| stage.governor.failed(stage.now, &stage.origins, &stage.transfers[0]);
    assert_eq!(failed(&mut stage), Ok(OriginId(2)));
    stage.governor.refused(stage.now, ResourceId(0), OriginId(2));
    assert_eq!(failed(&mut stage), Ok(OriginId(1)));
    stage.origins[1].availability = Availability::Down;
    assert_eq!(failed(&mut stage), Ok(OriginId(0)), "the connection may have failed, not the origin");
    stage.origins[0].availability = Availability::Draining;
    assert_eq!(failed(&mut stage), Ok(OriginId(0)), "better than nothing");
    stage.governor.refused(stage.now, ResourceId(0), OriginId(0));
    assert_eq!(failed(&mut stage), Err(Denied::Nowhere));
}

#[test]
fn failures_in_a_row_end() {
    let mut stage = Stage::new(none(), &[1, 0]);
    let Damping { failures_max, stay_min, .. } = stage.governor.settings.damping;
    for _ in 0..3 {
        stage.now += stay_min;
        for _ in 0..failures_max {
            stage.governor.failed(stage.now, &stage.origins, &stage.transfers[0]).unwrap();
        }
        let once_more = stage.governor.failed(stage.now, &stage.origins, &stage.transfers[0]);
        assert_eq!(once_more, Err(Denied::TooOften));
    }
}

#[test]
fn the_operator_is_obeyed() {
    let mut stage = Stage::new(none(), &[1, 2, 1]);
    let asked = |stage: &mut Stage, to: Option<u32>| {
        let order = stage.governor.asked(stage.now, &stage.origins, &stage.transfers[0], to.map(OriginId));
        order.map(|order| (order.to.0, order.cause))
    };
    assert_eq!(asked(&mut stage, None), Ok((2, Cause::Manual)));
    stage.governor.refused(stage.now, ResourceId(0), OriginId(2));
    assert_eq!(asked(&mut stage, None), Ok((1, Cause::Manual)));
    assert_eq!(asked(&mut stage, Some(2)), Ok((2, Cause::Manual)), "an explicit origin overrides the refusal");
    for nowhere in [0, 7] {
        assert_eq!(asked(&mut stage, Some(nowhere)), Err(Denied::Nowhere));
    }
    stage.transfers[0].moving_to = Some(OriginId(1));
    assert_eq!(asked(&mut stage, Some(1)), Err(Denied::Moving));
}

#[test]
fn what_has_ended_is_forgotten() {
    let mut stage = Stage::new(none(), &[3, 3]);
    stage.look();
    stage.transfers.truncate(1);
    stage.look_after(SECOND);
    assert_eq!(stage.governor.tracks.len(), 1);
}

fn stalling() -> Settings {
    Settings { stalled: Some(10 * SECOND), ..none() }
}
