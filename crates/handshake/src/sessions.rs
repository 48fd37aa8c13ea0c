//! How clients resume sessions: by tickets, or by ids of sessions that the server keeps.
//!
//! rustls asks for a session, and hands one over, by calls that must return at once; where sessions are shared, the answer
//! may be at another node. So each connection has a [`Desk`]: what the client may resume is put there before rustls sees the
//! `ClientHello`, and what rustls hands over lies there until the driver has taken it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::pki_types::UnixTime;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ProducesTickets, StoresServerSessions};
use watari_wire::client_hello::Offers;
use watari_wire::{SecretBytes, SessionKey, TicketSeedId};

use crate::session_value::client_chain;

/// How sessions are resumed.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    /// Seals sessions into tickets, for the clients to keep. `None`: the server keeps all sessions, and a ticket is but an id.
    pub tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver keeps sessions: those of all clients, or with `tickets` those of the clients of TLS 1.2 that take no
    /// tickets.
    pub kept: bool,
    /// So many tickets after each handshake of TLS 1.3, also after one that resumed: a ticket is good for one connection
    /// (RFC 8446, appendix C.4).
    pub tickets_per_handshake: usize,
}

/// Seals sessions into tickets, and opens them again.
pub trait Tickets: fmt::Debug + Send + Sync {
    /// How long clients may keep a ticket of now.
    fn lifetime(&self) -> Duration;

    /// Seals `session` for whoever has the same terms. `since`: when it was established, if not now, in seconds of Unix time. `None`: that
    /// is not possible now, and the client gets no ticket.
    fn seal(&self, terms: &Terms, session: &[u8], since: Option<u64>) -> Option<Vec<u8>>;

    /// Opens what somebody sealed under the same terms. `ticket` is what a client sent, and may be anything.
    fn open(&self, terms: &Terms, ticket: &[u8]) -> Result<Found, Miss>;

    /// From what the key follows that opens `ticket`, if that is not known here and may be elsewhere.
    fn missing_seed(&self, ticket: &[u8]) -> Option<TicketSeedId>;
}

/// What a session was established under, as a digest: whoever serves other terms does not resume it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Terms([u8; 32]);

/// A session that the client may resume later, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// By what it is found.
    pub key: SessionKey,
    /// What it is.
    pub session: SecretBytes,
}

/// A session that was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// What it is.
    pub session: SecretBytes,
    /// When it was established, in seconds of Unix time.
    pub since: u64,
    /// Where that was.
    pub origin: Origin,
}

/// From where a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// It was established here.
    Here,
    /// It was established elsewhere, and everything to resume it was here.
    Elsewhere,
    /// It was established elsewhere, and fetched while the handshake waited.
    Pulled,
}

impl Origin {
    /// Every origin.
    pub const ALL: [Self; 3] = [Self::Here, Self::Elsewhere, Self::Pulled];

    /// The origin as a metric label and log field.
    pub fn label(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Elsewhere => "elsewhere",
            Self::Pulled => "pulled",
        }
    }
}

/// What has to be known before the handshake goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Sessions that the client offers by their ids.
    pub sessions: Vec<SessionKey>,
    /// Seeds of the keys of tickets that it offers.
    pub ticket_seeds: Vec<TicketSeedId>,
}

/// Why a session that the client offered was not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Miss {
    /// Nobody who was asked keeps it (any more).
    Unknown,
    /// The key of the ticket is not known (any more).
    NoKey,
    /// The ticket is too old.
    Expired,
    /// The ticket was not sealed with the key it names, or under other terms.
    Forged,
    /// Whoever may keep it did not answer in time.
    Unreachable,
    /// The client's certificate in it is not accepted (any more).
    ClientCertificate,
    /// It is of another name, cipher suite or version.
    Unfit,
}

impl Miss {
    /// Every cause.
    pub const ALL: [Self; 7] = [
        Self::Unknown,
        Self::NoKey,
        Self::Expired,
        Self::Forged,
        Self::Unreachable,
        Self::ClientCertificate,
        Self::Unfit,
    ];

    /// The cause as a metric label and log field.
    pub fn label(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::NoKey => "no_key",
            Self::Expired => "expired",
            Self::Forged => "forged",
            Self::Unreachable => "unreachable",
            Self::ClientCertificate => "client_certificate",
            Self::Unfit => "unfit",
        }
    }
}

