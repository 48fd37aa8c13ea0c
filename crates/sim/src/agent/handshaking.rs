//! Does the TLS handshake of a new connection. Mirrors `connection/handshake.rs` of `crates/agent`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use watari_handshake::{Established, Failed, Handshake, Progress};
use watari_record::{Connection, Version};
use watari_stream::{Parts, TlsStream};
use watari_values::{ConnectionId, Epoch, NodeName, TlsInfo};

use super::serving::Serving;
use super::{About, Owned, Site, Step};
use crate::pki::PKI;
use crate::sabotage::Sabotage;
use crate::socket::Socket;
use crate::tls::LegStream;

/// How long a handshake may take. Not longer than at the dispatcher.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most bytes of one read.
const READ_LEN: usize = 4096;

/// A connection whose handshake is not done.
pub(crate) struct Handshaking {
    site: Site,
    pub(super) id: ConnectionId,
    client: SocketAddr,
    /// The agent for the data.
    bulk: Option<NodeName>,
    leg: Socket,
    handshake: Handshake,
    /// Received bytes that the handshake has not consumed.
    input: Vec<u8>,
    received: u64,
    output: Vec<u8>,
    sent: u64,
    established: Option<Box<Established>>,
    expires: Duration,
}

impl Handshaking {
    /// `surplus` has the bytes that followed the preface.
    pub(super) fn new(
        site: Site,
        (id, client): (ConnectionId, SocketAddr),
        bulk: Option<NodeName>,
        leg: Socket,
        surplus: &[u8],
    ) -> Self {
        let handshake = Handshake::new(&PKI.server, &Arc::default());
        Self {
            id,
            client,
            bulk,
            leg,
            handshake,
            input: surplus.to_vec(),
            received: surplus.len() as u64,
            output: Vec::new(),
            sent: 0,
            established: None,
            expires: site.network.now() + TIMEOUT,
            site,
        }
    }

    pub(super) fn deadline(&self) -> Duration {
        self.expires
    }

    /// Continues as far as possible.
    pub(super) fn step(mut self: Box<Self>) -> Step {
        loop {
            let Ok(written) = self.leg.write(&self.output) else { return Step::Gone };
            self.output.drain(..written);
            self.sent += written as u64;
            if self.output.is_empty()
                && let Some(established) = self.established.take()
            {
                return self.finish(*established);
            }
            if !self.output.is_empty() || self.site.network.now() >= self.expires {
                break;
            }
            let received = self.handshake.receive(&self.input);
            let Some(progress) = self.check(received) else { return Step::Gone };
            self.input.drain(..progress.consumed);
            let is_stuck = progress.consumed == 0 && progress.output.is_empty();
            self.take(progress);
            if is_stuck && self.established.is_none() {
                match self.leg.read(READ_LEN) {
                    None => break,
                    Some(Ok(bytes)) if !bytes.is_empty() => {
                        self.received += bytes.len() as u64;
                        self.input.extend(bytes);
                    }
                    Some(_) => return Step::Gone,
                }
            }
        }
        if self.site.network.now() < self.expires { Step::Waits(Owned::Handshaking(self)) } else { Step::Gone }
    }

    fn take(&mut self, progress: Progress) {
        self.output.extend(progress.output);
        self.established = progress.established;
    }

    /// No client of the simulation does anything wrong.
    fn check(&self, result: Result<Progress, Failed>) -> Option<Progress> {
        let failed = |Failed { cause, .. }| {
            self.site.network.violation(format!("the handshake of {} failed: {cause}", self.id));
        };
        result.map_err(failed).ok()
    }

    fn finish(self, Established { secrets, info }: Established) -> Step {
        let Self { site, id, client, bulk, leg, input, received, sent, .. } = self;
        let Ok(connection) = Connection::new(secrets) else {
            site.network.violation(format!("the secrets of {id} are unusable"));
            return Step::Gone;
        };
        let version = match info.version {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        };
        let (suite, resumed) = (info.suite.iana(), info.resumed.is_some());
        let tls = TlsInfo { version, suite, alpn: info.alpn, server_name: info.server_name, resumed };
        // The handshake may have sealed tickets with the key of the data.
        site.ledger.seal(site.node, id, 0, 0..connection.tx_sequence());
        let about = About { id, client, tenure: Epoch(0), last: Epoch(0), key: 0, tls };
        let is_lost = site.sabotage == Some(Sabotage::FirstRequestLost);
        let unopened = if is_lost { Vec::new() } else { input };
        let parts = Parts { unopened, received, sent, ..Parts::new(leg, connection) };
        let stream = LegStream::new(TlsStream::from_parts(parts));
        site.network.count(|figures| figures.handshakes += 1);
        let mut serving = Serving::new(site, about, stream);
        if let Some(target) = bulk {
            serving.leave(target);
        }
        Step::GoesOn(Owned::Serving(Box::new(serving)))
    }
}
