//! Two ends that talk over links which lose, repeat, delay and reorder messages, while the owner's end moves.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;
use watari_anchor::{Endpoint, Failure, SILENT_TICKS_MAX};
use watari_values::{Epoch, NodeName, SecretBytes};
use watari_wire::{ANCHORED_WINDOW_LEN, AnchoredContent, AnchoredId, AnchoredState};

/// The ticks in which a stream without faults has to be complete, after those with faults.
const TICKS_MAX: usize = 40;

#[derive(Debug, Clone)]
enum Step {
    /// An end writes this many bytes.
    Write {
        by_owner: bool,
        len: usize,
    },
    /// An end reads at most this many bytes.
    Read {
        by_owner: bool,
        len: usize,
    },
    /// The message at this place of a queue arrives, and stays in the queue if it is repeated.
    Deliver {
        to_owner: bool,
        place: prop::sample::Index,
        repeats: bool,
    },
    /// The message at this place is lost.
    Lose {
        to_owner: bool,
        place: prop::sample::Index,
    },
    Tick {
        of_owner: bool,
    },
    /// The owner's end moves. Messages to the former owner are lost.
    Move,
    /// An attempt to move is aborted.
    Abort,
}

fn step() -> impl Strategy<Value = Step> {
    let place = any::<prop::sample::Index>;
    prop_oneof![
        4 => (any::<bool>(), 1..60_000usize).prop_map(|(by_owner, len)| Step::Write { by_owner, len }),
        4 => (any::<bool>(), 1..60_000usize).prop_map(|(by_owner, len)| Step::Read { by_owner, len }),
        8 => (any::<bool>(), place(), any::<bool>())
            .prop_map(|(to_owner, place, repeats)| Step::Deliver { to_owner, place, repeats }),
        2 => (any::<bool>(), place()).prop_map(|(to_owner, place)| Step::Lose { to_owner, place }),
        2 => any::<bool>().prop_map(|of_owner| Step::Tick { of_owner }),
        1 => Just(Step::Move),
        1 => Just(Step::Abort),
    ]
}

fn initial() -> AnchoredState {
    let (anchor, unacknowledged) = (NodeName::new("a").unwrap(), SecretBytes::new(Vec::new()));
    AnchoredState { anchor, id: AnchoredId(1), received: 0, acknowledged: 0, unacknowledged, is_ended: false }
}

/// The byte at an offset of a direction.
fn byte(by_owner: bool, offset: u64) -> u8 {
    (offset.wrapping_mul(0x9E37_79B9) >> 16) as u8 ^ u8::from(by_owner)
}

/// An end, and the positions of its user.
struct End {
    endpoint: Endpoint,
    is_owner: bool,
    written: u64,
    read: u64,
    is_finished: bool,
}

impl End {
    fn new(endpoint: Endpoint, is_owner: bool) -> Self {
        Self { endpoint, is_owner, written: 0, read: 0, is_finished: false }
    }

    fn write(&mut self, len: usize) {
        let bytes: Vec<u8> = (0..len as u64).map(|at| byte(self.is_owner, self.written + at)).collect();
        self.written += self.endpoint.write(&bytes) as u64;
        assert!(self.endpoint.room() <= ANCHORED_WINDOW_LEN);
    }

    fn read(&mut self, len: usize) {
        let mut into = vec![0; len];
        let Some(read) = self.endpoint.read(&mut into) else { return };
        for (at, value) in into[..read].iter().enumerate() {
            assert_eq!(*value, byte(!self.is_owner, self.read + at as u64), "at {}", self.read + at as u64);
        }
        self.read += read as u64;
        self.is_finished |= read == 0;
    }
}

struct Pair {
    owner: End,
    anchor: End,
    to_owner: Vec<AnchoredContent>,
    to_anchor: Vec<AnchoredContent>,
    epoch: u32,
}

impl Pair {
    fn new() -> Self {
        Self {
            owner: End::new(Endpoint::owner(Epoch(1), &initial()), true),
            anchor: End::new(Endpoint::anchor(), false),
            to_owner: Vec::new(),
            to_anchor: Vec::new(),
            epoch: 1,
        }
    }

    fn send(&mut self) {
        self.to_anchor.extend(std::iter::from_fn(|| self.owner.endpoint.next_message()));
        self.to_owner.extend(std::iter::from_fn(|| self.anchor.endpoint.next_message()));
    }

    fn end(&mut self, is_owner: bool) -> &mut End {
        if is_owner { &mut self.owner } else { &mut self.anchor }
    }