impl Terms {
    /// The digest of everything that `parts` say, each by itself.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"watari session terms v1\0");
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self(finish(context))
    }

    /// The digest itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// By what a session with this id is found that was established under these terms.
    fn key(&self, id: &[u8]) -> SessionKey {
        let mut context = Context::new(&SHA256);
        context.update(b"watari session key v1\0");
        context.update(&self.0);
        context.update(id);
        SessionKey(finish(context))
    }
}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Terms").finish_non_exhaustive()
    }
}

fn finish(context: Context) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

/// What rustls meets instead of a store of sessions: one connection's.
pub(crate) struct Desk {
    terms: Terms,
    is_tls13: bool,
    tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver keeps a session of this client.
    keeps: bool,
    /// Looks again at the client's certificate, where one is asked for.
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    found: Vec<(SessionKey, Found)>,
    /// Whether the handshake waited for anything.
    waited: bool,
    made: Vec<Kept>,
    missed: Option<Miss>,
    /// From where the session is that rustls was given.
    given: Option<Origin>,
    /// Since when that was established. A session of TLS 1.2 goes on with the same secret when it is resumed, so its next ticket
    /// does not make it younger; in TLS 1.3 secrets are fresh each time.
    since: Option<u64>,
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
        let takes_tickets = is_tls13 || offers.is_some_and(|offers| offers.ticket.is_some());
        let tickets = sessions.tickets.clone().filter(|_| takes_tickets);
        let wanted = offers.map_or_else(Wanted::default, |offers| match &tickets {
            Some(tickets) => Wanted::seeds(&**tickets, is_tls13, offers),
            None if sessions.kept => Wanted::sessions(&terms, is_tls13, offers),
            None => Wanted::default(),
        });
        let keeps = sessions.kept && tickets.is_none();
        (Self { terms, is_tls13, tickets, keeps, verifier, state: Mutex::default() }, wanted)
    }

    /// Takes what was found of what was wanted; `miss` says why that was not all.
    pub(crate) fn provide(&self, found: Vec<(SessionKey, Found)>, miss: Option<Miss>) {
        let mut state = self.lock();
        state.waited = true;
        state.found = found;
        state.missed = miss;
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
                state.since = (!self.is_tls13).then_some(found.since);
                Some(found.session.as_slice().to_vec())
            }
            Err(miss) => {
                state.missed.get_or_insert(miss);
                None
            }
        }
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

impl Wanted {
    /// Whether the handshake can go on at once.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.ticket_seeds.is_empty()
    }

    fn sessions(terms: &Terms, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let ids = if is_tls13 { &offers.identities[..] } else { std::slice::from_ref(&offers.session_id) };
        let sessions = ids.iter().filter(|id| !id.is_empty()).map(|id| terms.key(id)).collect();
        Self { sessions, ..Self::default() }
    }

    fn seeds(tickets: &dyn Tickets, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let offered = if is_tls13 { &offers.identities[..] } else { offers.ticket.as_slice() };
        let ticket_seeds = offered.iter().filter_map(|ticket| tickets.missing_seed(ticket)).collect();
        Self { ticket_seeds, ..Self::default() }
    }
}

/// How the desk looks to rustls. Within one connection `take` may be `get`: whether a session is good only once is the
/// driver's to decide, when it looks for it.
impl StoresServerSessions for Desk {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        if self.keeps {
            let key = self.terms.key(&id);
            self.lock().made.push(Kept { key, session: SecretBytes::new(session) });
        }
        self.keeps
    }

    fn get(&self, id: &[u8]) -> Option<Vec<u8>> {
        let key = self.terms.key(id);
        let found = self.lock().found.iter().find(|(known, _)| *known == key).map(|(_, found)| found.clone());
        self.give(found.ok_or(Miss::Unknown))
    }

    fn take(&self, id: &[u8]) -> Option<Vec<u8>> {
        self.get(id)
    }

    fn can_cache(&self) -> bool {
        self.keeps
    }
}

impl ProducesTickets for Desk {
    fn enabled(&self) -> bool {
        self.tickets.is_some()
    }

    fn lifetime(&self) -> u32 {
        let lifetime = self.tickets.as_ref().map_or(Duration::ZERO, |tickets| tickets.lifetime());
        lifetime.as_secs().try_into().unwrap_or(u32::MAX)
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        let since = self.lock().since;
        self.tickets.as_ref()?.seal(&self.terms, session, since)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let tickets = self.tickets.as_ref()?;
        let waited = self.lock().waited;
        self.give(tickets.open(&self.terms, ticket).map(|found| match found.origin {
            Origin::Elsewhere if waited => Found { origin: Origin::Pulled, ..found },
            _ => found,
        }))
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
