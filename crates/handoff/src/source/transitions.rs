//! Every transition of the source, compared with `transitions.txt`.

#![allow(clippy::unwrap_used)]

use watari_values::{AbortReason, Epoch, NodeName};

use super::{Source, SourceAction, SourceEvent, SourceState};
use crate::transitions::{assert_pinned, table};

const REST_LEN_MAX: u64 = 100;

fn propose() -> SourceEvent {
    SourceEvent::Propose { target: NodeName::new("b").unwrap(), rx_offset: 10 }
}

fn freeze(epoch: u32, rx_offset: u64) -> SourceEvent {
    SourceEvent::Freeze { epoch: Epoch(epoch), rx_offset }
}

/// All events except `Propose`, which only a serving source may get.
fn events() -> Vec<(&'static str, SourceEvent)> {
    vec![
        ("freeze 3 at 15", freeze(3, 15)),
        ("freeze 3 at 10", freeze(3, 10)),
        ("freeze 3 at 9", freeze(3, 9)),
        ("freeze 3 at 110", freeze(3, 10 + REST_LEN_MAX)),
        ("freeze 3 at 111", freeze(3, 11 + REST_LEN_MAX)),
        ("freeze 3 at the end of time", freeze(3, u64::MAX)),
        ("freeze 2 at 15", freeze(2, 15)),
        ("read to 15", SourceEvent::Read { rx_offset: 15 }),
        ("read to 14", SourceEvent::Read { rx_offset: 14 }),
        ("committed 3", SourceEvent::Committed(Epoch(3))),
        ("committed 2", SourceEvent::Committed(Epoch(2))),
        ("aborted 3", SourceEvent::Aborted(Epoch(3), AbortReason::Timeout)),
        ("aborted 2", SourceEvent::Aborted(Epoch(2), AbortReason::Timeout)),
        ("gone", SourceEvent::Gone),
        ("retry", SourceEvent::Retry),
        ("expired", SourceEvent::Expired),
    ]
}

/// A source that the commit of epoch 2 brought here, after `events`.
fn after(events: impl IntoIterator<Item = SourceEvent>) -> Source {
    let mut source = Source::new(Epoch(2), REST_LEN_MAX);
    for event in events {
        source.handle(event, &mut Vec::new());
    }
    source
}

fn label(source: &Source) -> String {
    match &source.state {
        SourceState::Serving => format!("Serving, last {}", source.last),
        SourceState::Fenced { target, rx_offset, frozen: None } => {
            format!("Fenced {} for {target}, rx {rx_offset}", source.last)
        }
        SourceState::Fenced { target, rx_offset, frozen: Some(cut) } => {
            format!("Fenced {} for {target}, rx {rx_offset}, cut at {cut}", source.last)
        }
        SourceState::Destroyed => "Destroyed".to_owned(),
    }
}

#[test]
fn every_transition() {
    let states = [
        ("serving", after([])),
        ("fenced", after([propose()])),
        ("frozen", after([propose(), freeze(3, 15)])),
        ("rest shipped", after([propose(), freeze(3, 15), SourceEvent::Read { rx_offset: 15 }])),
        ("thawed", after([propose(), SourceEvent::Aborted(Epoch(3), AbortReason::Timeout)])),
        ("destroyed", after([SourceEvent::Expired])),
    ];
    let handle = |source: &mut Source, event: &SourceEvent, actions: &mut Vec<_>| source.handle(event.clone(), actions);
    assert_pinned(&table(&states, &events(), handle, label), include_str!("transitions.txt"));
}

#[test]
fn a_proposal_ships_first() {
    let (mut source, mut actions) = (after([]), Vec::new());
    source.handle(propose(), &mut actions);
    let (target, epoch, rx_offset) = (NodeName::new("b").unwrap(), Epoch(3), 10);
    let expected = [
        SourceAction::Ship { target: target.clone(), epoch, rx_offset },
        SourceAction::Propose { target, epoch, rx_offset },
    ];
    assert_eq!(actions, expected);
    assert_eq!(label(&source), "Fenced 3 for b, rx 10");
}

/// No epoch follows the last: the connection stays.
#[test]
fn epochs_run_out() {
    let (mut source, mut actions) = (Source::new(Epoch(u32::MAX), REST_LEN_MAX), Vec::new());
    source.handle(propose(), &mut actions);
    assert_eq!(actions, [SourceAction::Thaw(AbortReason::Full)]);
    assert!(source.is_serving());
}
