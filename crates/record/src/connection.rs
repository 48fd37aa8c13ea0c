//! A connection after its handshake.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use crate::alert::{LEVEL_FATAL, LEVEL_WARNING};
use crate::messages::{KeyUpdateRequest, MessageReader};
use crate::protection::{OVERHEAD_LEN_MAX, Protection};
use crate::{
    AlertDescription, CipherSuite, ContentType, FRAGMENT_LEN_MAX, OpenError, PeerMisbehaved, RecordHeader, SealError,
    Secrets, SecretsError, Side, Version,
};

/// Seals and opens the records of one TLS connection, from the end of its handshake.
///
/// ```text
///  read side                                        write side
///            close_notify                                      seal_close_notify, seal_alert
///     Open ----------------> Closed                     Open ------------------------------> Closed
///       | fatal alert,                                    | fatal alert received ---------------^
///       | any error
///       +------------------> Failed
/// ```
///
/// After an error on the read side, the write side stays open for the alert of [`OpenError::alert`].
pub struct Connection {
    pub(crate) side: Side,
    pub(crate) suite: CipherSuite,
    pub(crate) tx: Protection,
    pub(crate) rx: Protection,
    pub(crate) read: ReadState,
    pub(crate) write: WriteState,
    pub(crate) messages: MessageReader,
    pub(crate) answers: Answers,
    /// Consecutive records without data, up to the last one opened.
    pub(crate) dataless_records: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    Open,
    Closed,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteState {
    Open,
    Closed,
}

/// Answers that the peer has requested and that are not sealed yet. Any number of requests gets one answer (RFC 8446,
/// section 4.6.3), so that a peer that requests and does not read cannot fill our memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) key_update: bool,
    pub(crate) no_renegotiation: bool,
}

/// The content of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// Application data, in this range of the record. Never empty.
    Data(Range<usize>),
    /// The peer has changed its keys. It may have requested a change of ours: see [`Connection::answers_due`].
    KeyUpdate,
    /// Nothing to do: no data, a fragment of a message, a ticket, a warning, a request to renegotiate (refused: see
    /// [`Connection::answers_due`]), or any record after `close_notify`.
    Ignored,
    /// The peer will send no more. This end may continue to send.
    CloseNotify,
    /// The peer has ended the connection in both directions.
    FatalAlert(AlertDescription),
}

/// The most consecutive records without application data.
pub(crate) const DATALESS_RECORDS_MAX: u8 = 32;

impl Connection {
    /// Continues after a handshake.
    pub fn new(secrets: Secrets) -> Result<Self, SecretsError> {
        Self::with_write(secrets, WriteState::Open)
    }

    /// Like [`Connection::new`]. If the write side is closed, the key may have protected one record more: see
    /// [`Connection::seal_alert`].
    pub(crate) fn with_write(secrets: Secrets, write: WriteState) -> Result<Self, SecretsError> {
        let Secrets { side, suite, tx, rx } = secrets;
        if tx.sequence > suite.aead().records_max() + u64::from(write == WriteState::Closed) {
            return Err(SecretsError::SequenceTooHigh(tx.sequence));
        }
        Ok(Self {
            side,
            suite,
            tx: Protection::new(suite, tx)?,
            rx: Protection::new(suite, rx)?,
            read: ReadState::Open,
            write,
            messages: MessageReader::default(),
            answers: Answers::default(),
            dataless_records: 0,
        })
    }

    pub fn side(&self) -> Side {
        self.side
    }

    pub fn suite(&self) -> CipherSuite {
        self.suite
    }

    pub fn version(&self) -> Version {
        self.suite.version()
    }

    /// The sequence number of the next record that this end seals. It counts the records under a key.
    pub fn tx_sequence(&self) -> u64 {
        self.tx.sequence()
    }
}

/// Opening.
impl Connection {
    /// Reads the header of the next record. `None`: `bytes` are too few. The record is the first
    /// [`RecordHeader::record_len`] bytes.
    /// [`RecordHeader::record_len`] bytes.
    ///
    /// An error is final, as in [`Connection::open`].
    pub fn header(&mut self, bytes: &[u8]) -> Result<Option<RecordHeader>, OpenError> {
        if self.read == ReadState::Failed {
            return Err(OpenError::AlreadyFailed);
        }
        let header = RecordHeader::parse(self.version(), bytes);
        header.map_err(|misbehaved| self.fail(misbehaved.into()))
    }

    /// Opens one complete record, in place.
    ///
    /// After an error nothing more can be opened. The caller seals the alert of [`OpenError::alert`] and closes.
    pub fn open(&mut self, record: &mut [u8]) -> Result<Opened, OpenError> {
        match self.read {
            ReadState::Open => self.open_next(record).map_err(|error| self.fail(error)),
            // RFC 8446, section 6.1: data after a closure alert must be ignored.
            ReadState::Closed => Ok(Opened::Ignored),
            ReadState::Failed => Err(OpenError::AlreadyFailed),
        }
    }

    /// Whether the peer has sent `close_notify`.
    pub fn is_read_closed(&self) -> bool {
        self.read == ReadState::Closed
    }

