//! Which node sealed which record: no nonce may be used twice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use watari_values::ConnectionId;

use crate::network::{Network, NodeId};

/// The records of the streams to clients, by connection and sequence number. The keys of a connection do not change, so
/// a sequence number is a nonce.
#[derive(Clone)]
pub(crate) struct Ledger {
    network: Network,
    sealers: Rc<RefCell<BTreeMap<(ConnectionId, u64), NodeId>>>,
}

impl Ledger {
    pub(crate) fn new(network: Network) -> Self {
        Self { network, sealers: Rc::default() }
    }

    /// `node` has sealed these records.
    pub(crate) fn seal(&self, node: NodeId, id: ConnectionId, sequences: Range<u64>) {
        self.network.count(|figures| figures.records += sequences.end - sequences.start);
        for sequence in sequences {
            if let Some(first) = self.sealers.borrow_mut().insert((id, sequence), node) {
                self.network.violation(format!("record {sequence} of {id} was sealed twice, at {first} and at {node}"));
            }
        }
    }
}
