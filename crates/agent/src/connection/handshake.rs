//! Handshakes of new connections over their legs.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};
use watari_handshake::{
    EarlyData, Established, Failed, Handshake, HandshakeError, Info, Miss, NewSession, Progress, SessionSource, Stage,
};
use watari_record::{Connection, SecretsError, Version};
use watari_stream::Parts;
use watari_sys::Turn;
use watari_values::{Epoch, NodeName, TlsInfo};
use watari_wire::leg::Preface;

use crate::handoff::ending::Ending;
use crate::handoff::live::{About, Live};
use crate::leg::{CurrentDispatcher, Leg};
use crate::node::metrics::{Counted, Metrics};
use crate::node::peers::Peers;
use crate::sessions::service::SessionService;
use crate::settings::current::CurrentSettings;

/// Buffer space for one read, in bytes.
pub(super) const READ_LEN: usize = 4096;

/// Does handshakes: the settings in force, the sessions that clients resume, and the counts of both.
pub(crate) struct Handshakes {
    peers: Peers,
    settings: Arc<CurrentSettings>,
    metrics: Arc<Metrics>,
    sessions: Arc<SessionService>,
}

/// The result of a handshake.
pub(super) enum HandshakeOutcome {
    /// The handshake is done.
    Done(Box<Live>),
    /// The client's early data was accepted. Its Finished has not arrived.
    EarlyData(Box<AcceptedEarlyData>),
    /// The handshake failed, and the client has the alert. The end of the stream is to be announced.
    Failed(Leg, Ending),
    /// The agent does no handshakes. The leg is reset.
    Refused,
}

/// A handshake with accepted early data, after the server has sent its flight.
pub(crate) struct AcceptedEarlyData {
    pub(crate) about: About,
    pub(crate) info: Info,
    pub(crate) handshake: Handshake,
    pub(crate) leg: Leg,
    /// Received bytes that the handshake has not consumed.
    pub(crate) input: Vec<u8>,
    /// Bytes of the client's stream that were read.
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// The time by which the handshake has to be done.
    pub(crate) deadline: Instant,
}

impl Handshakes {
    pub(crate) fn new(
        peers: Peers,
        settings: Arc<CurrentSettings>,
        metrics: Arc<Metrics>,
        sessions: Arc<SessionService>,
    ) -> Self {
        Self { peers, settings, metrics, sessions }
    }

    /// Does the handshake of a new connection. `surplus` has the bytes that followed the preface.
    pub(super) async fn run(
        &self,
        mut leg: Leg,
        dispatcher: CurrentDispatcher,
        preface: &Preface,
        surplus: Vec<u8>,
    ) -> HandshakeOutcome {
        let settings = self.settings.get();
        let Some(tls) = &settings.tls else {
            tracing::warn!(connection = %preface.connection, "handshake refused: this agent has no certificates");
            self.metrics.count_handshake_failed("no_certificates");
            leg.reset_on_close();
            return HandshakeOutcome::Refused;
        };
        self.sessions.ready().await;
        let deadline = Instant::now() + self.settings.limits().handshake_timeout;
        let mut driver = Driver {
            handshake: Handshake::new(tls.of(preface.server), self.sessions.offered()),
            handshakes: self,
            received: surplus.len() as u64,
            input: surplus,
            sent: 0,
            leg,
            deadline,
        };
        let result = timeout_at(deadline, driver.run()).await;
        let stage = driver.handshake.stage();
        let result = result.unwrap_or(Err(HandshakeError::TimedOut(stage).into()));
        match result {
            Ok(Reached::Established(info, connection)) => {
                let about = about(self.peers.name().clone(), dispatcher, preface, &info);
                self.count(&about, &info);
                HandshakeOutcome::Done(Box::new(Live { about, parts: driver.into_parts(connection) }))
            }
            Ok(Reached::EarlyData(info)) => {
                let about = about(self.peers.name().clone(), dispatcher, preface, &info);
                HandshakeOutcome::EarlyData(Box::new(driver.into_accepted(about, info, deadline)))
            }
            Err(failure) => {
                tracing::info!(connection = %preface.connection, client = %preface.client, cause = %failure, "handshake failed");
                self.metrics.count_handshake_failed(failure.label());
                let leg = driver.leg;
                // The timeout may have interrupted a write.
                let (sent, received) = (leg.sent(), leg.received());
                let connection = preface.connection;
                HandshakeOutcome::Failed(leg, Ending { connection, dispatcher, tenure: Epoch(0), sent, received })
            }
        }
    }

