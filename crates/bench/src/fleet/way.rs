//! How to reach workers.

use std::path::PathBuf;

use watari_pki::Identity;

use super::Fleet;
use crate::worker::{Link, LinkError};

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

impl Fleet {
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
