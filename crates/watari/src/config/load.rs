//! Reads the files that a configuration names: certificates, keys, directories.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use watari_agent::{RedisServer, Settings, Sharing};
use watari_files::Files;
use watari_handshake::{Certificate, ClientRoots, ServerConfig, ServerOptions};
use watari_pki::Identity;
use watari_proxy::CacheHandle;
use watari_values::{NodeName, Role};

use super::file::{At, ConfigError, ConfigFile, named};
use super::model::{Agent, CertificateFiles, ClientCertificates, Config, Site, Tls, TlsParameters};
use super::outline::Outline;
use super::proxy::Proxy;
use super::stamps::Stamps;
use super::tables::roles;
use crate::admin::{self, missing_directory};

/// The content of a configuration's files, ready for use.
pub(crate) struct Loaded {
    pub(crate) identity: Identity,
    /// The roles of this node.
    pub(crate) roles: BTreeSet<Role>,
    /// The agent's settings. `None`: the node is not an agent.
    pub(crate) agent: Option<LoadedAgent>,
}

/// An agent's settings, and the stamps of their files when they were read.
#[derive(Clone)]
pub(crate) struct LoadedAgent {
    pub(crate) settings: Settings,
    pub(crate) stamps: Stamps,
}

/// The counters of both kinds of site. A reload may change the kind.
#[derive(Clone, Default)]
pub(crate) struct SiteMetrics {
    files: watari_files::Metrics,
    proxy: watari_proxy::Metrics,
    pub(crate) cache: CacheHandle,
    pub(crate) cache_store: watari_cache_store::Metrics,
}

impl SiteMetrics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let files = watari_files::Metrics::register(registry);
        Self {
            files,
            proxy: watari_proxy::Metrics::register(registry),
            cache: CacheHandle::register(registry),
            cache_store: watari_cache_store::Metrics::register(registry),
        }
    }
}

/// A file with certificates, and their use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertificateFile {
    pub(crate) usage: CertificateUse,
    pub(crate) path: PathBuf,
}

/// The use of a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CertificateUse {
    /// The certificates of listeners, with their chains.
    Listener,
    /// Authorities of client certificates.
    Clients,
    /// The node's own certificate, for the mesh.
    Node,
    /// The authority that issues the certificates of all nodes.
    Cluster,
}

impl CertificateUse {
    /// The use as a metric label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Listener => "listener",
            Self::Clients => "client_ca",
            Self::Node => "node",
            Self::Cluster => "cluster_ca",
        }
    }
}

impl std::fmt::Display for CertificateUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Listener => "shown to clients",
            Self::Clients => "an authority of client certificates",
            Self::Node => "shown to other nodes",
            Self::Cluster => "the authority of all nodes",
        })
    }
}

impl Config {
    /// Reads every file that the configuration names, and checks that it is usable. The site counts its requests in
    /// `metrics`.
    pub(crate) fn load(&self, metrics: &SiteMetrics) -> Result<Loaded, ConfigError> {
        let roles = roles(self.dispatcher.is_some(), self.agent.is_some());
        let identity = identity(&self.file, &self.node.name, &self.node.pki, &roles);
        let admin = At { line: self.outline.admin_line(), value: self.node.admin.clone() };
        let admin = admin_directory(&self.file, &admin);
        let agent = self.agent.as_ref().map(|agent| self.load_agent(agent, metrics)).transpose();
        let ((identity, ()), agent) = ConfigError::both(ConfigError::both(identity, admin), agent)?;
        Ok(Loaded { identity, roles, agent })
    }

