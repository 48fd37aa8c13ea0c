//! Random connections, driven as the contract says.

use std::time::Instant;

use proptest::prelude::*;

use super::*;

/// Inputs. The test skips those that are not possible.
fn any_input() -> impl Strategy<Value = Input> {
    let len = 0..40_usize;
    prop_oneof![
        4 => (len.clone(), len.clone()).prop_map(|(read, written)| up(read, written.min(read))),
        2 => len.clone().prop_map(Input::HeldUp),
        1 => len.clone().prop_map(Input::Discarded),
        4 => (len.clone(), any::<bool>())
            .prop_map(|(written, preface_left)| Input::WrittenToLeg { written, preface_left }),
        4 => (len.clone(), len.clone()).prop_map(|(read, written)| down(read, written.min(read))),
        4 => len.prop_map(Input::WrittenToClient),
        1 => prop::sample::select(inputs()).prop_map(|(_, input)| input),
        2 => (0..200_u64, 0..200_u64, 1..4_u32).prop_map(|(rx_offset, tail_offset, epoch)| {
            let offer = Offer { rx_offset, epoch: Epoch(epoch), ..offer(tail_offset) };
            agent(ArbiterEvent::Proposed { from: name("a"), offer })
        }),
    ]
}

/// The bytes of the streams that a driver has really read and written, and those that wait.
#[derive(Default)]
struct Driver {
    read: [u64; 2],
    written: [u64; 2],
    searching: bool,
}

impl Driver {
    fn count(&mut self, input: &Input) {
        let (direction, read, written) = match input {
            Input::PassedUp { read, written } => (0, *read, *written),
            Input::HeldUp(read) => (0, *read, 0),
            Input::WrittenToLeg { written, .. } => (0, 0, *written),
            Input::PassedDown { read, written } => (1, *read, *written),
            Input::WrittenToClient(written) => (1, 0, *written),
            _ => return,
        };
        self.read[direction] += read as u64;
        self.written[direction] += written as u64;
    }

    fn follow(&mut self, relay: &Relay, actions: &[Action]) {
        for action in actions {
            if *action == Action::BeginAgain {
                // The bytes that the first agent was sent wait again.
                self.written[0] = 0;
                self.searching = true;
            }
        }
        assert!(relay.down.len() <= UNDELIVERED_LEN_MAX as u64);
        if !relay.is_over() {
            let waiting = [0, 1].map(|direction| self.read[direction] - self.written[direction]);
            assert_eq!(relay.waiting(), (waiting[0], waiting[1]));
            // The arbiter is that of the lost agent until another one is found.
            if !self.searching {
                assert_eq!(relay.arbiter.rx_relayed(), self.written[0], "the arbiter gets each byte once");
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_read_is_written_or_waits(
        reused in any::<bool>(),
        inputs in prop::collection::vec(any_input(), 0..200),
    ) {
        let now = Instant::now();
        let mut relay = start(reused, now);
        let mut driver = Driver::default();
        for input in inputs {
            if relay.is_over() || !is_possible(&relay, &input, driver.searching) {
                continue;
            }
            if matches!(input, Input::Found { .. } | Input::NotFound) {
                driver.searching = false;
            }
            driver.count(&input);
            let at = if input == Input::Deadline { relay.timeout() } else { now };
            let mut actions = Vec::new();
            handle(&mut relay, input, at, &mut actions);
            driver.follow(&relay, &actions);
            prop_assert!(restored(&relay, now).is_none_or(|restored| restored == without_change(relay.clone())));
        }
    }
}
