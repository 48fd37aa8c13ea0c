//! Serves one sensor, from the greeting to the end of its connection.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tracing::info;
use watari_link::{TalkError, greet, receive, send};
use watari_sys::UnidentifiedPlace;
use watari_values::{NodeName, Role};

use super::judge::{Judge, Replaced, Seat};
use super::wire::{FromJudge, FromSensor, PROTOCOL};
use crate::board::SENSORS_MAX;

/// How the connection of a sensor ended.
pub(super) enum Ended {
    /// The sensor closed it.
    Left,
    /// The connection failed, or the sensor's idle timeout passed.
    Lost(TalkError),
    /// The judge ends it, and sends this reason ([`dismiss`]).
    Refused(String),
}

/// Why the judge ends a connection.
#[derive(Debug, thiserror::Error)]
enum Dismissal {
    #[error("the certificate of {0} does not allow the role {role}", role = Role::Sensor)]
    Role(NodeName),
    #[error("the judge has {SENSORS_MAX} other sensors, the maximum")]
    Crowded,
    #[error("another sensor has connected as {0}: each needs a certificate of its own")]
    Replaced(NodeName),
    #[error(transparent)]
    Talk(#[from] TalkError),
}

/// Serves the sensor `node`, which frees its `place` among the unidentified connections with its hello.
pub(super) async fn serve<R, W>(
    from: &mut R,
    to: &mut W,
    judge: &Judge,
    node: &NodeName,
    is_sensor: bool,
    place: UnidentifiedPlace,
) -> Ended
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match talk(from, to, judge, node, is_sensor, place).await {
        Dismissal::Talk(TalkError::Closed) => Ended::Left,
        Dismissal::Talk(error @ (TalkError::Io(_) | TalkError::Silent)) => Ended::Lost(error),
        dismissal => Ended::Refused(dismissal.to_string()),
    }
}

async fn talk<R, W>(
    from: &mut R,
    to: &mut W,
    judge: &Judge,
    node: &NodeName,
    is_sensor: bool,
    place: UnidentifiedPlace,
) -> Dismissal
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let seat = match timeout(HELLO_MAX, welcome(from, to, judge, node, is_sensor)).await {
        Ok(Ok(seat)) => seat,
        Ok(Err(dismissal)) => return dismissal,
        Err(_) => return TalkError::Silent.into(),
    };
    place.identified();
    info!(%node, "sensor connected");
    match attend(from, to, judge, seat, node).await {
        Ok(never) => match never {},
        Err(dismissal) => dismissal,
    }
}

async fn welcome<R, W>(
    from: &mut R,
    to: &mut W,
    judge: &Judge,
    node: &NodeName,
    is_sensor: bool,
) -> Result<Seat, Dismissal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    greet(&PROTOCOL, from, to).await?;
    if !is_sensor {
        return Err(Dismissal::Role(node.clone()));
    }
    let (run, before) = match receive(from).await? {
        FromSensor::Hello { run, taken } => (run, taken),
        other => return Err(other.out_of_turn().into()),
    };
    let (seat, taken) = judge.seat(node, run, before).ok_or(Dismissal::Crowded)?;
    send(to, &FromJudge::Welcome { run: judge.run(), taken }).await?;
    Ok(seat)
}

async fn attend<R, W>(
    from: &mut R,
    to: &mut W,
    judge: &Judge,
    mut seat: Seat,
    node: &NodeName,
) -> Result<std::convert::Infallible, Dismissal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let said = tokio::select! {
            replaced = seat.replaced() => return Err(match replaced {
                Replaced::ByItself => TalkError::Closed.into(),
                Replaced::ByAnother => Dismissal::Replaced(node.clone()),
            }),
            said = receive(from) => said?,
        };
        let answer = match said {
            FromSensor::Report { number, before, report } => FromJudge::Taken(seat.take(number, before, *report)?),
            FromSensor::Beat { clock_offset_ns } => {
                seat.clock_offset(clock_offset_ns);
                FromJudge::Beat { at_ns: judge.now().0 }
            }
            hello @ FromSensor::Hello { .. } => return Err(hello.out_of_turn().into()),
        };
        send(to, &answer).await?;
    }
}

/// Sends the reason, and reads on for a while. If it closed before all was read, the system would reset the connection,
/// and the reason could be lost.
pub(super) async fn dismiss<R, W>(from: &mut R, to: &mut W, why: String)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let dismissed = async {
        send(to, &FromJudge::Refused { why }).await?;
        to.shutdown().await?;
        tokio::io::copy(&mut from.take(FAREWELL_LEN_MAX), &mut tokio::io::sink()).await?;
        Ok::<_, TalkError>(())
    };
    // A peer that does not read does not get the reason.
    let _ = timeout(FAREWELL_MAX, dismissed).await;
}

const HELLO_MAX: Duration = Duration::from_secs(5);
const FAREWELL_MAX: Duration = Duration::from_secs(2);
const FAREWELL_LEN_MAX: u64 = 16 << 20;
