//! Checks of the tables of a well-formed configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::Path;
use std::thread;

use ipnet::IpNet;
use watari_balance::{BulkPolicy, HandshakePolicy, HealthThresholds};
use watari_dispatcher::{Checks, NamePattern, PassthroughRule, Policies, Rebalance};
use watari_mesh::Join;
use watari_values::setting::Span;
use watari_values::{NodeName, Role};

use super::check::{Check, FileCheck, Wrong, each};
use super::file::{At, ConfigError, ConfigFile};
use super::form::{self, Form};
use super::load;
use super::mended::Mended;
use super::model::{Agent, Config, Dispatcher, Log, Node, Site};
use super::outline::Outline;
use super::raw::{RawAgent, RawChecks, RawConfig, RawDispatcher, RawNode, RawPassthrough, THREADS_MAX};
use super::spanned::{Spanned, Texts};
use super::value::{Address, HostPattern, Prefix, ProxyProtocol};

impl Config {
    /// Reads and checks `file`. If it has mistakes, also the files that it names, to show all mistakes at once.
    pub(crate) fn read(file: &Path) -> Result<Self, ConfigError> {
        let text =
            fs::read_to_string(file).map_err(|cause| ConfigError::Unreadable { file: file.to_owned(), cause })?;
        Self::check(file, &text).map_err(|(error, file_checks)| {
            let file = ConfigFile(file.to_owned());
            let in_files = file_checks.into_iter().map(|check| check(&file));
            in_files.filter_map(Result::err).fold(error, ConfigError::and)
        })
    }

    /// Checks `text`. Relative paths in it start at the directory of `file`.
    #[cfg(test)]
    pub(crate) fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        Self::check(file, text).map_err(|(error, _)| error)
    }

    /// The configuration, or all mistakes of `text`, with the checks of those of its files that can be checked all the
    /// same.
    fn check(file: &Path, text: &str) -> Result<Self, (ConfigError, Vec<FileCheck>)> {
        let wrong = |mut mistakes: Vec<Wrong>| {
            mistakes.sort();
            mistakes.dedup();
            ConfigError::Wrong { file: file.to_owned(), mistakes }
        };
        let Form { raw, mut mistakes, mended } = form::read(text);
        let Some(raw) = raw else { return Err((wrong(mistakes), Vec::new())) };
        let check = Check::new(file, text);
        let config = check.config(raw, &mended);
        let (found, file_checks) = check.finish();
        mistakes.extend(found.into_iter().filter(|(line, _)| !mended.may_cause(*line)));
        config.filter(|_| mistakes.is_empty()).ok_or_else(|| (wrong(mistakes), file_checks))
    }
}

