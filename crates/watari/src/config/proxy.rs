//! `[agent.proxy]`: pools of origins, and the routes to them.

mod cache;
mod gate;
#[cfg(test)]
mod guide;
mod handover;
mod policies;
mod shape;

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustls::pki_types::ServerName;
use watari_proxy::{
    CacheHandle, Destination, Handover, HostPattern, HttpVersion, OriginAddress, OriginTls, PathPrefix, PoolConfig,
    QueueSettings, Route, Transport,
};

pub(crate) use self::cache::CacheStore;
use self::gate::Gate;
use self::policies::Policies;
use self::shape::{Shape, StickyCookie};
use super::check::{Check, IdentityFiles, each, optional};
use super::file::{At, ConfigError, ConfigFile, named};
use super::raw::{RawOriginTls, RawPool, RawProxy, RawRoute};
use super::spanned::{Spanned, Texts};
use super::value::{Origin, ProxyProtocol};

/// `[agent.proxy]`
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) pools: Vec<Pool>,
    pub(crate) routes: Vec<Route>,
    pub(crate) cache: CacheStore,
    gate: Gate,
    shape: Shape,
}

/// `[[agent.proxy.pool]]`
#[derive(Debug)]
pub(crate) struct Pool {
    line: usize,
    name: String,
    origins: Vec<OriginAddress>,
    version: HttpVersion,
    proxy_protocol: bool,
    tls: Tls,
    handover: Option<Handover>,
    policies: Policies,
    queue: Option<QueueSettings>,
    sticky: Option<StickyCookie>,
}

/// `[agent.proxy.pool.tls]`
#[derive(Debug, Clone, Default)]
struct Tls {
    ca: Option<At<PathBuf>>,
    identity: Option<IdentityFiles>,
    server_name: Option<ServerName<'static>>,
}

/// The name of the only pool if it has none in the file.
const ONLY_POOL: &str = "default";

