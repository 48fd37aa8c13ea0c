//! The state of a connection as bytes, at any byte of the conversation.
//!
//! ```text
//! format         u8      1
//! side           u8      0 client, 1 server
//! exchange       u8      bits, below
//! informational  u8      client: the informational responses so far
//! receiving      u8      0 idle (client), 1 head, 2 complete, 3 stopped, from 4 content, below
//!   number       u64     scanned bytes of a head or trailer section, or bytes to come, or the size of a chunk
//!   digits       u8      digits of the size
//!   extensions   u32     bytes of chunk extensions
//! sending        u8      0 idle, 1 response due (server), 2 complete, 3 stopped (client), 4 length, 5 chunks, 6 until close
//!   number       u64     bytes to come
//! ```
//!
//! Numbers are big-endian. What a state does not need is 0. The bytes of a message that were not consumed yet are the
//! caller's to export.

use crate::client::{self, Client};
use crate::content::{Control, Decoder, Encoder, Stage};
use crate::fault::ImportError;
use crate::head::HeadEnd;
use crate::limits::{EXTENSION_BYTES_MAX, INFORMATIONAL_MAX, Limits, SIZE_DIGITS_MAX};
use crate::server::{self, Server};

/// The length of an exported state, in bytes.
pub const STATE_LEN: usize = 27;

impl Server {
    /// Appends the state to `out`.
    pub fn export(&self, out: &mut Vec<u8>) {
        let server::Exchange { is_head, is_http10, takes_trailers, is_continue_due, asks_upgrade, is_tunnel, closes } =
            self.exchange;
        let flags =
            [is_head, is_http10, takes_trailers, is_continue_due, asks_upgrade, is_tunnel, closes, self.is_closing];
        let receiving = match self.receiving {
            server::Receiving::Head(end) => Received { tag: HEAD, number: end.scanned() as u64, ..Received::default() },
            server::Receiving::Content(decoder) => content(decoder),
            server::Receiving::Complete => Received { tag: COMPLETE, ..Received::default() },
            server::Receiving::Stopped => Received { tag: STOPPED, ..Received::default() },
        };
        let sending = match self.sending {
            server::Sending::Idle => (IDLE, 0),
            server::Sending::Due => (DUE, 0),
            server::Sending::Content(encoder) => sent(encoder),
            server::Sending::Complete => (COMPLETE, 0),
        };
        State { side: SERVER, exchange: bits(flags), informational: 0, receiving, sending }.write(out);
    }

    /// Makes a connection from [`Server::export`]. The input that was not consumed then has to be given again.
    pub fn import(state: &[u8], limits: Limits) -> Result<Self, ImportError> {
        let State { exchange, informational, receiving, sending, .. } = State::read(state, SERVER)?;
        let flag = |index: u8| exchange & 1 << index != 0;
        let exchange = server::Exchange {
            is_head: flag(0),
            is_http10: flag(1),
            takes_trailers: flag(2),
            is_continue_due: flag(3),
            asks_upgrade: flag(4),
            is_tunnel: flag(5),
            closes: flag(6),
        };
        let sending = match sending {
            (IDLE, 0) => server::Sending::Idle,
            (DUE, 0) => server::Sending::Due,
            (COMPLETE, 0) => server::Sending::Complete,
            sent => server::Sending::Content(encoder(sent)?),
        };
        let receiving = match receiving {
            Received { tag: HEAD, number, digits: 0, extension_bytes: 0 } => {
                server::Receiving::Head(head_end(number, limits)?)
            }
            Received { tag: COMPLETE, number: 0, digits: 0, extension_bytes: 0 } => server::Receiving::Complete,
            Received { tag: STOPPED, number: 0, digits: 0, extension_bytes: 0 } => server::Receiving::Stopped,
            received => server::Receiving::Content(decoder(received, limits)?),
        };
        let is_between = matches!(receiving, server::Receiving::Head(_));
        let is_possible = match sending {
            server::Sending::Idle => is_between || receiving == server::Receiving::Stopped,
            _ => !is_between,
        };
        if !is_possible || informational > 0 {
            return Err(ImportError::Impossible("sending"));
        }
        Ok(Self { limits, receiving, sending, exchange, is_closing: flag(7) })
    }
}

