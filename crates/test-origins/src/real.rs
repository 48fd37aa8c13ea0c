//! The servers of others, as Debian has them, each with as little configuration as it takes.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::address::LoopbackAddresses;

mod apache;
mod caddy;
mod docroot;
mod h2o;
mod lighttpd;
mod nginx;
mod process;
mod setup;
mod squid;
mod trafficserver;
mod varnish;

pub use docroot::Docroot;
use process::Process;
pub use setup::Setup;

/// A server that runs. When this is dropped it ends, in the middle of what it does, and what it wrote goes.
///
/// Where the tests run as root, it runs as `nobody`.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    process: Process,
    /// What a cache stands before.
    _behind: Option<Box<Self>>,
}

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Server {
    /// Apache HTTP Server.
    Apache,
    /// nginx.
    Nginx,
    /// lighttpd.
    Lighttpd,
    /// Caddy.
    Caddy,
    /// H2O.
    H2o,
    /// Varnish, a cache before an nginx.
    Varnish,
    /// Squid, a cache before an nginx.
    Squid,
    /// Apache Traffic Server, a cache before an nginx.
    TrafficServer,
}

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The machine's: it is not there.
    #[error("{program} is missing: `scripts/deps test` installs it")]
    Missing {
        /// What was looked for in `PATH` and `/usr/sbin`.
        program: &'static str,
    },
    /// The machine's.
    #[error("{program}: {error}")]
    Io {
        /// Which server.
        program: &'static str,
        /// What could not be done for it.
        #[source]
        error: io::Error,
    },
    /// Ours, most likely: it does not like its configuration.
    #[error("{program} ended at once:\n{output}")]
    Ended {
        /// Which server.
        program: &'static str,
        /// What it had to say.
        output: String,
    },
    /// It answers nobody.
    #[error("{program} does not answer:\n{output}")]
    Silent {
        /// Which server.
        program: &'static str,
        /// What it had to say.
        output: String,
    },
}

impl Server {
    /// All of them, those that have files first.
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

    /// As its makers write it.
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

    /// Whether it has no files of its own, but those of a server behind it.
    pub fn is_cache(self) -> bool {
        matches!(self, Self::Varnish | Self::Squid | Self::TrafficServer)
    }

    /// Starts it on an address of its own, with the files in `root`, and waits until it answers. `more` are lines of
    /// its configuration, in its language, at the place where what is said of its files belongs.
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
    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `http://ADDRESS`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops it (SIGSTOP): its connections stay, and nothing comes on them. Only for servers of one process: nginx is, here.
    pub fn stop(&self) {
        self.process.signal(Signal::STOP);
    }
}

/// Where a server is to be.
struct Place<'a> {
    address: SocketAddr,
    /// A directory of its own.
    dir: &'a Path,
    root: &'a Path,
    /// Where a cache gets things from.
    behind: SocketAddr,
    more: &'a str,
}

impl Place<'_> {
    /// A path in its own directory.
    fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

/// How a server is run in the foreground.
struct Plan {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// Names in its directory, and what they contain.
    files: Vec<(&'static str, String)>,
    /// Directories in its directory.
    directories: Vec<&'static str>,
    /// What ends it at once, in the middle of what it does.
    end: Signal,
}

impl Plan {
    fn new<const N: usize>(arguments: [&str; N], name: &'static str, configuration: String) -> Self {
        Self {
            arguments: arguments.map(str::to_owned).to_vec(),
            variables: Vec::new(),
            files: vec![(name, configuration)],
            directories: Vec::new(),
            end: Signal::KILL,
        }
    }
}
