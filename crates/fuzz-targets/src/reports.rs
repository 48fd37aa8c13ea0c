//! Arbitrary bytes from a sensor or a judge. A message is refused, or is the same after it is encoded and decoded
//! again. A board takes and shows any reports of sensors, and counts no report twice.

use watari_endings::Profile;
use watari_link::{LinkFrame, decode, encode};
use watari_packets::Timestamp;
use watari_values::NodeName;
use watari_watch::board::Board;
use watari_watch::link::books::Books;
use watari_watch::link::judge;
use watari_watch::link::wire::{FromJudge, FromSensor, WireReport};

pub(crate) fn run(bytes: &[u8]) {
    let mut judge = Judge::new();
    let mut rest = bytes;
    while let Some((len, behind)) = rest.split_first_chunk::<4>() {
        let Some((message, behind)) = behind.split_at_checked(u32::from_be_bytes(*len) as usize) else { return };
        rest = behind;
        again::<FromJudge>(message);
        match again::<FromSensor>(message) {
            Some(FromSensor::Hello { run, taken }) => {
                judge.books.open(&judge.sensor, run, taken);
                judge.run = Some(run);
            }
            Some(FromSensor::Report { number, before, report }) => judge.take(number, before, *report),
            Some(FromSensor::Beat { .. }) | None => {}
        }
    }
    serde_json::to_string(&judge.board.view()).expect("every board can be serialized");
}

/// A message, if `bytes` are one. Checks that it is the same after it is encoded and decoded again.
fn again<T: LinkFrame + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let message = decode::<T>(bytes).ok()?;
    // A receiver refuses a message that is too long to be sent.
    if bytes.len() <= T::LEN_MAX {
        let said = encode(&message).expect("the shortest form is not longer");
        assert_eq!(decode::<T>(&said[4..]).expect("an encoded message can be decoded"), message);
    }
    Some(message)
}

struct Judge {
    board: Board,
    books: Books,
    sensor: NodeName,
    run: Option<u64>,
}

/// The time of all events.
const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);

impl Judge {
    fn new() -> Self {
        let sensor = NodeName::new("s1").expect("a name");
        Self { board: Board::new(Profile::lab()), books: Books::default(), sensor, run: None }
    }

    fn take(&mut self, number: u64, before: u64, report: WireReport) {
        let part = report.part();
        let Ok(mut report) = report.into_report() else { return };
        let count = report.tallies.len() as u64;
        let Some(run) = self.run else { return };
        let Some(taking) = self.books.take(&self.sensor, run, number, before, count) else { return };
        let repeated = self.books.take(&self.sensor, run, number, before, count).expect("the run is the same");
        assert!(!repeated.is_next && repeated.taken == taking.taken);
        if taking.is_next {
            judge::sift(&mut report, NOW, self.board.profile());
            assert!(self.board.take("s1", part, &report));
            self.board.advance(NOW);
            while self.board.poll().is_some() {}
        }
    }
}
