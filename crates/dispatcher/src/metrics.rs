//! Metrics of a dispatcher.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use watari_handoff::ResetCause;
use watari_values::{AbortReason, NodeName, TlsInfo};

/// The metrics, all with the prefix `watari_dispatcher_`.
#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) connections: Gauge,
    accepted: Counter,
    refused: Family<Reason, Counter>,
    pub(crate) passed_through: Counter,
    pub(crate) queue_length: Gauge,
    pub(crate) queue_wait: Histogram,
    checks: Family<Check, Counter>,
    healthy: Family<Agent, Gauge>,
    given_up: Family<Reason, Counter>,
    handshakes: Family<Handshake, Counter>,
    pub(crate) moves_committed: Counter,
    pub(crate) rebalance_rounds: Counter,
    pub(crate) rebalanced: Counter,
    pub(crate) legs_idle: Gauge,
    pub(crate) legs_reused: Counter,
    moves_aborted: Family<Reason, Counter>,
    pub(crate) given: Counter,
    pub(crate) taken: Counter,
    pub(crate) not_given: Counter,
    resets: Family<Reason, Counter>,
    pub(crate) bytes_to_agents: Counter,
    pub(crate) bytes_to_backends: Counter,
    pub(crate) bytes_to_clients: Counter,
    pub(crate) bytes_spliced: Counter,
    pub(crate) undelivered_bytes: Gauge,
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Check {
    agent: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Agent {
    agent: String,
}

/// An amount that a gauge contains until this is dropped.
#[derive(Debug)]
pub(crate) struct InGauge {
    gauge: Gauge,
    amount: i64,
}

impl InGauge {
    pub(crate) fn of(gauge: &Gauge, amount: usize) -> Self {
        let mut of = Self { gauge: gauge.clone(), amount: 0 };
        of.add(amount);
        of
    }

    pub(crate) fn add(&mut self, amount: usize) {
        let amount = amount.cast_signed() as i64;
        self.gauge.inc_by(amount);
        self.amount += amount;
    }
}

impl Drop for InGauge {
    fn drop(&mut self) {
        self.gauge.dec_by(self.amount);
    }
}

/// Histogram buckets of the clients' waits in the queue, in seconds.
const QUEUE_WAITS: [f64; 7] = [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

impl Default for Metrics {
    fn default() -> Self {
        Self {
            connections: Gauge::default(),
            accepted: Counter::default(),
            refused: Family::default(),
            passed_through: Counter::default(),
            queue_length: Gauge::default(),
            queue_wait: Histogram::new(QUEUE_WAITS),
            checks: Family::default(),
            healthy: Family::default(),
            given_up: Family::default(),
            handshakes: Family::default(),
            moves_committed: Counter::default(),
            rebalance_rounds: Counter::default(),
            rebalanced: Counter::default(),
            legs_idle: Gauge::default(),
            legs_reused: Counter::default(),
            moves_aborted: Family::default(),
            given: Counter::default(),
            taken: Counter::default(),
            not_given: Counter::default(),
            resets: Family::default(),
            bytes_to_agents: Counter::default(),
            bytes_to_backends: Counter::default(),
            bytes_to_clients: Counter::default(),
            bytes_spliced: Counter::default(),
            undelivered_bytes: Gauge::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("watari_dispatcher");
        registry.register("connections", "Clients connected at the moment", metrics.connections.clone());
        registry.register("connections_accepted", "Clients accepted", metrics.accepted.clone());
        registry.register("connections_refused", "Clients reset at once, by reason", metrics.refused.clone());
        registry.register("passed_through", "Clients passed through to backends", metrics.passed_through.clone());
        registry.register("queue_length", "Clients that wait for an agent", metrics.queue_length.clone());
        registry.register(
            "queue_wait_seconds",
            "Time that clients waited for an agent, without clients that left",
            metrics.queue_wait.clone(),
        );
        registry.register("agent_checks", "Checks of agents, by outcome", metrics.checks.clone());
        registry.register("agent_healthy", "Whether an agent answers checks", metrics.healthy.clone());
        registry.register("connections_given_up", "Clients reset at a time limit, by limit", metrics.given_up.clone());
        registry.register("handshakes", "Handshakes announced by agents", metrics.handshakes.clone());
        registry.register("moves_committed", "Moves committed", metrics.moves_committed.clone());
        registry.register(
            "rebalance_rounds",
            "Comparisons of the loads of agents, for rebalancing",
            metrics.rebalance_rounds.clone(),
        );
        registry.register(
            "rebalanced",
            "Connections asked to move because agents have uneven loads",
            metrics.rebalanced.clone(),
        );
        registry.register("legs_idle", "Idle legs at the moment", metrics.legs_idle.clone());
        registry.register("legs_reused", "Idle legs reused for another connection", metrics.legs_reused.clone());
        registry.register("moves_aborted", "Moves aborted, by reason", metrics.moves_aborted.clone());
        registry.register(
            "connections_given",
            "Connections that have gone to another dispatcher with their address",
            metrics.given.clone(),
        );
        registry.register(
            "connections_taken",
            "Connections that have come from another dispatcher",
            metrics.taken.clone(),
        );
        registry.register(
            "connections_not_given",
            "Connections reset because they could not go to another dispatcher with their address",
            metrics.not_given.clone(),
        );
        registry.register(
            "connections_reset",
            "Connections reset because they could not continue, by cause",
            metrics.resets.clone(),
        );
        registry.register("bytes_to_agents", "Bytes relayed from clients", metrics.bytes_to_agents.clone());
        let to_backends = metrics.bytes_to_backends.clone();
        registry.register("bytes_to_backends", "Bytes relayed from clients that are passed through", to_backends);
        registry.register("bytes_to_clients", "Bytes relayed to clients", metrics.bytes_to_clients.clone());
        registry.register("bytes_spliced", "Relayed bytes that went through a pipe", metrics.bytes_spliced.clone());
        registry.register(
            "undelivered_bytes",
            "Bytes of moving connections that clients have not taken yet",
            metrics.undelivered_bytes.clone(),
        );
        metrics
    }

    pub(crate) fn count_accepted(&self) {
        self.accepted.inc();
    }

    pub(crate) fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&Reason { reason }).inc();
    }

    pub(crate) fn count_check(&self, agent: &NodeName, succeeded: bool) {
        let outcome = if succeeded { "succeeded" } else { "failed" };
        self.checks.get_or_create(&Check { agent: agent.to_string(), outcome }).inc();
    }

    pub(crate) fn show_health(&self, agent: &NodeName, healthy: bool) {
        self.healthy.get_or_create(&Agent { agent: agent.to_string() }).set(healthy.into());
    }

    /// Removes the health of an agent that has left the configuration.
    pub(crate) fn forget_agent(&self, agent: &NodeName) {
        self.healthy.remove(&Agent { agent: agent.to_string() });
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
