//! Limits on the lengths of variable message fields.
//!
//! Both ends apply the limits: a sender does not send longer fields, and a receiver does not accept them.

use watari_values::TlsInfo;

use crate::message::{
    Advert, AgentToAgent, AgentToDispatcher, AnchoredContent, DispatcherToDispatcher, KeptSession, LegKey, Message,
    Prepare, PrepareRest, PurgeScope, PurgesMessage, ResponseRest, Rest, SessionMessage, Ship, ShipInResponse,
    StatePart, TakeComing, TakeoverMessage, TicketSeed,
};

/// Bytes of an ALPN protocol name, which has one length byte (RFC 7301, section 3.1).
pub const ALPN_LEN_MAX: usize = 255;
/// Bytes of a host name (RFC 1035, section 2.3.4).
pub const SERVER_NAME_LEN_MAX: usize = 255;
/// Bytes of a client certificate.
pub const CERTIFICATE_LEN_MAX: usize = 64 << 10;
/// Bytes of an exported state of the record layer. It takes about 200.
pub const STATE_LEN_MAX: usize = 4 << 10;
/// Bytes of plaintext that were opened and not taken: the buffers of an HTTP parser and a record.
pub const OPENED_LEN_MAX: usize = 128 << 10;
/// Bytes of the client's stream that a source has read and not opened, in one message.
pub const REST_LEN_MAX: usize = 1 << 20;
/// Sealed bytes that a source has not written to its kernel.
pub const TAIL_LEN_MAX: usize = 256 << 10;
/// Bytes of the head of a request whose response another agent continues.
pub const REQUEST_LEN_MAX: usize = 64 << 10;
/// Bytes of a validator.
pub const ETAG_LEN_MAX: usize = 1 << 10;
/// Bytes of an exported state of HTTP. It takes 27.
pub const HTTP_STATE_LEN_MAX: usize = 256;
/// Bytes of a response that are shipped as bytes: one framed piece of its body, and a rest.
pub const RESPONSE_BYTES_LEN_MAX: usize = 320 << 10;
/// The most bytes of one direction of an anchored stream that the other end has not consumed.
pub const ANCHORED_WINDOW_LEN: usize = 128 << 10;
/// The same when the owner's end moves, with a piece that had no room.
pub const ANCHORED_SHIPPED_LEN_MAX: usize = 144 << 10;
/// The most bytes of an anchored stream in one message.
pub const ANCHORED_DATA_LEN_MAX: usize = 16 << 10;
/// The exact length of the key in a [`LegKey`], in bytes.
pub const LEG_KEY_LEN: usize = 32;
/// Seeds of ticket keys in one message.
pub const TICKET_SEEDS_MAX: usize = 48;
/// Keys of one seed, for as many epochs.
pub const TICKET_KEYS_MAX: usize = 32;
/// The exact length of a secret of ticket keys, in bytes.
pub const TICKET_SECRET_LEN: usize = 32;
/// Sessions, or session keys, in one message.
pub const SESSIONS_MAX: usize = 16;
/// Bytes of a session. One with a chain of client certificates takes some KiB.
pub const SESSION_LEN_MAX: usize = 16 << 10;
/// Purges in one message. With the longest texts, they fit into a frame.
pub const PURGES_MAX: usize = 128;
/// Bytes of the text of a purge.
pub const PURGE_TEXT_LEN_MAX: usize = 8 << 10;
/// Processes in one message of which the sender has folded purges.
pub const FOLDED_PURGES_MAX: usize = 1024;
/// Connections in one message that they are about to change their dispatcher.
pub const FLOWS_MAX: usize = 256;
/// Bytes of the state of a connection that changes its dispatcher: its two queues of TCP, and what waits in the
/// dispatcher.
pub const CHANGE_STATE_LEN_MAX: usize = 24 << 20;
/// Bytes of such a state in one message.
pub const STATE_PART_LEN_MAX: usize = 256 << 10;
/// Voters about a service address. A majority of 15 still decides within one round trip.
pub const VOTERS_MAX: usize = 15;

