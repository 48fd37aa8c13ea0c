//! Connections whose state moves.

use proptest::prelude::*;

use super::*;
use crate::connection::DATALESS_RECORDS_MAX;
use crate::{AlertDescription, ImportError, PeerMisbehaved, SecretsError};

/// Moves `connection` to another machine.
fn moved(connection: Connection) -> Connection {
    let fenced = connection.fence();
    Connection::import(fenced.state()).unwrap()
}

/// The format is a contract between versions: these bytes may change only with the format's number.
#[test]
fn the_format_is_what_it_was() {
    let fenced = connection(TLS13, Side::Server, 1, 0x0102_0304).fence();
    let header = [1, 1, 0x13, 0x01, 0, 0, 0, 0];
    let messages = [0; 9];
    let tx = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &[0x5e; 32]].concat();
    let rx = [&[0, 0, 0, 0, 1, 2, 3, 4][..], &[0xc1; 32]].concat();
    assert_eq!(fenced.state(), [&header[..], &messages, &tx, &rx].concat());

    let suite = CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256;
    let mut client = connection(suite, Side::Client, 2, 3);
    client.seal_close_notify(&mut Vec::new()).unwrap();
    let fenced = client.fence();
    let header = [1, 0, 0xcc, 0xa8, 0, 1, 0, 0];
    let tx = [&[0, 0, 0, 0, 0, 0, 0, 3][..], &[0xc1; 32], &[0x3e; 12]].concat();
    let rx = [&[0, 0, 0, 0, 0, 0, 0, 3][..], &[0x5e; 32], &[0xa1; 12]].concat();
    assert_eq!(fenced.state(), [&header[..], &messages, &tx, &rx].concat());
}

#[test]
fn a_thawed_connection_goes_on() {
    let mut rig = Rig::new(TLS13);
    rig.server = rig.server.fence().thaw();
    assert_eq!(rig.client_sends_data(b"data"), Ok(Opened::Data(5..9)));
}

#[test]
fn a_move_forgives_no_flood() {
    let mut rig = Rig::new(TLS13);
    for _ in 0..DATALESS_RECORDS_MAX {
        rig.client_sends_data(b"").unwrap();
        rig.server = moved(rig.server);
    }
    let flood = OpenError::PeerMisbehaved(PeerMisbehaved::TooManyRecordsWithoutData);
    assert_eq!(rig.client_sends_data(b""), Err(flood));
}

#[test]
fn a_state_that_is_cut_short_or_goes_on_is_refused() {
    for suite in CipherSuite::ALL {
        let fenced = connection(suite, Side::Server, 5, 6).fence();
        let state = fenced.state();
        for len in 0..state.len() {
            assert_eq!(Connection::import(&state[..len]).unwrap_err(), ImportError::Truncated);
        }
        let longer = [state, &[0; 3]].concat();
        assert_eq!(Connection::import(&longer).unwrap_err(), ImportError::TrailingBytes(3));
    }
}

#[test]
fn impossible_fields_are_refused_by_name() {
    let fenced = connection(TLS13, Side::Server, 5, 6).fence();
    let import_with = |at: usize, value: u8| {
        let mut state = fenced.state().to_vec();
        state[at] = value;
        Connection::import(&state).unwrap_err()
    };
    assert_eq!(import_with(0, 2), ImportError::UnknownFormat(2));
    assert_eq!(import_with(1, 2), ImportError::Impossible("side"));
    assert_eq!(import_with(3, 0x09), ImportError::UnknownSuite(0x1309));
    assert_eq!(import_with(4, 3), ImportError::Impossible("read"));
    assert_eq!(import_with(5, 2), ImportError::Impossible("write"));
    assert_eq!(import_with(6, 2), ImportError::Impossible("answers"));
    assert_eq!(import_with(7, 33), ImportError::Impossible("dataless"));
    assert_eq!(import_with(8, 1), ImportError::Impossible("messages"));
    assert_eq!(import_with(3, 0x02), ImportError::Truncated);
    let too_high = ImportError::Secrets(SecretsError::SequenceTooHigh((1 << 56) + 5));
    assert_eq!(import_with(17, 1), too_high);
}

/// The actions of both ends.
#[derive(Debug, Clone)]
enum Step {
    Data {
        from: Side,
        len: usize,
    },
    KeyUpdate {
        from: Side,
        request_peer: bool,
    },
    /// The first bytes of a handshake message, which the next step completes or violates.
    PartOfKeyUpdate {
        from: Side,
        range: std::ops::Range<usize>,
    },
    Answers {
        from: Side,
    },
    Alert {
        from: Side,
        description: AlertDescription,
    },
    Damaged {
        from: Side,
    },
}

/// The observations of the other end and of the network.
#[derive(Debug, Default, PartialEq, Eq)]
struct Transcript {
    records: Vec<u8>,
    sealed: Vec<String>,
    opened: Vec<Result<Opened, OpenError>>,
}

