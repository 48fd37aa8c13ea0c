//! What does not wait: drains, stalls, failures, the operator.

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
    let settings = Settings { stalled: Some(10 * SECOND), ..none() };
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

#[test]
fn a_client_that_takes_nothing_does_not_stall() {
    let mut stage = Stage::new(Settings { stalled: Some(10 * SECOND), ..none() }, &[1, 0]);
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
    assert_eq!(asked(&mut stage, Some(2)), Ok((2, Cause::Manual)), "who names an origin may know better");
    for nowhere in [0, 7] {
        assert_eq!(asked(&mut stage, Some(nowhere)), Err(Denied::Nowhere));
    }
    stage.transfers[0].moving = true;
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
