//! Where a load is generated, and how to reach its workers.

use std::path::PathBuf;
use std::time::Duration;

use watari_pki::Identity;

use crate::worker::{Link, LinkError};

/// Where a load is generated.
#[derive(Clone)]
pub enum Fleet {
    /// By threads of this process.
    Here,
    /// By `count` processes of this machine, each with the plan's number of threads.
    Processes {
        /// The `watari` executable. Its arguments make it a worker.
        program: PathBuf,
        /// Number of processes.
        count: usize,
    },
    /// By workers that listen, each with the plan's number of threads.
    Workers {
        /// Their addresses: `host:port`.
        addresses: Vec<String>,
        /// The certificate and key with which this process connects to them.
        identity: Box<Identity>,
        /// How much later each worker begins than the one before it.
        stagger: Duration,
    },
}

impl Fleet {
    pub(super) fn stagger(&self) -> Duration {
        match self {
            Self::Here | Self::Processes { .. } => Duration::ZERO,
            Self::Workers { stagger, .. } => *stagger,
        }
    }

    pub(super) fn ways(&self) -> Vec<Way> {
        match self {
            Self::Here => Vec::new(),
            Self::Processes { program, count } => {
                (1..=*count).map(|number| Way::Process(program.clone(), number)).collect()
            }
            Self::Workers { addresses, identity, .. } => {
                addresses.iter().map(|address| Way::Worker(address.clone(), identity.clone())).collect()
            }
        }
    }
}

/// How to reach one worker.
pub(super) enum Way {
    /// Start a process of this executable, which gets this number.
    Process(PathBuf, usize),
    /// Connect to this address.
    Worker(String, Box<Identity>),
}

impl Way {
    pub(super) fn name(&self) -> String {
        match self {
            Self::Process(_, number) => format!("process {number}"),
            Self::Worker(address, _) => address.clone(),
        }
    }

    pub(super) async fn open(&self) -> Result<Link, LinkError> {
        match self {
            Self::Process(program, number) => Link::spawn(program, *number).await,
            Self::Worker(address, identity) => Link::connect(address, identity).await,
        }
    }
}