    /// Like [`Config::load`], for an agent that runs with `before` of the configuration `old`. A site, or a pool, whose
    /// configuration has not changed is kept, with its connections to origins.
    pub(crate) fn load_again(
        &self,
        old: &Self,
        before: Option<&LoadedAgent>,
        metrics: &SiteMetrics,
    ) -> Result<Option<LoadedAgent>, ConfigError> {
        let (Some(agent), Some(before), Some(old_agent)) = (&self.agent, before, &old.agent) else { return Ok(None) };
        let stamps = self.stamps();
        let site = match (&agent.site, &old_agent.site) {
            (Site::Proxy(_), Site::Proxy(_)) if !self.outline.differs(&old.outline, "agent.proxy") => {
                Ok(before.settings.site.clone())
            }
            (Site::Proxy(proxy), Site::Proxy(_)) => match &*before.settings.site {
                watari_agent::Site::Proxy(running) => self.next_proxy(proxy, old, running),
                watari_agent::Site::Files(_) => self.site(&agent.site, metrics),
            },
            (site, _) => self.site(site, metrics),
        };
        let (tls, site) = ConfigError::both(self.tls(agent), site)?;
        Ok(Some(LoadedAgent { settings: Settings { tls, site, limits: agent.limits }, stamps }))
    }

    /// `before` with certificates, keys and authorities read again.
    pub(crate) fn load_certificates(&self, before: &LoadedAgent) -> Result<LoadedAgent, ConfigError> {
        let stamps = self.stamps();
        let tls = self.agent.as_ref().map(|agent| self.tls(agent)).transpose()?;
        Ok(LoadedAgent { settings: Settings { tls: tls.flatten(), ..before.settings.clone() }, stamps })
    }

    /// The stamps of the files that handshakes depend on.
    pub(crate) fn stamps(&self) -> Stamps {
        let tls = self.agent.iter().filter_map(|agent| agent.tls.as_ref());
        let files = tls.flat_map(|tls| {
            let pairs = tls.certificates.iter().flat_map(|files| [&files.chain, &files.key]);
            let parameters = tls.listeners.iter().map(|(_, parameters)| parameters).chain([&tls.parameters]);
            pairs.chain(parameters.filter_map(|parameters| parameters.clients.roots()))
        });
        Stamps::of(files.map(|file| file.value.clone()))
    }

    /// The files whose certificates this node uses, each once.
    pub(crate) fn certificate_files(&self) -> Vec<CertificateFile> {
        let [authority, own] = watari_pki::certificate_files(&self.node.pki.value, &self.node.name.value);
        let mut files = vec![(CertificateUse::Cluster, authority), (CertificateUse::Node, own)];
        for tls in self.agent.iter().filter_map(|agent| agent.tls.as_ref()) {
            let chains = tls.certificates.iter().map(|files| files.chain.value.clone());
            files.extend(chains.map(|path| (CertificateUse::Listener, path)));
            let parameters = tls.listeners.iter().map(|(_, parameters)| parameters).chain([&tls.parameters]);
            let roots = parameters.filter_map(|parameters| parameters.clients.roots()).map(|file| file.value.clone());
            files.extend(roots.map(|path| (CertificateUse::Clients, path)));
        }
        files.sort();
        files.dedup();
        files.into_iter().map(|(usage, path)| CertificateFile { usage, path }).collect()
    }

    fn load_agent(&self, agent: &Agent, metrics: &SiteMetrics) -> Result<LoadedAgent, ConfigError> {
        let sessions = session_files(&self.file, &self.outline, &agent.sharing);
        let stamps = self.stamps();
        let tls_and_site = ConfigError::both(self.tls(agent), self.site(&agent.site, metrics));
        let ((tls, site), ()) = ConfigError::both(tls_and_site, sessions)?;
        Ok(LoadedAgent { settings: Settings { tls, site, limits: agent.limits }, stamps })
    }