/// A field is too long or too short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the field `{field}` has {len} bytes, where {min} to {max} are allowed")]
pub struct BadLength {
    pub field: &'static str,
    /// The length of the field, in bytes.
    pub len: usize,
    /// The shortest allowed length, in bytes.
    pub min: usize,
    /// The longest allowed length, in bytes.
    pub max: usize,
}

impl Message {
    /// Checks every field whose length the sender chooses.
    pub fn check_bounds(&self) -> Result<(), BadLength> {
        match self {
            Self::AgentToDispatcher(message) => message.check_bounds(),
            Self::AgentToAgent(message) => message.check_bounds(),
            Self::Takeover(TakeoverMessage::Advert(Advert { voters, .. })) => {
                at_most("voters", voters.len(), VOTERS_MAX)
            }
            Self::DispatcherToDispatcher(DispatcherToDispatcher::StatePart(StatePart { bytes, state_len, .. })) => {
                at_most("state_len", *state_len as usize, CHANGE_STATE_LEN_MAX)?;
                at_most("bytes", bytes.len(), STATE_PART_LEN_MAX)
            }
            Self::DispatcherToDispatcher(DispatcherToDispatcher::TakeComing(TakeComing { flows })) => {
                at_most("flows", flows.len(), FLOWS_MAX)
            }
            // All fields have fixed lengths.
            Self::DispatcherToAgent(_) | Self::DispatcherToDispatcher(_) | Self::Takeover(_) => Ok(()),
        }
    }
}

impl AgentToDispatcher {
    fn check_bounds(&self) -> Result<(), BadLength> {
        match self {
            Self::LegKey(LegKey { key, .. }) => within("key", key.as_slice().len(), LEG_KEY_LEN, LEG_KEY_LEN),
            Self::Established(established) => check_tls(&established.tls),
            Self::Propose(_)
            | Self::Held(_)
            | Self::Refused(_)
            | Self::Cancel(_)
            | Self::Final(_)
            | Self::Stays(_)
            | Self::Tunnel(_)
            | Self::Draining
            | Self::LegDetached(_)
            | Self::LegAttached(_) => Ok(()),
        }
    }
}

impl AgentToAgent {
    fn check_bounds(&self) -> Result<(), BadLength> {
        match self {
            Self::Ship(ship) => check_ship(ship),
            Self::Prepare(prepare) => check_prepare(prepare),
            Self::ShipInResponse(ship) => check_ship_in_response(ship),
            Self::Rest(Rest { bytes, .. }) => at_most("bytes", bytes.len(), REST_LEN_MAX),
            Self::TicketSeeds(seeds) => check_seeds(seeds),
            Self::Anchored(anchored) => check_anchored(&anchored.content),
            Self::Prepared(_) | Self::TicketSeedWanted(_) => Ok(()),
            Self::Session(message) => message.check_bounds(),
            Self::Purges(message) => check_purges(message),
        }
    }
}

impl SessionMessage {
    fn check_bounds(&self) -> Result<(), BadLength> {
        match self {
            Self::Put(put) => check_sessions(&put.sessions),
            Self::Get(get) => at_most("keys", get.keys.len(), SESSIONS_MAX),
            Self::Found(found) => check_sessions(&found.sessions),
            Self::Stored(_) | Self::Spend(_) | Self::Spent(_) => Ok(()),
        }
    }
}

fn check_ship(ship: &Ship) -> Result<(), BadLength> {
    check_tls(&ship.tls)?;
    at_most("state", ship.state.as_slice().len(), STATE_LEN_MAX)?;
    check_certificate(ship.client_certificate.as_ref())?;
    at_most("opened", ship.opened.as_slice().len(), OPENED_LEN_MAX)?;
    at_most("rest", ship.rest.as_slice().len(), REST_LEN_MAX)?;
    at_most("tail", ship.tail.len(), TAIL_LEN_MAX)
}

