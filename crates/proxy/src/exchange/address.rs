//! Addresses of origins.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::Uri;
use http::uri::Scheme;

/// The address of an origin: `http://HOST` or `https://HOST`, each with an optional `:PORT`. A host is a name or an IP
/// address. An IPv6 address is in brackets. Clones share the host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OriginAddress {
    tls: bool,
    host: Arc<str>,
    port: u16,
}

/// The text is not an [`OriginAddress`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected http://HOST[:PORT] or https://HOST[:PORT]")]
pub struct InvalidOrigin;

impl OriginAddress {
    /// Whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.tls
    }

    /// The name, or the IP address without brackets.
    pub fn host(&self) -> &str {
        self.host.trim_matches(['[', ']'])
    }

    /// The host, if it is an IP address.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host().parse().ok()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in the `Host` field of a request.
    pub(crate) fn authority(&self) -> String {
        let Self { tls, host, port } = self;
        if *port == default_port(*tls) { host.to_string() } else { format!("{host}:{port}") }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

impl FromStr for OriginAddress {
    type Err = InvalidOrigin;

    fn from_str(text: &str) -> Result<Self, InvalidOrigin> {
        let uri: Uri = text.parse().map_err(|_| InvalidOrigin)?;
        let authority = uri.authority().ok_or(InvalidOrigin)?;
        let bare = uri.path_and_query().is_none_or(|path| path == "/") && !authority.as_str().contains('@');
        let tls = uri.scheme() == Some(&Scheme::HTTPS);
        if !(tls || uri.scheme() == Some(&Scheme::HTTP)) || !bare || authority.host().is_empty() {
            return Err(InvalidOrigin);
        }
        let port = match authority.as_str().strip_prefix(authority.host()) {
            Some("") => default_port(tls),
            Some(port) => port.trim_start_matches(':').parse().map_err(|_| InvalidOrigin)?,
            None => return Err(InvalidOrigin),
        };
        Ok(Self { tls, host: authority.host().into(), port })
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme(), self.authority())
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for (text, written) in [
            ("http://origin", "http://origin"),
            ("http://origin:80/", "http://origin"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]:8080/", "http://[::1]:8080"),
            ("https://origin", "https://origin"),
            ("https://origin:443", "https://origin"),
            ("https://origin:80", "https://origin:80"),
        ] {
            assert_eq!(text.parse::<OriginAddress>().unwrap().to_string(), written);
        }
        let address: OriginAddress = "https://[::1]".parse().unwrap();
        assert_eq!((address.host(), address.port(), address.is_tls()), ("::1", 443, true));
    }

    #[test]
    fn what_is_no_origin_is_refused() {
        for text in [
            "",
            "origin",
            "origin:80",
            "ftp://origin",
            "http://",
            "http://:80",
            "http://origin/path",
            "http://origin?query",
            "http://user@origin",
            "http://origin:65536",
            "http://origin:",
        ] {
            assert_eq!(text.parse::<OriginAddress>(), Err(InvalidOrigin), "{text}");
        }
    }
}
