//! The plan of a run, validated and complete.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::flow::{Flow, FlowError};
use crate::requests::Requests;
use crate::schedule::Schedule;
use crate::site::{Site, SiteError};
use crate::source::Sources;
use crate::tls::TlsOptions;
use crate::users;

/// A plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The requests or flows.
    pub work: Work,
    /// The local addresses of connections, in rotation, for lines that name none; `None`: the kernel selects one.
    pub sources: Option<Sources>,
    /// When requests are sent.
    pub pace: Pace,
    /// When the run ends.
    pub stop: Stop,
    pub protocol: Protocol,
    pub tls: TlsOptions,
    pub timeouts: Timeouts,
    /// Number of threads.
    pub threads: usize,
}

impl Plan {
    /// Maximum number of connections in progress.
    pub fn connections(&self) -> usize {
        match self.pace {
            Pace::Closed { connections } => connections,
            Pace::Open { connections_max, .. } | Pace::Users { connections_max, .. } => connections_max,
        }
    }

    /// Whether the parts of the plan fit together.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let one_by_one = !matches!((&self.pace, &self.work), (Pace::Closed { .. }, Work::Requests(_)));
        match self.protocol {
            Protocol::Http1 { pipeline: 2.., .. } if one_by_one => Err(PlanError::Pipeline),
            _ => Ok(()),
        }
    }
}

/// The plan contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Pipelining needs requests that can be sent together. A request of a schedule or flow is sent when it is due, or
    /// when a response allows it.
    #[error("only the requests of a closed loop can be pipelined, not those at a rate or in flows")]
    Pipeline,
}

/// The requests or flows. The pace decides when each begins.
#[derive(Clone, Debug)]
pub enum Work {
    /// Independent requests.
    Requests(Requests),
    /// Flows. Each run of a flow is that of a separate user.
    Flow {
        /// Its steps are the classes of requests.
        flow: Arc<Flow>,
        /// The site of the flow's base URL.
        site: Arc<Site>,
        /// Seeds the random choices of the flow.
        seed: u64,
    },
}

/// A flow cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Its URL names no server.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Its file is invalid.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Work {
    /// The flow of a file, at the site of a URL. Blocks while it resolves the host.
    pub fn flow(file: &Path, url: &str, seed: u64) -> Result<Self, WorkError> {
        let (site, _) = Site::resolve(url)?;
        let base = Url::parse(url).map_err(|error| SiteError::Url(url.to_owned(), error))?;
        let flow = Flow::read(file, &base, seed)?;
        Ok(Self::Flow { flow: Arc::new(flow), site: Arc::new(site), seed })
    }

    /// Whether any request uses TLS.
    pub(crate) fn needs_tls(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.need_tls(),
            Self::Flow { site, .. } => site.tls,
        }
    }

    /// The names of the classes of requests.
    pub fn classes(&self) -> Arc<[String]> {
        match self {
            Self::Requests(requests) => Arc::clone(requests.classes()),
            Self::Flow { flow, .. } => flow.names(),
        }
    }
}

impl From<Requests> for Work {
    fn from(requests: Requests) -> Self {
        Self::Requests(requests)
    }
}

/// When requests or flows begin.
#[derive(Clone, Debug)]
pub enum Pace {
    /// A fixed number in progress: the next begins when one has ended (the paper's rate control).
    Closed {
        /// Connections in progress.
        connections: usize,
    },
    /// By a schedule, whether or not the previous ones have ended.
    Open {
        schedule: Schedule,
        /// Maximum number of connections. A request that finds none free waits, and its wait counts.
        connections_max: usize,
    },
    /// Users come, and come back, each with separate sessions.
    Users {
        settings: users::Settings,
        /// Maximum number of connections. A user who finds none free waits, at most for the connect timeout, and the
        /// wait counts.
        connections_max: usize,
    },
}

/// When a run ends. Then no more requests begin, and those in progress run to their end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stop {
    /// After this number of requests.
    pub requests: Option<u64>,
    /// After this time, counted from the start.
    pub after: Option<Duration>,
}

/// The version of HTTP and its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// Maximum number of requests on one connection; `None`: as many as the server permits. After the last, the
        /// client reads until the server closes.
        requests_per_connection: Option<u64>,
        /// How many requests are sent before the first response.
        pipeline: usize,
    },
    /// HTTP/2: over TLS by ALPN, without TLS by prior knowledge (RFC 9113, section 3).
    Http2 {
        /// Requests in progress on each connection. If the server permits fewer (`SETTINGS_MAX_CONCURRENT_STREAMS`),
        /// the others wait, and their wait counts.
        streams: usize,
        /// Maximum number of requests on one connection; `None`: as many as the server permits. After the last, the
        /// client closes.
        requests_per_connection: Option<u64>,
    },
}

impl Protocol {
    /// The protocols that the client offers by ALPN.
    pub(crate) fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 { .. } => &[b"http/1.1"],
            Self::Http2 { .. } => &[b"h2"],
        }
    }
}

/// Timeouts of connections and requests.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For the TCP connect and the TLS handshake together. In an open loop and for users, also the wait for a free
    /// connection.
    pub connect: Duration,
    /// For the whole response, counted from the end of the request. Also for the server's close, if the client waits
    /// for that.
    pub response: Duration,
}

impl Default for Timeouts {
    /// Five seconds each, as in the paper.
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), response: Duration::from_secs(5) }
    }
}
