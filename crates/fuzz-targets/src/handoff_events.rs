//! Arbitrary events at each of the three state machines of a handoff. None panics, and none contradicts itself.

use std::collections::BTreeMap;

use arbitrary::{Arbitrary, Result, Unstructured};
use watari_handoff::{
    Arbiter, ArbiterAction, ArbiterEvent, ArbiterTimer, Offer, Source, SourceAction, SourceEvent, Target, TargetAction,
    TargetEvent,
};
use watari_values::{AbortReason, Epoch, NodeName};

const EVENTS_MAX: usize = 200;

pub(crate) fn run(input: &[u8]) {
    let input = &mut Unstructured::new(input);
    let _end_of_input = match u8::arbitrary(input).unwrap_or_default() % 3 {
        0 => arbiter(input),
        1 => source(input),
        _ => target(input),
    };
}

/// Each epoch is decided once at most, and no message follows the end.
fn arbiter(input: &mut Unstructured<'_>) -> Result<()> {
    let mut arbiter = Arbiter::new(name(0));
    let (mut decided, mut over, mut proposed) = (BTreeMap::new(), false, None);
    for _ in 0..EVENTS_MAX {
        let event = arbiter_event(input, proposed.as_ref(), arbiter.reads_client())?;
        if let ArbiterEvent::Proposed { offer, .. } = &event {
            proposed = Some(offer.clone());
        }
        let mut actions = Vec::new();
        arbiter.handle(event, &mut actions);
        assert!(actions.len() <= 4, "one event makes no flood: {actions:?}");
        for action in actions {
            assert!(!over, "{action:?} after the end");
            match &action {
                ArbiterAction::Commit { epoch, target, .. } => {
                    assert_eq!(decided.insert(*epoch, true), None);
                    assert_eq!((arbiter.owner(), arbiter.tenure()), (target, *epoch));
                }
                ArbiterAction::Abort { epoch, .. } => assert_eq!(decided.insert(*epoch, false), None),
                ArbiterAction::SendAborted { epoch, .. } => assert_ne!(*epoch, arbiter.tenure()),
                ArbiterAction::SendCommitted { to, .. } => assert_ne!(to, arbiter.owner()),
                ArbiterAction::Reset(_) => over = true,
                _ => {}
            }
        }
        assert_eq!(arbiter.is_ended(), over);
    }
    Ok(())
}

fn arbiter_event(input: &mut Unstructured<'_>, proposed: Option<&Offer>, reads: bool) -> Result<ArbiterEvent> {
    Ok(match input.int_in_range(0..=12)? {
        0 => ArbiterEvent::Proposed { from: node(input)?, offer: offer(input)? },
        1 => ArbiterEvent::Held(offer(input)?),
        2 => match proposed {
            Some(offer) => ArbiterEvent::Held(offer.clone()),
            None => ArbiterEvent::Timeout(ArbiterTimer::Move),
        },
        3 => ArbiterEvent::LegReady(epoch(input)?),
        4 => ArbiterEvent::Refused { from: node(input)?, epoch: epoch(input)?, reason: AbortReason::Full },
        5 => ArbiterEvent::Cancelled { from: node(input)?, epoch: epoch(input)?, reason: AbortReason::RestTooLong },
        6 => ArbiterEvent::Final { from: node(input)?, epoch: epoch(input)?, tx_offset: offset(input)? },
        7 => ArbiterEvent::LegFailed(epoch(input)?),
        // Byte counts come from the dispatcher's own sockets. It does not read from a client whose stream is cut.
        8 if reads => ArbiterEvent::RelayedRx(input.int_in_range(0..=2)?),
        8 | 9 => ArbiterEvent::RelayedTx(input.int_in_range(0..=2)?),
        10 => ArbiterEvent::LegEnded { reset: bool::arbitrary(input)? },
        11 => ArbiterEvent::Timeout(ArbiterTimer::Move),
        _ => ArbiterEvent::Timeout(ArbiterTimer::Final),
    })
}

