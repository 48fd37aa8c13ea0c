//! The encoding of plans for workers.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use watari_bench_engine::flow::wire::{BadFlow, WireFlow};
use watari_bench_engine::plan::{Pace, Plan, Protocol, Stop, Timeouts, Work};
use watari_bench_engine::portion::Portion;
use watari_bench_engine::requests::wire::{BadRequests, WireRequests};
use watari_bench_engine::schedule::{Rate, Schedule, Spacing};
use watari_bench_engine::shares::Shares;
use watari_bench_engine::site::wire::{BadSite, WireSite};
use watari_bench_engine::source::Sources;
use watari_bench_engine::tls::{Pem, Resume, Roots, TlsOptions};
use watari_bench_engine::users::{Count, Settings};
use watari_handshake::{Group, Policy};
use watari_record::{CipherSuite, Version};

/// The whole plan, and the worker's part of it. It contains the content of all files that the plan names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Job {
    /// The number of the part, and how many there are.
    portion: (u64, u64),
    /// How long after the common start this part begins.
    after: Duration,
    work: WireWork,
    sources: Option<Vec<IpAddr>>,
    pace: WirePace,
    stop: (Option<u64>, Option<Duration>),
    protocol: WireProtocol,
    tls: WireTls,
    connect_timeout: Duration,
    response_timeout: Duration,
    threads: u32,
    /// Whether the controller requests the sample of each connection.
    logged: bool,
}

