//! Any events, in any order, with any numbers: no machine panics, and none contradicts itself.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use watari_handoff::{
    Arbiter, ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, Source, SourceAction, SourceEvent, Target, TargetAction,
    TargetEvent,
};
use watari_values::{AbortReason, Epoch, NodeName};

/// Near the offsets of a connection, so that events match, and as far away as possible.
fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..4u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn epoch() -> impl Strategy<Value = Epoch> {
    prop_oneof![8 => 0..4u32, 1 => Just(u32::MAX)].prop_map(Epoch)
}

fn node() -> impl Strategy<Value = NodeName> {
    prop_oneof![Just("a"), Just("b"), Just("c")].prop_map(|name| NodeName::new(name).unwrap())
}

fn reason() -> impl Strategy<Value = AbortReason> {
    prop_oneof![Just(AbortReason::Full), Just(AbortReason::Expired), Just(AbortReason::NoLink)]
}

fn offer() -> impl Strategy<Value = Offer> {
    (node(), epoch(), offset(), offset(), 0..2u8).prop_map(|(target, epoch, rx_offset, tail_offset, digest)| Offer {
        target,
        epoch,
        rx_offset,
        tail_offset,
        digest: [digest; 32],
    })
}

/// Events that messages of other nodes can cause, and those of the dispatcher's own driver. `None`: the target reports
/// that it holds the last proposal, so that some moves are committed.
fn arbiter_event() -> impl Strategy<Value = Option<ArbiterEvent>> {
    prop_oneof![2 => Just(None), 9 => any_arbiter_event().prop_map(Some)]
}

fn any_arbiter_event() -> impl Strategy<Value = ArbiterEvent> {
    let answer = || (node(), epoch(), reason());
    prop_oneof![
        4 => (node(), offer()).prop_map(|(from, offer)| ArbiterEvent::Proposed { from, offer }),
        4 => offer().prop_map(ArbiterEvent::Held),
        4 => epoch().prop_map(ArbiterEvent::LegReady),
        1 => answer().prop_map(|(from, epoch, reason)| ArbiterEvent::Refused { from, epoch, reason }),
        1 => answer().prop_map(|(from, epoch, reason)| ArbiterEvent::Cancelled { from, epoch, reason }),
        1 => (node(), epoch(), offset())
            .prop_map(|(from, epoch, tx_offset)| ArbiterEvent::Final { from, epoch, tx_offset }),
        1 => epoch().prop_map(ArbiterEvent::LegFailed),
        2 => (0..3u64).prop_map(ArbiterEvent::RelayedRx),
        2 => (0..3u64).prop_map(ArbiterEvent::RelayedTx),
        1 => any::<bool>().prop_map(|reset| ArbiterEvent::LegEnded { reset }),
        1 => Just(ArbiterEvent::Timeout(ArbiterTimer::Move)),
        1 => Just(ArbiterEvent::Timeout(ArbiterTimer::Final)),
    ]
}

/// The decisions of an arbiter for each epoch.
#[derive(Default)]
struct Decisions {
    committed: BTreeMap<Epoch, bool>,
    over: bool,
}

impl Decisions {
    fn decide(&mut self, epoch: Epoch, commit: bool) {
        assert_eq!(self.committed.insert(epoch, commit), None, "{epoch} was decided before");
    }

    fn take(&mut self, action: &ArbiterAction, arbiter: &Arbiter) {
        assert!(!self.over, "{action:?} after the end");
        match action {
            ArbiterAction::Commit { target, epoch, .. } => {
                self.decide(*epoch, true);
                assert_eq!((arbiter.owner(), arbiter.tenure()), (target, *epoch));
            }
            ArbiterAction::Abort { epoch, .. } => self.decide(*epoch, false),
            // The receiver cannot be a source in this epoch, because it reports that it holds it. Never the present
            // owner's epoch.
            ArbiterAction::SendAborted { epoch, .. } => {
                assert!(*epoch != arbiter.tenure() && (self.committed.contains_key(epoch) || epoch.0 == 0));
            }
            ArbiterAction::SendCommitted { to, epoch } => {
                assert!(to != arbiter.owner() && *epoch <= arbiter.tenure());
            }
            ArbiterAction::Reset(_) => self.over = true,
            ArbiterAction::PrepareLeg { .. }
            | ArbiterAction::Freeze { .. }
            | ArbiterAction::SendGone { .. }
            | ArbiterAction::FinishClient => {}
        }
    }
}