    fn queue(&mut self, to_owner: bool) -> &mut Vec<AnchoredContent> {
        if to_owner { &mut self.to_owner } else { &mut self.to_anchor }
    }

    fn deliver(&mut self, to_owner: bool, place: usize, repeats: bool) {
        let queue = self.queue(to_owner);
        let message = if repeats { queue[place].clone() } else { queue.remove(place) };
        self.end(to_owner).endpoint.handle(&message);
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Write { by_owner, len } => self.end(*by_owner).write(*len),
            Step::Read { by_owner, len } => self.end(*by_owner).read(*len),
            Step::Deliver { to_owner, place, repeats } => {
                let len = self.queue(*to_owner).len();
                if len > 0 {
                    self.deliver(*to_owner, place.index(len), *repeats);
                }
            }
            Step::Lose { to_owner, place } => {
                let queue = self.queue(*to_owner);
                if !queue.is_empty() {
                    queue.remove(place.index(queue.len()));
                }
            }
            Step::Tick { of_owner } => self.end(*of_owner).endpoint.tick(),
            Step::Move => {
                let state = self.export();
                self.epoch += 1;
                self.owner.endpoint = Endpoint::owner(Epoch(self.epoch), &state);
                // The anchor does not accept messages of a former owner.
                self.to_owner.clear();
                self.to_anchor.clear();
            }
            Step::Abort => {
                self.export();
            }
        }
        self.send();
    }

    fn export(&self) -> AnchoredState {
        self.owner.endpoint.export(NodeName::new("a").unwrap(), AnchoredId(1), &[])
    }

    /// Runs without faults until both directions are complete.
    fn complete(&mut self) {
        self.owner.endpoint.end();
        self.anchor.endpoint.end();
        for _ in 0..TICKS_MAX {
            self.owner.endpoint.tick();
            self.anchor.endpoint.tick();
            self.send();
            while !self.to_owner.is_empty() || !self.to_anchor.is_empty() {
                for to_owner in [true, false] {
                    while !self.queue(to_owner).is_empty() {
                        self.deliver(to_owner, 0, false);
                    }
                    while self.end(to_owner).endpoint.is_readable() && !self.end(to_owner).is_finished {
                        self.end(to_owner).read(50_000);
                    }
                }
                self.send();
            }
            if self.owner.endpoint.is_complete() && self.anchor.endpoint.is_complete() {
                return;
            }
        }
        panic!("not complete: {:?} {:?}", self.owner.endpoint, self.anchor.endpoint);
    }
}

proptest! {
    #[test]
    fn all_bytes_arrive_in_order(steps in vec(step(), 0..200)) {
        let mut pair = Pair::new();
        pair.send();
        for step in &steps {
            pair.take(step);
        }
        prop_assert_eq!(pair.owner.endpoint.failure(), None);
        prop_assert_eq!(pair.anchor.endpoint.failure(), None);
        pair.complete();
        prop_assert_eq!((pair.owner.read, pair.anchor.read), (pair.anchor.written, pair.owner.written));
        prop_assert!(pair.owner.is_finished && pair.anchor.is_finished);
    }

    /// An end that has sent its end moves on with it.
    #[test]
    fn an_end_of_a_direction_moves_too(before in any::<bool>(), bytes in 0..1000usize) {
        let mut pair = Pair::new();
        pair.owner.write(bytes);
        pair.owner.endpoint.end();
        if before {
            // The anchor has all of it.
            pair.send();
            while !pair.to_anchor.is_empty() {
                pair.deliver(false, 0, false);
            }
            while pair.anchor.endpoint.is_readable() && !pair.anchor.is_finished {
                pair.anchor.read(100);
            }
            pair.send();
            while !pair.to_owner.is_empty() {
                pair.deliver(true, 0, false);
            }
            prop_assert!(pair.owner.endpoint.is_sent());
        }
        pair.take(&Step::Move);
        pair.complete();
        prop_assert_eq!(pair.anchor.read, bytes as u64);
    }
}

#[test]
fn a_piece_that_had_no_room_moves_with_the_owner() {
    for is_last in [false, true] {
        let mut pair = Pair::new();
        pair.owner.write(2 * ANCHORED_WINDOW_LEN);
        assert_eq!(pair.owner.endpoint.room(), 0);
        let piece: Vec<u8> = (0..16_000).map(|at| byte(true, pair.owner.written + at)).collect();
        let state = pair.owner.endpoint.export(NodeName::new("a").unwrap(), AnchoredId(1), &piece);
        pair.owner.written += piece.len() as u64;
        pair.owner.endpoint = Endpoint::owner(Epoch(2), &AnchoredState { is_ended: is_last, ..state });
        assert!(!pair.owner.endpoint.is_within_window() && pair.owner.endpoint.room() == 0);
        pair.complete();
        assert_eq!(pair.anchor.read, pair.owner.written);
        assert!(pair.owner.endpoint.is_within_window());
    }
}

