//! Servers of other projects, as packaged by Debian, each with as little configuration as possible.

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

/// Why a server does not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program is not installed.
    #[error("{program} is missing: `scripts/deps test` installs it")]
    Missing {
        /// The program, which is not in `PATH` and `/usr/sbin`.
        program: &'static str,
    },
    /// The system refused something.
    #[error("{program}: {error}")]
    Io {
        program: &'static str,
        #[source]
        error: io::Error,
    },
    /// The server ended, most likely because of an error in our configuration.
    #[error("{program} ended at once:\n{output}")]
    Ended { program: &'static str, output: String },
    /// The server does not answer.
    #[error("{program} does not answer:\n{output}")]
    Silent { program: &'static str, output: String },
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

/// The address and the directory of a server.
struct Place<'a> {
    address: SocketAddr,
    /// Its own directory.
    dir: &'a Path,
    root: &'a Path,
    /// The origin of a cache.
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

/// How to run a server in the foreground.
struct Plan {
    arguments: Vec<String>,
    variables: Vec<(&'static str, String)>,
    /// Names of files in its directory, and their contents.
    files: Vec<(&'static str, String)>,
    /// Directories in its directory.
    directories: Vec<&'static str>,
    /// The signal that ends it at once, within its transfers.
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
