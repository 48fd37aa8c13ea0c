//! Checks of well-formed configurations.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::thread;

use ipnet::IpNet;
use watari_balance::{BulkPolicy, HandshakePolicy, HealthThresholds};
use watari_dispatcher::{Checks, PassthroughRule, Policies};
use watari_mesh::{Join, Peer};
use watari_values::setting::Span;

use super::raw::{RawAgent, RawChecks, RawConfig, RawDispatcher, RawNode, RawPassthrough, THREADS_MAX, line_of};
use super::spanned::{Spanned, Texts};
use super::value::{Address, FilePath, HostPattern, Network, Prefix, ProxyProtocol};
use super::{Agent, At, Config, Dispatcher, Log, Node, Outline, Site};

/// A certificate chain and its key.
pub(super) type IdentityFiles = (At<PathBuf>, At<PathBuf>);

/// A line and the description of its mistake.
pub(super) type Wrong = (usize, String);

/// Checks one file.
///
/// A method that returns an error has already noted all its other mistakes: see [`Check::note`] and [`Check::each`].
pub(super) struct Check<'a> {
    pub(super) file: &'a Path,
    pub(super) text: &'a str,
    mistakes: RefCell<Vec<Wrong>>,
}

impl<'a> Check<'a> {
    pub(super) fn new(file: &'a Path, text: &'a str) -> Self {
        Self { file, text, mistakes: RefCell::default() }
    }

    /// The configuration, or all mistakes in it, sorted by line.
    pub(super) fn all_of(self, raw: RawConfig) -> Result<Config, Vec<Wrong>> {
        let config = self.note(self.config(raw));
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort();
        mistakes.dedup();
        config.filter(|_| mistakes.is_empty()).ok_or(mistakes)
    }

    /// Notes a mistake, so that the check can continue and find others.
    pub(super) fn note<T>(&self, result: Result<T, Wrong>) -> Option<T> {
        result.map_err(|wrong| self.mistakes.borrow_mut().push(wrong)).ok()
    }

    /// Collects all values, or returns the last error and notes the others.
    pub(super) fn each<T>(&self, results: impl IntoIterator<Item = Result<T, Wrong>>) -> Result<Vec<T>, Wrong> {
        let (mut values, mut wrong) = (Vec::new(), None);
        for result in results {
            match result {
                Ok(value) => values.push(value),
                Err(error) => {
                    if let Some(earlier) = wrong.replace(error) {
                        self.note(Err::<T, _>(earlier));
                    }
                }
            }
        }
        wrong.map_or(Ok(values), Err)
    }

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
            file: self.file.to_owned(),
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

    /// The last mistake that was noted, or a general one if there is none.
    fn noted(&self) -> Wrong {
        let noted = self.mistakes.borrow_mut().pop();
        noted.unwrap_or_else(|| (1, "the configuration cannot be used".to_owned()))
    }

    fn addresses(&self, raw: &[Spanned<String>]) -> Result<Vec<SocketAddr>, Wrong> {
        self.each(raw.iter().map(|address| Ok(self.element::<Address>(address)?.0)))
    }

    /// Parses an element of an array.
    pub(super) fn element<T: TryFrom<String, Error = String>>(&self, text: &Spanned<String>) -> Result<T, Wrong> {
        T::try_from(text.get_ref().clone()).map_err(|sentence| (self.line(text), sentence))
    }

    /// Refuses a value that occurred before.
    pub(super) fn once<T: Ord + Clone + std::fmt::Display>(
        &self,
        seen: &mut BTreeMap<T, usize>,
        value: &Spanned<T>,
        what: &str,
    ) -> Result<(), Wrong> {
        match seen.insert(value.get_ref().clone(), self.line(value)) {
            Some(line) => {
                self.wrong(value, format!("{what} {} is listed twice, first on line {line}", value.get_ref()))
            }
            None => Ok(()),
        }
    }

    pub(super) fn once_at(
        &self,
        seen: &mut BTreeMap<SocketAddr, usize>,
        address: &Spanned<Address>,
    ) -> Result<(), Wrong> {
        match seen.insert(address.get_ref().0, self.line(address)) {
            Some(line) => self
                .wrong(address, format!("the address {} is listed twice, first on line {line}", address.get_ref().0)),
            None => Ok(()),
        }
    }

    pub(super) fn wrong<T, V>(&self, what: &Spanned<V>, sentence: impl Into<String>) -> Result<T, Wrong> {
        Err((self.line(what), sentence.into()))
    }

    pub(super) fn line<T>(&self, value: &Spanned<T>) -> usize {
        line_of(self.text, value.span().start)
    }

    pub(super) fn at<T>(&self, value: Spanned<T>) -> At<T> {
        At { line: self.line(&value), value: value.into_inner() }
    }

    /// A certificate and its key, if the file names them.
    pub(super) fn identity(
        &self,
        certificate: Option<&Spanned<FilePath>>,
        key: Option<&Spanned<FilePath>>,
    ) -> Result<Option<IdentityFiles>, Wrong> {
        match (certificate, key) {
            (Some(certificate), Some(key)) => Ok(Some((self.path(certificate), self.path(key)))),
            (None, None) => Ok(None),
            (Some(alone), None) | (None, Some(alone)) => self.wrong(alone, "set both the certificate and its key"),
        }
    }

    pub(super) fn path(&self, value: &Spanned<FilePath>) -> At<PathBuf> {
        At { line: self.line(value), value: self.resolve(&value.get_ref().0) }
    }

    fn resolve(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
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
