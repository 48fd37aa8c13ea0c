//! The state of a connection as bytes, which can move to another machine.
//!
//! ```text
//! format         u8      1
//! side           u8      0 client, 1 server
//! suite          u16     IANA number; it fixes the version and so all lengths below
//! read           u8      0 open, 1 closed, 2 failed
//! write          u8      0 open, 1 closed
//! answers        u8      bit 0: a KeyUpdate is due, bit 1: a no_renegotiation is due
//! dataless       u8      records opened since the last one with data
//! messages       9       a handshake message of which a part has come: header, header_len u8, body_left u32
//! tx, rx         each:
//!   sequence     u64
//!   secret       TLS 1.3: the traffic secret; TLS 1.2: the key, then the IV
//! ```
//!
//! Numbers are big-endian. 89 to 129 bytes.

use zeroize::Zeroizing;

use crate::connection::{Answers, DATALESS_RECORDS_MAX, ReadState, WriteState};
use crate::keys::IV_LEN;
use crate::messages::MessageReader;
use crate::protection::Protection;
use crate::{CipherSuite, Connection, Direction, DirectionSecret, ImportError, Secrets, Side, Version};

/// A connection that cannot seal or open, and its state.
///
/// The state is imported elsewhere and this copy is dropped, or this copy is thawed because the move did not happen.
/// Never both: two connections that continue from one state would use nonces twice.
pub struct Fenced {
    connection: Connection,
    state: Zeroizing<Vec<u8>>,
}

impl Fenced {
    pub(crate) fn new(connection: Connection) -> Self {
        let state = export(&connection);
        Self { connection, state }
    }

    /// The state, for [`Connection::import`]. It contains the connection's secrets.
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// Ends the fence. The caller makes sure that the state was not imported.
    pub fn thaw(self) -> Connection {
        self.connection
    }
}

impl std::fmt::Debug for Fenced {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fenced").field(&self.connection).finish()
    }
}

impl Connection {
    /// Ends sealing and opening, enforced by the type, until the state is thawed or imported.
    pub fn fence(self) -> Fenced {
        Fenced::new(self)
    }

    /// Makes a connection from [`Fenced::state`].
    ///
    /// Refuses a state that is too long, too short or impossible. Allocates only lengths that the suite determines.
    pub fn import(state: &[u8]) -> Result<Self, ImportError> {
        let mut reader = Reader(state);
        let format = reader.u8()?;
        if format != FORMAT {
            return Err(ImportError::UnknownFormat(format));
        }
        let side = side_from(reader.u8()?)?;
        let suite = u16::from_be_bytes(reader.array()?);
        let suite = CipherSuite::from_iana(suite).ok_or(ImportError::UnknownSuite(suite))?;
        let read = read_state_from(reader.u8()?)?;
        let write = write_state_from(reader.u8()?)?;
        let answers = answers_from(reader.u8()?, suite.version())?;
        let dataless_records = reader.u8()?;
        if dataless_records > DATALESS_RECORDS_MAX {
            return Err(ImportError::Impossible("dataless"));
        }
        let messages = MessageReader::import(side, suite.version(), reader.array()?);
        let messages = messages.ok_or(ImportError::Impossible("messages"))?;
        let tx = reader.direction(suite)?;
        let rx = reader.direction(suite)?;
        reader.end()?;
        let connection = Self::with_write(Secrets { side, suite, tx, rx }, write)?;
        Ok(Self { read, messages, answers, dataless_records, ..connection })
    }
}

const FORMAT: u8 = 1;
const ANSWER_KEY_UPDATE: u8 = 1;
const ANSWER_NO_RENEGOTIATION: u8 = 2;

/// The longest state. It is allocated at once: growing would leave copies of secrets in memory.
const STATE_LEN_MAX: usize = 8 + MessageReader::EXPORT_LEN + 2 * (8 + 48);

