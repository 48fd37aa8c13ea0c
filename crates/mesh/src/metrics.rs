//! Metrics of the mesh, with the prefix `watari_mesh_`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use watari_wire::MessageKind;

use crate::LinkError;
use crate::http_stream::CountedConnection;
use crate::members::Source;

type ByLabel = Family<[(&'static str, &'static str); 1], Counter>;
type GaugeByLabel = Family<[(&'static str, &'static str); 1], Gauge>;

pub(crate) struct Metrics {
    pub(crate) links_up: Gauge,
    pub(crate) bytes_sent: Counter,
    pub(crate) bytes_received: Counter,
    messages_sent: ByLabel,
    messages_received: ByLabel,
    messages_dropped: ByLabel,
    pub(crate) evicted: Gauge,
    members: GaugeByLabel,
    http_connections: GaugeByLabel,
    http_dials_failed: ByLabel,
    links_ended: ByLabel,
    attempts_failed: ByLabel,
    connections_refused: ByLabel,
}

/// The reason that a message was not sent or not delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DropReason {
    /// Not sent: the link is down.
    NoLink,
    /// Not sent: the queue is full.
    QueueFull,
    /// Not sent: a field is too long.
    BadLength,
    /// Not sent: the roles do not allow it.
    NotAllowed,
    /// Received, but the roles do not allow it.
    Forbidden,
    /// Received, with an unsupported version or kind.
    Unknown,
    /// Sent, but the peer does not support the version or kind.
    Unsupported,
}

impl DropReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::NoLink => "no_link",
            Self::QueueFull => "queue_full",
            Self::BadLength => "bad_length",
            Self::NotAllowed => "not_allowed",
            Self::Forbidden => "forbidden",
            Self::Unknown => "unknown",
            Self::Unsupported => "unsupported",
        }
    }
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("watari_mesh");
        let links_up = Gauge::default();
        registry.register("links_up", "Links that are up", links_up.clone());
        let evicted = Gauge::default();
        registry.register("evicted", "Nodes that are evicted from the cluster", evicted.clone());
        let members = Family::default();
        registry.register("members", "Other nodes that are members, by source", members.clone());
        let http_connections = Family::default();
        let help = "Open connections for HTTP between agents, by their direction";
        registry.register("http_connections", help, http_connections.clone());
        Self {
            links_up,
            evicted,
            members,
            http_connections,
            http_dials_failed: family(
                registry,
                "http_dials_failed",
                "Connections for HTTP to agents that could not be established, by reason",
            ),
            bytes_sent: counter(registry, "bytes_sent", "Bytes of frames sent to peers"),
            bytes_received: counter(registry, "bytes_received", "Bytes of frames received from peers"),
            messages_sent: family(registry, "messages_sent", "Messages queued for peers, by kind"),
            messages_received: family(registry, "messages_received", "Messages delivered from peers, by kind"),
            messages_dropped: family(registry, "messages_dropped", "Messages not sent or not delivered, by reason"),
            links_ended: family(registry, "links_ended", "Links that were up and ended, by reason"),
            attempts_failed: family(
                registry,
                "attempts_failed",
                "Dialed links that could not be established, by reason",
            ),
            connections_refused: family(registry, "connections_refused", "Accepted connections refused, by reason"),
        }
    }

    pub(crate) fn sent(&self, kind: MessageKind) {
        self.messages_sent.get_or_create(&[("kind", kind.as_str())]).inc();
    }

    pub(crate) fn received(&self, kind: MessageKind) {
        self.messages_received.get_or_create(&[("kind", kind.as_str())]).inc();
    }

    pub(crate) fn dropped(&self, reason: DropReason) {
        self.messages_dropped.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    pub(crate) fn members(&self, source: Source, count: usize) {
        self.members.get_or_create(&[("source", source.as_str())]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn link_ended(&self, reason: &LinkError) {
        self.links_ended.get_or_create(&[("reason", reason.label())]).inc();
    }

    pub(crate) fn attempt_failed(&self, reason: &LinkError) {
        self.attempts_failed.get_or_create(&[("reason", reason.label())]).inc();
    }

    pub(crate) fn http_accepted(&self) -> CountedConnection {
        self.http_connection("accepted")
    }

    pub(crate) fn http_dialed(&self) -> CountedConnection {
        self.http_connection("dialed")
    }

    pub(crate) fn http_dial_failed(&self, reason: &LinkError) {
        self.http_dials_failed.get_or_create(&[("reason", reason.label())]).inc();
    }

    fn http_connection(&self, direction: &'static str) -> CountedConnection {
        CountedConnection::new(self.http_connections.get_or_create(&[("direction", direction)]).clone())
    }

    pub(crate) fn connection_refused(&self, reason: &'static str) {
        self.connections_refused.get_or_create(&[("reason", reason)]).inc();
    }
}

fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn family(registry: &mut Registry, name: &str, help: &str) -> ByLabel {
    let family = ByLabel::default();
    registry.register(name, help, family.clone());
    family
}
