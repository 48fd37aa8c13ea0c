//! Announces the end of a connection, until the dispatcher has closed the leg.

use std::time::Duration;

use watari_wire::{AgentToDispatcher, Final};

use super::{About, Owned, RETRY, Site, Step};
use crate::socket::Socket;

/// How long the end is announced.
const END: Duration = Duration::from_secs(20);

/// The most bytes of one read that are discarded.
const DISCARD_LEN: usize = 4096;

/// A connection whose stream to the client is complete.
pub(crate) struct Ending {
    site: Site,
    pub(crate) about: About,
    leg: Socket,
    sent: u64,
    retry: Duration,
    expires: Duration,
}

impl Ending {
    pub(crate) fn new(site: Site, about: About, mut leg: Socket, sent: u64) -> Self {
        leg.fin_on_close();
        let now = site.network.now();
        Self { site, about, leg, sent, retry: now, expires: now + END }
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.retry.min(self.expires)
    }

    /// Discards what the client still sends, until the leg has ended.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        let now = self.site.network.now();
        if now >= self.retry {
            self.retry = now + RETRY;
            let (connection, epoch) = (self.about.id, self.about.tenure);
            let message = Final { connection, epoch, tx_offset: self.sent };
            self.site.send_to_dispatcher(AgentToDispatcher::Final(message));
        }
        while let Some(read) = self.leg.read(DISCARD_LEN) {
            if read.is_err() || read.is_ok_and(|bytes| bytes.is_empty()) {
                return Step::Gone;
            }
        }
        if now < self.expires { Step::Waits(Owned::Ending(self)) } else { Step::Gone }
    }
}