fn export(connection: &Connection) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(STATE_LEN_MAX));
    let [suite_high, suite_low] = connection.suite.iana().to_be_bytes();
    out.extend_from_slice(&[
        FORMAT,
        match connection.side {
            Side::Client => 0,
            Side::Server => 1,
        },
        suite_high,
        suite_low,
        match connection.read {
            ReadState::Open => 0,
            ReadState::Closed => 1,
            ReadState::Failed => 2,
        },
        match connection.write {
            WriteState::Open => 0,
            WriteState::Closed => 1,
        },
        answers_byte(connection.answers),
        connection.dataless_records,
    ]);
    out.extend_from_slice(&connection.messages.export());
    export_direction(&connection.tx, &mut out);
    export_direction(&connection.rx, &mut out);
    debug_assert!(out.len() <= STATE_LEN_MAX);
    out
}

fn export_direction(direction: &Protection, out: &mut Vec<u8>) {
    out.extend_from_slice(&direction.sequence().to_be_bytes());
    match direction.secret() {
        DirectionSecret::Tls13(secret) => out.extend_from_slice(secret),
        DirectionSecret::Tls12 { key, iv } => {
            out.extend_from_slice(key);
            out.extend_from_slice(&iv[..]);
        }
    }
}

fn side_from(byte: u8) -> Result<Side, ImportError> {
    match byte {
        0 => Ok(Side::Client),
        1 => Ok(Side::Server),
        _ => Err(ImportError::Impossible("side")),
    }
}

fn read_state_from(byte: u8) -> Result<ReadState, ImportError> {
    match byte {
        0 => Ok(ReadState::Open),
        1 => Ok(ReadState::Closed),
        2 => Ok(ReadState::Failed),
        _ => Err(ImportError::Impossible("read")),
    }
}

fn write_state_from(byte: u8) -> Result<WriteState, ImportError> {
    match byte {
        0 => Ok(WriteState::Open),
        1 => Ok(WriteState::Closed),
        _ => Err(ImportError::Impossible("write")),
    }
}

fn answers_byte(answers: Answers) -> u8 {
    u8::from(answers.key_update) * ANSWER_KEY_UPDATE + u8::from(answers.no_renegotiation) * ANSWER_NO_RENEGOTIATION
}

fn answers_from(byte: u8, version: Version) -> Result<Answers, ImportError> {
    let possible = match version {
        Version::Tls12 => ANSWER_NO_RENEGOTIATION,
        Version::Tls13 => ANSWER_KEY_UPDATE,
    };
    if byte & !possible != 0 {
        return Err(ImportError::Impossible("answers"));
    }
    Ok(Answers { key_update: byte & ANSWER_KEY_UPDATE != 0, no_renegotiation: byte & ANSWER_NO_RENEGOTIATION != 0 })
}

/// The bytes that are not imported yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes(&mut self, len: usize) -> Result<&[u8], ImportError> {
        let (front, rest) = self.0.split_at_checked(len).ok_or(ImportError::Truncated)?;
        self.0 = rest;
        Ok(front)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ImportError> {
        let (front, rest) = self.0.split_first_chunk().ok_or(ImportError::Truncated)?;
        self.0 = rest;
        Ok(*front)
    }

    fn u8(&mut self) -> Result<u8, ImportError> {
        self.array().map(|[byte]| byte)
    }

    fn direction(&mut self, suite: CipherSuite) -> Result<Direction, ImportError> {
        let sequence = u64::from_be_bytes(self.array()?);
        let secret = match suite.version() {
            Version::Tls13 => DirectionSecret::Tls13(self.secret(suite.hash().output_len())?),
            Version::Tls12 => DirectionSecret::Tls12 {
                key: self.secret(suite.aead().key_len())?,
                iv: Zeroizing::new(self.array::<IV_LEN>()?),
            },
        };
        Ok(Direction { sequence, secret })
    }

    fn secret(&mut self, len: usize) -> Result<Zeroizing<Vec<u8>>, ImportError> {
        Ok(Zeroizing::new(self.bytes(len)?.to_vec()))
    }

    fn end(self) -> Result<(), ImportError> {
        if self.0.is_empty() { Ok(()) } else { Err(ImportError::TrailingBytes(self.0.len())) }
    }
}
