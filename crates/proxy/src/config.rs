//! The configuration of a proxy.

use ipnet::IpNet;

use crate::admit::auth::AuthConfig;
use crate::admit::clients::ClientLimits;
use crate::cache::handle::CacheHandle;
use crate::observe::access_log::AccessLog;
use crate::pool::PoolConfig;
use crate::respond::compress::Compression;
use crate::respond::error_pages::ErrorPages;
use crate::route::routes::{PathPrefix, Route};

/// The configuration of a proxy.
#[derive(Debug, Clone)]
pub struct Config {
    pub pools: Vec<PoolConfig>,
    /// The routes, which select a pool for a request.
    pub routes: Vec<Route>,
    /// The authorities that decide whether requests may proceed.
    pub auths: Vec<AuthConfig>,
    /// The limits of each client.
    pub clients: ClientLimits,
    pub access_log: Option<AccessLog>,
    /// The networks of trusted proxies, which may identify their clients in `Forwarded` and similar fields. The proxy
    /// forwards these fields, and appends its own values for the trusted proxy. It removes such fields of other
    /// clients.
    pub trusted_proxies: Vec<IpNet>,
    /// The pages that clients see after failures.
    pub error_pages: ErrorPages,
    /// Which responses are compressed. `None`: none are.
    pub compression: Option<Compression>,
    /// The cache of routes that have one. It outlives a reload.
    pub cache: CacheHandle,
}

impl Config {
    /// A configuration in which all requests go to one pool.
    pub fn one_pool(pool: PoolConfig) -> Self {
        Self {
            pools: vec![pool],
            routes: vec![Route::to_pool(None, PathPrefix::all(), 0)],
            auths: Vec::new(),
            clients: ClientLimits::default(),
            access_log: None,
            trusted_proxies: Vec::new(),
            error_pages: ErrorPages::default(),
            compression: None,
            cache: CacheHandle::default(),
        }
    }
}
