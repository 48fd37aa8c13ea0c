//! A write-only store of sessions.

use std::sync::Arc;

use rustls::NamedGroup;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Stores sessions in another store, and returns none: for full handshakes of a client that resumes in other
/// handshakes.
#[derive(Debug)]
pub(super) struct StoredOnly(pub(super) Arc<ClientSessionMemoryCache>);

impl ClientSessionStore for StoredOnly {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(server, group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(server)
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.0.set_tls12_session(server, session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, server: &ServerName<'static>) {
        self.0.remove_tls12_session(server);
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(server, ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}
