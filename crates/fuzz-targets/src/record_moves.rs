//! Two correct ends that seal, open, change keys and move in any order. Every byte arrives once, in order and
//! unchanged.

use std::io::IoSlice;

use crate::connections::{pair, suite};
use arbitrary::Arbitrary;
use watari_record::{Connection, OpenError, Opened, PeerMisbehaved, SealError};

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    suite: u8,
    start: Start,
    steps: Vec<(bool, Step)>,
}

#[derive(Arbitrary, Debug)]
enum Start {
    Fresh,
    /// Before the record at which TLS 1.3 changes keys by itself, and TLS 1.2 asks to be closed.
    BeforeRenewal(u8),
    /// Before the last record of a key.
    BeforeTheEnd(u8),
}

#[derive(Arbitrary, Debug)]
enum Step {
    Seal { len: u16, pieces: u8 },
    OpenOne,
    OpenAll,
    UpdateKeys { request: bool },
    Answer,
    Move,
    MoveAborted,
    Close,
}

const STEPS_MAX: usize = 100;

/// One end, and the bytes on their way to it.
struct End {
    connection: Option<Connection>,
    arriving: Vec<u8>,
    sent: u64,
    received: u64,
}

pub(crate) fn run(input: Input) {
    let suite = suite(input.suite);
    let records_max = suite.aead().records_max();
    let sequence = match input.start {
        Start::Fresh => 0,
        Start::BeforeRenewal(records) => records_max / 2 - u64::from(records),
        Start::BeforeTheEnd(records) => records_max - u64::from(records),
    };
    let (client, server) = pair(suite, sequence);
    let mut ends = [client, server].map(|connection| End {
        connection: Some(connection),
        arriving: Vec::new(),
        sent: 0,
        received: 0,
    });
    for (of_client, step) in input.steps.into_iter().take(STEPS_MAX) {
        let [one, other] = &mut ends;
        let (end, peer) = if of_client { (one, other) } else { (other, one) };
        if end.take(step, peer).is_err() {
            return;
        }
    }
    let [client, server] = &mut ends;
    if client.open_all().is_ok() && server.open_all().is_ok() {
        assert_eq!((client.received, server.received), (server.sent, client.sent));
    }
}

/// The only reason to refuse a correct end: too many key changes without a byte of data.
struct Tired;

impl End {
    fn take(&mut self, step: Step, peer: &mut Self) -> Result<(), Tired> {
        let connection = self.connection();
        let out = &mut peer.arriving;
        match step {
            Step::Seal { len, pieces } => self.seal(len.into(), pieces, out),
            Step::OpenOne => return self.open_one().map(drop),
            Step::OpenAll => return self.open_all(),
            Step::UpdateKeys { request } => {
                let _ = connection.update_keys(request, out);
            }
            Step::Answer => {
                let _ = connection.seal_answers(out);
            }
            Step::Move => {
                let state = self.connection.take().map(Connection::fence).expect("an end has a connection");
                let moved = Connection::import(state.state()).expect("what was exported can be imported");
                let moved = moved.fence();
                assert_eq!(moved.state(), state.state());
                self.connection = Some(moved.thaw());
            }
            Step::MoveAborted => self.connection = self.connection.take().map(|connection| connection.fence().thaw()),
            Step::Close => {
                // The peer ignores later records, so there must be none.
                let _ = connection.seal_close_notify(out);
            }
        }
        Ok(())
    }

    fn connection(&mut self) -> &mut Connection {
        self.connection.as_mut().expect("an end has a connection")
    }

    fn seal(&mut self, len: usize, pieces: u8, out: &mut Vec<u8>) {
        let data: Vec<u8> = (self.sent..self.sent + len as u64).map(pattern).collect();
        let pieces = data.chunks(data.len() / (usize::from(pieces) % 9 + 1) + 1);
        let slices: Vec<IoSlice<'_>> = pieces.map(IoSlice::new).collect();
        match self.connection().seal(&slices, usize::MAX, out) {
            Ok(sealed) => self.sent += sealed as u64,
            Err(error) => assert!(matches!(error, SealError::Closed | SealError::Exhausted)),
        }
    }

    fn open_all(&mut self) -> Result<(), Tired> {
        while self.open_one()? {}
        Ok(())
    }

    fn open_one(&mut self) -> Result<bool, Tired> {
        let mut arriving = std::mem::take(&mut self.arriving);
        let Some(header) = self.connection().header(&arriving).expect("an honest header") else { return Ok(false) };
        let rest = arriving.split_off(header.record_len());
        self.arriving = rest;
        match self.connection().open(&mut arriving) {
            Ok(Opened::Data(range)) => {
                for byte in &arriving[range] {
                    assert_eq!(*byte, pattern(self.received));
                    self.received += 1;
                }
            }
            Ok(Opened::FatalAlert(alert)) => panic!("neither side sent {alert:?}"),
            Ok(_) => {}
            Err(OpenError::PeerMisbehaved(PeerMisbehaved::TooManyRecordsWithoutData)) => return Err(Tired),
            Err(error) => panic!("an honest record is refused: {error}"),
        }
        Ok(true)
    }
}

fn pattern(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
