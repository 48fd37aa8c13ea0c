//! The encoding of servers between processes.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

use super::Site;
use crate::sample::Family;

/// A server with the addresses that the sender resolved, so that all processes connect to the same addresses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WireSite {
    tls: bool,
    authority: String,
    server_name: String,
    ipv4: Option<SocketAddr>,
    ipv6: Option<SocketAddr>,
    prefers_ipv6: bool,
}

/// A received server is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid server: {0}")]
pub struct BadSite(pub(crate) &'static str);

impl WireSite {
    pub fn of(site: &Site) -> Self {
        Self {
            tls: site.tls,
            authority: site.authority.clone(),
            server_name: site.server_name.to_str().into_owned(),
            ipv4: site.ipv4,
            ipv6: site.ipv6,
            prefers_ipv6: site.preferred == Family::Ipv6,
        }
    }

    pub fn into_site(self) -> Result<Arc<Site>, BadSite> {
        let preferred = if self.prefers_ipv6 { Family::Ipv6 } else { Family::Ipv4 };
        let fits = |address: Option<SocketAddr>, family| address.is_none_or(|address| Family::of(address) == family);
        let preferred_is_there = if self.prefers_ipv6 { self.ipv6 } else { self.ipv4 }.is_some();
        if !fits(self.ipv4, Family::Ipv4) || !fits(self.ipv6, Family::Ipv6) || !preferred_is_there {
            return Err(BadSite("a site has no matching addresses"));
        }
        let server_name = ServerName::try_from(self.server_name).map_err(|_| BadSite("a site has no name"))?;
        Ok(Arc::new(Site {
            tls: self.tls,
            authority: self.authority,
            server_name,
            ipv4: self.ipv4,
            ipv6: self.ipv6,
            preferred,
        }))
    }
}
