//! The ways to those who make a load.

use std::path::PathBuf;

use watari_pki::Identity;

use super::Fleet;
use crate::worker::{Link, LinkError};

/// How to come to one of those who make a load.
pub(super) enum Way {
    /// By starting a process of this program, which gets this number.
    Process(PathBuf, usize),
    /// By connecting to this address.
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
