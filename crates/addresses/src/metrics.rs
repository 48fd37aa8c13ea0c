//! Metrics, with the prefixes `watari_address_` and `watari_steering_`.

use std::net::IpAddr;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use watari_steering::{Counts, Steering};
use watari_takeover::OwnershipRole;

type Labels = Vec<(&'static str, String)>;

#[derive(Clone)]
pub(crate) struct Metrics {
    role: Family<Labels, Gauge>,
    activations: Family<Labels, Counter>,
    leases_lost: Family<Labels, Counter>,
    failures: Family<Labels, Counter>,
}

impl Metrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            role: Family::default(),
            activations: Family::default(),
            leases_lost: Family::default(),
            failures: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("watari_address");
        registry.register("role", "1 for the role that this node has for the address", metrics.role.clone());
        registry.register("activations", "Times that the address became active here", metrics.activations.clone());
        registry.register(
            "leases_lost",
            "Times that this node left the address because voters did not renew its lease",
            metrics.leases_lost.clone(),
        );
        registry.register("failures", "Orders for the address that the system refused", metrics.failures.clone());
        metrics
    }

    pub(crate) fn role(&self, address: IpAddr, role: OwnershipRole) {
        for other in OwnershipRole::ALL {
            let labels = vec![("address", address.to_string()), ("role", other.as_str().to_owned())];
            self.role.get_or_create(&labels).set(i64::from(other == role));
        }
    }

    pub(crate) fn activation(&self, address: IpAddr) {
        self.activations.get_or_create(&labels(address)).inc();
    }

    pub(crate) fn lease_lost(&self, address: IpAddr) {
        self.leases_lost.get_or_create(&labels(address)).inc();
    }

    pub(crate) fn failure(&self, address: IpAddr) {
        self.failures.get_or_create(&labels(address)).inc();
    }
}

/// Metrics with the prefix `watari_steering_`.
pub(crate) struct SteeringMetrics {
    packets: Family<Labels, Counter>,
    pub(crate) slots: Gauge,
    pub(crate) strays: Gauge,
}

impl SteeringMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let metrics = Self { packets: Family::default(), slots: Gauge::default(), strays: Gauge::default() };
        let registry = registry.sub_registry_with_prefix("watari_steering");
        registry.register(
            "packets",
            "Packets that this node has passed on to other dispatchers: to the primaries of their slots, or as a second \
             chance",
            metrics.packets.clone(),
        );
        registry.register("slots", "Slots of which this node is the primary", metrics.slots.clone());
        registry.register(
            "strays",
            "Connections of this node whose primary is another dispatcher",
            metrics.strays.clone(),
        );
        metrics
    }

    /// Copies the counts of the kernel.
    pub(crate) fn count(&self, steering: &Steering) {
        let Ok(Counts { to_primary, second_chance }) = steering.counts() else { return };
        for (to, count) in [("primary", to_primary), ("second_chance", second_chance)] {
            let counter = self.packets.get_or_create(&vec![("to", to.to_owned())]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }
}

fn labels(address: IpAddr) -> Labels {
    vec![("address", address.to_string())]
}
