//! The handshake of a new connection, over its leg.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use watari_handshake::{Established, Failed, Handshake, HandshakeError, Info, Miss, Origin, Progress};
use watari_record::{Connection, Version};
use watari_stream::Parts;
use watari_sys::tcp;
use watari_wire::leg::Preface;
use watari_wire::{Epoch, NodeName, TlsInfo};

use crate::Shared;
use crate::live::{About, Live};
use crate::serve::{self, Ending};

/// How much is read at once, in bytes.
const READ_LEN: usize = 4096;

/// Does the handshake; `None` if it failed, which the client and the dispatcher have been told then. `surplus` came behind
/// the preface.
pub(crate) async fn shake_hands(
    shared: &Arc<Shared>,
    leg: TcpStream,
    dispatcher: NodeName,
    preface: &Preface,
    surplus: Vec<u8>,
) -> Option<Live> {
    let settings = shared.settings.get();
    let Some(tls) = &settings.tls else {
        tracing::warn!(connection = %preface.connection, "a handshake was asked of an agent without certificates");
        shared.metrics.count_handshake_failed("no_certificates");
        tcp::reset_on_close(&leg);
        return None;
    };
    shared.sessions.ready().await;
    let mut driver = Driver {
        handshake: Handshake::new(tls.of(preface.server), shared.sessions.offered()),
        shared,
        received: surplus.len() as u64,
        input: surplus,
        sent: 0,
        leg,
    };
    let result = tokio::time::timeout(shared.limits().handshake_timeout, driver.run()).await;
    let stage = driver.handshake.stage();
    match result.unwrap_or(Err(HandshakeError::TimedOut(stage).into())) {
        Ok(established) => driver.into_live(shared, dispatcher, preface, *established),
        Err(failure) => {
            tracing::info!(connection = %preface.connection, client = %preface.client, cause = %failure, "handshake failed");
            shared.metrics.count_handshake_failed(failure.label());
            let ending = Ending { connection: preface.connection, dispatcher, tenure: Epoch(0), sent: driver.sent };
            serve::announce_end(shared, driver.leg, &ending).await;
            None
        }
    }
}

struct Driver<'a> {
    shared: &'a Shared,
    handshake: Handshake,
    leg: TcpStream,
    /// What was received and is not the handshake's, or not yet.
    input: Vec<u8>,
    received: u64,
    sent: u64,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the leg failed: {0}")]
    Io(#[from] io::Error),
}

impl Failure {
    fn label(&self) -> &'static str {
        match self {
            Self::Handshake(error) => error.label(),
            Self::Io(_) => "io",
        }
    }
}

impl Driver<'_> {
    async fn run(&mut self) -> Result<Box<Established>, Failure> {
        loop {
            let received = self.handshake.receive(&self.input);
            let mut progress = self.answer(received).await?;
            self.input.drain(..progress.consumed);
            if !progress.wanted.is_empty() {
                let (found, miss) = self.shared.sessions.look_for(self.shared, &progress.wanted).await;
                let provided = self.handshake.provide(found, miss);
                progress = self.answer(provided).await?;
            }
            if let Some(established) = progress.established {
                return Ok(established);
            }
            self.read().await?;
        }
    }

    /// Sends what a step of the handshake has for the client, when the sessions that it tells of are kept.
    async fn answer(&mut self, step: Result<Progress, Failed>) -> Result<Progress, Failure> {
        let (output, result) = match step {
            Ok(mut progress) => {
                if !progress.made.is_empty() {
                    self.shared.sessions.keep(self.shared, std::mem::take(&mut progress.made)).await;
                }
                (std::mem::take(&mut progress.output), Ok(progress))
            }
            Err(Failed { cause, output }) => (output, Err(cause.into())),
        };
        if !output.is_empty() {
            self.leg.write_all(&output).await?;
            self.sent += output.len() as u64;
        }
        result
    }

    async fn read(&mut self) -> Result<(), Failure> {
        self.input.reserve(READ_LEN);
        match self.leg.read_buf(&mut self.input).await? {
            0 => Err(HandshakeError::ClosedEarly(self.handshake.stage()).into()),
            read => {
                self.received += read as u64;
                Ok(())
            }
        }
    }

    fn into_live(
        self,
        shared: &Shared,
        dispatcher: NodeName,
        preface: &Preface,
        established: Established,
    ) -> Option<Live> {
        let Established { secrets, info } = established;
        let connection = match Connection::new(secrets) {
            Ok(connection) => connection,
            Err(error) => {
                tracing::error!(connection = %preface.connection, %error, "the handshake's secrets are unusable");
                shared.metrics.count_handshake_failed("secrets");
                tcp::reset_on_close(&self.leg);
                return None;
            }
        };
        let Info { version, suite, alpn, server_name, resumed, missed, client_certificate, group } = info;
        let version = match version {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        };
        let tls = TlsInfo { version, suite: suite.iana(), alpn, server_name, resumed: resumed.is_some() };
        let resumed = resumed.map(Origin::label);
        let missed = missed.map(Miss::label);
        tracing::debug!(connection = %preface.connection, ?tls, group, resumed, missed, "handshake done");
        shared.metrics.count_handshake(&tls, resumed, missed);
        let id = preface.connection;
        let about = About {
            id,
            tenure: Epoch(0),
            last: Epoch(0),
            dispatcher,
            client: preface.client,
            server: preface.server,
            tls,
            client_certificate,
            handshake_node: shared.name.clone(),
            moves: 0,
        };
        let mut parts = Parts::new(self.leg, connection);
        parts.unopened = self.input;
        parts.received = self.received;
        parts.sent = self.sent;
        Some(Live { about, parts })
    }
}
