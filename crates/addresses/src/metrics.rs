//! Metrics, with the prefix `watari_address_`.

use std::net::IpAddr;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
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

fn labels(address: IpAddr) -> Labels {
    vec![("address", address.to_string())]
}
