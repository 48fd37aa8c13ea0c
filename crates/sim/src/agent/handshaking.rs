//! Does the TLS handshake of a new connection. Mirrors `connection/handshake.rs` of `crates/agent`.

use std::net::SocketAddr;
use std::time::Duration;

use watari_handshake::{Established, Failed, Handshake, Miss, Progress, Provided, SessionSource};
use watari_record::{Connection, Version};
use watari_session::PutId;
use watari_stream::{Parts, TlsStream};
use watari_values::{ConnectionId, Epoch, NodeName, TlsInfo};

use super::serving::Serving;
use super::sessions::Search;
use super::{About, Owned, Site, Step};
use crate::pki::PKI;
use crate::sabotage::Sabotage;
use crate::socket::Socket;
use crate::tls::LegStream;

/// How long a handshake may take. Not longer than at the dispatcher.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long a handshake waits for ticket keys. Without keys, its client gets no ticket.
const KEYS_MAX: Duration = Duration::from_secs(2);

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
    stage: Stage,
    expires: Duration,
}

/// How a handshake goes on.
enum Advance {
    GoesOn,
    /// It needs more input.
    Reads,
    Waits,
    Fails,
}

/// What the handshake waits for, besides the leg.
enum Stage {
    /// Ticket keys, until this time.
    Keys(Duration),
    Nothing,
    /// The sessions of this progress are stored. Then the client may get their tickets.
    Storing(PutId, Box<Progress>),
    Searching(Search),
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
        let handshake = Handshake::new(&PKI.server, &site.sessions.offered);
        site.network.wake_in(site.node, KEYS_MAX);
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
            stage: Stage::Keys(site.network.now() + KEYS_MAX),
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
            match self.advance() {
                Advance::Fails => return Step::Gone,
                Advance::Waits => break,
                Advance::GoesOn => continue,
                Advance::Reads => {}
            }
            match self.leg.read(READ_LEN) {
                None => break,
                Some(Ok(bytes)) if !bytes.is_empty() => {
                    self.received += bytes.len() as u64;
                    self.input.extend(bytes);
                }
                Some(_) => return Step::Gone,
            }
        }
        if self.site.network.now() < self.expires { Step::Waits(Owned::Handshaking(self)) } else { Step::Gone }
    }

    fn advance(&mut self) -> Advance {
        match std::mem::replace(&mut self.stage, Stage::Nothing) {
            Stage::Keys(until) if !self.site.sessions.is_ready() && self.site.network.now() < until => {
                self.stage = Stage::Keys(until);
                Advance::Waits
            }
            Stage::Storing(put, progress) if self.site.sessions.is_stored(put) => {
                self.take(*progress);
                Advance::GoesOn
            }
            Stage::Searching(search) => match self.site.sessions.result(&search) {
                Some(Provided { miss: Some(_), .. }) if self.site.sabotage == Some(Sabotage::MissFails) => {
                    Advance::Fails
                }
                Some(provided) => {
                    let answered = self.handshake.provide(provided);
                    self.handle(answered)
                }
                None => {
                    self.stage = Stage::Searching(search);
                    Advance::Waits
                }
            },
            storing @ Stage::Storing(..) => {
                self.stage = storing;
                Advance::Waits
            }
            Stage::Keys(_) | Stage::Nothing => {
                let received = self.handshake.receive(&self.input);
                self.handle(received)
            }
        }
    }

    fn handle(&mut self, step: Result<Progress, Failed>) -> Advance {
        let Some(mut progress) = self.check(step) else { return Advance::Fails };
        self.input.drain(..progress.consumed);
        let has_output = !progress.output.is_empty() || progress.established.is_some();
        let is_stuck = progress.consumed == 0 && !has_output && progress.wanted.is_empty();
        let made = std::mem::take(&mut progress.made);
        if made.is_empty() {
            self.take(progress);
        } else {
            self.stage = Stage::Storing(self.site.sessions.store(made), Box::new(progress));
        }
        if is_stuck { Advance::Reads } else { Advance::GoesOn }
    }

    fn take(&mut self, progress: Progress) {
        self.output.extend(progress.output);
        self.established = progress.established;
        if !progress.wanted.is_empty() {
            self.stage = Stage::Searching(self.site.sessions.look_for(&progress.wanted));
        }
    }

    /// No client of the simulation does anything wrong.
    fn check(&self, result: Result<Progress, Failed>) -> Option<Progress> {
        let failed = |Failed { cause, .. }| {
            self.site.network.violation(format!("the handshake of {} failed: {cause}", self.id));
        };
        result.map_err(failed).ok()
    }

    fn finish(self, Established { mut secrets, info }: Established) -> Step {
        let Self { site, id, client, bulk, leg, input, received, sent, .. } = self;
        let sealed = secrets.tx.sequence;
        if site.sabotage == Some(Sabotage::TicketNoncesReused) {
            secrets.tx.sequence = 0;
        }
        let Ok(connection) = Connection::new(secrets) else {
            site.network.violation(format!("the secrets of {id} are unusable"));
            return Step::Gone;
        };
        site.network.note(|| {
            let (resumed, missed) = (info.resumed.map(SessionSource::label), info.missed.map(Miss::label));
            format!("{} has done the handshake of {id}, resumed {resumed:?}, missed {missed:?}", site.node)
        });
        let version = match info.version {
            Version::Tls12 => 0x0303,
            Version::Tls13 => 0x0304,
        };
        let (suite, resumed) = (info.suite.iana(), info.resumed.is_some());
        let tls = TlsInfo { version, suite, alpn: info.alpn, server_name: info.server_name, resumed };
        // The handshake may have sealed tickets with the key of the data.
        site.ledger.seal(site.node, id, 0, 0..sealed);
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