fn check_prepare(prepare: &Prepare) -> Result<(), BadLength> {
    check_certificate(prepare.client_certificate.as_ref())?;
    let PrepareRest::Part(part) = &prepare.rest else { return Ok(()) };
    at_most("request", part.request.as_slice().len(), REQUEST_LEN_MAX)?;
    at_most("etag", part.etag.len(), ETAG_LEN_MAX)
}

fn check_ship_in_response(shipped: &ShipInResponse) -> Result<(), BadLength> {
    check_ship(&shipped.ship)?;
    at_most("http", shipped.http.len(), HTTP_STATE_LEN_MAX)?;
    if let ResponseRest::Anchored(end) = &shipped.rest {
        at_most("unacknowledged", end.unacknowledged.as_slice().len(), ANCHORED_SHIPPED_LEN_MAX)?;
    }
    let bytes_len = shipped.unwritten.as_slice().len() + shipped.pending.as_slice().len();
    at_most("unwritten and pending", bytes_len, RESPONSE_BYTES_LEN_MAX)
}

fn check_anchored(content: &AnchoredContent) -> Result<(), BadLength> {
    match content {
        AnchoredContent::Data { bytes, .. } => at_most("bytes", bytes.as_slice().len(), ANCHORED_DATA_LEN_MAX),
        AnchoredContent::Attach { .. } | AnchoredContent::Progress { .. } | AnchoredContent::Reset => Ok(()),
    }
}

fn check_certificate(certificate: Option<&Vec<u8>>) -> Result<(), BadLength> {
    at_most("client_certificate", certificate.map_or(0, Vec::len), CERTIFICATE_LEN_MAX)
}

fn check_seeds(seeds: &[TicketSeed]) -> Result<(), BadLength> {
    at_most("seeds", seeds.len(), TICKET_SEEDS_MAX)?;
    seeds.iter().try_for_each(|seed| {
        at_most("keys", seed.keys.len(), TICKET_KEYS_MAX)?;
        let mut secrets = seed.keys.iter().chain(&seed.state).map(|key| key.secret.as_slice().len());
        secrets.try_for_each(|len| within("secret", len, TICKET_SECRET_LEN, TICKET_SECRET_LEN))
    })
}

fn check_sessions(sessions: &[KeptSession]) -> Result<(), BadLength> {
    at_most("sessions", sessions.len(), SESSIONS_MAX)?;
    sessions.iter().try_for_each(|kept| at_most("session", kept.session.as_slice().len(), SESSION_LEN_MAX))
}

fn check_purges(message: &PurgesMessage) -> Result<(), BadLength> {
    at_most("folded", message.folded.len(), FOLDED_PURGES_MAX)?;
    at_most("purges", message.purges.len(), PURGES_MAX)?;
    message.purges.iter().try_for_each(|purge| match &purge.scope {
        PurgeScope::Everything => Ok(()),
        PurgeScope::Url(text) | PurgeScope::Prefix(text) | PurgeScope::Group(text) | PurgeScope::HostGroup(text) => {
            at_most("text", text.len(), PURGE_TEXT_LEN_MAX)
        }
    })
}

fn check_tls(tls: &TlsInfo) -> Result<(), BadLength> {
    at_most("alpn", tls.alpn.len(), ALPN_LEN_MAX)?;
    at_most("server_name", tls.server_name.as_ref().map_or(0, String::len), SERVER_NAME_LEN_MAX)
}

fn at_most(field: &'static str, len: usize, max: usize) -> Result<(), BadLength> {
    within(field, len, 0, max)
}

fn within(field: &'static str, len: usize, min: usize, max: usize) -> Result<(), BadLength> {
    if (min..=max).contains(&len) { Ok(()) } else { Err(BadLength { field, len, min, max }) }
}