    fn tls(&self, agent: &Agent) -> Result<Option<watari_agent::Tls>, ConfigError> {
        let Some(tls) = &agent.tls else { return Ok(None) };
        let parameters = tls.listeners.iter().map(|(_, parameters)| parameters).chain([&tls.parameters]);
        let roots = ConfigError::all(parameters.map(|parameters| client_certificates(&self.file, &parameters.clients)));
        let (certificates, _) = ConfigError::both(self.certificates(tls), roots)?;
        let listeners = tls.listeners.iter().map(|(listener, parameters)| {
            Ok((*listener, self.server_config(tls, parameters, listener.to_string(), certificates.clone())?))
        });
        let default = self.server_config(tls, &tls.parameters, String::new(), certificates.clone());
        let (listeners, default) = ConfigError::both(ConfigError::all(listeners), default)?;
        Ok(Some(watari_agent::Tls { default, listeners }))
    }

    /// The TLS configuration for `parameters`. A session of one listener does not resume at another.
    fn server_config(
        &self,
        tls: &Tls,
        parameters: &TlsParameters,
        scope: String,
        certificates: ServerOptions,
    ) -> Result<ServerConfig, ConfigError> {
        let options = ServerOptions {
            policy: parameters.policy.clone(),
            alpn: parameters.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect(),
            client_certificates: client_certificates(&self.file, &parameters.clients)?,
            scope,
            ..certificates
        };
        let config = ServerConfig::new(&options);
        config.map_err(|error| {
            let first = || tls.certificates.first().map_or(1, |files| files.chain.line);
            let line = match error {
                watari_handshake::ConfigError::NoKeyForSuites(_) => parameters.line.unwrap_or_else(first),
                watari_handshake::ConfigError::BadClientRoots(_) => {
                    parameters.clients.roots().map_or(1, |file| file.line)
                }
                _ => first(),
            };
            self.file.wrong(line, &error)
        })
    }

    /// Options with the certificates of `tls` alone.
    fn certificates(&self, tls: &Tls) -> Result<ServerOptions, ConfigError> {
        let mut options = ServerOptions::default();
        let certificates = ConfigError::all(tls.certificates.iter().map(|files| named_certificate(&self.file, files)))?;
        for (files, certificate) in tls.certificates.iter().zip(certificates) {
            if files.default {
                options.default_certificates.push(certificate.clone());
            }
            if !certificate.names().is_empty() {
                options.certificates.push(certificate);
            }
        }
        Ok(options)
    }

    fn site(&self, site: &Site, metrics: &SiteMetrics) -> Result<Arc<watari_agent::Site>, ConfigError> {
        Ok(Arc::new(match site {
            Site::Files(root) => watari_agent::Site::Files(files(&self.file, root, metrics.files.clone())?),
            Site::Proxy(proxy) => watari_agent::Site::Proxy(Box::new(proxy.load(
                &self.file,
                self.proxy_line(),
                &metrics.proxy,
                &metrics.cache,
            )?)),
        }))
    }

    /// The proxy that replaces the running one, which has the configuration `old`. Pools with an unchanged
    /// configuration are kept.
    fn next_proxy(
        &self,
        proxy: &Proxy,
        old: &Self,
        running: &watari_proxy::Proxy,
    ) -> Result<Arc<watari_agent::Site>, ConfigError> {
        let differs = |key: &str| self.outline.differs(&old.outline, key);
        let is_same = |name: &str| !differs("agent.proxy.origins") && !differs(&format!("agent.proxy.pool[{name}]"));
        let next = proxy.succeed(&self.file, self.proxy_line(), running, is_same)?;
        Ok(Arc::new(watari_agent::Site::Proxy(Box::new(next))))
    }

    fn proxy_line(&self) -> usize {
        self.outline.line_of("agent.proxy").unwrap_or(1)
    }
}

/// The certificate and key of a node, which has to have `roles`.
pub(super) fn identity(
    file: &ConfigFile,
    name: &At<NodeName>,
    pki: &At<PathBuf>,
    roles: &BTreeSet<Role>,
) -> Result<Identity, ConfigError> {
    let identity = Identity::load(&pki.value, &name.value).map_err(|error| file.wrong(pki.line, &error))?;
    let Some(role) = roles.difference(identity.roles()).next() else { return Ok(identity) };
    let sentence = format!(
        "the certificate of {} does not allow the role {role}: issue another (watari pki issue {0} --role {role})",
        name.value
    );
    Err(file.wrong(name.line, &sentence))
}

