//! Checks of the tables of a well-formed configuration.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use ipnet::IpNet;
use watari_balance::{BulkPolicy, HandshakePolicy, HealthThresholds};
use watari_dispatcher::{Checks, PassthroughRule, Policies};
use watari_mesh::{Join, Peer};
use watari_values::setting::Span;

use super::check::{Check, Wrong};
use super::file::{ConfigError, ConfigFile};
use super::form;
use super::model::{Agent, Config, Dispatcher, Log, Node, Site};
use super::outline::Outline;
use super::raw::{RawAgent, RawChecks, RawConfig, RawDispatcher, RawNode, RawPassthrough, THREADS_MAX};
use super::spanned::{Spanned, Texts};
use super::value::{Address, HostPattern, Network, Prefix, ProxyProtocol};

impl Config {
    /// Reads and checks `file`. Opens none of the files that it names.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(file).map_err(|cause| ConfigError::Unreadable { file: file.to_owned(), cause })?;
        Self::parse(file, &text)
    }

    /// Checks `text`. Relative paths in it start at the directory of `file`.
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let wrong = |mistakes| ConfigError::Wrong { file: file.to_owned(), mistakes };
        let raw = form::read(text).map_err(wrong)?;
        let check = Check::new(file, text);
        let config = check.note(check.config(raw));
        check.finish(config).map_err(wrong)
    }
}

