//! What a dispatcher counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use watari_handoff::ResetCause;
use watari_wire::{AbortReason, TlsInfo};

/// The metrics, all under `watari_dispatcher_`.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) connections: Gauge,
    accepted: Counter,
    refused: Family<Reason, Counter>,
    given_up: Family<Reason, Counter>,
    handshakes: Family<Handshake, Counter>,
    pub(crate) moves_committed: Counter,
    pub(crate) legs_idle: Gauge,
    pub(crate) legs_reused: Counter,
    moves_aborted: Family<Reason, Counter>,
    resets: Family<Reason, Counter>,
    pub(crate) bytes_to_agents: Counter,
    pub(crate) bytes_to_clients: Counter,
    pub(crate) bytes_spliced: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handshake {
    version: &'static str,
    resumed: &'static str,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("watari_dispatcher");
        registry.register("connections", "Clients connected at the moment", metrics.connections.clone());
        registry.register("connections_accepted", "Clients accepted", metrics.accepted.clone());
        registry.register("connections_refused", "Clients reset at once, by reason", metrics.refused.clone());
        registry.register("connections_given_up", "Clients reset at a limit of time", metrics.given_up.clone());
        registry.register("handshakes", "Handshakes announced by agents", metrics.handshakes.clone());
        registry.register("moves_committed", "Moves decided to happen", metrics.moves_committed.clone());
        registry.register("legs_idle", "Legs kept for other connections at the moment", metrics.legs_idle.clone());
        registry.register("legs_reused", "Legs that carry another connection than before", metrics.legs_reused.clone());
        registry.register("moves_aborted", "Moves decided not to happen, by reason", metrics.moves_aborted.clone());
        registry.register("connections_reset", "Connections that could not go on, by cause", metrics.resets.clone());
        registry.register("bytes_to_agents", "Bytes relayed from clients", metrics.bytes_to_agents.clone());
        registry.register("bytes_to_clients", "Bytes relayed to clients", metrics.bytes_to_clients.clone());
        registry.register("bytes_spliced", "Bytes of these that went by a pipe", metrics.bytes_spliced.clone());
        metrics
    }

    pub(crate) fn count_accepted(&self) {
        self.accepted.inc();
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn count_given_up(&self, reason: &'static str) {
        self.given_up.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn count_handshake(&self, tls: &TlsInfo) {
        let version = if tls.version == 0x0304 { "1.3" } else { "1.2" };
        let resumed = if tls.resumed { "true" } else { "false" };
        self.handshakes.get_or_create(&Handshake { version, resumed }).inc();
    }

    pub(crate) fn count_aborted(&self, reason: AbortReason) {
        self.moves_aborted.get_or_create(&Reason { reason: reason.as_str() }).inc();
    }

    pub(crate) fn count_reset(&self, cause: ResetCause) {
        self.resets.get_or_create(&Reason { reason: cause.as_str() }).inc();
    }
}
