//! Why a node cannot start.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use watari_mesh::StartError;

use super::files::TooFewFiles;
use crate::admin::BindError;
use crate::config::ConfigError;

/// A node cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error("cannot listen on {address} for {what}: {cause}")]
    Listen { what: &'static str, address: SocketAddr, cause: io::Error },
    #[error(transparent)]
    Admin(#[from] BindError),
    #[error("cannot start the mesh: {0}")]
    Mesh(#[from] StartError),
    #[error(transparent)]
    Files(#[from] TooFewFiles),
    /// A service address.
    #[error(transparent)]
    Takeover(ConfigError),
    #[error("cannot start {what}: {cause}")]
    Start { what: &'static str, cause: io::Error },
    #[error(
        "addresses, their prefixes and interfaces, voters and lease of dispatcher.takeover cannot change in an upgrade in \
         place, nor can addresses and interface of dispatcher.multipath: restart the node"
    )]
    FixedSettings,
    #[error(
        "cannot use the directory {} for cached responses: {cause} (directory in [agent.proxy.cache])",
        directory.display()
    )]
    CacheDirectory { directory: PathBuf, cause: io::Error },
    #[error("cannot take over from the previous process: {cause}")]
    Predecessor { cause: io::Error },
    #[error("a thread of the dispatcher has failed, and its clients were reset: the node ends")]
    ThreadLost,
}

pub(super) fn starting(what: &'static str) -> impl Fn(io::Error) -> NodeError {
    move |cause| NodeError::Start { what, cause }
}