/// Refuses an administration socket in a directory that does not exist.
pub(super) fn admin_directory(file: &ConfigFile, admin: &At<PathBuf>) -> Result<(), ConfigError> {
    admin::require_directory(&admin.value).map_err(|error| file.wrong(admin.line, &error))
}

/// A certificate chain and its key, for the names in it, or as a default.
pub(super) fn named_certificate(file: &ConfigFile, files: &CertificateFiles) -> Result<Certificate, ConfigError> {
    let certificate = certificate(file, files)?;
    if files.default || !certificate.names().is_empty() {
        return Ok(certificate);
    }
    let chain = &files.chain;
    let sentence = format!("{} has no DNS name: set default = true, or use another certificate", chain.value.display());
    Err(file.wrong(chain.line, &sentence))
}

fn certificate(file: &ConfigFile, files: &CertificateFiles) -> Result<Certificate, ConfigError> {
    use watari_handshake::CertificateError::{EncryptedKey, KeyMismatch, NoKey, UnsupportedKey};
    let (chain, key) = ConfigError::both(file.read_file(&files.chain), file.read_key(&files.key))?;
    Certificate::from_pem(&chain, &key).map_err(|error| {
        let blamed = match error {
            EncryptedKey | KeyMismatch | NoKey | UnsupportedKey => &files.key,
            _ => &files.chain,
        };
        file.wrong(blamed.line, &named(&blamed.value, &error))
    })
}

fn client_certificates(
    file: &ConfigFile,
    clients: &ClientCertificates,
) -> Result<watari_handshake::ClientCertificates, ConfigError> {
    use watari_handshake::ClientCertificates::{NotAsked, Optional, Required};
    match clients {
        ClientCertificates::None => Ok(NotAsked),
        ClientCertificates::Optional(roots) => client_roots(file, roots).map(Optional),
        ClientCertificates::Required(roots) => client_roots(file, roots).map(Required),
    }
}

/// The authorities of client certificates.
pub(super) fn client_roots(file: &ConfigFile, roots: &At<PathBuf>) -> Result<ClientRoots, ConfigError> {
    let loaded = ClientRoots::from_pem(&file.read_file(roots)?);
    loaded.map_err(|error| file.wrong(roots.line, &named(&roots.value, &error)))
}

/// The directory of `[agent.files]`.
pub(super) fn files(
    file: &ConfigFile,
    root: &At<PathBuf>,
    metrics: watari_files::Metrics,
) -> Result<Files, ConfigError> {
    Files::open(&root.value, metrics).map_err(|error| file.wrong(root.line, &named(&root.value, &error)))
}

/// Checks the files of `[agent.sessions]`, to report a mistake before the agent starts. The agent reads them again.
pub(super) fn session_files(file: &ConfigFile, outline: &Outline, sharing: &Sharing) -> Result<(), ConfigError> {
    let redis = sharing.redis.as_ref().map(RedisServer::settings).transpose();
    let line = |key: &str| outline.line_of(key).unwrap_or(1);
    let redis = redis.map_err(|error| file.wrong(line("agent.sessions.redis"), &error));
    let keys_file = sharing.keys_file.as_ref().map(|path| ("agent.sessions.keys_file", path));
    let database = sharing.database.as_ref().map(|database| ("agent.sessions.database", &database.path));
    let directories = keys_file.into_iter().chain(database).map(|(key, path)| {
        let Some(directory) = missing_directory(path) else { return Ok(()) };
        let sentence =
            format!("cannot make {}: there is no directory {}; make it", path.display(), directory.display());
        Err(file.wrong(line(key), &sentence))
    });
    ConfigError::both(ConfigError::all(directories), redis).map(drop)
}
