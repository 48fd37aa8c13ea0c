//! What a connection may resume, for rustls to take and to leave.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, StoresServerSessions};
use watari_wire::client_hello::Offers;
use watari_wire::{SecretBytes, SessionKey};
use zeroize::Zeroizing;

use crate::session_value::client_chain;
use crate::sessions::{Found, Kept, Miss, Origin, Provided, Sessions, Terms, Tickets, Wanted};

/// What rustls meets instead of a store of sessions: one connection's.
pub(crate) struct Desk {
    terms: Terms,
    is_tls13: bool,
    tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver keeps a session of this client, and by what the client names it.
    keeps: Option<Names>,
    lifetime: Duration,
    /// What the client offers of what the driver keeps.
    wanted: Vec<SessionKey>,
    /// Looks again at the client's certificate, where one is asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    early_data: EarlyData,
    state: Mutex<State>,
}

/// By what a client names a session that the driver keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// By a ticket of TLS 1.3, or a session id of TLS 1.2, as rustls makes them.
    OfRustls,
    /// By a ticket of TLS 1.2, for which rustls has no names.
    Tickets,
}

/// What may come of early data.
struct EarlyData {
    /// Whether the server takes any from this client, if each time somebody approves.
    is_taken: bool,
    /// Whether the client announces some. Also, to be on the safe side, if what it says cannot be read.
    is_announced: bool,
}

#[derive(Default)]
struct State {
    found: Vec<(SessionKey, Found)>,
    /// Whether the handshake waited for anything.
    waited: bool,
    made: Vec<Kept>,
    missed: Option<Miss>,
    /// Whether early data is.
    approved: bool,
    /// From where the session is that rustls was given.
    given: Option<Origin>,
    /// By which ticket of TLS 1.2 that was offered.
    ticket: Option<Vec<u8>>,
}

impl Desk {
    /// The desk for a client that offers this, and what is wanted for it.
    pub(crate) fn new(
        sessions: &Sessions,
        terms: Terms,
        verifier: Option<Arc<dyn ClientCertVerifier>>,
        is_tls13: bool,
        offers: Option<&Offers<'_>>,
    ) -> (Self, Wanted) {
        let early_data = EarlyData {
            is_taken: is_tls13 && sessions.early_data && sessions.tickets.is_none() && verifier.is_none(),
            is_announced: is_tls13 && offers.is_none_or(|offers| offers.early_data),
        };
        let takes_tickets = is_tls13 || offers.is_some_and(|offers| offers.ticket.is_some());
        let tickets = sessions.tickets.clone().filter(|_| takes_tickets);
        let mut wanted = offers.map_or_else(Wanted::default, |offers| match &tickets {
            Some(tickets) => Wanted::seeds(&**tickets, is_tls13, offers),
            None if sessions.kept => Wanted::sessions(&terms, is_tls13, offers),
            None => Wanted::default(),
        });
        wanted.early_data = early_data.is_taken && early_data.is_announced && !wanted.sessions.is_empty();
        let names = if takes_tickets && !is_tls13 { Names::Tickets } else { Names::OfRustls };
        let keeps = (sessions.kept && tickets.is_none()).then_some(names);
        let (lifetime, keys, state) = (sessions.lifetime, wanted.sessions.clone(), Mutex::default());
        (Self { terms, is_tls13, tickets, keeps, lifetime, wanted: keys, verifier, early_data, state }, wanted)
    }

    /// Takes what was found of what was wanted.
    pub(crate) fn provide(&self, provided: Provided) {
        let mut state = self.lock();
        state.waited = true;
        state.found = provided.found;
        state.missed = provided.miss;
        state.approved = provided.early_data;
    }

    /// Whether the client has announced early data.
    pub(crate) fn announces_early_data(&self) -> bool {
        self.early_data.is_announced
    }

    /// Whether early data is approved that the client has announced.
    pub(crate) fn approves_early_data(&self) -> bool {
        self.early_data.is_taken && self.early_data.is_announced && self.lock().approved
    }

    /// How much early data rustls may take, in bytes: of this client now, and of those who come with the tickets that it makes. Who has
    /// announced some that is not approved gets tickets without, for rustls has but one number for both.
    pub(crate) fn early_data_max(&self) -> u32 {
        let is_free = self.early_data.is_taken && !self.early_data.is_announced;
        if is_free || self.approves_early_data() { EARLY_DATA_MAX } else { 0 }
    }

