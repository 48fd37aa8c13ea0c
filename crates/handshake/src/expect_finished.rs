//! The rest of a handshake, after the server's flight.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::server::{Accepted, AcceptedAlert};
use rustls::{AlertDescription, HandshakeKind, ProtocolVersion, ServerConnection};
use watari_record::{CipherSuite, Connection, HEADER_LEN};

use crate::config::ServerConfig;
use crate::connection_sessions::ConnectionSessions;
use crate::error::HandshakeError;
use crate::extract::{TrafficSecrets, server_secrets};
use crate::progress::{EarlyData, Established, Info, Progress};
use crate::record_cut::{IMPOSSIBLE_HEADER, check_fragment};
use crate::rejected::{RejectedEarlyData, Verdict};

/// The state between the `ClientHello` and the client's Finished. It handles early data, a second `ClientHello` after a
/// `HelloRetryRequest`, the client's certificate, the key exchange and `change_cipher_spec`.
pub(crate) struct ExpectFinished {
    connection: ServerConnection,
    traffic_secrets: Arc<TrafficSecrets>,
    connection_sessions: Arc<ConnectionSessions>,
    /// Set while rejected early data may still arrive.
    rejected: Option<RejectedEarlyData>,
    /// The number of records sealed with the server's application traffic secret (TLS 1.3).
    sealed: u64,
    /// Whether the server has sent `change_cipher_spec` (TLS 1.2).
    is_protected: bool,
}

impl ExpectFinished {
    /// Responds to the `ClientHello` with the server's flight.
    pub(crate) fn answer(
        accepted: Accepted,
        connection_sessions: ConnectionSessions,
        config: &ServerConfig,
        tickets: usize,
        output: &mut Vec<u8>,
    ) -> Result<Box<Self>, (rustls::Error, AcceptedAlert)> {
        let (traffic_secrets, connection_sessions) =
            (Arc::new(TrafficSecrets::new(connection_sessions.announces_early_data())), Arc::new(connection_sessions));
        let prefers_chacha20 = prefers_chacha20(accepted.client_hello().cipher_suites());
        let config =
            config.for_connection(Arc::clone(&traffic_secrets), &connection_sessions, tickets, prefers_chacha20);
        let connection = accepted.into_connection(config)?;
        let (rejected, sealed, is_protected) = (None, 0, false);
        let mut state =
            Box::new(Self { connection, traffic_secrets, connection_sessions, rejected, sealed, is_protected });
        state.flush(output);
        if state.connection_sessions.announces_early_data() && state.connection.early_data().is_none() {
            state.rejected = Some(RejectedEarlyData::new(suite(&state.connection), &state.traffic_secrets));
        }
        Ok(state)
    }

    /// The decision on early data. `None`: the client announced none.
    pub(crate) fn early_data(&mut self) -> Result<Option<EarlyData>, HandshakeError> {
        if self.connection.early_data().is_some() {
            return info(&self.connection, &self.connection_sessions)
                .map(|info| Some(EarlyData::Accepted(Box::new(info))));
        }
        Ok(self.connection_sessions.announces_early_data().then_some(EarlyData::Refused))
    }

    /// Handles one record.
    pub(crate) fn handle(mut self: Box<Self>, record: &[u8], progress: &mut Progress) -> Result<Next, HandshakeError> {
        let output = &mut progress.output;
        if let Err(cause) = check_fragment(record) {
            return Err(self.refuse(cause, output));
        }
        match self.judge(record) {
            Verdict::Take | Verdict::TakeAll => {}
            Verdict::Skip => return Ok(Next::Skipped(self)),
            Verdict::TooMuch => return Err(self.refuse(HandshakeError::TooMuchEarlyData, output)),
        }
        if let Err(cause) = feed(record, |input| self.connection.read_tls(input)) {
            return Err(self.refuse(cause, output));
        }
        let (was_sealing, before) = (self.traffic_secrets.has_server(), output.len());
        let processed = self.connection.process_new_packets();
        self.flush(output);
        if was_sealing {
            self.sealed += records(&output[before..]).count() as u64;
        }
        progress.made.extend(self.connection_sessions.take_made());
        if let Err(error) = processed {
            let (cause, is_silent) = (HandshakeError::from(error), output.len() == before);
            return Err(if is_silent { self.refuse(cause, output) } else { cause });
        }
        self.take_early(&mut progress.early);
        if self.connection.is_handshaking() {
            return Ok(Next::Expect(self));
        }
        self.extract().map(Box::new).map(Next::Established)
    }

    /// Decides whether a record is rejected early data.
    fn judge(&mut self, record: &[u8]) -> Verdict {
        let verdict = self.rejected.as_mut().map_or(Verdict::TakeAll, |rejected| rejected.judge(record));
        if verdict == Verdict::TakeAll {
            self.rejected = None;
        }
        verdict
    }

