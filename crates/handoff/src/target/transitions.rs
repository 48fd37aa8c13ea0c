//! Every transition of the target, compared with `transitions.txt`.

use watari_values::Epoch;

use super::{Target, TargetAction, TargetEvent};
use crate::transitions::{assert_pinned, table};

fn committed(epoch: u32, rx_offset: u64, tail_offset: u64) -> TargetEvent {
    TargetEvent::Committed { epoch: Epoch(epoch), rx_offset, tail_offset }
}

fn rest(epoch: u32, from_offset: u64, len: u64) -> TargetEvent {
    TargetEvent::Rest { epoch: Epoch(epoch), from_offset, len }
}

fn events() -> Vec<(&'static str, TargetEvent)> {
    vec![
        ("rest of 3, 10 to 15", rest(3, 10, 5)),
        ("rest of 3, 9 to 15", rest(3, 9, 6)),
        ("rest of 3, 11 to 15", rest(3, 11, 4)),
        ("rest of 3, 10 to nowhere", rest(3, 10, u64::MAX)),
        ("rest of 2, 10 to 15", rest(2, 10, 5)),
        ("committed 3 at 10, 20", committed(3, 10, 20)),
        ("committed 3 at 15, 20", committed(3, 15, 20)),
        ("committed 3 at 10, 21", committed(3, 10, 21)),
        ("committed 2 at 10, 20", committed(2, 10, 20)),
        ("aborted 3", TargetEvent::Aborted(Epoch(3))),
        ("aborted 2", TargetEvent::Aborted(Epoch(2))),
        ("gone", TargetEvent::Gone),
        ("expired", TargetEvent::Expired),
    ]
}

/// A target of epoch 3, with the client's stream up to 10 and the stream to the client from 20, after `events`.
fn after(events: impl IntoIterator<Item = TargetEvent>) -> Target {
    let mut target = Target::hold(Epoch(3), 10, 20, &mut Vec::new());
    for event in events {
        target.handle(&event, &mut Vec::new());
    }
    target
}

fn label(target: &Target) -> String {
    format!("{:?} {}, rx {}, tail {}", target.state, target.epoch, target.rx_offset, target.tail_offset)
}

#[test]
fn every_transition() {
    let states = [
        ("held", after([])),
        ("held with rest", after([rest(3, 10, 5)])),
        ("active", after([committed(3, 10, 20)])),
        ("dropped", after([TargetEvent::Gone])),
    ];
    assert_pinned(&table(&states, &events(), Target::handle, label), include_str!("transitions.txt"));
}

#[test]
fn what_is_held_is_announced() {
    let mut actions = Vec::new();
    Target::hold(Epoch(3), 10, 20, &mut actions);
    assert_eq!(actions, [TargetAction::Held { epoch: Epoch(3), rx_offset: 10, tail_offset: 20 }]);
}
