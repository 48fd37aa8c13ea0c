//! The session store that one connection presents to rustls.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, StoresServerSessions};
use watari_client_hello::Offers;
use watari_values::{SecretBytes, SessionKey};
use zeroize::Zeroizing;

use crate::session_value::client_chain;
use crate::sessions::{Found, Miss, NewSession, PolicyId, Provided, SessionSource, Sessions, Tickets, Wanted};

/// The sessions of one connection. rustls uses it as its session store and ticketer.
pub(crate) struct ConnectionSessions {
    policy_id: PolicyId,
    is_tls13: bool,
    tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver stores a session of this client, and the kind of its id.
    keeps: Option<Names>,
    lifetime: Duration,
    /// The keys of offered sessions that the driver may have.
    wanted: Vec<SessionKey>,
    /// Verifies the client's certificate again. Set if the server requests one.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    early_data: EarlyData,
    state: Mutex<LookupState>,
}

/// The kind of id of a session that the driver stores.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    /// A ticket of TLS 1.3, or a session id of TLS 1.2. rustls makes it.
    OfRustls,
    /// A ticket of TLS 1.2. rustls makes no ids for these.
    Tickets,
}

/// Whether the connection may have early data.
struct EarlyData {
    /// Whether the server accepts early data from this client, if the driver approves it each time.
    is_taken: bool,
    /// Whether the client announces early data. Also true, to be safe, if its extensions cannot be parsed.
    is_announced: bool,
}

#[derive(Default)]
struct LookupState {
    found: Vec<(SessionKey, Found)>,
    /// Whether the handshake waited for sessions or seeds.
    waited: bool,
    made: Vec<NewSession>,
    missed: Option<Miss>,
    /// Whether the driver approved early data.
    approved: bool,
    /// The origin of the session that rustls got.
    given: Option<SessionSource>,
    /// The TLS 1.2 ticket that the client sent for that session.
    ticket: Option<Vec<u8>>,
}

impl ConnectionSessions {
    /// The desk for a client that offers this, and the sessions and seeds that the handshake needs first.
    pub(crate) fn new(
        sessions: &Sessions,
        policy_id: PolicyId,
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
            None if sessions.kept => Wanted::sessions(&policy_id, is_tls13, offers),
            None => Wanted::default(),
        });
        wanted.early_data = early_data.is_taken && early_data.is_announced && !wanted.sessions.is_empty();
        let names = if takes_tickets && !is_tls13 { Names::Tickets } else { Names::OfRustls };
        let keeps = (sessions.kept && tickets.is_none()).then_some(names);
        let (lifetime, keys, state) = (sessions.lifetime, wanted.sessions.clone(), Mutex::default());
        (Self { policy_id, is_tls13, tickets, keeps, lifetime, wanted: keys, verifier, early_data, state }, wanted)
    }

    /// Stores the driver's answer.
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

    /// Whether the client has announced early data, and the driver has approved it.
    pub(crate) fn approves_early_data(&self) -> bool {
        self.early_data.is_taken && self.early_data.is_announced && self.lock().approved
    }

    /// The limit for early data, in bytes. rustls has only one number for two limits: that of this client now, and that
    /// in the tickets of this connection. So a client that announced early data without approval gets tickets without
    /// early data.
    pub(crate) fn early_data_max(&self) -> u32 {
        let is_free = self.early_data.is_taken && !self.early_data.is_announced;
        if is_free || self.approves_early_data() { EARLY_DATA_MAX } else { 0 }
    }

    /// The sessions that rustls has stored since the last call.
    pub(crate) fn take_made(&self) -> Vec<NewSession> {
        std::mem::take(&mut self.lock().made)
    }

    /// The origin of the session that was resumed.
    pub(crate) fn source(&self) -> Option<SessionSource> {
        self.lock().given
    }

    /// Why a full handshake was not a resumption.
    pub(crate) fn miss(&self) -> Option<Miss> {
        let state = self.lock();
        if state.given.is_some() { Some(Miss::Unfit) } else { state.missed }
    }

    /// Gives a session to rustls, unless the client's certificate is not accepted any more.
    fn give(&self, found: Result<Found, Miss>) -> Option<Vec<u8>> {
        let checked = found.and_then(|found| self.check_client(&found.session).map(|()| found));
        let mut state = self.lock();
        match checked {
            Ok(found) => {
                state.given = Some(found.source);
                Some(found.session.as_slice().to_vec())
            }
            Err(miss) => {
                state.missed.get_or_insert(miss);
                None
            }
        }
    }

    /// The stored session with this id.
    fn find(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.policy_id.key(id);
        // rustls also asks for ids that a client has made up.
        if !self.wanted.contains(&key) {
            return None;
        }
        let found = self.lock().found.iter().find(|(known, _)| *known == key).map(|(_, found)| found.clone());
        self.give(found.ok_or(Miss::Unknown))
    }

    fn open(&self, tickets: &dyn Tickets, ticket: &[u8]) -> Option<Vec<u8>> {
        let waited = self.lock().waited;
        self.give(tickets.open(&self.policy_id, ticket).map(|found| match found.source {
            SessionSource::Elsewhere if waited => Found { source: SessionSource::Pulled, ..found },
            _ => found,
        }))
    }

    fn keep(&self, id: &[u8], session: &[u8]) {
        let kept = NewSession { key: self.policy_id.key(id), session: SecretBytes::new(session.to_vec()) };
        self.lock().made.push(kept);
    }

    /// The certificate was valid when the session was established; it may have expired since.
    fn check_client(&self, session: &SecretBytes) -> Result<(), Miss> {
        let Some(verifier) = &self.verifier else { return Ok(()) };
        let chain = client_chain(session.as_slice()).ok_or(Miss::ClientCertificate)?;
        let Some((leaf, intermediates)) = chain.split_first() else {
            return if verifier.client_auth_mandatory() { Err(Miss::ClientCertificate) } else { Ok(()) };
        };
        let result = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
        result.map(|_| ()).map_err(|_| Miss::ClientCertificate)
    }

    fn lock(&self) -> MutexGuard<'_, LookupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session store for rustls. Within one connection, `take` may be `get`: the driver decides whether a session may
/// be used only once.
impl StoresServerSessions for ConnectionSessions {
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

impl ProducesTickets for ConnectionSessions {
    fn enabled(&self) -> bool {
        self.tickets.is_some() || self.keeps == Some(Names::Tickets)
    }

    fn lifetime(&self) -> u32 {
        self.lifetime.as_secs().try_into().unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        // A resumed session of TLS 1.2 keeps its secret. So the session does not get younger, and its ticket is as good
        // as a new one. In TLS 1.3, secrets are fresh each time.
        if let Some(ticket) = self.lock().ticket.clone() {
            return Some(ticket);
        }
        if let Some(tickets) = &self.tickets {
            return tickets.seal(&self.policy_id, session);
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

impl fmt::Debug for ConnectionSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionSessions").finish_non_exhaustive()
    }
}

/// The length in bytes of ids that rustls makes, which cannot be guessed.
const NAME_LEN: usize = 32;
/// The maximum early data that is accepted, in bytes. rustls skips at most 16 KiB of rejected early data, and counts
/// the overhead of records there.
const EARLY_DATA_MAX: u32 = 14 * 1024;