    /// Whether answers are due. The caller passes them to [`Connection::seal_answers`] soon, without waiting for data
    /// to send along.
    pub fn answers_due(&self) -> bool {
        self.write == WriteState::Open && self.answers != Answers::default()
    }

    fn fail(&mut self, error: OpenError) -> OpenError {
        self.read = ReadState::Failed;
        // The refused content may include half a message, which is no state that can be exported.
        self.messages = MessageReader::default();
        error
    }

    fn open_next(&mut self, record: &mut [u8]) -> Result<Opened, OpenError> {
        let header = RecordHeader::parse(self.version(), record)?.ok_or(OpenError::NotOneRecord)?;
        if header.record_len() != record.len() {
            return Err(OpenError::NotOneRecord);
        }
        let (content_type, plaintext) = self.rx.open(header, record)?;
        if self.messages.is_within_message() && content_type != ContentType::Handshake {
            return Err(PeerMisbehaved::Interleaved.into());
        }
        let content = &record[plaintext.clone()];
        let opened = match content_type {
            ContentType::ApplicationData if content.is_empty() => Opened::Ignored,
            ContentType::ApplicationData => Opened::Data(plaintext),
            ContentType::Handshake => self.handle_handshake(content)?,
            ContentType::Alert => self.handle_alert(content)?,
            ContentType::ChangeCipherSpec => return Err(PeerMisbehaved::ChangeCipherSpec.into()),
        };
        self.count_dataless(&opened)?;
        Ok(opened)
    }

    fn handle_handshake(&mut self, content: &[u8]) -> Result<Opened, PeerMisbehaved> {
        if content.is_empty() {
            return Err(PeerMisbehaved::EmptyFragment);
        }
        let asked = self.messages.read(self.side, self.version(), content)?;
        self.answers.no_renegotiation |= asked.renegotiation;
        let Some(request) = asked.key_update else {
            return Ok(Opened::Ignored);
        };
        self.rx.update();
        self.answers.key_update |= request == KeyUpdateRequest::Requested;
        Ok(Opened::KeyUpdate)
    }

    fn handle_alert(&mut self, content: &[u8]) -> Result<Opened, PeerMisbehaved> {
        let &[level, description] = content else {
            let empty = content.is_empty();
            return Err(if empty { PeerMisbehaved::EmptyFragment } else { PeerMisbehaved::WrongAlertLength });
        };
        let description = AlertDescription(description);
        if description == AlertDescription::CLOSE_NOTIFY {
            self.read = ReadState::Closed;
            return Ok(Opened::CloseNotify);
        }
        if self.is_warning(level, description)? {
            return Ok(Opened::Ignored);
        }
        self.read = ReadState::Failed;
        self.write = WriteState::Closed;
        Ok(Opened::FatalAlert(description))
    }

    /// RFC 8446, section 6: levels have no meaning, and all alerts except closure alerts are fatal. RFC 5246, section
    /// 7.2: the level decides.
    fn is_warning(&self, level: u8, description: AlertDescription) -> Result<bool, PeerMisbehaved> {
        match (self.version(), level) {
            (Version::Tls13, _) => Ok(description == AlertDescription::USER_CANCELED),
            (Version::Tls12, LEVEL_WARNING) => Ok(true),
            (Version::Tls12, LEVEL_FATAL) => Ok(false),
            (Version::Tls12, _) => Err(PeerMisbehaved::IllegalAlertLevel(level)),
        }
    }

    fn count_dataless(&mut self, opened: &Opened) -> Result<(), PeerMisbehaved> {
        match opened {
            Opened::Data(_) => self.dataless_records = 0,
            Opened::CloseNotify | Opened::FatalAlert(_) => {}
            _ if self.dataless_records == DATALESS_RECORDS_MAX => {
                return Err(PeerMisbehaved::TooManyRecordsWithoutData);
            }
            _ => self.dataless_records += 1,
        }
        Ok(())
    }
}

