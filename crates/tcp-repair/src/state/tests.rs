#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

type Change = fn(&mut Fields);

fn example() -> Fields {
    Fields {
        local: "192.0.2.100:443".parse().unwrap(),
        remote: "198.51.100.7:50000".parse().unwrap(),
        read: Bytes { first: u32::MAX - 1, bytes: b"unread".to_vec() },
        write: Bytes { first: 7, bytes: b"unacknowledged".to_vec() },
        unsent_len: 3,
        segment_len: 1460,
        window_scales: Some((7, 10)),
        sack: true,
        timestamp: Some(4_000_000_000),
        window: Window {
            sent_changed_at: u32::MAX,
            sent_len: 60_000,
            sent_len_max: 65_000,
            received_len: 64_000,
            received_announced_at: 2,
            received_clamp: 1 << 20,
        },
        buffers: Buffers { send_len: 1 << 19, receive_len: 1 << 19, locks: 3 },
    }
}

#[test]
fn a_state_comes_back() {
    let state = State(example().check().unwrap());
    assert_eq!(State::decode(&state.encode()), Ok(state.clone()));
    assert_eq!((state.unread(), state.unacknowledged()), (&b"unread"[..], &b"unacknowledged"[..]));
    assert!(!format!("{state:?}").contains("97"), "the contents are in {state:?}");
}

#[test]
fn impossible_states_are_refused() {
    let changes: &[(&str, Change)] = &[
        ("the addresses are of two families", |state| state.remote = "[2001:db8::1]:1".parse().unwrap()),
        ("an address is not global unicast", |state| state.local.set_port(0)),
        ("an address is not global unicast", |state| state.remote = "255.255.255.255:1".parse().unwrap()),
        ("an address is not global unicast", |state| {
            (state.local, state.remote) = ("[fe80::1%2]:1".parse().unwrap(), "[2001:db8::1]:1".parse().unwrap());
        }),
        ("a queue is too long", |state| state.read.bytes = vec![0; QUEUE_LEN_MAX + 1]),
        ("more bytes are unsent than queued", |state| state.unsent_len = 15),
        ("segments have no length", |state| state.segment_len = 0),
        ("a window scale is too large", |state| state.window_scales = Some((0, 15))),
        ("a window is too large", |state| state.window.received_clamp = WINDOW_MAX + 1),
        ("the peer's window is larger than its maximum", |state| state.window.sent_len_max = 59_999),
        ("a window was announced too late", |state| state.window.received_announced_at = 5),
        ("the peer's window was changed outside of ours", |state| state.window.sent_changed_at = 64_005),
        ("a buffer is too large", |state| state.buffers.send_len = 1 << 31),
        ("an unknown buffer is locked", |state| state.buffers.locks = 4),
    ];
    for (why, change) in changes {
        let mut state = example();
        change(&mut state);
        let encoded = State(state).encode();
        let refused =
            if encoded.len() > ENCODED_LEN_MAX { DecodeError::Malformed } else { DecodeError::Impossible(why) };
        assert_eq!(State::decode(&encoded), Err(refused));
    }
}

#[test]
fn other_versions_and_lengths_are_refused() {
    let mut encoded = State(example()).encode();
    for len in 1..encoded.len() {
        assert_eq!(State::decode(&encoded[..len]), Err(DecodeError::Malformed));
    }
    assert_eq!(State::decode(&[]), Err(DecodeError::Malformed));
    encoded.push(0);
    assert_eq!(State::decode(&encoded), Err(DecodeError::Malformed));
    encoded[0] = 2;
    assert_eq!(State::decode(&encoded), Err(DecodeError::Version(2)));
}

proptest! {
    #[test]
    fn any_bytes_decode_or_fail(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = State::decode(&bytes);
        if let Some(version) = bytes.first_mut() {
            *version = VERSION;
        }
        if let Ok(state) = State::decode(&bytes) {
            prop_assert_eq!(State::decode(&state.encode()), Ok(state));
        }
    }

    #[test]
    fn changed_bytes_decode_or_fail(changes in proptest::collection::vec((0..90_usize, any::<u8>()), 1..4)) {
        let mut encoded = State(example()).encode();
        for (at, value) in changes {
            if let Some(byte) = encoded.get_mut(at) {
                *byte = value;
            }
        }
        if let Ok(state) = State::decode(&encoded) {
            prop_assert_eq!(State::decode(&state.encode()), Ok(state));
        }
    }
}