    /// Counts a completed handshake.
    pub(super) fn count(&self, about: &About, info: &Info) {
        let resumed = info.resumed.map(SessionSource::label);
        let missed = info.missed.map(Miss::label);
        tracing::debug!(connection = %about.id, tls = ?about.tls, info.group, resumed, missed, "handshake done");
        self.metrics.count_handshake(&about.tls, resumed, missed);
    }

    /// Stores the sessions of a handshake, before the client gets their tickets.
    pub(super) async fn store(&self, made: Vec<NewSession>) {
        self.sessions.store(made).await;
    }
}

struct Driver<'a> {
    handshakes: &'a Handshakes,
    handshake: Handshake,
    leg: Leg,
    /// Received bytes that the handshake has not consumed.
    input: Vec<u8>,
    received: u64,
    sent: u64,
    /// The time by which the handshake has to be done.
    deadline: Instant,
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
    #[error("the agent is too busy: the handshake did not get its turn in time")]
    TooBusy,
    #[error("the handshake's secrets are unusable: {0}")]
    Secrets(#[from] SecretsError),
    #[error("the leg failed: {0}")]
    Io(#[from] io::Error),
}

impl Failure {
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Handshake(error) => error.label(),
            Self::TooBusy => "too_busy",
            Self::Secrets(_) => "secrets",
            Self::Io(_) => "io",
        }
    }
}

impl Driver<'_> {
    async fn run(&mut self) -> Result<Reached, Failure> {
        loop {
            let received = self.receive().await?;
            let mut progress = self.answer(received).await?;
            self.input.drain(..progress.consumed);
            let wanted = std::mem::take(&mut progress.wanted);
            let looked_for = !wanted.is_empty();
            if looked_for {
                let provided = self.handshakes.sessions.look_for(&wanted).await;
                let turn = if provided.found.is_empty() { Some(self.turn().await?) } else { None };
                let answered = self.handshake.provide(provided);
                drop(turn);
                progress = self.answer(answered).await?;
            }
            if let Some(early_data) = progress.early_data {
                self.handshakes.metrics.count_early_data(&early_data);
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

    /// Takes what was read. Before the server's flight, the agent may have to sign, and waits for a turn. After it, it
    /// does not: a handshake that has begun ends before others begin.
    async fn receive(&mut self) -> Result<Result<Progress, Failed>, Failure> {
        let may_sign = self.handshake.stage() != Stage::Finished && !self.input.is_empty();
        let _turn = if may_sign { Some(self.turn().await?) } else { None };
        Ok(self.handshake.receive(&self.input))
    }

    /// Waits for a turn, for half of the time that the handshake has left: the client needs the rest for its answer.
    /// Otherwise, an agent that cannot do all handshakes in time would do each just before its end, and none in time.
    async fn turn(&self) -> Result<Turn, Failure> {
        let _waiting = Counted::one_more(&self.handshakes.metrics.handshakes_waiting);
        let now = Instant::now();
        let limit = now + self.deadline.saturating_duration_since(now) / 2;
        timeout_at(limit, Turn::wait()).await.map_err(|_| Failure::TooBusy)
    }

    /// Sends the output of a handshake step, after the sessions that it mentions were stored.
    async fn answer(&mut self, step: Result<Progress, Failed>) -> Result<Progress, Failure> {
        let (output, result) = match step {
            Ok(mut progress) => {
                if !progress.made.is_empty() {
                    self.handshakes.store(std::mem::take(&mut progress.made)).await;
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

    fn into_parts(self, connection: Connection) -> Parts<Leg> {
        let mut parts = Parts::new(self.leg, connection);
        parts.unopened = self.input;
        parts.received = self.received;
        parts.sent = self.sent;
        parts
    }

    fn into_accepted(self, about: About, info: Info, deadline: Instant) -> AcceptedEarlyData {
        let Self { handshake, leg, input, received, sent, .. } = self;
        AcceptedEarlyData { about, info, handshake, leg, input, received, sent, deadline }
    }
}

fn about(handshake_node: NodeName, dispatcher: CurrentDispatcher, preface: &Preface, info: &Info) -> About {
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
        handshake_node,
        moves: 0,
    }
}