/// Without a tick, so without the repair of losses.
#[test]
fn a_new_owner_gets_at_once_what_the_former_one_did_not_take() {
    let mut pair = Pair::new();
    pair.send();
    pair.deliver(false, 0, false);
    pair.anchor.write(60_000);
    pair.send();
    pair.take(&Step::Move);
    while !(pair.to_owner.is_empty() && pair.to_anchor.is_empty()) {
        for to_owner in [true, false] {
            while !pair.queue(to_owner).is_empty() {
                pair.deliver(to_owner, 0, false);
            }
        }
        pair.owner.read(60_000);
        pair.send();
    }
    assert_eq!(pair.owner.read, 60_000);
}

#[test]
fn an_owner_of_an_earlier_epoch_does_not_attach_again() {
    let mut anchor = Endpoint::anchor();
    assert!(anchor.next_message().is_none());
    assert!(anchor.attach(Epoch(3), 0));
    assert!(!anchor.attach(Epoch(2), 0));
    assert!(anchor.attach(Epoch(3), 0), "it is repeated");
    assert!(anchor.attach(Epoch(4), 0));
}

#[test]
fn an_end_that_hears_nothing_fails() {
    let (mut anchor, mut owner) = (Endpoint::anchor(), Endpoint::owner(Epoch(1), &initial()));
    for endpoint in [&mut anchor, &mut owner] {
        for _ in 0..SILENT_TICKS_MAX {
            endpoint.tick();
            while endpoint.next_message().is_some() {}
        }
        assert_eq!(endpoint.failure(), None);
        endpoint.tick();
        assert_eq!(endpoint.failure(), Some(Failure::Silent));
    }
}

#[test]
fn idle_ends_ask_whether_the_other_exists() {
    let mut pair = Pair::new();
    pair.send();
    let mut messages = 0;
    for _ in 0..10 * SILENT_TICKS_MAX {
        pair.owner.endpoint.tick();
        pair.anchor.endpoint.tick();
        pair.send();
        while !(pair.to_owner.is_empty() && pair.to_anchor.is_empty()) {
            for to_owner in [true, false] {
                while !pair.queue(to_owner).is_empty() {
                    pair.deliver(to_owner, 0, false);
                    messages += 1;
                }
            }
            pair.send();
        }
    }
    assert_eq!((pair.owner.endpoint.failure(), pair.anchor.endpoint.failure()), (None, None));
    assert!((50..=240).contains(&messages), "{messages} messages in 300 s");
}

#[test]
fn impossible_acknowledgements_fail_the_stream() {
    let mut anchor = Endpoint::anchor();
    anchor.attach(Epoch(1), 1);
    assert_eq!(anchor.failure(), Some(Failure::Impossible));
    assert!(anchor.next_message().is_none());
}

#[test]
fn more_than_the_window_is_not_kept() {
    let mut owner = Endpoint::owner(Epoch(1), &initial());
    for offset in [0, ANCHORED_WINDOW_LEN as u64] {
        let bytes = SecretBytes::new(vec![1; ANCHORED_WINDOW_LEN]);
        owner.handle(&AnchoredContent::Data { offset, bytes, is_last: false });
    }
    let mut into = vec![0; 4 * ANCHORED_WINDOW_LEN];
    assert_eq!((owner.read(&mut into), owner.read(&mut into)), (Some(ANCHORED_WINDOW_LEN), None));
}

#[test]
fn a_reset_after_both_ends_is_no_failure() {
    let finished = || {
        let mut owner = Endpoint::owner(Epoch(1), &initial());
        let bytes = SecretBytes::new(vec![1]);
        owner.handle(&AnchoredContent::Data { offset: 0, bytes, is_last: true });
        owner.end();
        owner
    };
    let mut owner = finished();
    while owner.next_message().is_some() {}
    owner.handle(&AnchoredContent::Reset);
    assert_eq!((owner.failure(), owner.is_sent()), (None, true));
    let mut unsent = finished();
    unsent.handle(&AnchoredContent::Reset);
    assert_eq!(unsent.failure(), Some(Failure::Reset), "the other end cannot have had the end");
}
