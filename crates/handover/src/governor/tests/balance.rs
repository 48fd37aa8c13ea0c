//! Origins with unequal loads.

use super::*;

#[test]
fn connections_become_equal() {
    for (before, after) in [
        (&[1, 3][..], &[2, 2][..]),
        (&[2, 5], &[3, 4]),
        (&[3, 5], &[4, 4]),
        (&[4, 6], &[5, 5]),
        (&[0, 10], &[5, 5]),
        (&[5, 5, 2], &[4, 4, 4]),
        (&[9, 0, 0], &[3, 3, 3]),
        (&[3, 4], &[3, 4]),
        (&[1, 2], &[1, 2]),
        (&[0, 1], &[0, 1]),
        (&[0, 0], &[0, 0]),
        (&[5, 6], &[5, 6]),
        (&[7, 9], &[7, 9]),
    ] {
        assert_eq!(Stage::new(unequal(Metric::Connections), before).settle(), after, "{before:?}");
    }
}

#[test]
fn weights_count() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[6, 6]);
    stage.origins[0].weight = 3;
    assert_eq!(stage.settle(), [9, 3]);
}

#[test]
fn what_cannot_move_counts_too() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[4, 2]);
    stage.origins[1].connections += 10;
    assert_eq!(stage.settle(), [6, 10], "and two can");
}

#[test]
fn the_one_with_the_most_left_moves_first() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[1, 3]);
    stage.transfers[2].remaining *= 2;
    stage.look();
    assert_eq!(stage.look_after(Duration::from_mins(1)), [order(2, 1, 0, Cause::Unequal)]);
}

#[test]
fn nothing_moves_to_where_it_was_refused() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[1, 3]);
    let memory = stage.governor.settings.damping.refusal_memory;
    stage.governor.refused(stage.now, ResourceId(0), OriginId(0));
    stage.look();
    assert_eq!(stage.look_after(memory.saturating_sub(SECOND)), []);
    assert_eq!(stage.look_after(SECOND).len(), 1);
}

#[test]
fn equality_waits_for_the_stay_and_for_what_is_moving() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[2, 6]);
    let stay = stage.governor.settings.damping.stay_min;
    assert_eq!(stage.look(), []);
    assert_eq!(stage.look_after(stay.saturating_sub(SECOND)), []);
    let orders = stage.look_after(SECOND);
    assert_eq!(orders.len(), 2);
    for order in &orders {
        stage.transfers[order.transfer.0 as usize].moving_to = Some(order.to);
        stage.origins[0].connections += 1;
    }
    assert_eq!(stage.look_after(SECOND), [], "they count where they go");
}

#[test]
fn few_bytes_do_not_move() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[1, 5]);
    let few = stage.governor.settings.damping.remaining_min - 1;
    stage.transfers.iter_mut().for_each(|transfer| transfer.remaining = few);
    assert_eq!(stage.settle(), [1, 5]);
}

#[test]
fn hysteresis_begins_high_and_ends_low() {
    let settings = Settings {
        unequal: Some(Unequal { high: 2.0, low: 1.0, ..Unequal::default() }),
        damping: Damping { gain_min: 1.01, origin_moves_per_s: 1, ..none().damping },
        ..none()
    };
    assert_eq!(Stage::new(settings, &[40, 80]).settle(), [40, 80], "not more than high");
    let mut stage = Stage::new(settings, &[40, 82]);
    stage.look();
    let mut orders = stage.look_after(settings.damping.stay_min);
    assert_eq!(orders.len(), 1);
    for _ in 0..100 {
        stage.carry_out(&orders);
        orders = stage.look_after(SECOND);
    }
    assert_eq!((stage.origins[0].connections, stage.origins[1].connections), (61, 61));
}

#[test]
fn a_transfer_moves_so_often_at_most() {
    let mut settings = unequal(Metric::Connections);
    settings.damping.moves_max = 3;
    let mut stage = Stage::new(settings, &[1, 0]);
    let mut moves = 0;
    for _ in 0..20 {
        let here = stage.transfers[0].origin.0 as usize;
        stage.origins[here].connections += 10;
        let orders = stage.look_after(settings.damping.stay_min);
        moves += orders.len();
        stage.carry_out(&orders);
        stage.origins[here].connections -= 10;
    }
    assert_eq!(moves, 3);
}

#[test]
fn response_times_become_equal_one_by_one() {
    let stage = |response_ms| {
        let mut stage = Stage::new(unequal(Metric::Response), &[3, 3]);
        stage.origins[0].response = Duration::from_millis(10);
        stage.origins[1].response = Duration::from_millis(response_ms);
        stage
    };
    assert_eq!(stage(13).settle(), [3, 3], "not more than high");
    let mut stage = stage(20);
    stage.look();
    assert_eq!(stage.look_after(Damping::default().stay_min).len(), 1);
    assert_eq!(stage.look_after(SECOND), [], "first the metric has to show it");
    assert_eq!(stage.look_after(Unequal::default().settle).len(), 1);
}

#[test]
fn what_comes_and_goes_moves_nothing() {
    let mut stage = Stage::new(unequal(Metric::Connections), &[5, 5]);
    for _ in 0..20 {
        stage.look_after(Duration::from_mins(1));
        stage.origins[0].connections += 10;
        assert_eq!(stage.look_after(SECOND), []);
        stage.origins[0].connections -= 10;
    }
    stage.origins[0].connections += 10;
    assert!(!stage.look_after(Duration::from_mins(1)).is_empty(), "it has come to stay");
}

#[test]
fn rates_become_equal_and_never_the_other_way_round() {
    let rates = [10, 30, 60].map(|rate| rate * MEGABYTE);
    let mut settings = unequal(Metric::Rate);
    settings.slow = Some(Slow { share: 0.0, ..Slow::default() });
    let mut stage = Stage::new(settings, &[1, 2]);
    stage.origins[0].rate = rates[0];
    stage.origins[1].rate = rates[1] + rates[2];
    stage.look();
    let orders = stage.pass_windows(5, &rates);
    assert_eq!(orders, [order(2, 1, 0, Cause::Unequal)], "10 : 90 becomes 70 : 30");
    let mut stage = Stage::new(settings, &[1, 1]);
    (stage.origins[0].rate, stage.origins[1].rate) = (rates[0], rates[2]);
    stage.look();
    assert_eq!(stage.pass_windows(5, &[rates[0], rates[2]]), [], "10 : 60 would become 70 : 0");
}