/// A source thaws only on an abort of its own epoch. The parts that it ships fit together.
fn source(input: &mut Unstructured<'_>) -> Result<()> {
    const REST_LEN_MAX: u64 = 100;
    let mut source = Source::new(epoch(input)?, REST_LEN_MAX);
    let mut shipped = 0;
    for _ in 0..EVENTS_MAX {
        let before = source.clone();
        let event = match input.int_in_range(0..=7)? {
            0 if before.is_serving() => SourceEvent::Propose { target: node(input)?, rx_offset: offset(input)? },
            0 | 1 => SourceEvent::Freeze { epoch: epoch(input)?, rx_offset: offset(input)? },
            2 => SourceEvent::Read { rx_offset: offset(input)? },
            3 => SourceEvent::Committed(epoch(input)?),
            4 => SourceEvent::Aborted(epoch(input)?, AbortReason::Timeout),
            5 => SourceEvent::Gone,
            6 => SourceEvent::Retry,
            _ => SourceEvent::Expired,
        };
        let mut actions = Vec::new();
        source.handle(event.clone(), &mut actions);
        assert!(!before.is_destroyed() || (source.is_destroyed() && actions.is_empty()));
        if source.is_serving() && !before.is_serving() {
            assert!(matches!(event, SourceEvent::Aborted(epoch, _) if epoch == before.epoch()));
        }
        for action in actions {
            match action {
                SourceAction::Ship { epoch, rx_offset, .. } => {
                    assert!(epoch > before.epoch());
                    shipped = rx_offset;
                }
                SourceAction::Rest { from_offset, to_offset, .. } => {
                    assert_eq!(from_offset, shipped);
                    assert!((1..=REST_LEN_MAX).contains(&(to_offset - from_offset)));
                    shipped = to_offset;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// A target is activated once at most, by its own epoch and the offsets that it announced last.
fn target(input: &mut Unstructured<'_>) -> Result<()> {
    let mut announced = (epoch(input)?, offset(input)?, offset(input)?);
    let mut actions = Vec::new();
    let mut target = Target::hold(announced.0, announced.1, announced.2, &mut actions);
    let mut activated = false;
    for _ in 0..EVENTS_MAX {
        let event = match input.int_in_range(0..=4)? {
            0 => TargetEvent::Rest { epoch: epoch(input)?, from_offset: offset(input)?, len: offset(input)? },
            1 => {
                TargetEvent::Committed { epoch: epoch(input)?, rx_offset: offset(input)?, tail_offset: offset(input)? }
            }
            2 => TargetEvent::Aborted(epoch(input)?),
            3 => TargetEvent::Gone,
            _ => TargetEvent::Expired,
        };
        target.handle(&event, &mut actions);
        for action in actions.drain(..) {
            match action {
                TargetAction::Held { epoch, rx_offset, tail_offset } => announced = (epoch, rx_offset, tail_offset),
                TargetAction::Activate => {
                    let (epoch, rx_offset, tail_offset) = announced;
                    assert!(!std::mem::replace(&mut activated, true));
                    assert_eq!(event, TargetEvent::Committed { epoch, rx_offset, tail_offset });
                }
                _ => {}
            }
        }
        assert_eq!(target.is_active(), activated);
    }
    Ok(())
}

fn name(index: usize) -> NodeName {
    NodeName::new(["a", "b", "c"][index]).expect("a letter is a name")
}

fn node(input: &mut Unstructured<'_>) -> Result<NodeName> {
    Ok(name(input.choose_index(3)?))
}

/// A number near the connection's epochs, so that events match, or as far away as possible.
fn epoch(input: &mut Unstructured<'_>) -> Result<Epoch> {
    let choice = input.int_in_range(0..=9)?;
    Ok(Epoch(if choice == 9 { u32::MAX - input.int_in_range(0..=1)? } else { choice % 5 }))
}

fn offset(input: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match input.int_in_range(0..=9u8)? {
        9 => u64::MAX,
        8 => input.arbitrary()?,
        choice => u64::from(choice % 5),
    })
}

fn offer(input: &mut Unstructured<'_>) -> Result<Offer> {
    let digest = [u8::from(bool::arbitrary(input)?); 32];
    let (rx_offset, tail_offset) = (offset(input)?, offset(input)?);
    Ok(Offer { target: node(input)?, epoch: epoch(input)?, rx_offset, tail_offset, digest })
}