    /// Seals data after the server's Finished, if early data was accepted. Returns the number of plaintext bytes
    /// sealed.
    pub(crate) fn seal(&mut self, plaintext: &[IoSlice<'_>], output: &mut Vec<u8>) -> usize {
        if self.connection.early_data().is_none() {
            return 0;
        }
        let before = output.len();
        let sealed = self.connection.writer().write_vectored(plaintext).unwrap_or_default();
        self.flush(output);
        self.sealed += records(&output[before..]).count() as u64;
        sealed
    }

    /// Ends the handshake for a `cause` for which rustls has sent no alert.
    pub(crate) fn refuse(self: Box<Self>, cause: HandshakeError, output: &mut Vec<u8>) -> HandshakeError {
        let has_key = self.rejected.as_ref().is_some_and(RejectedEarlyData::has_key);
        let alert = match cause {
            // A record that does not deprotect, once there is a key (RFC 8446, section 5.2).
            HandshakeError::TooMuchEarlyData if has_key => Some(AlertDescription::BadRecordMac),
            _ => cause.alert(),
        };
        if let Some(alert) = alert {
            self.send_alert(alert, &cause, output);
        }
        cause
    }

    /// Seals and sends an alert. From the server's Finished on, it is sealed with the application key (RFC 8446,
    /// section 6). In TLS 1.2, it is sealed after the server's `change_cipher_spec`. rustls sends nothing after this.
    fn send_alert(mut self: Box<Self>, alert: AlertDescription, cause: &HandshakeError, output: &mut Vec<u8>) {
        if self.connection.protocol_version() != Some(ProtocolVersion::TLSv1_3) && self.is_protected {
            // Only rustls has the keys, and it makes no alert on demand. An invalid record header makes it send a
            // `decode_error`, unless it has failed before.
            if feed(&IMPOSSIBLE_HEADER, |input| self.connection.read_tls(input)).is_ok() {
                let _always_an_error = self.connection.process_new_packets();
            }
            return self.flush(output);
        }
        let secrets = suite(&self.connection).and_then(|suite| self.traffic_secrets.take_for_alert(suite, self.sealed));
        match secrets.map(Connection::new) {
            None => output.extend(cause.plaintext_alert().into_iter().flatten()),
            Some(connection) => {
                let alert = watari_record::AlertDescription(alert.into());
                // If the key cannot seal, the connection ends without an alert.
                let _ = connection.map(|mut connection| connection.seal_alert(alert, output));
            }
        }
    }

    fn flush(&mut self, output: &mut Vec<u8>) {
        let before = output.len();
        while self.connection.wants_write() {
            self.connection.write_tls(output).expect("writes to a vector do not fail");
        }
        self.is_protected |= records(&output[before..]).any(|content_type| content_type == CHANGE_CIPHER_SPEC);
    }

    fn take_early(&mut self, early: &mut Vec<u8>) {
        if let Some(mut data) = self.connection.early_data() {
            data.read_to_end(early).expect("reads from memory do not fail");
        }
    }

    fn extract(self) -> Result<Established, HandshakeError> {
        let info = info(&self.connection, &self.connection_sessions)?;
        let extracted = self.connection.dangerous_extract_secrets()?;
        let secrets = server_secrets(info.suite, extracted, &self.traffic_secrets)?;
        Ok(Established { secrets, info })
    }
}

/// The next state after a record.
pub(crate) enum Next {
    /// The handshake continues.
    Expect(Box<ExpectFinished>),
    /// The handshake continues. The record was rejected early data, and not part of the handshake.
    Skipped(Box<ExpectFinished>),
    /// The handshake is complete.
    Established(Box<Established>),
}

/// Passes all of `bytes` to rustls, which takes them in pieces.
pub(crate) fn feed(
    mut bytes: &[u8],
    mut read_tls: impl FnMut(&mut dyn Read) -> io::Result<usize>,
) -> Result<(), HandshakeError> {
    while !bytes.is_empty() {
        match read_tls(&mut bytes) {
            Ok(1..) => {}
            // Its buffer for one message is full.
            Ok(0) | Err(_) => return Err(HandshakeError::TooLarge),
        }
    }
    Ok(())
}

/// Whether ChaCha20-Poly1305 comes first in the client's list. Reserved values that clients mix in are ignored (RFC
/// 8701).
fn prefers_chacha20(offered: &[rustls::CipherSuite]) -> bool {
    use rustls::CipherSuite as Suite;
    let first = offered.iter().find(|suite| !matches!(suite, Suite::Unknown(_)));
    let chacha20 = [
        Suite::TLS13_CHACHA20_POLY1305_SHA256,
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    first.is_some_and(|first| chacha20.contains(first))
}

const CHANGE_CIPHER_SPEC: u8 = 20;

/// The content types of whole records.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let [content_type, _, _, high, low, ..] = *bytes else { return None };
        bytes = bytes.get(HEADER_LEN + usize::from(u16::from_be_bytes([high, low]))..)?;
        Some(content_type)
    })
}

/// The cipher suite, once it is negotiated.
fn suite(connection: &ServerConnection) -> Option<CipherSuite> {
    connection.negotiated_cipher_suite().and_then(|suite| CipherSuite::from_iana(suite.suite().into()))
}

fn info(connection: &ServerConnection, connection_sessions: &ConnectionSessions) -> Result<Info, HandshakeError> {
    let suite = suite(connection).ok_or(HandshakeError::UnknownSuite)?;
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    Ok(Info {
        version: suite.version(),
        suite,
        alpn: connection.alpn_protocol().unwrap_or_default().to_vec(),
        server_name: connection.server_name().map(str::to_owned),
        resumed: if is_resumed { connection_sessions.source() } else { None },
        missed: if is_resumed { None } else { connection_sessions.miss() },
        client_certificate: leaf.map(|leaf| leaf.to_vec()),
        group: connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str()),
    })
}
