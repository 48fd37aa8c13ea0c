//! Metrics of an agent.

use std::collections::BTreeMap;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use watari_handshake::{EarlyData, Miss, SessionSource};
use watari_values::{AbortReason, TlsInfo};
use watari_wire::PrepareRefusal;

/// The metrics, all with the prefix `watari_agent_`.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    handshakes: Family<Handshake, Counter>,
    handshakes_failed: Family<Cause, Counter>,
    pub(crate) handshakes_waiting: Gauge,
    sessions_resumed: Family<Resumed, Counter>,
    sessions_missed: Family<Missed, Counter>,
    early_data: Family<Decision, Counter>,
    legs_refused: Family<Cause, Counter>,
    pub(crate) ticket_seeds_learned: Counter,
    pub(crate) connections: Gauge,
    pub(crate) requests: Counter,
    pub(crate) requests_refused: Counter,
    pub(crate) http2_floods: Counter,
    pub(crate) transfers_stalled: Counter,
    pub(crate) tunnels: Gauge,
    pub(crate) anchored_streams: Gauge,
    pub(crate) moved_out: Counter,
    pub(crate) moved_in: Counter,
    pub(crate) lost: Counter,
    not_moved: Family<Cause, Counter>,
    refused: Family<Cause, Counter>,
    responses_prepared: Family<Decision, Counter>,
    held: Gauge,
    pub(crate) fenced: Gauge,
    pub(crate) legs_idle: Gauge,
    records_refused: Family<Cause, Counter>,
    bytes_received: Counter,
    bytes_sent: Counter,
    ends: Family<Cause, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Handshake {
    version: &'static str,
    resumed: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Resumed {
    version: &'static str,
    from: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Missed {
    version: &'static str,
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decision {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Cause {
    cause: &'static str,
}

/// Handshakes of one TLS version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// Handshakes that resumed nothing.
    pub full: u64,
    /// Handshakes that resumed a session, by its source (`SessionSource::label`).
    pub resumed: BTreeMap<&'static str, u64>,
    /// Those of `full` whose client offered a session, by the reason that it was not resumed (`Miss::label`).
    pub missed: BTreeMap<&'static str, u64>,
}

/// TLS versions, as metric labels.
pub(crate) const VERSIONS: [&str; 2] = ["1.2", "1.3"];

/// Counts one in a gauge until it is dropped.
pub(crate) struct Counted(Gauge);

impl Counted {
    pub(crate) fn one_more(gauge: &Gauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let registry = registry.sub_registry_with_prefix("watari_agent");
        registry.register("handshakes", "Handshakes completed", metrics.handshakes.clone());
        registry.register("handshakes_failed", "Handshakes that failed, by cause", metrics.handshakes_failed.clone());
        registry.register(
            "handshakes_waiting",
            "Handshakes that wait for their turn at the moment",
            metrics.handshakes_waiting.clone(),
        );
        let resumed = metrics.sessions_resumed.clone();
        registry.register("sessions_resumed", "Sessions resumed, by where they were established", resumed);
        let missed = metrics.sessions_missed.clone();
        registry.register(
            "sessions_missed",
            "Sessions that clients offered and that were not resumed, by cause",
            missed,
        );
        let early_data = metrics.early_data.clone();
        registry.register("early_data", "Handshakes whose client announced early data, by outcome", early_data);
        let learned = metrics.ticket_seeds_learned.clone();
        registry.register("ticket_seeds_learned", "Seeds of ticket keys learned from other agents", learned);
        registry.register("legs_refused", "Legs that were refused, by cause", metrics.legs_refused.clone());
        registry.register("connections", "Connections served at the moment", metrics.connections.clone());
        registry.register("requests", "Requests answered", metrics.requests.clone());
        registry.register("requests_refused", "Requests answered with 503", metrics.requests_refused.clone());
        let floods = metrics.http2_floods.clone();
        registry.register(
            "http2_floods",
            "HTTP/2 connections ended because the client flooded them with frames",
            floods,
        );
        let stalled = metrics.transfers_stalled.clone();
        registry.register("transfers_stalled", "Bodies that clients did not read or send in time", stalled);
        registry.register("tunnels", "Tunnels to origins open at the moment", metrics.tunnels.clone());
        registry.register(
            "anchored_streams",
            "Tunnels and streams of events whose client's connection has moved, and whose origin is here",
            metrics.anchored_streams.clone(),
        );
        registry.register("moved_out", "Connections moved to other agents", metrics.moved_out.clone());
        registry.register("moved_in", "Connections moved here from other agents", metrics.moved_in.clone());
        registry.register("lost_in_moves", "Connections lost in handoffs", metrics.lost.clone());
        registry.register("not_moved", "Handoffs to other agents that failed, by cause", metrics.not_moved.clone());
        registry.register(
            "holds_refused",
            "Connections that this agent refused to hold, by cause",
            metrics.refused.clone(),
        );
        let prepared = metrics.responses_prepared.clone();
        registry.register(
            "responses_prepared",
            "Responses of other agents that this agent was asked to continue, by result",
            prepared,
        );
        registry.register("held", "Connections held for a decision at the moment", metrics.held.clone());
        registry.register("fenced", "Connections fenced at the moment", metrics.fenced.clone());
        registry.register("legs_idle", "Idle legs at the moment", metrics.legs_idle.clone());
        registry.register(
            "records_refused",
            "Records of clients that this agent refused, by cause",
            metrics.records_refused.clone(),
        );
        registry.register(
            "bytes_received",
            "TLS bytes received from clients by this agent",
            metrics.bytes_received.clone(),
        );
        registry.register("bytes_sent", "TLS bytes sent to clients by this agent", metrics.bytes_sent.clone());
        registry.register("connections_ended", "Connections that ended, by cause", metrics.ends.clone());
        metrics
    }

    /// `from`: the source of the resumed session. `missed`: why an offered session was not resumed.
    pub(crate) fn count_handshake(&self, tls: &TlsInfo, from: Option<&'static str>, missed: Option<&'static str>) {
        let [tls12, tls13] = VERSIONS;
        let version = if tls.version == 0x0304 { tls13 } else { tls12 };
        let resumed = if tls.resumed { "true" } else { "false" };
        self.handshakes.get_or_create(&Handshake { version, resumed }).inc();
        if let Some(from) = from {
            self.sessions_resumed.get_or_create(&Resumed { version, from }).inc();
        }
        if let Some(cause) = missed {
            self.sessions_missed.get_or_create(&Missed { version, cause }).inc();
        }
    }

    /// The handshakes of this TLS version so far.
    pub(crate) fn handshake_counts(&self, version: &'static str) -> HandshakeCounts {
        let full = self.handshakes.get_or_create(&Handshake { version, resumed: "false" }).get();
        let resumed = |from| (from, self.sessions_resumed.get_or_create(&Resumed { version, from }).get());
        let missed = |cause| (cause, self.sessions_missed.get_or_create(&Missed { version, cause }).get());
        HandshakeCounts {
            full,
            resumed: SessionSource::ALL.map(SessionSource::label).map(resumed).into(),
            missed: Miss::ALL.map(Miss::label).map(missed).into(),
        }
    }

    pub(crate) fn count_early_data(&self, decided: &EarlyData) {
        let result = match decided {
            EarlyData::Accepted(_) => "accepted",
            EarlyData::Refused => "refused",
        };
        self.early_data.get_or_create(&Decision { result }).inc();
    }

    pub(crate) fn count_handshake_failed(&self, cause: &'static str) {
        self.handshakes_failed.get_or_create(&Cause { cause }).inc();
    }

    pub(crate) fn count_leg_refused(&self, cause: &'static str) {
        self.legs_refused.get_or_create(&Cause { cause }).inc();
    }

    pub(crate) fn count_not_moved(&self, reason: AbortReason) {
        self.not_moved.get_or_create(&Cause { cause: reason.as_str() }).inc();
    }

    pub(crate) fn count_refused(&self, reason: AbortReason) {
        self.refused.get_or_create(&Cause { cause: reason.as_str() }).inc();
    }

    pub(crate) fn count_prepared(&self, refused: Option<PrepareRefusal>) {
        let result = match refused {
            None => "prepared",
            Some(PrepareRefusal::Full) => "full",
            Some(PrepareRefusal::Response) => "response",
            Some(PrepareRefusal::Validator) => "validator",
            Some(PrepareRefusal::NoLink) => "no_link",
        };
        self.responses_prepared.get_or_create(&Decision { result }).inc();
    }

    pub(crate) fn count_record_refused(&self, cause: &'static str) {
        self.records_refused.get_or_create(&Cause { cause }).inc();
    }

    pub(crate) fn count_bytes(&self, received: u64, sent: u64) {
        self.bytes_received.inc_by(received);
        self.bytes_sent.inc_by(sent);
    }

    pub(crate) fn set_anchored(&self, anchored: usize) {
        self.anchored_streams.set(i64::try_from(anchored).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_held(&self, held: usize) {
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_end(&self, cause: &'static str) {
        self.ends.get_or_create(&Cause { cause }).inc();
    }
}
