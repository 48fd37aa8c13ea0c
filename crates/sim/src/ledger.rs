//! Which node sealed which record: no nonce may be used twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use watari_values::ConnectionId;

use crate::network::{Network, NodeId};

/// A connection, the number of its key, and the sequence number of a record.
type Nonce = (ConnectionId, u64, u64);

/// The records of the streams to clients, by connection, key and sequence number.
#[derive(Clone)]
pub(crate) struct Ledger {
    network: Network,
    sealers: Rc<RefCell<BTreeMap<Nonce, NodeId>>>,
}

impl Ledger {
    pub(crate) fn new(network: Network) -> Self {
        Self { network, sealers: Rc::default() }
    }

    /// `node` has sealed these records under the key of this number.
    pub(crate) fn seal(&self, node: NodeId, id: ConnectionId, key: u64, sequences: Range<u64>) {
        self.network.count(|figures| figures.records += sequences.end - sequences.start);
        for sequence in sequences {
            if let Some(first) = self.sealers.borrow_mut().insert((id, key, sequence), node) {
                self.network.violation(format!(
                    "record {sequence} of {id} under key {key} was sealed twice, at {first} and at {node}"
                ));
            }
        }
    }
}
