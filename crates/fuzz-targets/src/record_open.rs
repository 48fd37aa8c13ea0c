//! A peer with the keys and arbitrary data: bytes that are not records, records that are not sealed, and any content
//! under any type, sealed. Nothing panics, and after an error nothing more is opened.

use crate::connections::{pair, seal_as_peer, suite};
use arbitrary::Arbitrary;
use watari_record::{Connection, OpenError, Opened};

#[derive(Arbitrary, Debug)]
pub(crate) struct Input<'a> {
    suite: u8,
    is_client: bool,
    sent: Vec<Sent<'a>>,
}

#[derive(Arbitrary, Debug)]
enum Sent<'a> {
    Raw(&'a [u8]),
    Sealed {
        content_type: u8,
        plaintext: &'a [u8],
        padding: u8,
    },
    /// A handshake message or an alert, which random bytes rarely form.
    Short {
        is_alert: bool,
        bytes: [u8; 5],
        len: u8,
    },
    /// The connection moves.
    Moved,
}

pub(crate) fn run(input: Input<'_>) {
    let suite = suite(input.suite);
    let (client, server) = pair(suite, 0);
    let mut connection = if input.is_client { client } else { server };
    for sent in input.sent {
        let fenced = connection.fence();
        let state = fenced.state().to_vec();
        connection = fenced.thaw();
        let mut record = match sent {
            Sent::Raw(bytes) => bytes.to_vec(),
            Sent::Sealed { content_type, plaintext, padding } => {
                seal_as_peer(suite, &state, content_type, plaintext, padding.into())
            }
            Sent::Short { is_alert, bytes, len } => {
                let len = usize::from(len) % (bytes.len() + 1);
                seal_as_peer(suite, &state, if is_alert { 21 } else { 22 }, &bytes[..len], 0)
            }
            Sent::Moved => {
                connection = Connection::import(&state).expect("what was exported can be imported");
                continue;
            }
        };
        if open(&mut connection, &mut record).is_err() {
            assert!(matches!(connection.open(&mut record), Err(OpenError::AlreadyFailed)));
        }
        let mut out = Vec::new();
        let due = connection.answers_due();
        if connection.seal_answers(&mut out).is_ok() {
            assert_eq!(due, !out.is_empty());
        }
        assert!(!connection.answers_due());
    }
}

fn open(connection: &mut Connection, record: &mut [u8]) -> Result<(), OpenError> {
    let Some(header) = connection.header(record)? else { return Ok(()) };
    let len = header.record_len().min(record.len());
    if let Opened::Data(range) = connection.open(&mut record[..len])? {
        assert!(!range.is_empty() && range.end <= len);
    }
    Ok(())
}
