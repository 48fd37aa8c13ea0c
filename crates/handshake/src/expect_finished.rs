//! The rest of a handshake, once the server has answered.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;

use rustls::server::{Accepted, AcceptedAlert};
use rustls::{HandshakeKind, ServerConnection};
use watari_record::CipherSuite;

use crate::config::ServerConfig;
use crate::desk::Desk;
use crate::error::HandshakeError;
use crate::extract::{TrafficSecrets, server_secrets};
use crate::handshake::{EarlyData, Established, Info, Progress};
use crate::record_cut::IMPOSSIBLE_HEADER;

/// Everything between the `ClientHello` and the client's Finished: early data, a second hello after a `HelloRetryRequest`, the
/// client's certificate, key exchange and `change_cipher_spec`.
pub(crate) struct ExpectFinished {
    connection: ServerConnection,
    traffic_secrets: Arc<TrafficSecrets>,
    desk: Arc<Desk>,
}

impl ExpectFinished {
    /// Answers the client's hello with the server's flight.
    pub(crate) fn answer(
        accepted: Accepted,
        desk: Desk,
        config: &ServerConfig,
        tickets: usize,
        output: &mut Vec<u8>,
    ) -> Result<Box<Self>, (rustls::Error, AcceptedAlert)> {
        let (traffic_secrets, desk) = (Arc::new(TrafficSecrets::default()), Arc::new(desk));
        let prefers_chacha20 = prefers_chacha20(accepted.client_hello().cipher_suites());
        let config = config.for_connection(Arc::clone(&traffic_secrets), &desk, tickets, prefers_chacha20);
        let connection = accepted.into_connection(config)?;
        let mut state = Box::new(Self { connection, traffic_secrets, desk });
        state.flush(output);
        Ok(state)
    }

    /// What has become of early data; `None`: the client has announced none.
    pub(crate) fn early_data(&mut self) -> Result<Option<EarlyData>, HandshakeError> {
        if self.connection.early_data().is_some() {
            return info(&self.connection, &self.desk).map(|info| Some(EarlyData::Accepted(Box::new(info))));
        }
        Ok(self.desk.announces_early_data().then_some(EarlyData::Refused))
    }

    /// Takes a record.
    pub(crate) fn handle(mut self: Box<Self>, record: &[u8], progress: &mut Progress) -> Result<Next, HandshakeError> {
        feed(record, |input| self.connection.read_tls(input))?;
        let processed = self.connection.process_new_packets();
        self.flush(&mut progress.output);
        progress.made.extend(self.desk.take_made());
        processed?;
        self.take_early(&mut progress.early);
        if self.connection.is_handshaking() {
            return Ok(Next::Expect(self));
        }
        self.extract().map(Box::new).map(Next::Established)
    }

    /// Seals data behind the server's Finished, where the client's early data was accepted; says how much.
    pub(crate) fn seal(&mut self, plaintext: &[IoSlice<'_>], output: &mut Vec<u8>) -> usize {
        if self.connection.early_data().is_none() {
            return 0;
        }
        let sealed = self.connection.writer().write_vectored(plaintext).unwrap_or_default();
        self.flush(output);
        sealed
    }

    /// rustls alone knows which keys an alert of now is sealed with, and it makes no alert on demand. A record
    /// header that is always wrong draws a `decode_error` from it.
    pub(crate) fn refuse(mut self: Box<Self>, output: &mut Vec<u8>) {
        if feed(&IMPOSSIBLE_HEADER, |input| self.connection.read_tls(input)).is_ok() {
            let _always_an_error = self.connection.process_new_packets();
        }
        self.flush(output);
    }

    fn flush(&mut self, output: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(output).expect("a vector takes every write");
        }
    }

    fn take_early(&mut self, early: &mut Vec<u8>) {
        if let Some(mut data) = self.connection.early_data() {
            data.read_to_end(early).expect("what rustls holds in memory can be read");
        }
    }

    fn extract(self) -> Result<Established, HandshakeError> {
        let info = info(&self.connection, &self.desk)?;
        let extracted = self.connection.dangerous_extract_secrets()?;
        let secrets = server_secrets(info.suite, extracted, &self.traffic_secrets)?;
        Ok(Established { secrets, info })
    }
}

/// What comes after a record.
pub(crate) enum Next {
    /// More of the same.
    Expect(Box<ExpectFinished>),
    /// The end.
    Established(Box<Established>),
}

/// Gives rustls all of `bytes`; it takes them in pieces.
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

/// Whether that comes first, but for what clients mix in so that servers ignore what they do not know (RFC 8701).
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

fn info(connection: &ServerConnection, desk: &Desk) -> Result<Info, HandshakeError> {
    let number = connection.negotiated_cipher_suite().map(|suite| u16::from(suite.suite()));
    let suite = number.and_then(CipherSuite::from_iana).ok_or(HandshakeError::UnknownSuite)?;
    let is_resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let leaf = connection.peer_certificates().and_then(<[_]>::first);
    Ok(Info {
        version: suite.version(),
        suite,
        alpn: connection.alpn_protocol().unwrap_or_default().to_vec(),
        server_name: connection.server_name().map(str::to_owned),
        resumed: if is_resumed { desk.origin() } else { None },
        missed: if is_resumed { None } else { desk.miss() },
        client_certificate: leaf.map(|leaf| leaf.to_vec()),
        group: connection.negotiated_key_exchange_group().and_then(|group| group.name().as_str()),
    })
}