/// Runs `steps`. Moves both ends before each step for which `moves` is true.
fn run(suite: CipherSuite, steps: &[Step], moves: &[bool]) -> Transcript {
    let mut rig = Rig::new(suite);
    let mut transcript = Transcript::default();
    for (step, moves) in steps.iter().zip(moves) {
        if *moves {
            rig = Rig { client: moved(rig.client), server: moved(rig.server) };
        }
        take_step(&mut rig, step, &mut transcript);
    }
    transcript
}

fn take_step(rig: &mut Rig, step: &Step, transcript: &mut Transcript) {
    let (Step::Data { from, .. }
    | Step::KeyUpdate { from, .. }
    | Step::PartOfKeyUpdate { from, .. }
    | Step::Answers { from }
    | Step::Alert { from, .. }
    | Step::Damaged { from }) = step;
    let (sender, receiver) = match from {
        Side::Client => (&mut rig.client, &mut rig.server),
        Side::Server => (&mut rig.server, &mut rig.client),
    };
    let mut records = Vec::new();
    let sealed = match step {
        Step::Data { len, .. } => {
            format!("{:?}", sender.seal(&[IoSlice::new(&vec![7; *len])], usize::MAX, &mut records))
        }
        Step::KeyUpdate { request_peer, .. } => format!("{:?}", sender.update_keys(*request_peer, &mut records)),
        Step::PartOfKeyUpdate { range, .. } => {
            let part = &[24, 0, 0, 1, 1][range.clone()];
            sender.tx.seal(ContentType::Handshake, part.len(), |out| out.extend_from_slice(part), &mut records);
            String::new()
        }
        Step::Answers { .. } => format!("{:?}", sender.seal_answers(&mut records)),
        Step::Alert { description, .. } => format!("{:?}", sender.seal_alert(*description, &mut records)),
        Step::Damaged { .. } => {
            let sealed = sender.seal(&[IoSlice::new(b"data")], usize::MAX, &mut records);
            if let Some(last) = records.last_mut() {
                *last ^= 1;
            }
            format!("{sealed:?}")
        }
    };
    transcript.sealed.push(sealed);
    transcript.records.extend_from_slice(&records);
    let mut rest = &mut records[..];
    while let Ok(Some(header)) = crate::RecordHeader::parse(receiver.version(), rest) {
        let (record, behind) = rest.split_at_mut(header.record_len());
        transcript.opened.push(receiver.open(record));
        rest = behind;
    }
}

fn any_side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Client), Just(Side::Server)]
}

fn any_step() -> impl Strategy<Value = Step> {
    let part = || (0..=5_usize, 0..=5_usize).prop_map(|(a, b)| a.min(b)..a.max(b));
    prop_oneof![
        24 => (any_side(), 0..40_000_usize).prop_map(|(from, len)| Step::Data { from, len }),
        12 => (any_side(), any::<bool>()).prop_map(|(from, request_peer)| Step::KeyUpdate { from, request_peer }),
        8 => any_side().prop_map(|from| Step::Answers { from }),
        2 => (any_side(), part()).prop_map(|(from, range)| Step::PartOfKeyUpdate { from, range }),
        1 => (any_side(), any::<u8>())
            .prop_map(|(from, number)| Step::Alert { from, description: AlertDescription(number) }),
        1 => any_side().prop_map(|from| Step::Damaged { from }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn moves_make_no_difference(
        suite in prop::sample::select(&CipherSuite::ALL[..]),
        steps in prop::collection::vec((any_step(), any::<bool>()), 1..30),
    ) {
        let (steps, moves): (Vec<Step>, Vec<bool>) = steps.into_iter().unzip();
        let stayed = run(suite, &steps, &vec![false; steps.len()]);
        prop_assert_eq!(stayed, run(suite, &steps, &moves));
    }

    #[test]
    fn a_changed_state_is_refused_or_is_another_state(
        suite in prop::sample::select(&CipherSuite::ALL[..]),
        at in any::<prop::sample::Index>(),
        value in any::<u8>(),
    ) {
        let fenced = connection(suite, Side::Client, 5, 6).fence();
        let mut state = fenced.state().to_vec();
        let at = at.index(state.len());
        state[at] = value;
        if let Ok(imported) = Connection::import(&state) {
            let fenced_again = imported.fence();
            prop_assert_eq!(fenced_again.state(), &state[..]);
        }
    }

    #[test]
    fn random_bytes_are_no_state_and_no_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Some(format) = bytes.first_mut() {
            *format = 1;
        }
        let refused = Connection::import(&bytes);
        prop_assert!(refused.is_err());
    }

    #[test]
    fn random_bytes_are_no_record_and_no_panic(
        suite in prop::sample::select(&CipherSuite::ALL[..]),
        payload in prop::collection::vec(any::<u8>(), 0..300),
        mut header in any::<[u8; 5]>(),
        header_is_good in any::<bool>(),
    ) {
        if header_is_good {
            let [high, low] = (payload.len() as u16).to_be_bytes();
            header = [23, 3, 3, high, low];
        }
        let mut record = [&header[..], &payload].concat();
        prop_assert!(connection(suite, Side::Server, 0, 0).open(&mut record).is_err());
    }
}
