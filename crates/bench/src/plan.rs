//! What a run is to do, checked and ready.

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

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub work: Work,
    /// From which addresses connections are made where the list does not say, round and round; none: what the system chooses.
    pub sources: Option<Sources>,
    /// When it is done.
    pub pace: Pace,
    /// When it ends.
    pub stop: Stop,
    /// How HTTP is spoken.
    pub protocol: Protocol,
    /// How TLS is spoken.
    pub tls: TlsOptions,
    /// How long to wait.
    pub timeouts: Timeouts,
    /// How many threads do it.
    pub threads: usize,
}

impl Plan {
    /// Connections in progress, at most.
    pub fn connections(&self) -> usize {
        match self.pace {
            Pace::Closed { connections } => connections,
            Pace::Open { connections_max, .. } | Pace::Users { connections_max, .. } => connections_max,
        }
    }

    /// Whether one thing goes with the other.
    pub(crate) fn check(&self) -> Result<(), PlanError> {
        let one_by_one = !matches!((&self.pace, &self.work), (Pace::Closed { .. }, Work::Requests(_)));
        match self.protocol {
            Protocol::Http1 { pipeline: 2.., .. } if one_by_one => Err(PlanError::Pipeline),
            _ => Ok(()),
        }
    }
}

/// A plan contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// What is sent when it is due, or when an answer allows it, waits for nothing that could be sent with it.
    #[error("only the requests of a closed loop can be pipelined, not those that come at a rate, or in flows")]
    Pipeline,
}

/// What is done, as often as the pace says.
#[derive(Clone, Debug)]
pub enum Work {
    /// Requests that have nothing to do with each other.
    Requests(Requests),
    /// Flows, each gone through by a user of its own.
    Flow {
        /// What users do; its steps are the classes that requests belong to.
        flow: Arc<Flow>,
        /// The site of the URL that the flow's are relative to.
        site: Arc<Site>,
        /// Decides what the flow leaves to chance.
        seed: u64,
    },
}

/// A flow cannot be gone through.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Its URL names no server.
    #[error(transparent)]
    Site(#[from] SiteError),
    /// Its file is no flow.
    #[error(transparent)]
    Flow(#[from] FlowError),
}

impl Work {
    /// The flow of a file, at the site of a URL. Blocks for the resolver.
    pub fn flow(file: &Path, url: &str, seed: u64) -> Result<Self, WorkError> {
        let (site, _) = Site::resolve(url)?;
        let base = Url::parse(url).map_err(|error| SiteError::Url(url.to_owned(), error))?;
        let flow = Flow::read(file, &base, seed)?;
        Ok(Self::Flow { flow: Arc::new(flow), site: Arc::new(site), seed })
    }

    /// Whether anything is asked for over TLS.
    pub(crate) fn needs_tls(&self) -> bool {
        match self {
            Self::Requests(requests) => requests.need_tls(),
            Self::Flow { site, .. } => site.tls,
        }
    }

    /// The names of the classes that requests belong to.
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

/// When requests are sent, or flows begun.
#[derive(Clone, Debug)]
pub enum Pace {
    /// So many at any time: the next begins when one has ended (the paper's rate control).
    Closed {
        /// Connections in progress.
        connections: usize,
    },
    /// When they are due, whether those before have ended or not.
    Open {
        /// When they are due.
        schedule: Schedule,
        /// So many connections at most; what finds none free waits, and its wait counts.
        connections_max: usize,
    },
    /// When users come, and come back, each with his own sessions.
    Users {
        /// When they do.
        settings: users::Settings,
        /// So many connections at most; users who find none free wait, and their wait counts; but not
        /// for longer than a connection may take to be established.
        connections_max: usize,
    },
}

/// When a run ends: no request begins any more, and those in progress end as they will.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stop {
    /// After so many requests.
    pub requests: Option<u64>,
    /// After so long.
    pub after: Option<Duration>,
}

/// How HTTP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1 {
        /// So many requests on one connection; none: as many as the server allows. After the last the client reads until the
        /// server closes.
        requests_per_connection: Option<u64>,
        /// So many requests are sent before the first is answered.
        pipeline: usize,
    },
    /// HTTP/2: over TLS by ALPN, without TLS by prior knowledge (RFC 9113, section 3).
    Http2 {
        /// So many requests at once on each connection. Where the server allows fewer (`SETTINGS_MAX_CONCURRENT_STREAMS`), the
        /// others wait for their turn, and their wait counts.
        streams: usize,
        /// So many requests on one connection; none: as many as the server allows. After the last the client closes.
        requests_per_connection: Option<u64>,
    },
}

impl Protocol {
    /// What is offered by ALPN.
    pub(crate) fn alpn(self) -> &'static [&'static [u8]] {
        match self {
            Self::Http1 { .. } => &[b"http/1.1"],
            Self::Http2 { .. } => &[b"h2"],
        }
    }
}

/// How long to wait.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For TCP, and TLS, to be established; in an open loop, and for users, also for a connection that is free.
    pub connect: Duration,
    /// For the whole response, once the request is written; also for the server to close, where that is waited for.
    pub response: Duration,
}

impl Default for Timeouts {
    /// Five seconds, as the paper has it.
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), response: Duration::from_secs(5) }
    }
}
