//! Announces the end of a connection, until the dispatcher has closed or kept the leg.

use std::time::Duration;

use watari_stream::Parts;
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
    /// Bytes of the client's stream that were read.
    received: u64,
    /// The end of the client's stream on the leg, if the dispatcher keeps the leg.
    cut: Option<u64>,
    retry: Duration,
    expires: Duration,
}

impl Ending {
    pub(crate) fn new(site: Site, about: About, parts: Parts<Socket>) -> Self {
        let Parts { io: mut leg, sent, received, .. } = parts;
        leg.fin_on_close();
        let now = site.network.now();
        Self { site, about, leg, sent, received, cut: None, retry: now, expires: now + END }
    }

    /// The dispatcher keeps the leg.
    pub(crate) fn cut(&mut self, rx_offset: u64) {
        self.cut = self.cut.or(Some(rx_offset));
    }

    pub(crate) fn deadline(&self) -> Duration {
        self.retry.min(self.expires)
    }

    /// Discards what the client still sends, until the leg has ended or is free.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        let now = self.site.network.now();
        if now >= self.retry {
            self.retry = now + RETRY;
            let (connection, epoch) = (self.about.id, self.about.tenure);
            let message = Final { connection, epoch, tx_offset: self.sent };
            self.site.send_to_dispatcher(AgentToDispatcher::Final(message));
        }
        while self.cut.is_none_or(|cut| self.received < cut) {
            match self.leg.read(DISCARD_LEN) {
                None => break,
                Some(Ok(bytes)) if !bytes.is_empty() => self.received += bytes.len() as u64,
                Some(_) => return Step::Gone,
            }
        }
        match self.cut {
            Some(cut) if self.received == cut => return Step::LegFree(self.leg),
            Some(cut) if self.received > cut => return Step::Gone,
            _ => {}
        }
        if now < self.expires { Step::Waits(Owned::Ending(self)) } else { Step::Gone }
    }
}
