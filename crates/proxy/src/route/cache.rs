//! The settings of a route's cache.

use std::borrow::Cow;
use std::net::SocketAddr;

use aws_lc_rs::digest::{SHA256, digest};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use watari_cache::{Key, Rules, Shared};

use crate::exchange::client::Client;
use crate::exchange::fields::are_alike;

/// Which requests of a route the cache answers, and which responses it stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCache {
    pub rules: Rules,
    /// Separates the entries of routes: one with equal content has equal entries.
    pub policy: Vec<u8>,
    /// Whether the origins get the service address, by the PROXY protocol, and may answer by it. Then each service
    /// address has entries of its own. Otherwise all listeners share entries.
    pub by_server: bool,
    /// Requests with one of these cookies go to the origin, and their responses are not stored.
    pub bypass_cookies: Vec<String>,
    /// So do requests with one of these fields.
    pub bypass_headers: Vec<HeaderName>,
    /// Whether a miss asks the agent that owns the key before the origin.
    pub is_shared: bool,
}

impl RouteCache {
    /// What separates the entries for this client from those of other routes and, if the origins get it, of other
    /// service addresses. The same at all agents: the address belongs to the connection.
    pub(crate) fn policy_for(&self, client: &Client) -> Cow<'_, [u8]> {
        if !self.by_server {
            return Cow::Borrowed(&self.policy);
        }
        let server = client.server();
        let server = SocketAddr::new(server.ip().to_canonical(), server.port()).to_string();
        // An address has no zero byte, so no two pairs have the same text.
        Cow::Owned([server.as_bytes(), b"\0", &self.policy].concat())
    }

    /// A digest of the settings that decide about keys and entries. Agents compare it.
    pub(crate) fn fingerprint(&self) -> String {
        format!("{:032x}", self.digest())
    }

    /// How agents share a response under this key.
    pub(crate) fn shared(&self, key: Key) -> Option<Shared> {
        Some(Shared { key, route: self.shared_route()? })
    }

    /// Stands for these settings in responses that agents share. `None`: they share none of this route.
    pub(crate) fn shared_route(&self) -> Option<u64> {
        self.is_shared.then(|| self.digest() as u64)
    }

    fn digest(&self) -> u128 {
        let text = format!("{:?}", (&self.rules, &self.bypass_cookies, &self.bypass_headers, self.by_server));
        let mut text = text.into_bytes();
        text.push(0);
        text.extend_from_slice(&self.policy);
        let digest = digest(&SHA256, &text);
        u128::from_be_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// Whether the request has one of the cookies or fields of requests that go to the origin.
    pub(crate) fn is_bypassed(&self, headers: &HeaderMap) -> bool {
        (!self.bypass_headers.is_empty() && self.has_bypass_header(headers))
            || (!self.bypass_cookies.is_empty() && self.has_bypass_cookie(headers))
    }

    fn has_bypass_header(&self, headers: &HeaderMap) -> bool {
        let is_bypass = |name: &str| self.bypass_headers.iter().any(|bypass| are_alike(bypass.as_str(), name));
        headers.keys().any(|name| is_bypass(name.as_str()))
    }

    fn has_bypass_cookie(&self, headers: &HeaderMap) -> bool {
        let pairs = headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
        let mut names = pairs.map(|pair| pair.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii());
        names.any(|name| self.bypass_cookies.iter().any(|bypass| bypass.as_bytes() == name))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use super::*;

    fn cache(by_server: bool) -> RouteCache {
        let rules = Rules {
            key: watari_cache::KeyRules::default(),
            lifetimes: watari_cache::Lifetimes::default(),
            object_bytes_max: 1 << 30,
            whole_on_range: false,
        };
        let (bypass_cookies, bypass_headers) = (Vec::new(), Vec::new());
        RouteCache { rules, policy: b"route".to_vec(), by_server, bypass_cookies, bypass_headers, is_shared: true }
    }

    #[test]
    fn the_policy_has_the_service_address_if_origins_get_it() {
        let policies = |by_server: bool| {
            ["192.0.2.1:443", "[::ffff:192.0.2.1]:443", "192.0.2.1:444", "192.0.2.2:443", "[2001:db8::1]:443"].map(
                |server| {
                    let client = Client::new("192.0.2.7:1".parse().unwrap(), server.parse().unwrap(), None);
                    cache(by_server).policy_for(&client).into_owned()
                },
            )
        };
        assert!(policies(false).iter().all(|policy| policy == b"route"));
        let policies = policies(true);
        assert_eq!(policies[0], policies[1], "an IPv4 address has two forms");
        assert_eq!(policies.iter().collect::<BTreeSet<_>>().len(), 4);
    }

    /// Their entries have other keys.
    #[test]
    fn agents_whose_origins_get_other_addresses_share_nothing() {
        assert_ne!(cache(false).fingerprint(), cache(true).fingerprint());
        assert_ne!(cache(false).shared_route(), cache(true).shared_route());
    }
}