impl Check<'_> {
    fn config(&self, raw: RawConfig, mended: &Mended) -> Option<Config> {
        let roles = if raw.dispatcher.is_none() && raw.agent.is_none() {
            self.wrong(&raw.node, "the node has no role: add [dispatcher] or [agent]")
        } else {
            Some(())
        };
        let is_agent = raw.agent.is_some();
        let listeners = self.listeners(&raw);
        let join = self.join(&raw);
        self.node_files(&raw, mended);
        // Without a join rule the node cannot be used. The rest of the file is checked all the same.
        let node = self.node(raw.node.into_inner(), join.unwrap_or(Join::Configured));
        let peers = self.peers(&node.name.value, raw.peer);
        // The agents of a dispatcher are looked up among the possible members. If those are wrong, all are possible.
        let may_come = |name: &NodeName| match (join, &peers) {
            (Some(Join::Configured), Some(peers)) => peers.iter().any(|peer| peer.name == *name),
            _ => true,
        };
        let dispatcher =
            raw.dispatcher.map_or(Some(None), |raw| self.dispatcher(&node, is_agent, join, may_come, raw).map(Some));
        let agent = raw.agent.map_or(Some(None), |raw| self.agent(raw).map(Some));
        let ((), (), _) = (roles?, listeners?, join?);
        Some(Config {
            file: ConfigFile(self.file.to_owned()),
            dispatcher: dispatcher?,
            agent: agent?,
            node,
            peers: peers?,
            log: Log { format: raw.log.format, level: raw.log.level.0, repeats_max: raw.log.repeats_max },
            outline: Outline::of(self.text),
        })
    }

    /// Registers the checks of the files of `[node]`.
    fn node_files(&self, raw: &RawConfig, mended: &Mended) {
        let node = raw.node.get_ref();
        if self.is_real(&node.name) && self.is_real(&node.pki) {
            let (name, pki) = (self.at(node.name.clone()), self.path(&node.pki));
            let roles = roles(raw.dispatcher.is_some(), raw.agent.is_some());
            self.later(move |file| load::identity(file, &name, &pki, &roles).map(drop));
        }
        if !mended.has("node.admin") && !mended.has("node") {
            let line = Outline::of(self.text).admin_line();
            let admin = At { line, value: self.resolve(&node.admin.0) };
            self.later(move |file| load::admin_directory(file, &admin));
        }
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

    /// Refuses two listeners of this node that collide. Addresses that cannot be parsed are noted elsewhere.
    fn listeners(&self, raw: &RawConfig) -> Option<()> {
        let node = raw.node.get_ref();
        let legs = raw.agent.iter().map(|agent| &agent.get_ref().legs);
        let single = [&node.mesh].into_iter().chain(&node.metrics).chain(legs);
        let mut all: Vec<_> = single
            .filter(|address| self.is_real(address))
            .map(|address| (self.line(address), address.get_ref().0))
            .collect();
        let of_clients = raw
            .dispatcher
            .iter()
            .flat_map(|raw| raw.listen.get_ref().iter().chain(&raw.listen_proxy).chain(&raw.redirect));
        all.extend(of_clients.filter_map(|listen| {
            let Address(address) = listen.get_ref().clone().try_into().ok()?;
            Some((self.line(listen), address))
        }));
        let collisions = all.iter().enumerate().map(|(at, (line, address))| {
            match all[..at].iter().find(|(_, other)| collide(*other, *address)) {
                Some((first, other)) => {
                    self.note(*line, format!("{address} is in use already, by {other} on line {first}"))
                }
                None => Some(()),
            }
        });
        each(collisions).map(drop)
    }

    /// `join` is `None` if the join rule is wrong.
    fn dispatcher(
        &self,
        node: &Node,
        is_agent: bool,
        join: Option<Join>,
        may_come: impl Fn(&NodeName) -> bool,
        raw: RawDispatcher,
    ) -> Option<Dispatcher> {
        let has_address = if raw.listen.get_ref().is_empty() && raw.listen_proxy.is_empty() {
            self.wrong(&raw.listen, "the dispatcher needs an address in listen or listen_proxy")
        } else {
            Some(())
        };
        let discover = self.discover(join, raw.discover, &raw.agents);
        let agents = self.agents(node, is_agent, &may_come, raw.agents);
        let threads = self.threads(raw.threads);
        let listen = self.addresses(raw.listen.get_ref());
        let listen_proxy = self.addresses(&raw.listen_proxy);
        let redirect = self.addresses(&raw.redirect);
        let own: Vec<_> = listen.iter().chain(&listen_proxy).flatten().copied().collect();
        let passthrough = self.passthrough(raw.passthrough, &own);
        let proxy_from = self.proxy_from(&raw.listen_proxy, raw.proxy_from);
        let may_vote = |name: &NodeName| *name == node.name.value || may_come(name);
        let at = listen.iter().zip(&listen_proxy).next().map(|_| &own[..]);
        let takeover = raw
            .takeover
            .map(|raw| self.takeover(&raw, node, may_vote, at))
            .map_or(Some(None), |takeover| takeover.map(Some));
        let one_of_both = match (&takeover, &raw.multipath) {
            (Some(Some(_)), Some(multipath)) => {
                let sentence = "the dispatcher has [dispatcher.takeover] already: its addresses are of one kind";
                self.wrong(&multipath.addresses, sentence)
            }
            _ => Some(()),
        };
        let multipath =
            raw.multipath.map(|raw| self.multipath(&raw, node, at)).map_or(Some(None), |multipath| multipath.map(Some));
        let rebalance = self.rebalance(raw.rebalance, raw.bulk);
        has_address?;
        one_of_both?;
        Some(Dispatcher {
            threads: threads?,
            listen: listen?,
            listen_proxy: listen_proxy?,
            redirect: redirect?,
            discover: discover?,
            takeover: takeover?,
            multipath: multipath?,
            config: watari_dispatcher::Config {
                name: node.name.value.clone(),
                agents: agents?,
                policies: policies(raw.handshake, raw.bulk, rebalance?, raw.client_prefix, raw.slow_start),
                checks: checks(&raw.check),
                passthrough: passthrough?,
                proxy_from: proxy_from?,
                limits: raw.limits,
            },
        })
    }

    fn rebalance(&self, raw: Option<Spanned<Rebalance>>, bulk: Option<BulkPolicy>) -> Option<Rebalance> {
        let default = Policies::default();
        match raw.filter(|rebalance| *rebalance.get_ref() != Rebalance::Off) {
            Some(rebalance) if bulk.unwrap_or(default.bulk) != BulkPolicy::Stay => self
                .wrong(&rebalance, "rebalance needs bulk = \"stay\": the other policies select the agent by address"),
            Some(rebalance) => Some(rebalance.into_inner()),
            None => Some(Rebalance::Off),
        }
    }

    fn threads(&self, raw: Option<Spanned<NonZeroUsize>>) -> Option<NonZeroUsize> {
        let available = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN).min(THREADS_MAX);
        match raw {
            None => Some(available()),
            Some(threads) if *threads.get_ref() > THREADS_MAX => {
                self.wrong(&threads, format!("threads is at most {THREADS_MAX}"))
            }
            Some(threads) => Some(threads.into_inner()),
        }
    }

    /// `own` has the listeners of this dispatcher. Connections that it relayed to itself would loop without end.
    fn passthrough(&self, raw: Vec<RawPassthrough>, own: &[SocketAddr]) -> Option<Vec<PassthroughRule>> {
        let mut seen = BTreeMap::new();
        each(raw.into_iter().map(|raw| {
            let names = self.passthrough_names(&raw.names, &mut seen);
            let backends = self.backends(&raw.backends, own);
            Some(PassthroughRule {
                names: names?,
                backends: backends?,
                proxy_protocol: raw.proxy_protocol.is_some_and(|ProxyProtocol::V2| true),
            })
        }))
    }

    fn passthrough_names(&self, raw: &Texts, seen: &mut BTreeMap<NamePattern, usize>) -> Option<Vec<NamePattern>> {
        if raw.get_ref().is_empty() {
            return self.wrong(raw, "names is empty: expected at least one server name");
        }
        each(raw.get_ref().iter().map(|text| {
            let name = self.element::<HostPattern>(text)?.0;
            match seen.insert(name.clone(), self.line(text)) {
                Some(line) => self.wrong(text, format!("the name {name} is listed twice, first on line {line}")),
                None => Some(name),
            }
        }))
    }

    fn backends(&self, raw: &Texts, own: &[SocketAddr]) -> Option<Vec<SocketAddr>> {
        if raw.get_ref().is_empty() {
            return self.wrong(raw, "backends is empty: expected at least one address");
        }
        each(raw.get_ref().iter().map(|text| {
            let backend = self.element::<Address>(text)?.0;
            if own.iter().any(|own| leads_to(backend, *own)) {
                return self.wrong(text, format!("{backend} is a listener of this dispatcher: connections would loop"));
            }
            Some(backend)
        }))
    }

    /// A peer at `listen_proxy` can claim any client address. So the configuration has to restrict the peers.
    fn proxy_from(&self, listen_proxy: &[Spanned<String>], proxy_from: Option<Texts>) -> Option<Vec<IpNet>> {
        match (listen_proxy.first(), proxy_from) {
            (None, None) => Some(Vec::new()),
            (None, Some(proxy_from)) => self.wrong(&proxy_from, "proxy_from has no effect without listen_proxy"),
            (Some(_), Some(networks)) if !networks.get_ref().is_empty() => self.networks(networks.get_ref()),
            (Some(listen), _) => {
                self.wrong(listen, "listen_proxy needs proxy_from, the networks that may connect to it")
            }
        }
    }

    fn agent(&self, raw: Spanned<RawAgent>) -> Option<Agent> {
        let line = self.line(&raw);
        let raw = raw.into_inner();
        let both = match (&raw.files, &raw.proxy) {
            (Some(_), Some(proxy)) => {
                self.wrong(proxy, "the agent serves either [agent.files] or [agent.proxy], not both")
            }
            (None, None) => self.note(line, "the agent has nothing to serve: add [agent.files] or [agent.proxy]"),
            _ => Some(()),
        };
        let files = raw.files.map(|files| {
            let root = self.path(&files.root);
            if self.is_real(&files.root) {
                let root = root.clone();
                self.later(move |file| load::files(file, &root, watari_files::Metrics::default()).map(drop));
            }
            Site::Files(root)
        });
        let proxy = raw.proxy.map(|proxy| self.proxy(proxy).map(|proxy| Site::Proxy(Box::new(proxy))));
        let (tls, sharing) = (self.tls(raw.certificate, raw.tls), self.sharing(&raw.sessions));
        let threads = self.threads(raw.threads);
        both?;
        Some(Agent {
            legs: raw.legs.into_inner().0,
            threads: threads?,
            tls: tls?,
            site: files.or(proxy.flatten())?,
            sharing: sharing?,
            limits: raw.limits,
        })
    }
}

/// The roles of a node with these tables.
pub(super) fn roles(dispatcher: bool, agent: bool) -> BTreeSet<Role> {
    let roles = [(dispatcher, Role::Dispatcher), (agent, Role::Agent)];
    roles.into_iter().filter(|(has, _)| *has).map(|(_, role)| role).collect()
}

fn policies(
    handshake: Option<HandshakePolicy>,
    bulk: Option<BulkPolicy>,
    rebalance: Rebalance,
    client_prefix: Option<Prefix>,
    slow_start: Option<Span>,
) -> Policies {
    let default = Policies::default();
    Policies {
        handshake: handshake.unwrap_or(default.handshake),
        bulk: bulk.unwrap_or(default.bulk),
        rebalance,
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
