//! The sensor's side of one connection to a judge.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};
use tokio_rustls::TlsStream;
use watari_link::{IdentifyError, Inbox, Peer, TalkError, connect_to_role, greet, receive, send, write};
use watari_packets::Timestamp;
use watari_pki::Identity;
use watari_values::{NodeName, Role};

use super::backlog::Cursor;
use super::clock::Offsets;
use super::shared::ReporterShared;
use super::wire::{FromJudge, FromSensor, HEARTBEAT, PROTOCOL};

/// A connection to a judge failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The judge cannot be reached.
    #[error("cannot connect: {0}")]
    Connect(io::Error),
    /// TLS failed, or the peer is not a judge.
    #[error(transparent)]
    Peer(#[from] IdentifyError),
    /// The judge did not answer in time.
    #[error("no answer within {} s", CONNECT_MAX.as_secs())]
    Slow,
    /// The judge refused the connection.
    #[error("it refused the connection: {0}")]
    Refused(String),
    /// The protocol failed.
    #[error(transparent)]
    Talk(#[from] TalkError),
}

/// A connection on which the judge has acknowledged reports.
pub(super) struct Session<'a> {
    shared: &'a ReporterShared,
    judge: NodeName,
    inbox: Inbox<FromJudge>,
    to: WriteHalf<TlsStream<TcpStream>>,
    cursor: Cursor,
    beats: Interval,
    /// The time of a heartbeat without an answer yet, by both clocks.
    asked: Option<(Instant, Timestamp)>,
    offsets: Offsets,
}

/// The next action.
enum Turn {
    Message(FromJudge),
    Beat,
    Report(Arc<[u8]>),
    Look,
}

impl<'a> Session<'a> {
    /// Connects to the judge at `address`, with any name.
    pub(super) async fn connect(
        shared: &'a ReporterShared,
        address: &str,
        identity: &Identity,
    ) -> Result<Self, LinkError> {
        timeout(CONNECT_MAX, Self::connect_slowly(shared, address, identity)).await.map_err(|_| LinkError::Slow)?
    }

    async fn connect_slowly(shared: &'a ReporterShared, address: &str, identity: &Identity) -> Result<Self, LinkError> {
        let tcp = TcpStream::connect(address).await.map_err(LinkError::Connect)?;
        let Peer { stream, node: judge, .. } = connect_to_role(tcp, Role::Judge, identity).await?;
        let (mut from, mut to) = tokio::io::split(stream);
        let cursor = greeted(shared, &mut from, &mut to).await?;
        let mut beats = interval(HEARTBEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let inbox = Inbox::read(from);
        Ok(Self { shared, judge, inbox, to, cursor, beats, asked: None, offsets: Offsets::default() })
    }

    /// The name of the judge.
    pub(super) const fn judge(&self) -> &NodeName {
        &self.judge
    }

    /// Sends reports, until the sensor ends and all are taken.
    pub(super) async fn send_reports(mut self) -> Result<(), LinkError> {
        while !self.shared.is_done() {
            match self.turn().await? {
                Turn::Message(message) => self.on_message(message)?,
                Turn::Beat => self.beat().await?,
                Turn::Report(message) => write(&mut self.to, &message).await?,
                Turn::Look => {}
            }
        }
        Ok(())
    }

    /// Messages of the judge come first: they are short, and make room.
    async fn turn(&mut self) -> Result<Turn, LinkError> {
        tokio::select! {
            biased;
            message = self.inbox.next() => return Ok(Turn::Message(message?)),
            _ = self.beats.tick() => return Ok(Turn::Beat),
            () = std::future::ready(()) => {}
        }
        if let Some(message) = self.cursor.next(&self.shared.backlog()) {
            return Ok(Turn::Report(message));
        }
        tokio::select! {
            message = self.inbox.next() => Ok(Turn::Message(message?)),
            _ = self.beats.tick() => Ok(Turn::Beat),
            () = self.shared.changed() => Ok(Turn::Look),
        }
    }

    fn on_message(&mut self, message: FromJudge) -> Result<(), LinkError> {
        match message {
            FromJudge::Taken(taken) => {
                self.shared.backlog().take(taken).map_err(TalkError::content)?;
                self.cursor.taken(taken.number);
            }
            FromJudge::Beat { at_ns } => {
                let beat = FromJudge::Beat { at_ns };
                let (asked, sent) = self.asked.take().ok_or_else(|| beat.out_of_turn())?;
                self.offsets.add(sent, Timestamp(at_ns), asked.elapsed());
            }
            FromJudge::Refused { why } => return Err(refused(&why)),
            welcome @ FromJudge::Welcome { .. } => return Err(welcome.out_of_turn().into()),
        }
        Ok(())
    }

    /// Sends a heartbeat, unless the last one has no answer yet.
    async fn beat(&mut self) -> Result<(), LinkError> {
        if self.asked.is_some() {
            return Ok(());
        }
        let beat = FromSensor::Beat { clock_offset_ns: self.offsets.best() };
        self.asked = Some((Instant::now(), self.shared.now()));
        Ok(send(&mut self.to, &beat).await?)
    }
}

async fn greeted(
    shared: &ReporterShared,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<Cursor, LinkError> {
    greet(&PROTOCOL, from, to).await?;
    let taken = shared.backlog().taken();
    send(to, &FromSensor::Hello { run: shared.run(), taken }).await?;
    match receive(from).await? {
        FromJudge::Welcome { run, taken } => {
            shared.backlog().take(taken).map_err(TalkError::content)?;
            shared.welcomed(run);
            Ok(Cursor::behind(taken.number))
        }
        FromJudge::Refused { why } => Err(refused(&why)),
        other => Err(other.out_of_turn().into()),
    }
}

/// Text from outside is escaped for the log.
fn refused(why: &str) -> LinkError {
    LinkError::Refused(why.escape_debug().collect())
}

const CONNECT_MAX: Duration = Duration::from_secs(10);