    /// What rustls has handed over since it was last asked.
    pub(crate) fn take_made(&self) -> Vec<Kept> {
        std::mem::take(&mut self.lock().made)
    }

    /// From where the session is that was resumed.
    pub(crate) fn origin(&self) -> Option<Origin> {
        self.lock().given
    }

    /// Why a full handshake was not a resumption.
    pub(crate) fn miss(&self) -> Option<Miss> {
        let state = self.lock();
        if state.given.is_some() { Some(Miss::Unfit) } else { state.missed }
    }

    /// Gives a session to rustls, unless the client is no longer who it was.
    fn give(&self, found: Result<Found, Miss>) -> Option<Vec<u8>> {
        let checked = found.and_then(|found| self.check_client(&found.session).map(|()| found));
        let mut state = self.lock();
        match checked {
            Ok(found) => {
                state.given = Some(found.origin);
                Some(found.session.as_slice().to_vec())
            }
            Err(miss) => {
                state.missed.get_or_insert(miss);
                None
            }
        }
    }

    /// What was found by this id, or name of a session.
    fn find(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.terms.key(id);
        // rustls also asks for ids that a client has made up.
        if !self.wanted.contains(&key) {
            return None;
        }
        let found = self.lock().found.iter().find(|(known, _)| *known == key).map(|(_, found)| found.clone());
        self.give(found.ok_or(Miss::Unknown))
    }

    fn open(&self, tickets: &dyn Tickets, ticket: &[u8]) -> Option<Vec<u8>> {
        let waited = self.lock().waited;
        self.give(tickets.open(&self.terms, ticket).map(|found| match found.origin {
            Origin::Elsewhere if waited => Found { origin: Origin::Pulled, ..found },
            _ => found,
        }))
    }

    fn keep(&self, id: &[u8], session: &[u8]) {
        let kept = Kept { key: self.terms.key(id), session: SecretBytes::new(session.to_vec()) };
        self.lock().made.push(kept);
    }

    /// The certificate was good when the session was established; it may have expired since.
    fn check_client(&self, session: &SecretBytes) -> Result<(), Miss> {
        let Some(verifier) = &self.verifier else { return Ok(()) };
        let chain = client_chain(session.as_slice()).ok_or(Miss::ClientCertificate)?;
        let Some((leaf, intermediates)) = chain.split_first() else {
            return if verifier.client_auth_mandatory() { Err(Miss::ClientCertificate) } else { Ok(()) };
        };
        let result = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
        result.map(|_| ()).map_err(|_| Miss::ClientCertificate)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How the desk looks to rustls. Within one connection `take` may be `get`: whether a session is good only once is the
/// driver's to decide, when it looks for it.
impl StoresServerSessions for Desk {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        let session = Zeroizing::new(session);
        if self.can_cache() {
            self.keep(&id, &session);
        }
        self.can_cache()
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.find(id)
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.get(id)
    }

    fn can_cache(&self) -> bool {
        self.keeps == Some(Names::OfRustls)
    }
}

impl ProducesTickets for Desk {
    fn enabled(&self) -> bool {
        self.tickets.is_some() || self.keeps == Some(Names::Tickets)
    }

    fn lifetime(&self) -> u32 {
        self.lifetime.as_secs().try_into().unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        // A session of TLS 1.2 goes on with the same secret when it is resumed, so it does not get younger, and its ticket is as good as a
        // new one. In TLS 1.3 secrets are fresh each time.
        if let Some(ticket) = self.lock().ticket.clone() {
            return Some(ticket);
        }
        if let Some(tickets) = &self.tickets {
            return tickets.seal(&self.terms, session);
        }
        let mut name = vec![0; NAME_LEN];
        aws_lc_rs::rand::fill(&mut name).ok()?;
        self.keep(&name, session);
        Some(name)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let session = match &self.tickets {
            Some(tickets) => self.open(&**tickets, ticket),
            None => self.find(ticket),
        };
        if session.is_some() && !self.is_tls13 {
            self.lock().ticket = Some(ticket.to_vec());
        }
        session
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

/// As long as the names that rustls makes, in bytes: nobody guesses one.
const NAME_LEN: usize = 32;
/// The most early data that is accepted, in bytes. rustls skips 16 KiB of what it refuses, and counts there what the records add.
const EARLY_DATA_MAX: u32 = 14 * 1024;
