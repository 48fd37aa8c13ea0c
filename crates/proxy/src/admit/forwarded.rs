//! Clients that are trusted proxies, and the fields they send about their own clients.

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName, HeaderValue};
use ipnet::IpNet;

use crate::exchange::client::Client;

/// Forwards the fields of trusted proxies, and adds the proxy's own values for the trusted proxy after them.
///
/// * `Forwarded` and `X-Forwarded-For` get one more element.
/// * `X-Forwarded-Host` and `X-Forwarded-Proto` stay, because they describe the request to the first proxy.
/// * All other fields that only a proxy may set are replaced, as for any client: not every proxy removes a
///   `Client-Cert` of its clients.
#[derive(Debug, Clone, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

/// The fields of a trusted proxy about its client.
#[derive(Debug)]
pub(crate) struct Claims {
    chains: [Vec<HeaderValue>; 2],
    facts: [Option<HeaderValue>; 2],
}

/// Lists to which every proxy appends an element.
const CHAINS: [HeaderName; 2] = [FORWARDED, HeaderName::from_static("x-forwarded-for")];
const FACTS: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-host"), HeaderName::from_static("x-forwarded-proto")];

impl TrustedProxies {
    /// * `networks`: the networks of trusted proxies.
    pub(crate) fn new(networks: Vec<IpNet>) -> Self {
        Self(networks)
    }

    /// The fields that `client` sends about its own client, if it is trusted.
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
    /// Puts these fields before those in `headers`, which are about the client itself.
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

/// Joins the values to one field, because many origins read only one. The meaning is the same (RFC 9110, section 5.3).
fn joined(chain: &[HeaderValue]) -> Option<HeaderValue> {
    let elements: Vec<&[u8]> = chain.iter().map(HeaderValue::as_bytes).filter(|element| !element.is_empty()).collect();
    HeaderValue::from_bytes(&elements.join(b", ".as_slice())).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn forwarded(trusted: &[&str], client: &str) -> HeaderMap {
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
            let headers = forwarded(&["10.0.0.0/8", "192.0.2.0/24"], client);
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
            let headers = forwarded(trusted, "192.0.2.7:1");
            assert_eq!(headers["forwarded"], "for=192.0.2.7");
            assert_eq!(headers["x-forwarded-for"], "192.0.2.7");
            assert_eq!(headers["x-forwarded-proto"], "https");
        }
    }
}
