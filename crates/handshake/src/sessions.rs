//! How clients resume sessions: by tickets, or by ids of sessions that the server stores.
//!
//! rustls gets and stores sessions by calls that must return at once. But a shared session may be at another node. So
//! each connection has a [`ConnectionSessions`](crate::connection_sessions::ConnectionSessions). The driver puts sessions on it before rustls gets the
//! `ClientHello`. New sessions from rustls stay there until the driver takes them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use watari_client_hello::Offers;
use watari_values::{SecretBytes, SessionKey, TicketSeedId};

/// How sessions are resumed.
#[derive(Debug, Clone, Default)]
pub struct Sessions {
    /// Seals sessions into tickets, which clients store. `None`: the server stores all sessions, and a ticket is only
    /// an id.
    pub tickets: Option<Arc<dyn Tickets>>,
    /// Whether the driver stores sessions: those of all clients, or, with `tickets`, those of TLS 1.2 clients that take
    /// no tickets.
    pub kept: bool,
    /// The lifetime of sessions that the server announces to clients.
    pub lifetime: Duration,
    /// The number of tickets after each TLS 1.3 handshake, including resumptions. A ticket should be used for one
    /// connection only (RFC 8446, appendix C.4).
    pub tickets_per_handshake: usize,
    /// Whether clients may send early data (RFC 8446, section 2.3), with the driver's approval each time. It needs
    /// sessions that the driver stores, and no request for client certificates: the rights of such a client are decided
    /// too late for early data.
    pub early_data: bool,
}

/// Seals sessions into tickets, and opens them.
pub trait Tickets: fmt::Debug + Send + Sync {
    /// Seals `session`, which was established now, under `policy_id`. `None`: the client gets no ticket.
    fn seal(&self, policy_id: &PolicyId, session: &[u8]) -> Option<Vec<u8>>;

    /// Opens a ticket that a node sealed under the same policy id. `ticket` comes from the client, and may be any bytes.
    fn open(&self, policy_id: &PolicyId, ticket: &[u8]) -> Result<Found, Miss>;

    /// The id of the seed of the key that opens `ticket`, if this node does not have it and another may.
    fn missing_seed(&self, ticket: &[u8]) -> Option<TicketSeedId>;
}

/// A digest of the settings that a session was established under. A server with another policy id does not resume it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PolicyId([u8; 32]);

/// A session that the client may resume later, by its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    pub key: SessionKey,
    pub session: SecretBytes,
}

/// A session that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub session: SecretBytes,
    pub source: SessionSource,
}

/// The place where a session was established.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SessionSource {
    /// At this node.
    Here,
    /// At another node. Everything needed to resume it was at this node.
    Elsewhere,
    /// At another node. It was fetched while the handshake waited.
    Pulled,
}

impl SessionSource {
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

/// The sessions and seeds that a handshake needs before it continues.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Sessions that the client offers by their ids.
    pub sessions: Vec<SessionKey>,
    /// Seeds of the keys of tickets that it offers.
    pub ticket_seeds: Vec<TicketSeedId>,
    /// The client announces early data. The server accepts it only with the first of `sessions` (RFC 8446, section
    /// 4.2.10), and only if no node approved that before. Otherwise an attacker could record and replay it.
    pub early_data: bool,
}

/// The driver's answer to [`Wanted`].
#[derive(Debug, Default)]
pub struct Provided {
    /// The sessions that were found, by key.
    pub found: Vec<(SessionKey, Found)>,
    /// Why some were not found.
    pub miss: Option<Miss>,
    /// Whether early data with the first wanted session is approved.
    pub early_data: bool,
}

/// Why a session that the client offered was not resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Miss {
    /// No node that was asked stores it (any more).
    Unknown,
    /// The key of the ticket is not available (any more).
    NoKey,
    /// The ticket is older than the lifetime of sessions.
    Expired,
    /// The ticket was not sealed with the key it names, or under another policy id.
    Forged,
    /// The session is for one use, and was used.
    Spent,
    /// A node that may store it, or must approve its use, did not respond in time.
    Unreachable,
    /// The server does not accept the client certificate in it (any more).
    ClientCertificate,
    /// It has another server name, cipher suite or version.
    Unfit,
}

impl Miss {
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

impl PolicyId {
    /// The digest of all `parts`, each with its length.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(b"watari session policy v1\0");
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        Self(finish(context))
    }

    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The key of the session that was established under this policy id with this id.
    pub(crate) fn key(&self, id: &[u8]) -> SessionKey {
        let mut context = Context::new(&SHA256);
        context.update(b"watari session key v1\0");
        context.update(&self.0);
        context.update(id);
        SessionKey(finish(context))
    }
}

impl fmt::Debug for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PolicyId").finish_non_exhaustive()
    }
}

fn finish(context: Context) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    digest
}

impl Wanted {
    /// Whether the handshake can continue at once.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty() && self.ticket_seeds.is_empty()
    }

    pub(crate) fn sessions(policy_id: &PolicyId, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let ids = match &offers.ticket {
            _ if is_tls13 => &offers.identities[..],
            // The client gets only tickets. Its id shows it whether the server accepted one (RFC 5077, section 3.4).
            Some(ticket) => std::slice::from_ref(ticket),
            None => std::slice::from_ref(&offers.session_id),
        };
        let sessions = ids.iter().filter(|id| !id.is_empty()).map(|id| policy_id.key(id)).collect();
        Self { sessions, ..Self::default() }
    }

    pub(crate) fn seeds(tickets: &dyn Tickets, is_tls13: bool, offers: &Offers<'_>) -> Self {
        let offered = if is_tls13 { &offers.identities[..] } else { offers.ticket.as_slice() };
        let ticket_seeds = offered.iter().filter_map(|ticket| tickets.missing_seed(ticket)).collect();
        Self { ticket_seeds, ..Self::default() }
    }
}