impl Client {
    /// Appends the state to `out`.
    pub fn export(&self, out: &mut Vec<u8>) {
        let client::Exchange { is_head, asks_upgrade, is_tunnel, closes, informational } = self.exchange;
        let flags = [is_head, asks_upgrade, is_tunnel, closes, false, false, false, false];
        let receiving = match self.receiving {
            client::Receiving::Idle => Received::default(),
            client::Receiving::Head(end) => Received { tag: HEAD, number: end.scanned() as u64, ..Received::default() },
            client::Receiving::Content(decoder) => content(decoder),
            client::Receiving::Complete => Received { tag: COMPLETE, ..Received::default() },
            client::Receiving::Stopped => Received { tag: STOPPED, ..Received::default() },
        };
        let sending = match self.sending {
            client::Sending::Idle => (IDLE, 0),
            client::Sending::Content(encoder) => sent(encoder),
            client::Sending::Complete => (COMPLETE, 0),
            client::Sending::Stopped => (STOPPED, 0),
        };
        State { side: CLIENT, exchange: bits(flags), informational, receiving, sending }.write(out);
    }

    /// Makes a connection from [`Client::export`]. The input that was not consumed then has to be given again.
    pub fn import(state: &[u8], limits: Limits) -> Result<Self, ImportError> {
        let State { exchange: bits, informational, receiving, sending, .. } = State::read(state, CLIENT)?;
        if bits >> 4 != 0 || informational > INFORMATIONAL_MAX {
            return Err(ImportError::Impossible("exchange"));
        }
        let flag = |index: u8| bits & 1 << index != 0;
        let exchange = client::Exchange {
            is_head: flag(0),
            asks_upgrade: flag(1),
            is_tunnel: flag(2),
            closes: flag(3),
            informational,
        };
        let sending = match sending {
            (IDLE, 0) => client::Sending::Idle,
            (COMPLETE, 0) => client::Sending::Complete,
            (STOPPED, 0) => client::Sending::Stopped,
            sent => client::Sending::Content(encoder(sent)?),
        };
        let receiving = match receiving {
            Received { tag: IDLE, number: 0, digits: 0, extension_bytes: 0 } => client::Receiving::Idle,
            Received { tag: HEAD, number, digits: 0, extension_bytes: 0 } => {
                client::Receiving::Head(head_end(number, limits)?)
            }
            Received { tag: COMPLETE, number: 0, digits: 0, extension_bytes: 0 } => client::Receiving::Complete,
            Received { tag: STOPPED, number: 0, digits: 0, extension_bytes: 0 } => client::Receiving::Stopped,
            received => client::Receiving::Content(decoder(received, limits)?),
        };
        let is_possible = match sending {
            client::Sending::Idle => matches!(receiving, client::Receiving::Idle | client::Receiving::Stopped),
            _ => receiving != client::Receiving::Idle,
        };
        if is_possible {
            Ok(Self { limits, sending, receiving, exchange })
        } else {
            Err(ImportError::Impossible("sending"))
        }
    }
}

/// The fields of an exported state.
struct State {
    side: u8,
    exchange: u8,
    informational: u8,
    receiving: Received,
    sending: (u8, u64),
}

#[derive(Clone, Copy, Default)]
struct Received {
    tag: u8,
    number: u64,
    digits: u8,
    extension_bytes: u32,
}

const FORMAT: u8 = 1;
const CLIENT: u8 = 0;
const SERVER: u8 = 1;

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const DUE: u8 = 1;
const COMPLETE: u8 = 2;
const STOPPED: u8 = 3;

const LENGTH: u8 = 4;
const CHUNKED: u8 = 5;
const UNTIL_CLOSE: u8 = 6;

const DATA: u8 = 7;
const DATA_CR: u8 = 8;
const DATA_LF: u8 = 9;
const DIGITS: u8 = 10;
const PADDING: u8 = 11;
const EXTENSION: u8 = 12;
const SIZE_LF: u8 = 13;
const TRAILERS: u8 = 14;

