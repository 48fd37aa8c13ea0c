//! Checks that each opened connection ends once.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::Event;

/// Takes events in order, and panics at one that does not fit.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Open connections by client and server.
    open: BTreeMap<(SocketAddr, SocketAddr), u32>,
    /// Open connections by server.
    open_at: BTreeMap<SocketAddr, u32>,
    /// Evictions by server: [`Event::Evicted`] has no client.
    evicted: BTreeMap<SocketAddr, u32>,
    pub(crate) opened: u32,
}

impl Ledger {
    pub(crate) fn take(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::Opened(opened) => {
                    self.opened += 1;
                    *self.open.entry((opened.client, opened.server)).or_default() += 1;
                    *self.open_at.entry(opened.server).or_default() += 1;
                }
                Event::Closed(it) => {
                    let ends = (it.client, it.server);
                    let open = self.open.get_mut(&ends).unwrap_or_else(|| panic!("it did not open: {it:?}"));
                    *open -= 1;
                    if *open == 0 {
                        self.open.remove(&ends);
                    }
                    *self.open_at.entry(it.server).or_default() -= 1;
                }
                Event::Evicted(it) => *self.evicted.entry(it.server).or_default() += 1,
                Event::Request(it) => self.assert_open(it.client, it.server, event),
                Event::Overdue(it) => self.assert_open(it.client, it.server, event),
            }
        }
        for (server, evicted) in &self.evicted {
            assert!(*evicted <= self.open_at[server], "more of {server} are given up than were open");
        }
    }

    /// Connections that have not ended.
    pub(crate) fn open(&self) -> u32 {
        self.open_at.values().sum::<u32>() - self.evicted.values().sum::<u32>()
    }

    /// Checks that all have ended: each one that did not close was evicted.
    pub(crate) fn assert_balanced(&self) {
        for (client, server) in self.open.keys() {
            let evicted = self.evicted.get(server).copied().unwrap_or_default();
            assert_eq!(self.open_at[server], evicted, "given up at {server}; of {client} nothing arrived");
        }
    }

    fn assert_open(&self, client: SocketAddr, server: SocketAddr, event: &Event) {
        assert!(self.open.contains_key(&(client, server)), "it is not open: {event:?}");
    }
}