fn source_event() -> impl Strategy<Value = SourceEvent> {
    prop_oneof![
        3 => (node(), offset()).prop_map(|(target, rx_offset)| SourceEvent::Propose { target, rx_offset }),
        2 => (epoch(), offset()).prop_map(|(epoch, rx_offset)| SourceEvent::Freeze { epoch, rx_offset }),
        2 => offset().prop_map(|rx_offset| SourceEvent::Read { rx_offset }),
        1 => epoch().prop_map(SourceEvent::Committed),
        2 => (epoch(), reason()).prop_map(|(epoch, reason)| SourceEvent::Aborted(epoch, reason)),
        1 => Just(SourceEvent::Gone),
        1 => Just(SourceEvent::Retry),
        1 => Just(SourceEvent::Expired),
    ]
}

fn target_event() -> impl Strategy<Value = TargetEvent> {
    prop_oneof![
        3 => (epoch(), offset(), offset())
            .prop_map(|(epoch, from_offset, len)| TargetEvent::Rest { epoch, from_offset, len }),
        2 => (epoch(), offset(), offset())
            .prop_map(|(epoch, rx_offset, tail_offset)| TargetEvent::Committed { epoch, rx_offset, tail_offset }),
        1 => epoch().prop_map(TargetEvent::Aborted),
        1 => Just(TargetEvent::Gone),
        1 => Just(TargetEvent::Expired),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    /// An arbiter decides each epoch at most once, for any messages of agents.
    #[test]
    fn an_arbiter_decides_each_epoch_once(events in vec(arbiter_event(), 0..60)) {
        let mut arbiter = Arbiter::new(NodeName::new("a").unwrap());
        let (mut decisions, mut actions) = (Decisions::default(), Vec::new());
        let mut proposed = None;
        for event in events {
            let Some(event) = event.or_else(|| proposed.clone().map(ArbiterEvent::Held)) else { continue };
            if let ArbiterEvent::Proposed { offer, .. } = &event {
                proposed = Some(offer.clone());
            }
            if matches!(event, ArbiterEvent::RelayedRx(_)) && !arbiter.reads_client() {
                continue;
            }
            arbiter.handle(event, &mut actions);
            prop_assert!(actions.len() <= 4, "one event makes no flood: {:?}", actions);
            for action in actions.drain(..) {
                decisions.take(&action, &arbiter);
            }
            prop_assert_eq!(arbiter.is_ended(), decisions.over);
        }
    }

    /// A source serves, or is fenced and has no decision, or is destroyed for good. The ranges it ships are contiguous.
    #[test]
    fn a_source_thaws_only_by_an_abort_of_its_epoch(start in epoch(), events in vec(source_event(), 0..40)) {
        let mut source = Source::new(start, 100);
        let mut shipped = 0;
        for event in events {
            if matches!(event, SourceEvent::Propose { .. }) && !source.is_serving() {
                continue;
            }
            let (before, mut actions) = (source.clone(), Vec::new());
            source.handle(event.clone(), &mut actions);
            prop_assert!(!before.is_destroyed() || actions.is_empty());
            if source.is_serving() && !before.is_serving() {
                prop_assert!(matches!(event, SourceEvent::Aborted(epoch, _) if epoch == before.epoch()));
            }
            for action in actions {
                match action {
                    SourceAction::Ship { epoch, rx_offset, .. } => {
                        prop_assert!(epoch > before.epoch());
                        shipped = rx_offset;
                    }
                    SourceAction::Rest { from_offset, to_offset, .. } => {
                        prop_assert_eq!(from_offset, shipped);
                        prop_assert!((1..=100).contains(&(to_offset - from_offset)));
                        shipped = to_offset;
                    }
                    _ => {}
                }
            }
        }
    }

    /// A target is activated at most once, by its own epoch, with the offsets that it last announced.
    #[test]
    fn a_target_is_activated_by_what_it_announced(
        held in epoch(),
        start in (offset(), offset()),
        events in vec(target_event(), 0..40),
    ) {
        let mut actions = Vec::new();
        let mut target = Target::hold(held, start.0, start.1, &mut actions);
        let (mut announced, mut activated) = ((held, start.0, start.1), false);
        for event in events {
            target.handle(&event, &mut actions);
            for action in actions.drain(..) {
                match action {
                    TargetAction::Held { epoch, rx_offset, tail_offset } => announced = (epoch, rx_offset, tail_offset),
                    TargetAction::Activate => {
                        let (epoch, rx_offset, tail_offset) = announced;
                        prop_assert!(!std::mem::replace(&mut activated, true));
                        prop_assert_eq!(&event, &TargetEvent::Committed { epoch, rx_offset, tail_offset });
                    }
                    _ => {}
                }
            }
            prop_assert_eq!(target.is_active(), activated);
        }
    }
}
