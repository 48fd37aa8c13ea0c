//! Clients that are proxies themselves, and trusted in what they say of theirs.

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::client::Client;

/// What a trusted proxy says of its client is passed on; what we say of that proxy follows.
///
/// * `Forwarded` and `X-Forwarded-For` grow by one element.
/// * `X-Forwarded-Host` and `X-Forwarded-Proto` stay, for they tell what was asked of the first proxy.
/// * All else that only a proxy may say is replaced, as from any client: not every proxy takes a `Client-Cert` of its clients away.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

/// What a trusted proxy said of its client.
#[derive(Debug)]
pub(crate) struct Claims {
    chains: [Vec<HeaderValue>; 2],
    facts: [Option<HeaderValue>; 2],
}

/// Where every proxy adds to what the one before it said.
const CHAINS: [HeaderName; 2] = [FORWARDED, HeaderName::from_static("x-forwarded-for")];
const FACTS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-host"), HeaderName::from_static("x-forwarded-proto")];

impl TrustedProxies {
    /// * `networks`: where they are.
    pub(crate) fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// What `client` says of its own, if it may.
    pub(crate) fn claims(&self, headers: &HeaderMap, client: &Client) -> Option<Claims> {
        let address = client.address().ip().to_canonical();
        let is_trusted = self.0.iter().any(|network| network.contains(&address));
        is_trusted.then(|| Claims {
            chains: CHAINS.map(|name| headers.get_all(name).iter().cloned().collect()),
            facts: FACTS.map(|name| headers.get(name).cloned()),
        })
    }
}

impl Claims {
    /// Puts them before what `headers` say of the client itself.
    pub(crate) fn precede(self, headers: &mut HeaderMap) {
        for (name, mut chain) in CHAINS.into_iter().zip(self.chains) {
            chain.extend(headers.get(&name).cloned());
            if let Some(chain) = joined(&chain) {
                headers.insert(name, chain);
            }
        }
        for (name, fact) in FACTS.into_iter().zip(self.facts) {
            if let Some(fact) = fact {
                headers.insert(name, fact);
            }
        }
    }
}

/// In one line: many an origin reads but one (RFC 9110, section 5.3, says that it is the same).
fn joined(chain: &[HeaderValue]) -> Option<HeaderValue> {
    let elements: Vec<&[u8]> = chain.iter().map(HeaderValue::as_bytes).filter(|element| !element.is_empty()).collect();
    HeaderValue::from_bytes(&elements.join(b", ".as_slice())).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn told(trusted: &[&str], client: &str) -> HeaderMap {
        let client = Client::new(client.parse().unwrap(), "192.0.2.1:443".parse().unwrap(), None);
        let trusted = TrustedProxies::new(trusted.iter().map(|network| network.parse().unwrap()).collect());
        let mut claimed = HeaderMap::new();
        for (name, value) in [
            ("forwarded", "for=10.0.0.1"),
            ("forwarded", ""),
            ("forwarded", "for=10.0.0.2"),
            ("x-forwarded-for", "10.0.0.1, 10.0.0.2"),
            ("x-forwarded-proto", "http"),
            ("client-cert", ":AAAA:"),
        ] {
            claimed.append(name, HeaderValue::from_static(value));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("forwarded", "for=192.0.2.7"),
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "own"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        if let Some(claims) = trusted.claims(&claimed, &client) {
            claims.precede(&mut headers);
        }
        headers
    }

    #[test]
    fn trusted_proxies_are_added_to() {
        for client in ["192.0.2.7:1", "[::ffff:192.0.2.7]:1"] {
            let headers = told(&["10.0.0.0/8", "192.0.2.0/24"], client);
            assert_eq!(headers["forwarded"], "for=10.0.0.1, for=10.0.0.2, for=192.0.2.7");
            assert_eq!(headers["x-forwarded-for"], "10.0.0.1, 10.0.0.2, 192.0.2.7");
            assert_eq!(headers["x-forwarded-proto"], "http");
            assert_eq!(headers["x-forwarded-host"], "own");
            assert_eq!(headers.len(), 4);
        }
    }

    #[test]
    fn others_are_not_believed() {
        for trusted in [&[][..], &["192.0.2.8/32", "10.0.0.0/8", "::/0"]] {
            let headers = told(trusted, "192.0.2.7:1");
            assert_eq!(headers["forwarded"], "for=192.0.2.7");
            assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
            assert_eq!(headers["x-forwarded-proto"], "https");
        }
    }
}