/// A received plan is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadJob {
    /// A field is out of its range.
    #[error("invalid plan: {0}")]
    Field(&'static str),
    /// The requests are invalid.
    #[error(transparent)]
    Requests(#[from] BadRequests),
    /// The flow is invalid.
    #[error(transparent)]
    Flow(#[from] BadFlow),
    /// A server is invalid.
    #[error(transparent)]
    Site(#[from] BadSite),
}

impl Job {
    pub(crate) fn of(plan: &Plan, portion: Portion, after: Duration, logged: bool) -> Self {
        Self {
            portion: portion.get(),
            after,
            work: WireWork::of(&plan.work),
            sources: plan.sources.as_ref().map(|sources| sources.addresses().to_vec()),
            pace: WirePace::of(&plan.pace),
            stop: (plan.stop.requests, plan.stop.after),
            protocol: WireProtocol::of(plan.protocol),
            tls: WireTls::of(&plan.tls),
            connect_timeout: plan.timeouts.connect,
            response_timeout: plan.timeouts.response,
            threads: plan.threads as u32,
            logged,
        }
    }

    /// Whether the controller requests the sample of each connection.
    pub(crate) fn is_logged(&self) -> bool {
        self.logged
    }

    /// The whole plan, the worker's part of it, and how long after the common start that part begins.
    pub(crate) fn into_plan(self) -> Result<(Plan, Portion, Duration), BadJob> {
        let portion = Portion::new(self.portion.0, self.portion.1).ok_or(BadJob::Field("its part"))?;
        let sources = self.sources.map(|addresses| Sources::of(addresses).ok_or(BadJob::Field("source addresses")));
        let plan = Plan {
            work: self.work.into_work()?,
            sources: sources.transpose()?,
            pace: self.pace.into_pace()?,
            stop: Stop { requests: self.stop.0, after: self.stop.1.map(time).transpose()? },
            protocol: self.protocol.into_protocol()?,
            tls: self.tls.into_options()?,
            timeouts: Timeouts { connect: time(self.connect_timeout)?, response: time(self.response_timeout)? },
            threads: within(self.threads, THREADS_MAX, "threads")?,
        };
        Ok((plan, portion, time(self.after)?))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum WireWork {
    Requests(WireRequests),
    Flow { flow: WireFlow, site: WireSite, seed: u64 },
}

impl WireWork {
    fn of(work: &Work) -> Self {
        match work {
            Work::Requests(requests) => Self::Requests(WireRequests::of(requests)),
            Work::Flow { flow, site, seed } => {
                Self::Flow { flow: WireFlow::of(flow), site: WireSite::of(site), seed: *seed }
            }
        }
    }

    fn into_work(self) -> Result<Work, BadJob> {
        match self {
            Self::Requests(requests) => Ok(requests.into_requests()?.into()),
            Self::Flow { flow, site, seed } => {
                Ok(Work::Flow { flow: Arc::new(flow.into_flow(seed)?), site: site.into_site()?, seed })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum WirePace {
    Closed { connections: u32 },
    Open { rate: (f64, f64, Duration), poisson: Option<u64>, part: (u64, u64), connections_max: u32 },
    Users { users: WireUsers, connections_max: u32 },
}

impl WirePace {
    fn of(pace: &Pace) -> Self {
        match pace {
            Pace::Closed { connections } => Self::Closed { connections: *connections as u32 },
            Pace::Open { schedule, connections_max } => Self::Open {
                rate: schedule.rate().as_ramp(),
                poisson: match schedule.spacing() {
                    Spacing::Even => None,
                    Spacing::Poisson { seed } => Some(seed),
                },
                part: schedule.part(),
                connections_max: *connections_max as u32,
            },
            Pace::Users { settings, connections_max } => {
                Self::Users { users: WireUsers::of(settings), connections_max: *connections_max as u32 }
            }
        }
    }

    fn into_pace(self) -> Result<Pace, BadJob> {
        let connections = |all| within(all, CONNECTIONS_MAX, "connections");
        match self {
            Self::Closed { connections: all } => Ok(Pace::Closed { connections: connections(all)? }),
            Self::Open { rate: (from, to, over), poisson, part: (first, every), connections_max } => {
                let rate = Rate::ramp(from, to, over).map_err(|_| BadJob::Field("rate"))?;
                if first >= every || every > u64::from(u32::MAX) {
                    return Err(BadJob::Field("part of the schedule"));
                }
                let spacing = poisson.map_or(Spacing::Even, |seed| Spacing::Poisson { seed });
                let schedule = Schedule::new(rate, spacing).share(first, every);
                Ok(Pace::Open { schedule, connections_max: connections(connections_max)? })
            }
            Self::Users { users, connections_max } => {
                Ok(Pace::Users { settings: users.into_settings()?, connections_max: connections(connections_max)? })
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireUsers {
    rate: f64,
    counts_users: bool,
    duration: Duration,
    requests: u32,
    waits: Vec<Duration>,
    seed: u64,
}

impl WireUsers {
    fn of(settings: &Settings) -> Self {
        Self {
            rate: settings.rate(),
            counts_users: settings.count() == Count::Users,
            duration: settings.duration(),
            requests: settings.requests(),
            waits: settings.waits().times().to_vec(),
            seed: settings.waits().seed(),
        }
    }

    fn into_settings(self) -> Result<Settings, BadJob> {
        let waits = self.waits.into_iter().map(time).collect::<Result<_, _>>()?;
        let waits = Shares::new(waits, self.seed).map_err(|_| BadJob::Field("waits of users"))?;
        let count = if self.counts_users { Count::Users } else { Count::Requests };
        Settings::new(self.rate, count, self.duration, self.requests, waits).map_err(|_| BadJob::Field("users"))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum WireProtocol {
    Http1 { requests_per_connection: Option<u64>, pipeline: u32 },
    Http2 { streams: u32, requests_per_connection: Option<u64> },
}

impl WireProtocol {
    fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http1 { requests_per_connection, pipeline } => {
                Self::Http1 { requests_per_connection, pipeline: pipeline as u32 }
            }
            Protocol::Http2 { streams, requests_per_connection } => {
                Self::Http2 { streams: streams as u32, requests_per_connection }
            }
        }
    }

    fn into_protocol(self) -> Result<Protocol, BadJob> {
        match self {
            Self::Http1 { requests_per_connection: Some(0), .. }
            | Self::Http2 { requests_per_connection: Some(0), .. } => Err(BadJob::Field("requests per connection")),
            Self::Http1 { requests_per_connection, pipeline } => {
                Ok(Protocol::Http1 { requests_per_connection, pipeline: within(pipeline, AT_ONCE_MAX, "pipeline")? })
            }
            Self::Http2 { streams, requests_per_connection } => {
                Ok(Protocol::Http2 { streams: within(streams, AT_ONCE_MAX, "streams")?, requests_per_connection })
            }
        }
    }
}

/// A file by its name and content, which may be a private key.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct WirePem {
    path: String,
    content: ByteBuf,
}

impl fmt::Debug for WirePem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WirePem").field(&self.path).finish()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct WireTls {
    /// IANA numbers.
    versions: Vec<u16>,
    suites: Vec<u16>,
    /// IANA names.
    groups: Vec<String>,
    roots: WireRoots,
    resume: WireResume,
    session_ids_only: bool,
    certificate: Option<(WirePem, WirePem)>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum WireRoots {
    Unchecked,
    System,
    File(WirePem),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum WireResume {
    Full,
    Reuse,
    Mixed(u8),
}

impl WireTls {
    fn of(options: &TlsOptions) -> Self {
        Self {
            versions: options.policy.versions.iter().map(|version| version.iana()).collect(),
            suites: options.policy.suites.iter().map(|suite| suite.iana()).collect(),
            groups: options.policy.groups.iter().map(|group| group.name().to_owned()).collect(),
            roots: match &options.roots {
                Roots::Unchecked => WireRoots::Unchecked,
                Roots::System => WireRoots::System,
                Roots::File(file) => WireRoots::File(wire_pem(file)),
            },
            resume: match options.resume {
                Resume::Full => WireResume::Full,
                Resume::Reuse => WireResume::Reuse,
                Resume::Mixed(percent) => WireResume::Mixed(percent),
            },
            session_ids_only: options.session_ids_only,
            certificate: options.certificate.as_ref().map(|(chain, key)| (wire_pem(chain), wire_pem(key))),
        }
    }

    fn into_options(self) -> Result<TlsOptions, BadJob> {
        let policy = Policy {
            versions: known(self.versions, |number| VERSIONS.into_iter().find(|version| version.iana() == number))?,
            suites: known(self.suites, CipherSuite::from_iana)?,
            groups: known(self.groups, |name| Group::from_name(&name))?,
        };
        policy.check().map_err(|_| BadJob::Field("no handshake is possible"))?;
        Ok(TlsOptions {
            policy,
            roots: match self.roots {
                WireRoots::Unchecked => Roots::Unchecked,
                WireRoots::System => Roots::System,
                WireRoots::File(file) => Roots::File(pem(file)),
            },
            resume: match self.resume {
                WireResume::Full => Resume::Full,
                WireResume::Reuse => Resume::Reuse,
                WireResume::Mixed(percent) if percent <= 100 => Resume::Mixed(percent),
                WireResume::Mixed(_) => return Err(BadJob::Field("share of resumed sessions")),
            },
            session_ids_only: self.session_ids_only,
            certificate: self.certificate.map(|(chain, key)| (pem(chain), pem(key))),
        })
    }
}

fn known<T, U>(items: Vec<T>, find: impl Fn(T) -> Option<U>) -> Result<Vec<U>, BadJob> {
    items.into_iter().map(find).collect::<Option<_>>().ok_or(BadJob::Field("a version, suite or group is unknown"))
}

fn wire_pem(file: &Pem) -> WirePem {
    let path = file.path().to_string_lossy().into_owned();
    WirePem { path, content: ByteBuf::from(file.content().to_vec()) }
}

fn pem(file: WirePem) -> Pem {
    Pem::of(PathBuf::from(file.path), file.content.into_vec())
}

fn within(value: u32, max: u32, what: &'static str) -> Result<usize, BadJob> {
    if (1..=max).contains(&value) { Ok(value as usize) } else { Err(BadJob::Field(what)) }
}

/// Limits a time, so that it can be added to any instant.
fn time(time: Duration) -> Result<Duration, BadJob> {
    if time <= TIME_MAX { Ok(time) } else { Err(BadJob::Field("a time")) }
}

const VERSIONS: [Version; 2] = [Version::Tls12, Version::Tls13];
const CONNECTIONS_MAX: u32 = 1_000_000;
const THREADS_MAX: u32 = 256;
const AT_ONCE_MAX: u32 = 100_000;
const TIME_MAX: Duration = Duration::from_hours(24 * 366);

#[cfg(test)]
mod tests;
