//! The encoding of connection samples between processes. It loses no precision.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::{ConnectionSample, Family, HandshakeKind, TlsSeen};
use crate::ending::Ending;

/// Samples as they are sent. They are encoded separately, so that the receiver checks their length before it allocates
/// memory for samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSamples(ByteBuf);

/// Received samples are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid samples of connections: {0}")]
pub struct BadSamples(pub(crate) &'static str);

impl WireSamples {
    /// Encodes at most [`SAMPLES_MAX`] samples.
    pub fn of(samples: &[ConnectionSample]) -> Result<Self, postcard::Error> {
        Ok(Self(ByteBuf::from(postcard::to_allocvec(&Encoded::of(samples))?)))
    }

    /// Decodes the samples. Rejects a class that is not less than `classes`.
    pub fn into_samples(self, classes: usize) -> Result<Vec<ConnectionSample>, BadSamples> {
        if self.0.len() > BYTES_MAX {
            return Err(BadSamples("there are too many in one message"));
        }
        let encoded: Encoded = postcard::from_bytes(&self.0).map_err(|_| BadSamples("they cannot be decoded"))?;
        encoded.into_samples(classes)
    }
}

#[derive(Serialize, Deserialize)]
struct Encoded {
    /// The results of handshakes, each once: most handshakes have the same.
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
            return Err(BadSamples("there are too many in one message"));
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
    /// An index into `seen`.
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
            return Err(BadSamples("a sample has an unknown class"));
        }
        self.check_times()?;
        let tls = self
            .tls
            .map(|at| seen.get(at as usize).cloned().ok_or(BadSamples("a sample refers to a missing handshake")));
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
            ending: Ending::from_raw(self.ending).ok_or(BadSamples("a sample has an unknown ending"))?,
        })
    }

    /// All times of a connection are between its beginning and its end.
    fn check_times(&self) -> Result<(), BadSamples> {
        let between = [self.connected, self.secured, self.written, self.first_byte, self.last_byte];
        let is_within = |time: &Duration| (self.opened..=self.closed).contains(time);
        if self.closed <= TIME_MAX && is_within(&self.closed) && between.iter().flatten().all(is_within) {
            Ok(())
        } else {
            Err(BadSamples("the times of a sample are inconsistent"))
        }
    }
}

/// The result of a handshake, as it is sent.
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
            version: version.ok_or(BadSamples("a handshake has an unknown TLS version"))?,
            suite: self.suite,
            group: self.group,
            key: self.key,
            alpn: self.alpn,
        })
    }
}

const VERSIONS: [&str; 3] = ["TLSv1.3", "TLSv1.2", ""];
/// The largest number of samples in one message.
pub const SAMPLES_MAX: usize = 1024;
/// The largest size of [`SAMPLES_MAX`] samples. Each has about 100 bytes, and the results of handshakes seldom differ.
const BYTES_MAX: usize = 1 << 20;
/// The longest name is an ALPN protocol name (RFC 7301, section 3.1).
const NAME_BYTES_MAX: usize = 255;
/// A year, which is longer than any run.
const TIME_MAX: Duration = Duration::from_hours(24 * 366);

#[cfg(test)]
mod tests;
