//! How clients resume sessions: by tickets, or by ids of sessions that the server keeps.
//!
//! rustls asks for a session, and hands one over, by calls that must return at once; where sessions are shared, the answer
//! may be at another node. So each connection has a [`Desk`](crate::desk::Desk): what the client may resume is put there before rustls sees the
//! `ClientHello`, and what rustls hands over lies there until the driver has taken it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use watari_wire::client_hello::Offers;
use watari_wire::{SecretBytes, SessionKey, TicketSeedId};

/// How sessions are resumed.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    /// Seals sessions into tickets, for the clients to keep. `None`: the server keeps all sessions, and a ticket is but an id.
    pub tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver keeps sessions: those of all clients, or with `tickets` those of the clients of TLS 1.2 that take no
    /// tickets.
    pub kept: bool,
    /// How long sessions can be resumed, as far as clients are told.
    pub lifetime: Duration,
    /// So many tickets after each handshake of TLS 1.3, also after one that resumed: a ticket is good for one connection
    /// (RFC 8446, appendix C.4).
    pub tickets_per_handshake: usize,
    /// Whether clients may send early data (RFC 8446, section 2.3), each time with somebody's approval. It takes sessions that the driver
    /// keeps, and clients that are asked for no certificate: what these may do is decided too late for it.
    pub early_data: bool,
}

/// Seals sessions into tickets, and opens them again.
pub trait Tickets: fmt::Debug + Send + Sync {
    /// Seals `session`, which was established now, for whoever has the same terms. `None`: that is not possible, and the client gets no
    /// ticket.
    fn seal(&self, terms: &Terms, session: &[u8]) -> Option<Vec<u8>>;

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
    /// Where it was established.
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
    /// The client announces early data. It is accepted only with the first of `sessions` (RFC 8446, section 4.2.10), and only if
    /// that was never approved before, anywhere: otherwise what is recorded on the way could be sent once more.
    pub early_data: bool,
}

/// What was found of what was wanted.
#[derive(Debug, Default)]
pub struct Provided {
    /// Sessions, by what was wanted.
    pub found: Vec<(SessionKey, Found)>,
    /// Why that is not all, if it is not.
    pub miss: Option<Miss>,
    /// Whether early data is approved, with the first session that was wanted.
    pub early_data: bool,
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
    /// It is good for one use, and was used.
    Spent,
    /// Whoever may keep it, or has to approve its use, did not answer in time.
    Unreachable,
    /// The client's certificate in it is not accepted (any more).
    ClientCertificate,
    /// It is of another name, cipher suite or version.
    Unfit,
}

impl Miss {
    /// Every cause.
    pub const ALL: [Self; 8] = [
        Self::Unknown,
        Self::NoKey,
        Self::Expired,
        Self::Forged,
        Self::Spent,
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
            Self::Spent => "spent",
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
    pub(crate) fn key(&self, id: &[u8]) -> SessionKey {
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

impl Wanted {
    /// Whether the handshake can go on at once.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.ticket_seeds.is_empty()
    }

    pub(crate) fn sessions(terms: &Terms, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let ids = match &offers.ticket {
            _ if is_tls13 => &offers.identities[..],
            // It gets tickets only; its id is there to tell it whether one was accepted (RFC 5077, section 3.4).
            Some(ticket) => std::slice::from_ref(ticket),
            None => std::slice::from_ref(&offers.session_id),
        };
        let sessions = ids.iter().filter(|id| !id.is_empty()).map(|id| terms.key(id)).collect();
        Self { sessions, ..Self::default() }
    }

    pub(crate) fn seeds(tickets: &dyn Tickets, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let offered = if is_tls13 { &offers.identities[..] } else { offers.ticket.as_slice() };
        let ticket_seeds = offered.iter().filter_map(|ticket| tickets.missing_seed(ticket)).collect();
        Self { ticket_seeds, ..Self::default() }
    }
}
