//! Arbitrary tickets of clients, and arbitrary keys reported by nodes. A ring opens only tickets that it sealed, and
//! opens them with any reported keys.

use std::time::Duration;

use arbitrary::Arbitrary;
use watari_session::{Dated, EpochSecret, RANDOM_LEN, Ring, RingSettings, TicketSeed};
use watari_values::SecretBytes;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    ticket: &'a [u8],
    received: Vec<Seed>,
    /// The time of all events after the start, in seconds; a session is valid for longer.
    after: u16,
}

#[derive(Arbitrary, Debug)]
struct Seed {
    id: [u8; 8],
    /// Relative to the start, in seconds.
    made: i16,
    state: Option<(i8, u8)>,
    keys: Vec<(i8, u8)>,
}

const SETTINGS: RingSettings = RingSettings {
    lifetime: Duration::from_secs(100_000),
    period: Duration::from_secs(1000),
    activation_delay: Duration::from_secs(5),
};
const START: u64 = 1_800_000_000;

pub(crate) fn run(input: Input<'_>) {
    let mut ring = Ring::new(SETTINGS, [1; 12], START);
    assert!(ring.rotate(START, &[2; RANDOM_LEN]).is_ok());
    let session = Dated { since: START, session: &b"session"[..] };
    let sealed = ring.seal(b"terms", session, [3; 12], START).expect("there is a key");
    let now = START + u64::from(input.after);
    ring.missing(input.ticket);
    assert!(ring.open(b"terms", input.ticket, now).is_err() || input.ticket == sealed);
    ring.merge(input.received.iter().map(seed).collect(), now);
    assert!(ring.open(b"terms", &sealed, now).is_ok_and(|opened| opened.session.as_slice() == b"session"));
    let again = ring.seal(b"terms", session, [4; 12], now).expect("there is a key");
    assert!(ring.open(b"terms", &again, now).is_ok());
}

fn seed(seed: &Seed) -> TicketSeed {
    let epoch = START / SETTINGS.period.as_secs();
    let secret = |(of, byte): &(i8, u8)| EpochSecret {
        epoch: epoch.saturating_add_signed(i64::from(*of)) as u32,
        secret: SecretBytes::new(vec![*byte; 32]),
    };
    TicketSeed {
        id: seed.id,
        made: START.saturating_add_signed(i64::from(seed.made)),
        state: seed.state.as_ref().map(secret),
        keys: seed.keys.iter().map(secret).collect(),
    }
}
