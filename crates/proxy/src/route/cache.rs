//! The settings of a route's cache.

use aws_lc_rs::digest::{SHA256, digest};
use http::header::COOKIE;
use http::{HeaderMap, HeaderName};
use watari_cache::{Key, Rules, Shared};

use crate::exchange::fields::are_alike;

/// Which requests of a route the cache answers, and which responses it stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteCache {
    pub rules: Rules,
    /// Separates the entries of routes: one with equal content has equal entries.
    pub policy: Vec<u8>,
    /// Requests with one of these cookies go to the origin, and their responses are not stored.
    pub bypass_cookies: Vec<String>,
    /// So do requests with one of these fields.
    pub bypass_headers: Vec<HeaderName>,
    /// Whether a miss asks the agent that owns the key before the origin.
    pub is_shared: bool,
}

impl RouteCache {
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
        let mut text = format!("{:?}", (&self.rules, &self.bypass_cookies, &self.bypass_headers)).into_bytes();
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