impl Check<'_> {
    fn config(&self, raw: RawConfig) -> Result<Config, Wrong> {
        if raw.dispatcher.is_none() && raw.agent.is_none() {
            return self.wrong(&raw.node, "the node has no role: add [dispatcher] or [agent]");
        }
        let is_agent = raw.agent.is_some();
        let listeners = self.listeners(&raw);
        let join = self.join(&raw);
        // Without a join rule the node cannot be used. The rest of the file is checked all the same.
        let node = self.node(raw.node.into_inner(), *join.as_ref().unwrap_or(&Join::Configured));
        let peers = self.peers(&node.name.value, raw.peer);
        let known = peers.as_deref().unwrap_or_default();
        // The agents of a dispatcher are looked up among the possible members. If those are wrong, none would be found.
        let dispatcher = raw.dispatcher.filter(|_| peers.is_ok() && join.is_ok());
        let dispatcher = self.note(dispatcher.map(|raw| self.dispatcher(&node, is_agent, known, raw)).transpose());
        let agent = raw.agent.map(|raw| self.agent(raw)).transpose();
        let (listeners, join) = (self.note(listeners), self.note(join));
        let (agent, peers) = (self.note(agent), self.note(peers));
        let (Some(()), Some(_), Some(dispatcher), Some(agent), Some(peers)) =
            (listeners, join, dispatcher, agent, peers)
        else {
            return Err(self.noted());
        };
        Ok(Config {
            file: ConfigFile(self.file.to_owned()),
            dispatcher,
            agent,
            node,
            peers,
            log: Log { format: raw.log.format, level: raw.log.level.0, repeats_max: raw.log.repeats_max },
            outline: Outline::of(self.text),
        })
    }

    fn node(&self, raw: RawNode, join: Join) -> Node {
        Node {
            name: self.at(raw.name),
            pki: self.path(&raw.pki),
            mesh: raw.mesh.into_inner().0,
            join,
            admin: self.resolve(&raw.admin.0),
            metrics: raw.metrics.map(|metrics| metrics.into_inner().0),
            drain_timeout: raw.drain_timeout,
            limits: raw.limits,
        }
    }

    /// Refuses two listeners of this node that collide.
    fn listeners(&self, raw: &RawConfig) -> Result<(), Wrong> {
        let node = raw.node.get_ref();
        let legs = raw.agent.iter().map(|agent| &agent.get_ref().legs);
        let single = [&node.mesh].into_iter().chain(&node.metrics).chain(legs);
        let mut all: Vec<_> = single.map(|address| (self.line(address), address.get_ref().0)).collect();
        let of_clients = raw
            .dispatcher
            .iter()
            .flat_map(|raw| raw.listen.get_ref().iter().chain(&raw.listen_proxy).chain(&raw.redirect));
        for listen in of_clients {
            all.push((self.line(listen), self.element::<Address>(listen)?.0));
        }
        for (at, (line, address)) in all.iter().enumerate() {
            if let Some((first, other)) = all[..at].iter().find(|(_, other)| collide(*other, *address)) {
                return Err((*line, format!("{address} is in use already, by {other} on line {first}")));
            }
        }
        Ok(())
    }

    fn dispatcher(&self, node: &Node, is_agent: bool, peers: &[Peer], raw: RawDispatcher) -> Result<Dispatcher, Wrong> {
        if raw.listen.get_ref().is_empty() && raw.listen_proxy.is_empty() {
            return self.wrong(&raw.listen, "the dispatcher needs an address in listen or listen_proxy");
        }
        let discover = self.note(self.discover(node.join, raw.discover, &raw.agents));
        let agents = self.note(self.agents(node, is_agent, peers, raw.agents));
        let threads = self.note(self.threads(raw.threads));
        let listen = self.note(self.addresses(raw.listen.get_ref()));
        let listen_proxy = self.note(self.addresses(&raw.listen_proxy));
        let redirect = self.note(self.addresses(&raw.redirect));
        let own: Vec<_> = listen.iter().chain(&listen_proxy).flatten().copied().collect();
        let passthrough = self.note(self.passthrough(raw.passthrough, &own));
        let proxy_from = self.note(self.proxy_from(&raw.listen_proxy, raw.proxy_from));
        let (Some(discover), Some(agents), Some(threads), Some(listen)) = (discover, agents, threads, listen) else {
            return Err(self.noted());
        };
        let (Some(listen_proxy), Some(redirect), Some(passthrough), Some(proxy_from)) =
            (listen_proxy, redirect, passthrough, proxy_from)
        else {
            return Err(self.noted());
        };
        Ok(Dispatcher {
            threads,
            listen,
            listen_proxy,
            redirect,
            discover,
            config: watari_dispatcher::Config {
                name: node.name.value.clone(),
                agents,
                policies: policies(raw.handshake, raw.bulk, raw.client_prefix, raw.slow_start),
                checks: checks(&raw.check),
                passthrough,
                proxy_from,
                limits: raw.limits,
            },
        })
    }

    fn threads(&self, raw: Option<Spanned<NonZeroUsize>>) -> Result<NonZeroUsize, Wrong> {
        let available = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(THREADS_MAX);
        match raw {
            None => Ok(available()),
            Some(threads) if *threads.get_ref() > THREADS_MAX => {
                self.wrong(&threads, format!("threads is at most {THREADS_MAX}"))
            }
            Some(threads) => Ok(threads.into_inner()),
        }
    }

    /// `own` has the listeners of this dispatcher. Connections that it relayed to itself would loop without end.
    fn passthrough(&self, raw: Vec<RawPassthrough>, own: &[SocketAddr]) -> Result<Vec<PassthroughRule>, Wrong> {
        let mut seen = BTreeMap::new();
        self.each(raw.into_iter().map(|raw| {
            if raw.names.get_ref().is_empty() {
                return self.wrong(&raw.names, "names is empty: expected at least one server name");
            }
            if raw.backends.get_ref().is_empty() {
                return self.wrong(&raw.backends, "backends is empty: expected at least one address");
            }
            let mut names = Vec::new();
            for text in raw.names.get_ref() {
                let name = self.element::<HostPattern>(text)?.0;
                if let Some(line) = seen.insert(name.clone(), self.line(text)) {
                    return self.wrong(text, format!("the name {name} is listed twice, first on line {line}"));
                }
                names.push(name);
            }
            let backends = self.addresses(raw.backends.get_ref())?;
            for (text, backend) in raw.backends.get_ref().iter().zip(&backends) {
                if own.iter().any(|own| leads_to(*backend, *own)) {
                    return self
                        .wrong(text, format!("{backend} is a listener of this dispatcher: connections would loop"));
                }
            }
            Ok(PassthroughRule {
                names,
                backends,
                proxy_protocol: raw.proxy_protocol.is_some_and(|ProxyProtocol::V2| true),
            })
        }))
    }

    /// A peer at `listen_proxy` can claim any client address. So the configuration has to restrict the peers.
    fn proxy_from(&self, listen_proxy: &[Spanned<String>], proxy_from: Option<Texts>) -> Result<Vec<IpNet>, Wrong> {
        match (listen_proxy.first(), proxy_from) {
            (None, None) => Ok(Vec::new()),
            (None, Some(proxy_from)) => self.wrong(&proxy_from, "proxy_from has no effect without listen_proxy"),
            (Some(_), Some(networks)) if !networks.get_ref().is_empty() => {
                networks.get_ref().iter().map(|network| Ok(self.element::<Network>(network)?.0)).collect()
            }
            (Some(listen), _) => {
                self.wrong(listen, "listen_proxy needs proxy_from, the networks that may connect to it")
            }
        }
    }

    fn agent(&self, raw: Spanned<RawAgent>) -> Result<Agent, Wrong> {
        let line = self.line(&raw);
        let raw = raw.into_inner();
        let site = match (raw.files, raw.proxy) {
            (Some(files), None) => Ok(Site::Files(self.path(&files.root))),
            (None, Some(proxy)) => self.proxy(proxy).map(|proxy| Site::Proxy(Box::new(proxy))),
            (None, None) => Err((line, "the agent has nothing to serve: add [agent.files] or [agent.proxy]".into())),
            (Some(_), Some(proxy)) => {
                self.wrong(&proxy, "the agent serves either [agent.files] or [agent.proxy], not both")
            }
        };
        let (tls, sharing) = (self.tls(raw.certificate, raw.tls), self.sharing(&raw.sessions));
        // All three are checked before one is refused.
        let (site, tls) = (self.note(site), self.note(tls));
        match (site, tls, sharing) {
            (Some(site), Some(tls), Ok(sharing)) => {
                Ok(Agent { legs: raw.legs.into_inner().0, tls, site, sharing, limits: raw.limits })
            }
            (.., Err(wrong)) => Err(wrong),
            _ => Err(self.noted()),
        }
    }
}

fn policies(
    handshake: Option<HandshakePolicy>,
    bulk: Option<BulkPolicy>,
    client_prefix: Option<Prefix>,
    slow_start: Option<Span>,
) -> Policies {
    let default = Policies::default();
    Policies {
        handshake: handshake.unwrap_or(default.handshake),
        bulk: bulk.unwrap_or(default.bulk),
        client_prefix: client_prefix.map_or(default.client_prefix, |prefix| prefix.or(default.client_prefix)),
        slow_start: slow_start.map(Span::get),
    }
}

fn checks(raw: &RawChecks) -> Checks {
    let RawChecks { interval, timeout, fall, rise } = *raw;
    Checks { interval, timeout, thresholds: HealthThresholds { fall, rise } }
}

/// Whether connections to `address` surely reach the listener at `own`. The addresses of other hosts are not known
/// here.
fn leads_to(address: SocketAddr, own: SocketAddr) -> bool {
    address == own || own.ip().is_unspecified() && address.ip().is_loopback() && collide(address, own)
}

/// Whether the system would allow a listener at only one of the two. IPv6 listeners accept no IPv4 connections here.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && (a.ip() == b.ip() || any && a.is_ipv4() == b.is_ipv4())
}
