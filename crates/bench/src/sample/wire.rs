//! How samples of connections go from one process to another: exactly.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{ConnectionSample, Family, HandshakeKind, TlsSeen};
use crate::ending::Ending;

/// Samples as they are sent: encoded by themselves, so that their length is known before room is made for any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireSamples(ByteBuf);

/// What came are no samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("connections that cannot be: {0}")]
pub(crate) struct BadSamples(pub(crate) &'static str);

impl WireSamples {
    /// Of [`SAMPLES_MAX`] at most.
    pub(crate) fn of(samples: &[ConnectionSample]) -> Result<Self, postcard::Error> {
        Ok(Self(ByteBuf::from(postcard::to_allocvec(&Encoded::of(samples))?)))
    }

    /// Reads them as of so many classes.
    pub(crate) fn into_samples(self, classes: usize) -> Result<Vec<ConnectionSample>, BadSamples> {
        if self.0.len() > BYTES_MAX {
            return Err(BadSamples("there are too many at once"));
        }
        let encoded: Encoded = postcard::from_bytes(&self.0).map_err(|_| BadSamples("they cannot be read"))?;
        encoded.into_samples(classes)
    }
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    /// What handshakes agreed on: most on the same.
    seen: Vec<WireSeen>,
    samples: Vec<WireSample>,
}

impl Encoded {
    fn of(samples: &[ConnectionSample]) -> Self {
        let (mut seen, mut known) = (Vec::new(), HashMap::new());
        let mut place = |tls: &Arc<TlsSeen>| {
            *known.entry(Arc::clone(tls)).or_insert_with(|| {
                seen.push(WireSeen::of(tls));
                seen.len() as u32 - 1
            })
        };
        let samples =
            samples.iter().map(|sample| WireSample::of(sample, sample.tls.as_ref().map(&mut place))).collect();
        Self { seen, samples }
    }

    fn into_samples(self, classes: usize) -> Result<Vec<ConnectionSample>, BadSamples> {
        if self.samples.len() > SAMPLES_MAX {
            return Err(BadSamples("there are too many at once"));
        }
        let seen = self.seen.into_iter().map(|seen| seen.into_seen().map(Arc::new)).collect::<Result<Vec<_>, _>>()?;
        self.samples.into_iter().map(|sample| sample.into_sample(classes, &seen)).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct WireSample {
    class: u32,
    local: Option<SocketAddr>,
    remote: SocketAddr,
    /// Which of those that were seen.
    tls: Option<u32>,
    opened: Duration,
    connected: Option<Duration>,
    secured: Option<Duration>,
    written: Option<Duration>,
    first_byte: Option<Duration>,
    last_byte: Option<Duration>,
    closed: Duration,
    requests: u64,
    bytes_read: u64,
    bytes_written: u64,
    /// Kind, phase and side.
    ending: (u8, u8, u8),
}

impl WireSample {
    fn of(sample: &ConnectionSample, tls: Option<u32>) -> Self {
        Self {
            class: sample.class as u32,
            local: sample.local,
            remote: sample.remote,
            tls,
            opened: sample.opened,
            connected: sample.connected,
            secured: sample.secured,
            written: sample.written,
            first_byte: sample.first_byte,
            last_byte: sample.last_byte,
            closed: sample.closed,
            requests: sample.requests,
            bytes_read: sample.bytes_read,
            bytes_written: sample.bytes_written,
            ending: sample.ending.to_raw(),
        }
    }

    fn into_sample(self, classes: usize, seen: &[Arc<TlsSeen>]) -> Result<ConnectionSample, BadSamples> {
        let class = self.class as usize;
        if class >= classes {
            return Err(BadSamples("one belongs to no class"));
        }
        self.check_times()?;
        let tls = self.tls.map(|at| seen.get(at as usize).cloned().ok_or(BadSamples("one has a handshake of nobody")));
        Ok(ConnectionSample {
            class,
            family: Family::of(self.remote),
            local: self.local,
            remote: self.remote,
            tls: tls.transpose()?,
            opened: self.opened,
            connected: self.connected,
            secured: self.secured,
            written: self.written,
            first_byte: self.first_byte,
            last_byte: self.last_byte,
            closed: self.closed,
            requests: self.requests,
            bytes_read: self.bytes_read,
            bytes_written: self.bytes_written,
            ending: Ending::from_raw(self.ending).ok_or(BadSamples("one has an ending that is unknown"))?,
        })
    }

    /// Whatever happens to a connection happens between its beginning and its end.
    fn check_times(&self) -> Result<(), BadSamples> {
        let between = [self.connected, self.secured, self.written, self.first_byte, self.last_byte];
        let is_within = |time: &Duration| (self.opened..=self.closed).contains(time);
        if self.closed <= TIME_MAX && is_within(&self.closed) && between.iter().flatten().all(is_within) {
            Ok(())
        } else {
            Err(BadSamples("times of one do not fit together"))
        }
    }
}

/// What a handshake agreed on, as it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WireSeen {
    resumed: bool,
    version: String,
    suite: String,
    group: Option<String>,
    key: Option<String>,
    alpn: Option<String>,
}

impl WireSeen {
    pub(crate) fn of(seen: &TlsSeen) -> Self {
        Self {
            resumed: seen.kind == HandshakeKind::Resumed,
            version: seen.version.to_owned(),
            suite: seen.suite.clone(),
            group: seen.group.clone(),
            key: seen.key.clone(),
            alpn: seen.alpn.clone(),
        }
    }

    pub(crate) fn into_seen(self) -> Result<TlsSeen, BadSamples> {
        let version = VERSIONS.into_iter().find(|version| *version == self.version);
        let names = [Some(&self.suite), self.group.as_ref(), self.key.as_ref(), self.alpn.as_ref()];
        if names.into_iter().flatten().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(BadSamples("a handshake has a name that is too long"));
        }
        Ok(TlsSeen {
            kind: if self.resumed { HandshakeKind::Resumed } else { HandshakeKind::Full },
            version: version.ok_or(BadSamples("a handshake has a version of TLS that is unknown"))?,
            suite: self.suite,
            group: self.group,
            key: self.key,
            alpn: self.alpn,
        })
    }
}

const VERSIONS: [&str; 3] = ["TLSv1.3", "TLSv1.2", ""];
/// At once.
pub(crate) const SAMPLES_MAX: usize = 1024;
/// Of so many: each has about 100 bytes, and what handshakes agreed on seldom differs.
const BYTES_MAX: usize = 1 << 20;
/// The longest name is what ALPN may agree on (RFC 7301, section 3.1).
const NAME_BYTES_MAX: usize = 255;
/// A year is longer than any run.
const TIME_MAX: Duration = Duration::from_hours(24 * 366);

#[cfg(test)]
mod tests;
