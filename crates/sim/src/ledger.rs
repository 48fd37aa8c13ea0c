//! Which node sealed which record: no nonce may be used twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::network::{Network, NodeId};

/// The records of the streams to clients, by client and sequence number. The keys do not change, so a sequence number
/// is a nonce.
#[derive(Clone)]
pub(crate) struct Ledger {
    network: Network,
    sealers: Rc<RefCell<BTreeMap<(u64, u64), NodeId>>>,
}

impl Ledger {
    pub(crate) fn new(network: Network) -> Self {
        Self { network, sealers: Rc::default() }
    }

    /// `node` has sealed these records for a client.
    pub(crate) fn seal(&self, node: NodeId, client: u64, sequences: Range<u64>) {
        for sequence in sequences {
            if let Some(first) = self.sealers.borrow_mut().insert((client, sequence), node) {
                self.network.violation(format!(
                    "record {sequence} of client {client} was sealed twice, at {first} and at {node}"
                ));
            }
        }
    }

    /// The number of records.
    pub(crate) fn len(&self) -> u64 {
        self.sealers.borrow().len() as u64
    }
}
