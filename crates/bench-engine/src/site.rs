//! The destination of requests: the server that a URL names, and the addresses of its host.
//!
//! Imports: `sample`, for the family of an address.

pub mod wire;

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use url::{Host, Url};

use crate::sample::Family;

/// A server as a URL names it: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Connections to it use TLS.
    pub tls: bool,
    /// The value of `Host` and `:authority`: the host, and the port if it is not the default of the scheme.
    pub authority: String,
    /// The server name in the `ClientHello`, for which certificates are verified.
    pub server_name: ServerName<'static>,
    /// The first IPv4 address of the host.
    pub ipv4: Option<SocketAddr>,
    /// The first IPv6 address of the host.
    pub ipv6: Option<SocketAddr>,
    /// The family to use if no source address decides: that of the first address from the resolver.
    pub preferred: Family,
}

/// A URL is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SiteError {
    /// The text is not a URL.
    #[error(
        "{url:?} is not a URL{cause}: write http://HOST/PATH or https://HOST/PATH, with or without a port",
        url = .0, cause = cause(*.1)
    )]
    Url(String, url::ParseError),
    /// The scheme is neither http nor https, or the host is missing.
    #[error("{0:?} names no http or https server: write http://HOST/PATH or https://HOST/PATH, with or without a port")]
    Scheme(String),
    /// The host has no address.
    #[error("the host {0:?} cannot be resolved: {1}")]
    Resolve(String, io::Error),
}

/// The cause, in parentheses. Empty if the scheme is missing: the rest of the message covers that.
fn cause(error: url::ParseError) -> String {
    match error {
        url::ParseError::RelativeUrlWithoutBase | url::ParseError::RelativeUrlWithCannotBeABaseBase => String::new(),
        error => format!(" ({error})"),
    }
}

impl Site {
    /// Parses a URL and resolves its host. Also returns the path with the query. Blocks while it resolves the host.
    pub fn resolve(url: &str) -> Result<(Self, String), SiteError> {
        let parsed = Url::parse(url).map_err(|error| SiteError::Url(url.to_owned(), error))?;
        let tls = match parsed.scheme() {
            "http" => false,
            "https" => true,
            _ => return Err(SiteError::Scheme(url.to_owned())),
        };
        let (Some(host), Some(port)) = (parsed.host(), parsed.port_or_known_default()) else {
            return Err(SiteError::Scheme(url.to_owned()));
        };
        let (addresses, server_name) = match host {
            Host::Ipv4(ip) => (vec![SocketAddr::from((ip, port))], ServerName::IpAddress(IpAddr::V4(ip).into())),
            Host::Ipv6(ip) => (vec![SocketAddr::from((ip, port))], ServerName::IpAddress(IpAddr::V6(ip).into())),
            Host::Domain(name) => {
                let resolved = (name, port).to_socket_addrs();
                let addresses = resolved.map_err(|error| SiteError::Resolve(name.to_owned(), error))?.collect();
                let server_name = ServerName::try_from(name.to_owned());
                (addresses, server_name.map_err(|_| SiteError::Scheme(url.to_owned()))?)
            }
        };
        let first = addresses.first().ok_or_else(|| {
            SiteError::Resolve(host.to_string(), io::Error::new(io::ErrorKind::NotFound, "it has no address"))
        })?;
        let authority = match parsed.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let mut path = parsed.path().to_owned();
        if let Some(query) = parsed.query() {
            path.push('?');
            path.push_str(query);
        }
        let of = |family| addresses.iter().copied().find(|&address| Family::of(address) == family);
        let site = Self {
            tls,
            authority,
            server_name,
            ipv4: of(Family::Ipv4),
            ipv6: of(Family::Ipv6),
            preferred: Family::of(*first),
        };
        Ok((site, path))
    }

    /// The same server, with or without TLS. For lists, in which each line gives the scheme.
    pub fn with_tls(self: &Arc<Self>, tls: bool) -> Arc<Self> {
        if self.tls == tls { Arc::clone(self) } else { Arc::new(Self { tls, ..Self::clone(self) }) }
    }

    /// The address to connect to from `source`, of the same family. `None` if the host has no address of that family.
    pub fn address_for(&self, source: Option<IpAddr>) -> Option<SocketAddr> {
        let family = source.map_or(self.preferred, |ip| Family::of(SocketAddr::new(ip, 0)));
        match family {
            Family::Ipv4 => self.ipv4,
            Family::Ipv6 => self.ipv6,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_names_scheme_authority_and_path() {
        let (site, path) = Site::resolve("https://127.0.0.1:8443/a/b?c=d#e").unwrap();
        assert!(site.tls);
        assert_eq!((site.authority.as_str(), path.as_str()), ("127.0.0.1:8443", "/a/b?c=d"));
        assert_eq!(site.address_for(None), Some("127.0.0.1:8443".parse().unwrap()));
        let (site, path) = Site::resolve("http://[::1]").unwrap();
        assert_eq!((site.authority.as_str(), path.as_str()), ("[::1]", "/"));
        assert_eq!(site.address_for(None), Some("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn the_family_of_the_source_decides() {
        let (site, _) = Site::resolve("http://127.0.0.1/").unwrap();
        assert_eq!(site.address_for(Some("::1".parse().unwrap())), None);
        assert!(site.address_for(Some("127.0.0.9".parse().unwrap())).is_some());
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused() {
        assert!(matches!(Site::resolve("localhost/"), Err(SiteError::Url(..))));
        assert!(matches!(Site::resolve("ftp://127.0.0.1/"), Err(SiteError::Scheme(_))));
        assert!(matches!(Site::resolve("http://nowhere.invalid/"), Err(SiteError::Resolve(..))));
    }
}