/// Sealing.
impl Connection {
    /// Seals up to `len_max` bytes of `parts`, and appends the records to `out`, after any answers that are due.
    /// Returns the number of bytes of `parts` that were sealed.
    ///
    /// TLS 1.3 keys are changed in time (RFC 8446, section 5.5). TLS 1.2 keys cannot be changed. When the key is
    /// exhausted, fewer bytes are sealed, then none ([`SealError::Exhausted`]): see [`Connection::close_due`].
    pub fn seal(&mut self, parts: &[IoSlice<'_>], len_max: usize, out: &mut Vec<u8>) -> Result<usize, SealError> {
        if self.write == WriteState::Closed {
            return Err(SealError::Closed);
        }
        self.seal_answers(out)?;
        let total = parts.iter().fold(0, |len: usize, part| len.saturating_add(part.len())).min(len_max);
        out.reserve(total + total.div_ceil(FRAGMENT_LEN_MAX) * OVERHEAD_LEN_MAX);
        let mut plaintext = Plaintext { parts, offset: 0 };
        let mut sealed = 0;
        while sealed < total {
            match self.prepare_key(out) {
                Ok(()) => {}
                Err(_) if sealed > 0 => break,
                Err(error) => return Err(error),
            }
            let len = FRAGMENT_LEN_MAX.min(total - sealed);
            self.tx.seal(ContentType::ApplicationData, len, |out| plaintext.append(len, out), out);
            sealed += len;
        }
        Ok(sealed)
    }

    /// Seals the answers that are due, if any.
    pub fn seal_answers(&mut self, out: &mut Vec<u8>) -> Result<(), SealError> {
        if !self.answers_due() {
            return Ok(());
        }
        if self.answers.key_update {
            self.seal_key_update(KeyUpdateRequest::NotRequested, out)?;
        }
        if self.answers.no_renegotiation {
            self.seal_bytes(ContentType::Alert, &alert_message(AlertDescription::NO_RENEGOTIATION), out)?;
            self.answers.no_renegotiation = false;
        }
        Ok(())
    }

    /// Changes this end's keys now. With `request_peer`, requests that the peer changes its own (RFC 8446, section
    /// 4.6.3).
    pub fn update_keys(&mut self, request_peer: bool, out: &mut Vec<u8>) -> Result<(), SealError> {
        if self.write == WriteState::Closed {
            return Err(SealError::Closed);
        }
        if self.version() != Version::Tls13 {
            return Err(SealError::NoKeyUpdate);
        }
        if request_peer {
            // The answer to the peer's request must not be a request itself.
            self.seal_answers(out)?;
            self.seal_key_update(KeyUpdateRequest::Requested, out)
        } else {
            self.seal_key_update(KeyUpdateRequest::NotRequested, out)
        }
    }

    /// Seals a `close_notify`, and closes the write side. The read side stays open.
    pub fn seal_close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), SealError> {
        self.seal_alert(AlertDescription::CLOSE_NOTIFY, out)
    }

    /// Seals an alert with the reason that the connection ends, and closes the write side.
    pub fn seal_alert(&mut self, description: AlertDescription, out: &mut Vec<u8>) -> Result<(), SealError> {
        if self.write == WriteState::Closed {
            return Err(SealError::Closed);
        }
        // An exhausted key has one record left for this: `records_max` is far below the RFC's limit, and the write side
        // is closed afterwards.
        self.tx.seal(ContentType::Alert, ALERT_LEN, |out| out.extend(alert_message(description)), out);
        self.write = WriteState::Closed;
        Ok(())
    }

    /// Whether the write side is closed: `close_notify` or a fatal alert was sealed, or the peer sent a fatal alert.
    pub fn is_write_closed(&self) -> bool {
        self.write == WriteState::Closed
    }

    /// Whether the application should close the write side at its next opportunity: more than half of the key's records
    /// are used, and TLS 1.2 cannot change the key.
    pub fn close_due(&self) -> bool {
        self.version() == Version::Tls12 && self.tx.sequence() >= self.renewal_sequence()
    }

    /// Makes sure that the key may protect another data record.
    fn prepare_key(&mut self, out: &mut Vec<u8>) -> Result<(), SealError> {
        if self.version() == Version::Tls13 && self.tx.sequence() >= self.renewal_sequence() {
            return self.seal_key_update(KeyUpdateRequest::NotRequested, out);
        }
        self.check_key()
    }

    fn renewal_sequence(&self) -> u64 {
        self.suite.aead().records_max() / 2
    }

    fn check_key(&self) -> Result<(), SealError> {
        if self.tx.sequence() < self.suite.aead().records_max() { Ok(()) } else { Err(SealError::Exhausted) }
    }

    fn seal_key_update(&mut self, request: KeyUpdateRequest, out: &mut Vec<u8>) -> Result<(), SealError> {
        self.seal_bytes(ContentType::Handshake, &request.message(), out)?;
        self.tx.update();
        self.answers.key_update = false;
        Ok(())
    }

    fn seal_bytes(&mut self, content_type: ContentType, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        self.check_key()?;
        self.tx.seal(content_type, bytes.len(), |out| out.extend_from_slice(bytes), out);
        Ok(())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("side", &self.side)
            .field("suite", &self.suite)
            .field("tx_sequence", &self.tx.sequence())
            .field("rx_sequence", &self.rx.sequence())
            .field("read", &self.read)
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}

const ALERT_LEN: usize = 2;

fn alert_message(description: AlertDescription) -> [u8; ALERT_LEN] {
    [description.level(), description.0]
}

/// The unsealed rest of several slices.
struct Plaintext<'a> {
    parts: &'a [IoSlice<'a>],
    /// The bytes of the first part that are sealed.
    offset: usize,
}

impl Plaintext<'_> {
    /// Appends the next `len` bytes to `out`.
    fn append(&mut self, mut len: usize, out: &mut Vec<u8>) {
        while let ([first, rest @ ..], 1..) = (self.parts, len) {
            let left = &first[self.offset..];
            let piece = &left[..len.min(left.len())];
            out.extend_from_slice(piece);
            len -= piece.len();
            if piece.len() == left.len() {
                self.parts = rest;
                self.offset = 0;
            } else {
                self.offset += piece.len();
            }
        }
    }
}
