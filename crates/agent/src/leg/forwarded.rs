//! Legs that continue connections of the predecessor of this process, during an upgrade.
//!
//! The successor accepts all legs. It forwards one that continues a connection of the predecessor, which goes on there
//! until the change of its dispatcher has ended. Such legs wait here until the processes exchange messages.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use watari_values::{DispatcherChange, Epoch, NodeName, SecretBytes};

use super::Continued;

/// The most legs that are forwarded at once.
pub const FORWARDED_LEGS_MAX: usize = 64;

/// The most legs that wait. Further ones are refused.
const WAITING_MAX: usize = 4096;

/// Where legs wait for the predecessor. `None`: there is no predecessor.
#[derive(Default)]
pub(crate) struct LegsForPredecessor(Mutex<Option<Vec<(NodeName, Continued)>>>);

impl LegsForPredecessor {
    pub(crate) fn begin(&self) {
        *self.waiting() = Some(Vec::new());
    }

    /// The predecessor has ended. Resets what waits.
    pub(crate) fn end(&self) {
        *self.waiting() = None;
    }

    /// Forwards a leg of `dispatcher`. Returns it if there is no predecessor, or no room.
    pub(crate) fn put(&self, dispatcher: &NodeName, leg: Continued) -> Result<(), Continued> {
        match &mut *self.waiting() {
            Some(waiting) if waiting.len() < WAITING_MAX => {
                waiting.push((dispatcher.clone(), leg));
                Ok(())
            }
            _ => Err(leg),
        }
    }

    /// Takes legs for the predecessor, at most [`FORWARDED_LEGS_MAX`], and their sockets.
    pub(crate) fn take(&self) -> (Vec<ForwardedLeg>, Vec<OwnedFd>) {
        let mut waiting = self.waiting();
        let taken = waiting.iter_mut().flat_map(|waiting| waiting.drain(..waiting.len().min(FORWARDED_LEGS_MAX)));
        taken.map(|(dispatcher, leg)| ForwardedLeg::new(dispatcher, leg)).unzip()
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Vec<(NodeName, Continued)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A leg on its way to the predecessor, without its socket. The successor has verified its preface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForwardedLeg {
    pub(crate) dispatcher: NodeName,
    change: DispatcherChange,
    tenure: Epoch,
    rx_offset: u64,
    tx_offset: u64,
    surplus: SecretBytes,
}

impl ForwardedLeg {
    fn new(dispatcher: NodeName, leg: Continued) -> (Self, OwnedFd) {
        let Continued { stream, change, tenure, rx_offset, tx_offset, surplus } = leg;
        let surplus = SecretBytes::new(surplus);
        (Self { dispatcher, change, tenure, rx_offset, tx_offset, surplus }, stream.into())
    }

    pub(crate) fn on(self, socket: OwnedFd) -> Continued {
        let Self { change, tenure, rx_offset, tx_offset, surplus, .. } = self;
        let surplus = surplus.as_slice().to_vec();
        Continued { stream: TcpStream::from(socket), change, tenure, rx_offset, tx_offset, surplus }
    }
}
