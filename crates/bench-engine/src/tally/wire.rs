//! The encoding of tallies between processes. It loses no precision.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

use super::times::{COUNT_MAX, Raw};
use super::{Connections, Endings, Flows, Part, Point, Series, Tally, Times};
use crate::ending::{Ending, EndingKind};
use crate::histogram;
use crate::sample::wire::{BadSamples, WireSeen};

/// A tally as it is sent. It does not contain the names of the classes: both sides have the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireTally {
    /// With their indices in the table.
    parts: Vec<(u32, WirePart)>,
    doublings: u32,
    points: Vec<WirePoint>,
    flows_done: WireTimes,
    flows_failed: u64,
    lag: WireTimes,
    unfinished: u64,
}

/// A received tally is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid tally: {0}")]
pub struct BadTally(&'static str);

impl From<BadSamples> for BadTally {
    fn from(BadSamples(why): BadSamples) -> Self {
        Self(why)
    }
}

impl WireTally {
    pub fn of(tally: &Tally) -> Self {
        let parts = tally.parts.iter().enumerate();
        Self {
            parts: parts.filter_map(|(at, part)| Some((at as u32, WirePart::of(part.as_deref()?)))).collect(),
            doublings: tally.series.doublings(),
            points: tally.series.points().iter().map(WirePoint::of).collect(),
            flows_done: WireTimes::of(&tally.flows.done),
            flows_failed: tally.flows.failed,
            lag: WireTimes::of(&tally.lag),
            unfinished: tally.unfinished,
        }
    }

    /// Decodes a tally with these classes. For any input, the result can be merged, summed up and shown.
    pub fn into_tally(self, classes: Arc<[String]>) -> Result<Tally, BadTally> {
        let mut tally = Tally::new(classes);
        if self.parts.len() > tally.parts.len() {
            return Err(BadTally("it has too many parts"));
        }
        for (at, part) in self.parts {
            let place = tally.parts.get_mut(at as usize).ok_or(BadTally("a part has an unknown class"))?;
            *place = Some(Box::new(part.into_part()?));
        }
        let points = self.points.into_iter().map(WirePoint::into_point).collect::<Result<_, _>>()?;
        tally.series = Series::from_raw(self.doublings, points).ok_or(BadTally("its series is too long"))?;
        tally.flows = Flows { done: self.flows_done.into_times()?, failed: count(self.flows_failed)? };
        tally.lag = self.lag.into_times()?;
        tally.unfinished = count(self.unfinished)?;
        Ok(tally)
    }
}

/// [`Times`]. `None` if empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireTimes(Option<WireSome>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireSome {
    #[serde(with = "serde_bytes")]
    histogram: Vec<u8>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl WireTimes {
    fn of(times: &Times) -> Self {
        Self(times.to_raw().map(|raw| WireSome {
            histogram: histogram::to_bytes(&raw.histogram),
            sum_ns: raw.sum,
            min_ns: raw.min.as_nanos() as u64,
            max_ns: raw.max.as_nanos() as u64,
        }))
    }

    fn into_times(self) -> Result<Times, BadTally> {
        let Some(some) = self.0 else { return Ok(Times::default()) };
        let raw = Raw {
            histogram: read(&some.histogram)?,
            sum: some.sum_ns,
            min: Duration::from_nanos(some.min_ns),
            max: Duration::from_nanos(some.max_ns),
        };
        Times::from_raw(raw).ok_or(BadTally("its times are inconsistent"))
    }
}

/// Kind, phase, side and count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireEndings(Vec<(u8, u8, u8, u64)>);

impl WireEndings {
    fn of(endings: &Endings) -> Self {
        let row = |(ending, count): (Ending, u64)| {
            let (kind, phase, side) = ending.to_raw();
            (kind, phase, side, count)
        };
        Self(endings.iter().map(row).collect())
    }

    /// Rejects endings whose total is not `total`.
    fn into_endings(self, total: u64) -> Result<Endings, BadTally> {
        let mut endings = Endings::default();
        let mut left = total;
        for (kind, phase, side, count) in self.0 {
            let ending = Ending::from_raw((kind, phase, side)).ok_or(BadTally("it has an unknown ending"))?;
            left = left.checked_sub(count).ok_or(UNEQUAL)?;
            endings.add_many(ending, count);
        }
        if left == 0 { Ok(endings) } else { Err(UNEQUAL) }
    }
}

const UNEQUAL: BadTally = BadTally("its endings do not add up to their total");

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WirePart {
    requests: u64,
    endings: WireEndings,
    statuses: Vec<(u16, u64)>,
    error_statuses: u64,
    body_bytes: u64,
    latency: WireTimes,
    failed: WireTimes,
    wait: WireTimes,
    transfer: WireTimes,
    connections: WireConnections,
}

impl WirePart {
    fn of(part: &Part) -> Self {
        Self {
            requests: part.requests,
            endings: WireEndings::of(&part.endings),
            statuses: part.statuses.iter().map(|(status, count)| (*status, *count)).collect(),
            error_statuses: part.error_statuses,
            body_bytes: part.body_bytes,
            latency: WireTimes::of(&part.latency),
            failed: WireTimes::of(&part.failed),
            wait: WireTimes::of(&part.wait),
            transfer: WireTimes::of(&part.transfer),
            connections: WireConnections::of(&part.connections),
        }
    }

    fn into_part(self) -> Result<Part, BadTally> {
        let endings = self.endings.into_endings(self.requests)?;
        if self.error_statuses > endings.of(EndingKind::Normal) {
            return Err(UNEQUAL);
        }
        Ok(Part {
            requests: count(self.requests)?,
            endings,
            error_statuses: self.error_statuses,
            statuses: self
                .statuses
                .into_iter()
                .map(|(status, times)| Ok((status, count(times)?)))
                .collect::<Result<_, BadTally>>()?,
            body_bytes: count(self.body_bytes)?,
            latency: self.latency.into_times()?,
            failed: self.failed.into_times()?,
            wait: self.wait.into_times()?,
            transfer: self.transfer.into_times()?,
            connections: self.connections.into_connections()?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireConnections {
    opened: u64,
    endings: WireEndings,
    bytes_read: u64,
    bytes_written: u64,
    connect: WireTimes,
    handshake: WireTimes,
    write: WireTimes,
    tr: WireTimes,
    tc: WireTimes,
    failed: WireTimes,
    tls: Vec<(WireSeen, u64)>,
}

impl WireConnections {
    fn of(connections: &Connections) -> Self {
        Self {
            opened: connections.opened,
            endings: WireEndings::of(&connections.endings),
            bytes_read: connections.bytes_read,
            bytes_written: connections.bytes_written,
            connect: WireTimes::of(&connections.connect),
            handshake: WireTimes::of(&connections.handshake),
            write: WireTimes::of(&connections.write),
            tr: WireTimes::of(&connections.tr),
            tc: WireTimes::of(&connections.tc),
            failed: WireTimes::of(&connections.failed),
            tls: connections.tls.iter().map(|(seen, count)| (WireSeen::of(seen), *count)).collect(),
        }
    }

    fn into_connections(self) -> Result<Connections, BadTally> {
        let tls = self.tls.into_iter().map(|(seen, times)| Ok((Arc::new(seen.into_seen()?), count(times)?)));
        Ok(Connections {
            opened: count(self.opened)?,
            endings: self.endings.into_endings(self.opened)?,
            bytes_read: count(self.bytes_read)?,
            bytes_written: count(self.bytes_written)?,
            connect: self.connect.into_times()?,
            handshake: self.handshake.into_times()?,
            write: self.write.into_times()?,
            tr: self.tr.into_times()?,
            tc: self.tc.into_times()?,
            failed: self.failed.into_times()?,
            tls: tls.collect::<Result<_, BadTally>>()?,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WirePoint {
    started: u64,
    /// In the order of [`EndingKind::ALL`].
    endings: [u64; EndingKind::ALL.len()],
    error_statuses: u64,
    body_bytes: u64,
    opened: u64,
    full: u64,
    resumed: u64,
    longest_ns: u64,
    latency: Option<serde_bytes::ByteBuf>,
}

impl WirePoint {
    fn of(point: &Point) -> Self {
        Self {
            started: point.started,
            endings: point.endings,
            error_statuses: point.error_statuses,
            body_bytes: point.body_bytes,
            opened: point.opened,
            full: point.full,
            resumed: point.resumed,
            longest_ns: super::times::nanoseconds(point.longest),
            latency: point.histogram().map(|times| histogram::to_bytes(times).into()),
        }
    }

    fn into_point(self) -> Result<Point, BadTally> {
        let mut point = Point::default();
        point.started = count(self.started)?;
        point.body_bytes = count(self.body_bytes)?;
        point.opened = count(self.opened)?;
        point.full = count(self.full)?;
        point.resumed = count(self.resumed)?;
        point.longest = Duration::from_nanos(self.longest_ns);
        for (place, times) in point.endings.iter_mut().zip(self.endings) {
            *place = count(times)?;
        }
        if self.error_statuses > point.ended(EndingKind::Normal) {
            return Err(UNEQUAL);
        }
        point.error_statuses = self.error_statuses;
        let Some(latency) = self.latency else { return Ok(point) };
        if point.set_histogram(read(&latency)?) { Ok(point) } else { Err(BadTally("its latencies are inconsistent")) }
    }
}

fn read<T: Counter>(bytes: &[u8]) -> Result<Histogram<T>, BadTally> {
    histogram::from_bytes(bytes).map_err(|_| BadTally("a histogram cannot be decoded"))
}

/// Rejects a count that cannot be added to thousands of others.
fn count(count: u64) -> Result<u64, BadTally> {
    if count <= COUNT_MAX { Ok(count) } else { Err(BadTally("a count is too large")) }
}

#[cfg(test)]
mod tests;