impl State {
    fn write(&self, out: &mut Vec<u8>) {
        let Received { tag, number, digits, extension_bytes } = self.receiving;
        out.extend_from_slice(&[FORMAT, self.side, self.exchange, self.informational, tag]);
        out.extend_from_slice(&number.to_be_bytes());
        out.push(digits);
        out.extend_from_slice(&extension_bytes.to_be_bytes());
        out.push(self.sending.0);
        out.extend_from_slice(&self.sending.1.to_be_bytes());
    }

    fn read(state: &[u8], side: u8) -> Result<Self, ImportError> {
        match state {
            [FORMAT, ..] | [] => {}
            [format, ..] => return Err(ImportError::UnknownFormat(*format)),
        }
        let state: &[u8; STATE_LEN] = state.try_into().map_err(|_| ImportError::Len(state.len()))?;
        if state[1] != side {
            return Err(ImportError::Impossible("side"));
        }
        let u64_at = |at: usize| state[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let extension_bytes = u32::from_be_bytes([state[14], state[15], state[16], state[17]]);
        Ok(Self {
            side,
            exchange: state[2],
            informational: state[3],
            receiving: Received { tag: state[4], number: u64_at(5), digits: state[13], extension_bytes },
            sending: (state[18], u64_at(19)),
        })
    }
}

fn bits(flags: [bool; 8]) -> u8 {
    flags.iter().rev().fold(0, |bits, flag| bits << 1 | u8::from(*flag))
}

fn head_end(scanned: u64, limits: Limits) -> Result<HeadEnd, ImportError> {
    let scanned = usize::try_from(scanned).ok().filter(|scanned| *scanned <= limits.head_bytes_max);
    scanned.map(HeadEnd::at).ok_or(ImportError::Impossible("receiving"))
}

fn content(decoder: Decoder) -> Received {
    let (tag, number, digits) = match decoder.stage {
        Stage::Length(left) => (LENGTH, left, 0),
        Stage::UntilClose => (UNTIL_CLOSE, 0, 0),
        Stage::Data(left) => (DATA, left, 0),
        Stage::Control(Control::Size) => (CHUNKED, 0, 0),
        Stage::Control(Control::Digits { size, digits }) => (DIGITS, size, digits),
        Stage::Control(Control::Padding { size }) => (PADDING, size, 0),
        Stage::Control(Control::Extension { size }) => (EXTENSION, size, 0),
        Stage::Control(Control::SizeLf { size }) => (SIZE_LF, size, 0),
        Stage::Control(Control::DataCr) => (DATA_CR, 0, 0),
        Stage::Control(Control::DataLf) => (DATA_LF, 0, 0),
        Stage::Trailers(end) => (TRAILERS, end.scanned() as u64, 0),
        // A connection whose content is complete is in another state.
        Stage::Done => (COMPLETE, 0, 0),
    };
    Received { tag, number, digits, extension_bytes: decoder.extension_bytes }
}

fn decoder(received: Received, limits: Limits) -> Result<Decoder, ImportError> {
    let Received { tag, number, digits, extension_bytes } = received;
    let stage = match (tag, number, digits) {
        (LENGTH, 1.., 0) => Stage::Length(number),
        (UNTIL_CLOSE, 0, 0) => Stage::UntilClose,
        (DATA, 1.., 0) => Stage::Data(number),
        (CHUNKED, 0, 0) => Stage::Control(Control::Size),
        (DIGITS, size, 1..=SIZE_DIGITS_MAX) if has_digits(size, digits) => {
            Stage::Control(Control::Digits { size, digits })
        }
        (PADDING, size, 0) => Stage::Control(Control::Padding { size }),
        (EXTENSION, size, 0) => Stage::Control(Control::Extension { size }),
        (SIZE_LF, size, 0) => Stage::Control(Control::SizeLf { size }),
        (DATA_CR, 0, 0) => Stage::Control(Control::DataCr),
        (DATA_LF, 0, 0) => Stage::Control(Control::DataLf),
        (TRAILERS, scanned, 0) => Stage::Trailers(head_end(scanned, limits)?),
        _ => return Err(ImportError::Impossible("receiving")),
    };
    let has_extensions = !matches!(stage, Stage::Length(_) | Stage::UntilClose);
    if extension_bytes > if has_extensions { EXTENSION_BYTES_MAX } else { 0 } {
        return Err(ImportError::Impossible("extensions"));
    }
    Ok(Decoder { stage, extension_bytes })
}

/// Whether a size can be written with this many hexadecimal digits.
fn has_digits(size: u64, digits: u8) -> bool {
    digits >= SIZE_DIGITS_MAX || size >> (4 * digits) == 0
}

fn sent(encoder: Encoder) -> (u8, u64) {
    match encoder {
        Encoder::Length(left) => (LENGTH, left),
        Encoder::Chunked => (CHUNKED, 0),
        Encoder::UntilClose => (UNTIL_CLOSE, 0),
        // A connection whose content is complete is in another state.
        Encoder::Done => (COMPLETE, 0),
    }
}

fn encoder(sent: (u8, u64)) -> Result<Encoder, ImportError> {
    match sent {
        (LENGTH, left) => Ok(Encoder::Length(left)),
        (CHUNKED, 0) => Ok(Encoder::Chunked),
        (UNTIL_CLOSE, 0) => Ok(Encoder::UntilClose),
        _ => Err(ImportError::Impossible("sending")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    fn exported(server: &Server) -> Vec<u8> {
        let mut state = Vec::new();
        server.export(&mut state);
        state
    }

    #[test]
    fn states_have_one_length_and_one_form() {
        let state = exported(&Server::new(Limits::default()));
        assert_eq!(state.len(), STATE_LEN);
        assert_eq!(state, [&[1, 1, 0, 0, HEAD][..], &[0; 22]].concat());
        let mut state = Vec::new();
        Client::new(Limits::default()).export(&mut state);
        assert_eq!(state, [&[1][..], &[0; 26]].concat());
    }

    #[test]
    fn impossible_states_are_refused() {
        let state = exported(&Server::new(Limits::default()));
        let import = |at: usize, value: u8| {
            let mut state = state.clone();
            state[at] = value;
            Server::import(&state, Limits::default()).map(drop)
        };
        assert_eq!(Server::import(&state[1..], Limits::default()).unwrap_err(), ImportError::Len(26));
        assert_eq!(Server::import(&[], Limits::default()).unwrap_err(), ImportError::Len(0));
        assert_eq!(import(0, 2), Err(ImportError::UnknownFormat(2)));
        assert_eq!(import(1, 0), Err(ImportError::Impossible("side")));
        assert_eq!(import(3, 1), Err(ImportError::Impossible("sending")));
        assert_eq!(import(4, IDLE), Err(ImportError::Impossible("receiving")));
        assert_eq!(import(4, 15), Err(ImportError::Impossible("receiving")));
        assert_eq!(import(5, 1), Err(ImportError::Impossible("receiving")));
        assert_eq!(import(12, 1), Ok(()));
        assert_eq!(import(13, 1), Err(ImportError::Impossible("receiving")));
        assert_eq!(import(17, 1), Err(ImportError::Impossible("receiving")));
        assert_eq!(import(18, COMPLETE), Err(ImportError::Impossible("sending")));
        assert_eq!(import(18, STOPPED), Err(ImportError::Impossible("sending")));
        assert_eq!(import(26, 1), Err(ImportError::Impossible("sending")));
    }

    proptest! {
        /// What is imported is exported alike, so each state has one form.
        #[test]
        fn imports_are_exported_alike(
            side in 0u8..2, exchange in any::<u8>(), informational in 0u8..18, receiving in 0u8..16,
            number in prop_oneof![0u64..20, any::<u64>()], digits in 0u8..18, extensions in 0u32..3, sending in 0u8..8,
            left in 0u64..3,
        ) {
            let mut state = Vec::new();
            let receiving = Received { tag: receiving, number, digits, extension_bytes: extensions };
            State { side, exchange, informational, receiving, sending: (sending, left) }.write(&mut state);
            let mut again = Vec::new();
            if let Ok(server) = Server::import(&state, Limits::default()) {
                server.export(&mut again);
                prop_assert_eq!(&again, &state);
            }
            again.clear();
            if let Ok(client) = Client::import(&state, Limits::default()) {
                client.export(&mut again);
                prop_assert_eq!(&again, &state);
            }
        }
    }
}
