//! One handshake: bytes in, bytes out.

use std::fmt;
use std::io::IoSlice;
use std::sync::Arc;

use rustls::server::{Accepted, AcceptedAlert, Acceptor};
use watari_record::{HEADER_LEN, RECORD_LEN_MAX};

use crate::config::ServerConfig;
use crate::connection_sessions::ConnectionSessions;
use crate::error::{Failed, HandshakeError, Stage};
use crate::expect_finished::{self, ExpectFinished, feed};
use crate::progress::{Established, Progress};
use crate::record_cut::{check_fragment, first_hello_record, first_record};
use crate::sessions::{Provided, Sessions};

/// The server's end of one handshake.
///
/// ```text
///                     ClientHello                    client's Finished
///  ExpectClientHello -------------> ExpectFinished ---------------------> Over
///        |                           ^  |          ^
///        '-----> ExpectSessions -----'  '----------'
///    sessions are                second ClientHello, certificate, key exchange, ..
///      wanted      provide
/// ```
///
/// An error leads from any state to `Over`.
///
/// The drive contract. The driver repeats these steps until the handshake is established or fails:
///
/// 1. Append arrived bytes to the unread ones, and call [`Handshake::receive`].
/// 2. Store the sessions that were made, then send the output.
/// 3. Drop the consumed bytes.
/// 4. If something is wanted, look for it, and call [`Handshake::provide`] with the result, even if nothing was found.
///    Then call `receive` again.
///
/// The input is bounded: after a call that wants nothing, less than one record is unread ([`Handshake::UNREAD_MAX`]).
/// The driver handles timeouts and the end of the input.
pub struct Handshake {
    config: ServerConfig,
    sessions: Arc<Sessions>,
    state: HandshakeState,
    received: usize,
}

impl Handshake {
    /// The maximum number of bytes that a client may send in a handshake, with record headers. Early data that is
    /// skipped does not count here, and has a limit as high.
    pub const RECEIVED_MAX: usize = 64 * 1024;

    /// The maximum of unread bytes after [`Handshake::receive`]: the longest record less its last byte.
    pub const UNREAD_MAX: usize = RECORD_LEN_MAX - 1;

    /// Waits for a `ClientHello`.
    pub fn new(config: &ServerConfig, sessions: &Arc<Sessions>) -> Self {
        let (config, sessions) = (config.clone(), Arc::clone(sessions));
        Self { config, sessions, state: HandshakeState::ExpectClientHello(Box::default()), received: 0 }
    }

    /// Takes whole records from the front of `input`, one at a time, until the handshake is established, fails, or
    /// needs more input. Signs on the calling thread: about a millisecond with an RSA key.
    pub fn receive(&mut self, input: &[u8]) -> Result<Progress, Failed> {
        let mut progress = Progress::default();
        match self.advance(input, &mut progress) {
            Ok(()) => Ok(progress),
            Err(cause) => Err(Failed { cause, output: progress.output }),
        }
    }

