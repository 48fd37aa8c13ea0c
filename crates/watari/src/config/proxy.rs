//! `[agent.proxy]`: pools of origins, and the routes to them.

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
    Destination, Handover, HostPattern, HttpVersion, OriginAddress, OriginTls, PathPrefix, PoolConfig, QueueSettings,
    Route, Transport,
};

use self::gate::Gate;
use self::policies::Policies;
use self::shape::{Shape, StickyCookie};
use super::check::{Check, IdentityFiles, Wrong};
use super::file::{At, ConfigError, ConfigFile, named};
use super::raw::{RawOriginTls, RawPool, RawProxy, RawRoute};
use super::spanned::{Spanned, Texts};
use super::value::{Origin, ProxyProtocol};

/// `[agent.proxy]`
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) pools: Vec<Pool>,
    pub(crate) routes: Vec<Route>,
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
#[derive(Debug, Default)]
struct Tls {
    ca: Option<At<PathBuf>>,
    identity: Option<IdentityFiles>,
    server_name: Option<ServerName<'static>>,
}

/// The name of the only pool if it has none in the file.
const ONLY_POOL: &str = "default";

impl Check<'_> {
    pub(super) fn proxy(&self, raw: Spanned<RawProxy>) -> Result<Proxy, Wrong> {
        let line = self.line(&raw);
        let raw = raw.into_inner();
        let pools = match (raw.origins, raw.pool) {
            (Some(origins), pools) => {
                if let Some(pool) = pools.first() {
                    return self.wrong(pool, "set origins either in [agent.proxy] or in its pools, not in both");
                }
                vec![self.only_pool(&origins)?]
            }
            (None, pools) if pools.is_empty() => {
                return Err((line, "the proxy has no origins: set origins, or add an [[agent.proxy.pool]]".to_owned()));
            }
            (None, pools) => self.pools(&pools)?,
        };
        let mut gate = self.gate(raw.access_log.as_ref(), &raw.limits);
        let routes = self.routes(&raw.route, &pools, &mut gate)?;
        let shape = self.shape(&raw.trusted_proxies, &raw.error_pages, raw.intercept_errors.as_ref(), raw.compress)?;
        Ok(Proxy { pools, routes, gate, shape })
    }

    fn only_pool(&self, origins: &Texts) -> Result<Pool, Wrong> {
        Ok(Pool {
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

    fn pools(&self, raw: &[Spanned<RawPool>]) -> Result<Vec<Pool>, Wrong> {
        let mut names = BTreeMap::new();
        self.each(raw.iter().map(|raw| {
            self.once(&mut names, &raw.get_ref().name, "the pool")?;
            self.pool(raw)
        }))
    }

    fn pool(&self, raw: &Spanned<RawPool>) -> Result<Pool, Wrong> {
        let line = self.line(raw);
        let raw = raw.get_ref();
        Ok(Pool {
            line,
            name: raw.name.get_ref().clone(),
            origins: self.origins(&raw.origins)?,
            version: raw.http,
            proxy_protocol: raw.proxy_protocol.is_some_and(|ProxyProtocol::V2| true),
            tls: self.origin_tls(&raw.tls)?,
            handover: raw.handover.handover(),
            policies: self.policies(raw)?,
            queue: self.queue(&raw.queue)?,
            sticky: raw.sticky.as_ref().map(|sticky| self.sticky(sticky)),
        })
    }

    fn origins(&self, raw: &Texts) -> Result<Vec<OriginAddress>, Wrong> {
        if raw.get_ref().is_empty() {
            return self.wrong(raw, "a pool needs at least one origin");
        }
        self.each(raw.get_ref().iter().map(|origin| Ok(self.element::<Origin>(origin)?.0)))
    }

    fn origin_tls(&self, raw: &RawOriginTls) -> Result<Tls, Wrong> {
        let identity = self.identity(raw.certificate.as_ref(), raw.key.as_ref())?;
        let server_name = raw.server_name.as_ref().map(|name| {
            let parsed = ServerName::try_from(name.get_ref().clone());
            parsed.or_else(|_| self.wrong(name, format!("\"{}\" is not a host name", name.get_ref())))
        });
        let ca = raw.ca.as_ref().map(|ca| self.path(ca));
        Ok(Tls { ca, identity, server_name: server_name.transpose()? })
    }

    /// Without any route, all requests go to the only pool.
    fn routes(&self, raw: &[Spanned<RawRoute>], pools: &[Pool], gate: &mut Gate) -> Result<Vec<Route>, Wrong> {
        match (pools, raw.is_empty()) {
            (_, false) => {
                let mut seen = BTreeMap::new();
                self.each(raw.iter().map(|raw| self.new_route(raw, pools, gate, &mut seen)))
            }
            ([_], true) => Ok(vec![Route::to_pool(None, PathPrefix::all(), 0)]),
            ([.., last], true) => Err((last.line, "several pools need at least one [[agent.proxy.route]]".into())),
            ([], true) => Ok(Vec::new()),
        }
    }

    /// A route whose host and path no earlier route has: only the first would ever match.
    fn new_route(
        &self,
        raw: &Spanned<RawRoute>,
        pools: &[Pool],
        gate: &mut Gate,
        seen: &mut BTreeMap<(Option<String>, String), usize>,
    ) -> Result<Route, Wrong> {
        let route = self.route(raw, pools, gate)?;
        let host = route.host.as_ref().map(ToString::to_string);
        let path = route.path.to_string().trim_end_matches('/').to_owned();
        match seen.insert((host, path), self.line(raw)) {
            Some(line) => self.wrong(raw, format!("the route on line {line} is for the same host and path")),
            None => Ok(route),
        }
    }

    fn route(&self, spanned: &Spanned<RawRoute>, pools: &[Pool], gate: &mut Gate) -> Result<Route, Wrong> {
        let raw = spanned.get_ref();
        let to = match (&raw.pool, &raw.refuse, &raw.redirect) {
            (Some(pool), None, None) => self.to_pool(pool, pools)?,
            (None, Some(refuse), None) => self.to_nobody(refuse)?,
            (None, None, Some(redirect)) => Destination::Redirect(self.redirect(redirect)?),
            _ => return self.wrong(spanned, "a route needs exactly one of pool, refuse and redirect"),
        };
        let host = raw.host.as_ref().map(|host| {
            host.get_ref()
                .parse::<HostPattern>()
                .map_err(|error| (self.line(host), format!("\"{}\": {error}", host.get_ref())))
        });
        let path = raw.path.as_ref().map_or(Ok(PathPrefix::all()), |path| {
            path.get_ref().parse().map_err(|error| (self.line(path), format!("\"{}\": {error}", path.get_ref())))
        });
        let access = self.access(&raw.allow, &raw.deny)?;
        let auth = raw.auth.as_ref().map(|auth| self.auth(auth, gate)).transpose()?;
        let rules = self.rules(&raw.request_headers, &raw.response_headers)?;
        Ok(Route { host: host.transpose()?, path: path?, to, access, auth, rules })
    }

    fn to_pool(&self, name: &Spanned<String>, pools: &[Pool]) -> Result<Destination, Wrong> {
        match pools.iter().position(|pool| pool.name == *name.get_ref()) {
            Some(pool) => Ok(Destination::Pool(pool)),
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
    ) -> Result<watari_proxy::Proxy, ConfigError> {
        let proxy = watari_proxy::Proxy::new(self.config(file, metrics)?, metrics.clone());
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
        let next = watari_proxy::Proxy::succeed(self.config(file, running.metrics())?, running, is_same);
        next.map_err(|error| file.wrong(line, &error))
    }

    fn config(&self, file: &ConfigFile, metrics: &watari_proxy::Metrics) -> Result<watari_proxy::Config, ConfigError> {
        let pools = self.pools.iter().map(|pool| pool.config(file)).collect::<Result<_, _>>()?;
        Ok(watari_proxy::Config {
            pools,
            routes: self.routes.clone(),
            auths: self.gate.auths(file)?,
            clients: self.gate.clients.clone(),
            access_log: self.gate.access_log(file, metrics)?,
            trusted_proxies: self.shape.trusted_proxies.clone(),
            error_pages: self.shape.error_pages(file)?,
            compression: self.shape.compression.clone(),
        })
    }
}

impl Pool {
    fn config(&self, file: &ConfigFile) -> Result<PoolConfig, ConfigError> {
        let asks_for_tls = self.origins.iter().any(OriginAddress::is_tls);
        let tls = if asks_for_tls { Some(self.origin_tls(file)?) } else { None };
        let transport = Transport { version: self.version, tls, proxy_protocol: self.proxy_protocol };
        let sticky = self.sticky.as_ref().map(|sticky| sticky.load(file)).transpose()?;
        let plain = PoolConfig::plain(&self.name, self.origins.iter().cloned());
        Ok(self.policies.of(PoolConfig {
            transport,
            handover: self.handover.clone(),
            queue: self.queue.clone(),
            sticky,
            ..plain
        }))
    }

    fn origin_tls(&self, file: &ConfigFile) -> Result<OriginTls, ConfigError> {
        let Tls { ca, identity, server_name } = &self.tls;
        let roots = ca.as_ref().map(|ca| file.read_file(ca)).transpose()?;
        let identity = identity.as_ref().map(|(chain, key)| Ok((file.read_file(chain)?, file.read_key(key)?)));
        let identity = identity.transpose()?;
        let identity = identity.as_ref().map(|(chain, key)| (chain.as_slice(), key.as_slice()));
        let config = watari_client_tls::from_pem(roots.as_ref().map(|roots| roots.as_slice()), identity);
        let config = config.map_err(|error| match ca {
            Some(ca) => file.wrong(ca.line, &named(&ca.value, &error)),
            None => file.wrong(self.line, &error),
        })?;
        Ok(OriginTls { config, server_name: server_name.clone() })
    }
}
