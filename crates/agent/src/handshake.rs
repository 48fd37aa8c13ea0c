//! Does the handshake of a new connection over its leg.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use watari_handshake::{
    EarlyData, Established, Failed, Handshake, HandshakeError, Info, Miss, Progress, SessionSource,
};
use watari_record::{Connection, SecretsError, Version};
use watari_stream::Parts;
use watari_sys::tcp;
use watari_values::{Epoch, NodeName, TlsInfo};
use watari_wire::leg::Preface;

use crate::AgentShared;
use crate::early_data::{EarlyConnection, Pipe};
use crate::ending::{Ending, announce_end};
use crate::live::{About, Live};

/// Buffer space for one read, in bytes.
pub(crate) const READ_LEN: usize = 4096;

/// The result of a handshake that succeeded so far.
pub(crate) enum HandshakeOutcome {
    /// The handshake is done.
    Done(Box<Live>),
    /// The client's early data was accepted. Its Finished has not arrived.
    EarlyConnection(Box<EarlyConnection>),
}

/// Does the handshake. `None`: it failed, and the client and the dispatcher have been notified. `surplus` has the bytes
/// that followed the preface.
pub(crate) async fn run_handshake(
    shared: &Arc<AgentShared>,
    leg: TcpStream,
    dispatcher: NodeName,
    preface: &Preface,
    surplus: Vec<u8>,
) -> Option<HandshakeOutcome> {
    let settings = shared.settings.get();
    let Some(tls) = &settings.tls else {
        tracing::warn!(connection = %preface.connection, "handshake refused: this agent has no certificates");
        shared.metrics.count_handshake_failed("no_certificates");
        tcp::reset_on_close(&leg);
        return None;
    };
    shared.sessions.ready().await;
    let deadline = Instant::now() + shared.limits().handshake_timeout;
    let mut driver = Driver {
        handshake: Handshake::new(tls.of(preface.server), shared.sessions.offered()),
        shared,
        received: surplus.len() as u64,
        input: surplus,
        sent: 0,
        leg,
    };
    let result = timeout_at(deadline, driver.run()).await;
    let stage = driver.handshake.stage();
    let result = result.unwrap_or(Err(HandshakeError::TimedOut(stage).into()));
    match result {
        Ok(Reached::Established(info, connection)) => {
            let about = about(shared, dispatcher, preface, &info);
            count(shared, &about, &info);
            Some(HandshakeOutcome::Done(Box::new(Live { about, parts: driver.into_parts(connection) })))
        }
        Ok(Reached::EarlyData(info)) => {
            let about = about(shared, dispatcher, preface, &info);
            Some(HandshakeOutcome::EarlyConnection(Box::new(driver.into_early_connection(about, info, deadline))))
        }
        Err(failure) => {
            tracing::info!(connection = %preface.connection, client = %preface.client, cause = %failure, "handshake failed");
            shared.metrics.count_handshake_failed(failure.label());
            let Driver { leg, sent, received, .. } = driver;
            let ending = Ending { connection: preface.connection, dispatcher, tenure: Epoch(0), sent, received };
            // Closes the leg even if the dispatcher would keep it: failed handshakes are rare.
            announce_end(shared, leg, &ending).await;
            None
        }
    }
}

struct Driver<'a> {
    shared: &'a AgentShared,
    handshake: Handshake,
    leg: TcpStream,
    /// Received bytes that the handshake has not consumed.
    input: Vec<u8>,
    received: u64,
    sent: u64,
}

/// The point up to which a [`Driver`] does the handshake.
enum Reached {
    Established(Info, Connection),
    /// Early data was accepted.
    EarlyData(Info),
}

/// The reason that a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the handshake's secrets are unusable: {0}")]
    Secrets(#[from] SecretsError),
    #[error("the leg failed: {0}")]
    Io(#[from] io::Error),
}

impl Failure {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Handshake(error) => error.label(),
            Self::Secrets(_) => "secrets",
            Self::Io(_) => "io",
        }
    }
}

impl Driver<'_> {
    async fn run(&mut self) -> Result<Reached, Failure> {
        loop {
            let received = self.handshake.receive(&self.input);
            let mut progress = self.answer(received).await?;
            self.input.drain(..progress.consumed);
            let wanted = std::mem::take(&mut progress.wanted);
            let looked_for = !wanted.is_empty();
            if looked_for {
                let provided = self.shared.sessions.look_for(self.shared, &wanted).await;
                let answered = self.handshake.provide(provided);
                progress = self.answer(answered).await?;
            }
            if let Some(early_data) = progress.early_data {
                self.shared.metrics.count_early_data(&early_data);
                if let EarlyData::Accepted(info) = early_data {
                    return Ok(Reached::EarlyData(*info));
                }
            }
            if let Some(established) = progress.established {
                let Established { secrets, info } = *established;
                return Ok(Reached::Established(info, Connection::new(secrets)?));
            }
            if !looked_for {
                self.read().await?;
            }
        }
    }

    /// Sends the output of a handshake step, after the sessions that it mentions were stored.
    async fn answer(&mut self, step: Result<Progress, Failed>) -> Result<Progress, Failure> {
        let (output, result) = match step {
            Ok(mut progress) => {
                if !progress.made.is_empty() {
                    self.shared.sessions.store(self.shared, std::mem::take(&mut progress.made)).await;
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

    fn into_parts(self, connection: Connection) -> Parts<TcpStream> {
        let mut parts = Parts::new(self.leg, connection);
        parts.unopened = self.input;
        parts.received = self.received;
        parts.sent = self.sent;
        parts
    }

    fn into_early_connection(self, about: About, info: Info, deadline: Instant) -> EarlyConnection {
        let Self { handshake, leg, input, received, sent, .. } = self;
        let pipe = Pipe { leg, input, received, early: Vec::new(), unsent: Vec::new(), sent, is_alerted: false };
        EarlyConnection { about, info, handshake, pipe, deadline, bulk: None }
    }
}

fn about(shared: &AgentShared, dispatcher: NodeName, preface: &Preface, info: &Info) -> About {
    let version = match info.version {
        Version::Tls12 => 0x0303,
        Version::Tls13 => 0x0304,
    };
    let tls = TlsInfo {
        version,
        suite: info.suite.iana(),
        alpn: info.alpn.clone(),
        server_name: info.server_name.clone(),
        resumed: info.resumed.is_some(),
    };
    About {
        id: preface.connection,
        tenure: Epoch(0),
        last: Epoch(0),
        dispatcher,
        client: preface.client,
        server: preface.server,
        tls,
        client_certificate: info.client_certificate.clone(),
        handshake_node: shared.name.clone(),
        moves: 0,
    }
}

/// Counts a completed handshake.
pub(crate) fn count(shared: &AgentShared, about: &About, info: &Info) {
    let resumed = info.resumed.map(SessionSource::label);
    let missed = info.missed.map(Miss::label);
    tracing::debug!(connection = %about.id, tls = ?about.tls, info.group, resumed, missed, "handshake done");
    shared.metrics.count_handshake(&about.tls, resumed, missed);
}