    /// Continues with the sessions and seeds that the driver has found. Afterwards, more of the input may belong to the
    /// handshake.
    pub fn provide(&mut self, provided: Provided) -> Result<Progress, Failed> {
        let mut progress = Progress::default();
        let state = match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::ExpectSessions(state) => state,
            // Nothing was wanted.
            other => {
                self.state = other;
                return Ok(progress);
            }
        };
        let offer = Offer { config: &self.config, sessions: &self.sessions };
        match state.provide(provided, offer, &mut progress) {
            Ok(state) => {
                self.state = state;
                Ok(progress)
            }
            Err(cause) => Err(Failed { cause, output: progress.output }),
        }
    }

    /// Seals data for the client before its Finished, and appends it to `output`. Returns the number of plaintext bytes
    /// sealed: 0 if early data was not accepted, or the handshake is over. After the handshake, the record layer seals,
    /// and its records follow those sealed here.
    pub fn seal(&mut self, plaintext: &[IoSlice<'_>], output: &mut Vec<u8>) -> usize {
        match &mut self.state {
            HandshakeState::ExpectFinished(state) => state.seal(plaintext, output),
            _ => 0,
        }
    }

    /// The progress of the handshake, for the log line after a disconnect or a timeout.
    pub fn stage(&self) -> Stage {
        match self.state {
            HandshakeState::ExpectClientHello(_) => Stage::ClientHello,
            HandshakeState::ExpectSessions(_) => Stage::Sessions,
            HandshakeState::ExpectFinished(_) => Stage::Finished,
            HandshakeState::Over => Stage::Over,
        }
    }

    fn advance(&mut self, input: &[u8], progress: &mut Progress) -> Result<(), HandshakeError> {
        while progress.established.is_none() && !matches!(self.state, HandshakeState::ExpectSessions(_)) {
            let unread = &input[progress.consumed..];
            let record = match self.next_record(unread) {
                Ok(Some(record)) => record,
                Ok(None) => break,
                Err(cause) => return Err(self.refuse(cause, &mut progress.output)),
            };
            progress.consumed += record.len();
            self.received += record.len();
            match self.handle(record, progress)? {
                Next::Expect(state) => self.state = state,
                Next::Skipped(state) => {
                    self.received -= record.len();
                    self.state = state;
                }
                Next::Established(established) => progress.established = Some(established),
            }
        }
        Ok(())
    }

    fn next_record<'a>(&self, unread: &'a [u8]) -> Result<Option<&'a [u8]>, HandshakeError> {
        let record = match self.state {
            HandshakeState::ExpectClientHello(_) => first_hello_record(unread)?,
            HandshakeState::ExpectFinished(_) => first_record(unread)?,
            HandshakeState::ExpectSessions(_) => return Ok(None),
            HandshakeState::Over => return Err(HandshakeError::Over),
        };
        match record {
            Some(record) if self.received + record.len() > Self::RECEIVED_MAX => Err(HandshakeError::TooLarge),
            record => Ok(record),
        }
    }

    /// Ends the handshake unless the record leads to a next state.
    fn handle(&mut self, record: &[u8], progress: &mut Progress) -> Result<Next, HandshakeError> {
        let offer = Offer { config: &self.config, sessions: &self.sessions };
        match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::ExpectClientHello(state) => state.handle(record, offer, progress),
            HandshakeState::ExpectFinished(state) => state.handle(record, progress).map(Next::from),
            HandshakeState::ExpectSessions(_) | HandshakeState::Over => Err(HandshakeError::Over),
        }
    }

    /// Ends the handshake for a `cause` that rustls has not detected.
    fn refuse(&mut self, cause: HandshakeError, output: &mut Vec<u8>) -> HandshakeError {
        match std::mem::replace(&mut self.state, HandshakeState::Over) {
            HandshakeState::ExpectClientHello(_) => refuse_in_plaintext(cause, output),
            HandshakeState::ExpectFinished(state) => state.refuse(cause, output),
            HandshakeState::ExpectSessions(_) | HandshakeState::Over => cause,
        }
    }
}

impl fmt::Debug for Handshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handshake").field("stage", &self.stage()).finish_non_exhaustive()
    }
}

/// The server's settings.
#[derive(Clone, Copy)]
struct Offer<'a> {
    config: &'a ServerConfig,
    sessions: &'a Sessions,
}

enum HandshakeState {
    ExpectClientHello(Box<ExpectClientHello>),
    ExpectSessions(Box<ExpectSessions>),
    ExpectFinished(Box<ExpectFinished>),
    Over,
}

enum Next {
    Expect(HandshakeState),
    /// The record was not part of the handshake.
    Skipped(HandshakeState),
    Established(Box<Established>),
}

