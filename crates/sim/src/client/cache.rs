//! The sessions that a client stores, for its later connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustls::NamedGroup;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

/// Sessions of earlier connections.
#[derive(Debug)]
pub(crate) struct SessionCache(ClientSessionMemoryCache);

/// The same, for one connection.
#[derive(Debug)]
pub(super) struct ConnectionCache {
    sessions: Arc<SessionCache>,
    /// The connection offers a session.
    has_offered: AtomicBool,
}

impl SessionCache {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(ClientSessionMemoryCache::new(32)))
    }
}

impl ConnectionCache {
    pub(super) fn new(sessions: &Arc<SessionCache>) -> Arc<Self> {
        Arc::new(Self { sessions: sessions.clone(), has_offered: AtomicBool::new(false) })
    }

    pub(super) fn has_offered(&self) -> bool {
        self.has_offered.load(Ordering::Relaxed)
    }

    fn offer<T>(&self, session: Option<T>) -> Option<T> {
        self.has_offered.fetch_or(session.is_some(), Ordering::Relaxed);
        session
    }
}

impl ClientSessionStore for ConnectionCache {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.sessions.0.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.sessions.0.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.sessions.0.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.offer(self.sessions.0.tls12_session(server_name))
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.sessions.0.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.sessions.0.insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.offer(self.sessions.0.take_tls13_ticket(server_name))
    }
}
