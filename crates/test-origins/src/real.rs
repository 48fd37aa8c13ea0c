//! Servers of other projects, as packaged by Debian, each with as little configuration as possible.

use std::net::SocketAddr;

use rustix::process::Signal;

use crate::address::LoopbackAddresses;

mod apache;
mod caddy;
mod docroot;
mod error;
mod h2o;
mod lighttpd;
mod nginx;
mod plan;
mod process;
mod setup;
mod squid;
mod trafficserver;
mod varnish;

pub use docroot::Docroot;
pub use error::StartError;
use plan::{Place, Plan};
use process::Process;
pub use setup::Setup;

/// A running server. Dropping it ends the server at once, within its transfers, and deletes its files.
///
/// If the tests run as root, the server runs as `nobody`.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    process: Process,
    /// The server behind a cache.
    _behind: Option<Box<Self>>,
}

/// A server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// Apache HTTP Server.
    Apache,
    Nginx,
    Lighttpd,
    Caddy,
    H2o,
    /// Varnish, a cache before an nginx.
    Varnish,
    /// Squid, a cache before an nginx.
    Squid,
    /// Apache Traffic Server, a cache before an nginx.
    TrafficServer,
}

impl Server {
    /// All servers, those with files of their own first.
    pub const ALL: [Self; 8] = [
        Self::Apache,
        Self::Nginx,
        Self::Lighttpd,
        Self::Caddy,
        Self::H2o,
        Self::Varnish,
        Self::Squid,
        Self::TrafficServer,
    ];

    /// The name as its project writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apache => "Apache",
            Self::Nginx => "nginx",
            Self::Lighttpd => "lighttpd",
            Self::Caddy => "Caddy",
            Self::H2o => "h2o",
            Self::Varnish => "Varnish",
            Self::Squid => "Squid",
            Self::TrafficServer => "Apache Traffic Server",
        }
    }

    /// Whether it serves the files of a server behind it instead of its own.
    pub fn is_cache(self) -> bool {
        matches!(self, Self::Varnish | Self::Squid | Self::TrafficServer)
    }

    /// Starts it on an address of its own, with the files in `root`, and waits until it answers. `more` are lines of
    /// its configuration, in its own syntax, in the section about its files.
    pub fn start(self, root: &Docroot, more: &str) -> Result<Running, StartError> {
        let behind = if self.is_cache() { Some(Box::new(Self::Nginx.start(root, "")?)) } else { None };
        let program = self.program();
        let io = |error| StartError::Io { program, error };
        let dir = docroot::tempdir().map_err(io)?;
        let address = LoopbackAddresses::draw().take();
        let behind_address = behind.as_ref().map_or(address, |behind| behind.address);
        let place = Place { address, dir: dir.path(), root: root.path(), behind: behind_address, more };
        let process = Process::start(program, self.plan(&place), dir, address)?;
        Ok(Running { address, process, _behind: behind })
    }

    fn program(self) -> &'static str {
        match self {
            Self::Apache => "apache2",
            Self::Nginx => "nginx",
            Self::Lighttpd => "lighttpd",
            Self::Caddy => "caddy",
            Self::H2o => "h2o",
            Self::Varnish => "varnishd",
            Self::Squid => "squid",
            Self::TrafficServer => "traffic_server",
        }
    }

    fn plan(self, place: &Place<'_>) -> Plan {
        match self {
            Self::Apache => apache::plan(place),
            Self::Nginx => nginx::plan(place),
            Self::Lighttpd => lighttpd::plan(place),
            Self::Caddy => caddy::plan(place),
            Self::H2o => h2o::plan(place),
            Self::Varnish => varnish::plan(place),
            Self::Squid => squid::plan(place),
            Self::TrafficServer => trafficserver::plan(place),
        }
    }
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it (SIGSTOP): its connections stay open, and nothing comes on them. Only for servers of one process, such
    /// as nginx here.
    pub fn stop(&self) {
        self.process.signal(Signal::STOP);
    }
}