impl Check<'_> {
    pub(super) fn proxy(&self, raw: Spanned<RawProxy>) -> Option<Proxy> {
        let line = self.line(&raw);
        let raw = raw.into_inner();
        let named = raw.pool.iter().map(|pool| NamedPool::of(pool.get_ref()));
        let only = raw.origins.iter().filter(|_| raw.pool.is_empty()).map(|_| NamedPool::ONLY);
        let named: Vec<_> = named.chain(only).collect();
        let pools = match (&raw.origins, raw.pool.as_slice()) {
            (Some(_), [pool, ..]) => {
                self.wrong(pool, "set origins either in [agent.proxy] or in its pools, not in both")
            }
            (Some(origins), []) => self.only_pool(origins).map(|pool| vec![pool]),
            (None, []) => self.note(line, "the proxy has no origins: set origins, or add an [[agent.proxy.pool]]"),
            (None, pools) => self.pools(pools),
        };
        let mut gate = self.gate(raw.access_log.as_ref(), &raw.limits);
        let routes = self.routes(&raw.route, &named, raw.pool.last(), &mut gate);
        let shape = self.shape(&raw.trusted_proxies, &raw.error_pages, raw.intercept_errors.as_ref(), raw.compress);
        let cache = self.cache_store(&raw.cache);
        Some(Proxy { pools: pools?, routes: routes?, cache, gate, shape: shape? })
    }

    fn only_pool(&self, origins: &Texts) -> Option<Pool> {
        Some(Pool {
            line: self.line(origins),
            name: ONLY_POOL.to_owned(),
            origins: self.origins(origins)?,
            version: HttpVersion::default(),
            proxy_protocol: false,
            tls: Tls::default(),
            handover: Some(Handover::default()),
            policies: Policies::default(),
            queue: None,
            sticky: None,
        })
    }

    fn pools(&self, raw: &[Spanned<RawPool>]) -> Option<Vec<Pool>> {
        let mut names = BTreeMap::new();
        each(raw.iter().map(|raw| {
            let is_new = self.once(&mut names, &raw.get_ref().name, "the pool");
            let pool = self.pool(raw)?;
            is_new.map(|()| pool)
        }))
    }

    fn pool(&self, raw: &Spanned<RawPool>) -> Option<Pool> {
        let line = self.line(raw);
        let raw = raw.get_ref();
        let (origins, tls) = (self.origins(&raw.origins), self.origin_tls(&raw.tls));
        if let (Some(origins), Some(tls)) = (&origins, &tls)
            && origins.iter().any(OriginAddress::is_tls)
        {
            let tls = tls.clone();
            self.later(move |file| tls.load(file, line).map(drop));
        }
        let (policies, queue) = (self.policies(raw), self.queue(&raw.queue));
        let sticky = raw.sticky.as_ref().map(|sticky| self.sticky(sticky));
        Some(Pool {
            line,
            name: raw.name.get_ref().clone(),
            origins: origins?,
            version: raw.http,
            proxy_protocol: raw.proxy_protocol.is_some_and(|ProxyProtocol::V2| true),
            tls: tls?,
            handover: raw.handover.handover(),
            policies: policies?,
            queue: queue?,
            sticky,
        })
    }

    fn origins(&self, raw: &Texts) -> Option<Vec<OriginAddress>> {
        if raw.get_ref().is_empty() {
            return self.wrong(raw, "a pool needs at least one origin");
        }
        each(raw.get_ref().iter().map(|origin| Some(self.element::<Origin>(origin)?.0)))
    }

    fn origin_tls(&self, raw: &RawOriginTls) -> Option<Tls> {
        let identity = self.identity(raw.certificate.as_ref(), raw.key.as_ref());
        let server_name = optional(raw.server_name.as_ref(), |name| {
            let parsed = ServerName::try_from(name.get_ref().clone());
            parsed.map_or_else(|_| self.wrong(name, format!("\"{}\" is not a host name", name.get_ref())), Some)
        });
        let ca = raw.ca.as_ref().map(|ca| self.path(ca));
        Some(Tls { ca, identity: identity?, server_name: server_name? })
    }

    /// `pools` has all pools, also those with mistakes. Without any route, all requests go to the only pool.
    fn routes(
        &self,
        raw: &[Spanned<RawRoute>],
        pools: &[NamedPool<'_>],
        last: Option<&Spanned<RawPool>>,
        gate: &mut Gate,
    ) -> Option<Vec<Route>> {
        match (pools, last, raw.is_empty()) {
            (_, _, false) => {
                let mut seen = BTreeMap::new();
                each(raw.iter().map(|raw| self.new_route(raw, pools, gate, &mut seen)))
            }
            ([_, _, ..], Some(last), true) => self.wrong(last, "several pools need at least one [[agent.proxy.route]]"),
            (_, _, true) => Some(vec![Route::to_pool(None, PathPrefix::all(), 0)]),
        }
    }

    /// A route whose host and path no earlier route has: only the first would ever match.
    fn new_route(
        &self,
        raw: &Spanned<RawRoute>,
        pools: &[NamedPool<'_>],
        gate: &mut Gate,
        seen: &mut BTreeMap<(Option<String>, String), usize>,
    ) -> Option<Route> {
        let route = self.route(raw, pools, gate)?;
        let host = route.host.as_ref().map(ToString::to_string);
        let path = route.path.to_string().trim_end_matches('/').to_owned();
        match seen.insert((host, path), self.line(raw)) {
            Some(line) => self.wrong(raw, format!("the route on line {line} is for the same host and path")),
            None => Some(route),
        }
    }

    fn route(&self, spanned: &Spanned<RawRoute>, pools: &[NamedPool<'_>], gate: &mut Gate) -> Option<Route> {
        let raw = spanned.get_ref();
        let to = match (&raw.pool, &raw.refuse, &raw.redirect) {
            (Some(pool), None, None) => self.to_pool(pool, pools),
            (None, Some(refuse), None) => self.to_nobody(refuse),
            (None, None, Some(redirect)) => self.redirect(redirect).map(Destination::Redirect),
            _ => self.wrong(spanned, "a route needs exactly one of pool, refuse and redirect"),
        };
        let host = optional(raw.host.as_ref(), |host| self.parsed::<HostPattern>(host));
        let path = raw.path.as_ref().map_or(Some(PathPrefix::all()), |path| self.parsed(path));
        let access = self.access(&raw.allow, &raw.deny);
        let auth = optional(raw.auth.as_ref(), |auth| self.auth(auth, gate));
        let rules = self.rules(&raw.request_headers, &raw.response_headers);
        let cache = optional(raw.cache.as_ref(), |setting| match (&setting.get_ref().0, &raw.pool) {
            (Some(cache), Some(pool)) => {
                let text = |text: &Option<Spanned<String>>| text.as_ref().map_or("", |text| text.get_ref()).to_owned();
                let policy = [text(&raw.host), text(&raw.path), pool.get_ref().clone()].join(" ");
                let by_server = pools.iter().any(|named| named.name == pool.get_ref() && named.gets_server);
                self.route_cache(cache, policy, by_server).map(Some)
            }
            (None, _) => Some(None),
            (Some(_), None) => self.wrong(setting, "cache needs pool"),
        });
        let cache = cache?.flatten();
        Some(Route { host: host?, path: path?, to: to?, access: access?, auth: auth?, rules: rules?, cache })
    }

    fn to_pool(&self, name: &Spanned<String>, pools: &[NamedPool<'_>]) -> Option<Destination> {
        match pools.iter().position(|pool| pool.name == name.get_ref()) {
            Some(pool) => Some(Destination::Pool(pool)),
            // That is noted as the mistake of the proxy.
            None if pools.is_empty() => None,
            None => self.wrong(name, format!("there is no pool \"{}\"", name.get_ref())),
        }
    }
}

impl Proxy {
    /// The proxy, with the content of its files. `line` has its table.
    pub(super) fn load(
        &self,
        file: &ConfigFile,
        line: usize,
        metrics: &watari_proxy::Metrics,
        cache: &CacheHandle,
    ) -> Result<watari_proxy::Proxy, ConfigError> {
        let proxy = watari_proxy::Proxy::new(self.config(file, metrics, cache)?, metrics.clone());
        proxy.map_err(|error| file.wrong(line, &error))
    }

    /// The proxy that replaces `running`. Pools for which `is_same` holds are kept.
    pub(super) fn succeed(
        &self,
        file: &ConfigFile,
        line: usize,
        running: &watari_proxy::Proxy,
        is_same: impl Fn(&str) -> bool,
    ) -> Result<watari_proxy::Proxy, ConfigError> {
        let next =
            watari_proxy::Proxy::succeed(self.config(file, running.metrics(), running.cache())?, running, is_same);
        next.map_err(|error| file.wrong(line, &error))
    }

    /// Whether any route has a cache.
    pub(crate) fn has_cache(&self) -> bool {
        self.routes.iter().any(|route| route.cache.is_some())
    }

    fn config(
        &self,
        file: &ConfigFile,
        metrics: &watari_proxy::Metrics,
        cache: &CacheHandle,
    ) -> Result<watari_proxy::Config, ConfigError> {
        let pools = ConfigError::all(self.pools.iter().map(|pool| pool.config(file)));
        let log_and_pages = ConfigError::both(self.gate.access_log(file, metrics), self.shape.error_pages(file));
        let others = ConfigError::both(self.gate.auths(file), log_and_pages);
        let (pools, (auths, (access_log, error_pages))) = ConfigError::both(pools, others)?;
        Ok(watari_proxy::Config {
            pools,
            routes: self.routes.clone(),
            auths,
            clients: self.gate.clients.clone(),
            access_log,
            trusted_proxies: self.shape.trusted_proxies.clone(),
            error_pages,
            compression: self.shape.compression.clone(),
            cache: cache.clone(),
        })
    }
}

/// A pool as routes refer to it.
struct NamedPool<'a> {
    name: &'a str,
    /// Whether its origins get the address that clients connect to.
    gets_server: bool,
}

impl<'a> NamedPool<'a> {
    /// That of `origins` in `[agent.proxy]`.
    const ONLY: Self = Self { name: ONLY_POOL, gets_server: false };

    fn of(raw: &'a RawPool) -> Self {
        Self { name: raw.name.get_ref(), gets_server: raw.proxy_protocol.is_some() }
    }
}

impl Pool {
    fn config(&self, file: &ConfigFile) -> Result<PoolConfig, ConfigError> {
        let asks_for_tls = self.origins.iter().any(OriginAddress::is_tls);
        let tls = if asks_for_tls { self.tls.load(file, self.line).map(Some) } else { Ok(None) };
        let sticky = self.sticky.as_ref().map(|sticky| sticky.load(file)).transpose();
        let (tls, sticky) = ConfigError::both(tls, sticky)?;
        let transport = Transport { version: self.version, tls, proxy_protocol: self.proxy_protocol };
        let plain = PoolConfig::plain(&self.name, self.origins.iter().cloned());
        Ok(self.policies.of(PoolConfig {
            transport,
            handover: self.handover.clone(),
            queue: self.queue.clone(),
            sticky,
            ..plain
        }))
    }
}

impl Tls {
    /// The settings, with the content of their files. `line` has the pool.
    fn load(&self, file: &ConfigFile, line: usize) -> Result<OriginTls, ConfigError> {
        let Self { ca, identity, server_name } = self;
        let roots = ca.as_ref().map(|ca| file.read_file(ca)).transpose();
        let identity =
            identity.as_ref().map(|(chain, key)| ConfigError::both(file.read_file(chain), file.read_key(key)));
        let (roots, identity) = ConfigError::both(roots, identity.transpose())?;
        let identity = identity.as_ref().map(|(chain, key)| (chain.as_slice(), key.as_slice()));
        let config = watari_client_tls::from_pem(roots.as_ref().map(|roots| roots.as_slice()), identity);
        let config = config.map_err(|error| match ca {
            Some(ca) => file.wrong(ca.line, &named(&ca.value, &error)),
            None => file.wrong(line, &error),
        })?;
        Ok(OriginTls { config, server_name: server_name.clone() })
    }
}