impl From<expect_finished::Next> for Next {
    fn from(next: expect_finished::Next) -> Self {
        match next {
            expect_finished::Next::Expect(state) => Self::Expect(HandshakeState::ExpectFinished(state)),
            expect_finished::Next::Skipped(state) => Self::Skipped(HandshakeState::ExpectFinished(state)),
            expect_finished::Next::Established(established) => Self::Established(established),
        }
    }
}

/// Nothing is negotiated, and nothing was sent.
#[derive(Default)]
struct ExpectClientHello {
    acceptor: Acceptor,
    /// The message, as far as it has arrived. rustls does not expose the sessions that it offers.
    message: Vec<u8>,
}

impl ExpectClientHello {
    fn handle(
        mut self: Box<Self>,
        record: &[u8],
        offer: Offer<'_>,
        progress: &mut Progress,
    ) -> Result<Next, HandshakeError> {
        let output = &mut progress.output;
        self.message.extend_from_slice(&record[HEADER_LEN..]);
        let checked = check_fragment(record).and_then(|()| offer.config.check_outline(&self.message));
        checked.map_err(|cause| refuse_in_plaintext(cause, output))?;
        feed(record, |input| self.acceptor.read_tls(input)).map_err(|cause| refuse_in_plaintext(cause, output))?;
        match self.acceptor.accept() {
            Ok(None) => Ok(Next::Expect(HandshakeState::ExpectClientHello(self))),
            Ok(Some(accepted)) => meet(accepted, &self.message, offer, progress),
            Err((error, alert)) => Err(refused(error, alert, output)),
        }
    }
}

/// The `ClientHello` offers sessions, and the driver looks for what is needed to resume them. Nothing was sent.
struct ExpectSessions {
    accepted: Accepted,
    connection_sessions: ConnectionSessions,
}

impl ExpectSessions {
    fn provide(
        self: Box<Self>,
        provided: Provided,
        offer: Offer<'_>,
        progress: &mut Progress,
    ) -> Result<HandshakeState, HandshakeError> {
        self.connection_sessions.provide(provided);
        answer(self.accepted, self.connection_sessions, offer, progress)
    }
}

/// Makes all checks that are possible before a key exchange. rustls makes the others, once the wanted sessions and
/// seeds are provided.
fn meet(accepted: Accepted, hello: &[u8], offer: Offer<'_>, progress: &mut Progress) -> Result<Next, HandshakeError> {
    let checked = offer.config.check(&accepted.client_hello());
    checked.map_err(|cause| refuse_in_plaintext(cause, &mut progress.output))?;
    let (connection_sessions, wanted) = offer.config.connection_sessions(offer.sessions, hello);
    if wanted.is_empty() {
        return answer(accepted, connection_sessions, offer, progress).map(Next::Expect);
    }
    progress.wanted = wanted;
    Ok(Next::Expect(HandshakeState::ExpectSessions(Box::new(ExpectSessions { accepted, connection_sessions }))))
}

fn answer(
    accepted: Accepted,
    connection_sessions: ConnectionSessions,
    offer: Offer<'_>,
    progress: &mut Progress,
) -> Result<HandshakeState, HandshakeError> {
    let (tickets, output) = (offer.sessions.tickets_per_handshake, &mut progress.output);
    let mut state = ExpectFinished::answer(accepted, connection_sessions, offer.config, tickets, output)
        .map_err(|(error, alert)| refused(error, alert, output))?;
    progress.early_data = state.early_data()?;
    Ok(HandshakeState::ExpectFinished(state))
}

/// Sends the alert of rustls, or our own if rustls has made none.
fn refused(error: rustls::Error, mut alert: AcceptedAlert, output: &mut Vec<u8>) -> HandshakeError {
    let before = output.len();
    alert.write_all(output).expect("writes to a vector do not fail");
    let cause = HandshakeError::from(error);
    if output.len() > before { cause } else { refuse_in_plaintext(cause, output) }
}

fn refuse_in_plaintext(cause: HandshakeError, output: &mut Vec<u8>) -> HandshakeError {
    output.extend(cause.plaintext_alert().into_iter().flatten());
    cause
}
