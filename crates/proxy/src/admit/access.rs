//! Limits the networks from which clients may send requests.

use std::net::IpAddr;

use ipnet::IpNet;

/// The networks that clients of a route may come from. By default, any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Only these networks. Empty: all.
    pub allow: Vec<IpNet>,
    /// Except these networks.
    pub deny: Vec<IpNet>,
}

impl Access {
    /// Whether `client` may send requests. An IPv4-mapped IPv6 address counts as an IPv4 address.
    pub(crate) fn admits(&self, client: IpAddr) -> bool {
        let client = client.to_canonical();
        let lists = |networks: &[IpNet]| networks.iter().any(|network| network.contains(&client));
        (self.allow.is_empty() || lists(&self.allow)) && !lists(&self.deny)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_allowed_and_not_denied_clients_are_served() {
        let networks = |networks: &[&str]| networks.iter().map(|network| network.parse().unwrap()).collect();
        let all = Access::default();
        let some = Access { allow: networks(&["10.0.0.0/8", "2001:db8::/32"]), deny: networks(&["10.9.0.0/16"]) };
        let most = Access { allow: Vec::new(), deny: networks(&["0.0.0.0/0"]) };
        for (client, admitted) in [
            ("10.1.2.3", [true, true, false]),
            ("::ffff:10.1.2.3", [true, true, false]),
            ("10.9.0.1", [true, false, false]),
            ("192.0.2.1", [true, false, false]),
            ("2001:db8::1", [true, true, true]),
            ("2001:db9::1", [true, false, true]),
        ] {
            let client = client.parse().unwrap();
            assert_eq!([&all, &some, &most].map(|access| access.admits(client)), admitted, "{client}");
        }
    }
}
