//! Slow transfers.

use super::*;

#[test]
fn the_slow_go_where_others_are_fast() {
    let rates = [1, 10, 10].map(|rate| rate * MEGABYTE);
    let mut stage = Stage::new(slow(), &[1, 2]);
    stage.look();
    assert_eq!(stage.pass_windows(2, &rates), [], "twice in a row, but it has only just begun");
    assert_eq!(stage.pass_windows(1, &rates), [order(0, 0, 1, Cause::Slow)]);
    for rates in [[4, 10, 10], [1, 2, 3], [1, 1, 1]] {
        let mut stage = Stage::new(slow(), &[1, 2]);
        stage.look();
        assert_eq!(stage.pass_windows(6, &rates.map(|rate| rate * MEGABYTE)), [], "{rates:?}");
    }
}

#[test]
fn one_slow_window_is_an_accident() {
    let mut stage = Stage::new(slow(), &[1, 2]);
    stage.look();
    for _ in 0..5 {
        assert_eq!(stage.pass_windows(1, &[MEGABYTE, 10 * MEGABYTE, 10 * MEGABYTE]), []);
        assert_eq!(stage.pass_windows(1, &[9 * MEGABYTE, 10 * MEGABYTE, 10 * MEGABYTE]), []);
    }
}

#[test]
fn siblings_are_those_of_the_same_client_first() {
    let rates = [1, 2, 10, 10, 10].map(|rate| rate * MEGABYTE);
    let mut stage = Stage::new(slow(), &[1, 4]);
    stage.transfers[1].client = stage.transfers[0].client;
    stage.look();
    assert_eq!(stage.pass_windows(6, &rates), [], "it is not much slower than the client's other one");
    stage.transfers[1].client = client(7);
    assert_eq!(stage.pass_windows(2, &rates), [order(0, 0, 1, Cause::Slow)]);
}

#[test]
fn a_slow_client_is_left_in_peace() {
    let mut stage = Stage::new(slow(), &[1, 1]);
    stage.look();
    for _ in 0..6 {
        stage.transfers[0].delivered += MEGABYTE;
        stage.transfers[0].waited += SECOND;
        stage.transfers[1].delivered += 100 * MEGABYTE;
        assert_eq!(stage.look_after(Slow::default().window), []);
    }
}

#[test]
fn slow_ones_come_to_an_origin_one_by_one() {
    let rates = [1, 1, 1, 20].map(|rate| rate * MEGABYTE);
    let mut stage = Stage::new(slow(), &[3, 1]);
    stage.look();
    let orders = stage.pass_windows(3, &rates);
    assert_eq!(orders.len(), 1);
    stage.carry_out(&orders);
    assert_eq!(stage.pass_windows(1, &rates).len(), 1);
}
