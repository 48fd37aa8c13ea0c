//! The listeners of a node.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio_util::sync::CancellationToken;

use super::error::{NodeError, starting};
use super::upgrade::Predecessor;
use crate::admin::Server;
use crate::config::{Config, Dispatcher};

/// Connections that may wait to be accepted. The kernel lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

const REDIRECTED: &str = "clients to redirect";

/// Every listener of a node, bound, before its accept loop starts.
pub(super) struct Listeners {
    pub(super) mesh: tokio::net::TcpListener,
    /// For each address, one listener for each thread of the dispatcher.
    pub(super) clients: watari_dispatcher::Listeners,
    pub(super) redirect: Vec<(SocketAddr, tokio::net::TcpListener)>,
    pub(super) legs: Option<TcpListener>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) admin: Server,
    /// Whether that is the predecessor's.
    pub(super) has_admin: bool,
}

/// Listeners of this process's predecessor.
#[derive(Default)]
pub(super) struct Inherited {
    /// By address: those of several threads have the same.
    pub(super) tcp: BTreeMap<SocketAddr, Vec<TcpListener>>,
    /// With its path.
    pub(super) admin: Option<(PathBuf, OwnedFd)>,
}

impl Inherited {
    fn take(&mut self, address: SocketAddr) -> Option<TcpListener> {
        self.tcp.get_mut(&address).and_then(Vec::pop)
    }

    /// Listens where the predecessor does, and otherwise anew. For `moving`, see [`clients_at`].
    fn listen(&mut self, what: &'static str, address: SocketAddr, moving: &[IpAddr]) -> Result<TcpListener, NodeError> {
        self.take(address).map_or_else(|| listen(what, address, moving), Ok)
    }

    /// One listener for each thread. For `moving`, see [`clients_at`].
    fn group(
        &mut self,
        what: &'static str,
        address: SocketAddr,
        count: usize,
        moving: &[IpAddr],
    ) -> Result<Vec<TcpListener>, NodeError> {
        let failed = |cause| NodeError::Listen { what, address, cause };
        let Some(mut group) = self.tcp.remove(&address).filter(|group| !group.is_empty()) else {
            return bind_group(address, count, moving).map_err(failed);
        };
        // More threads than the predecessor has: some share a listener.
        for shared in 0..count.saturating_sub(group.len()) {
            group.push(group[shared].try_clone().map_err(failed)?);
        }
        Ok(group)
    }
}

impl Listeners {
    /// Takes those that are inherited, and binds all others, or reports the one that failed. Must be called in a tokio
    /// runtime.
    pub(super) fn bind(config: &Config, mut inherited: Inherited) -> Result<Self, NodeError> {
        let moving: Vec<_> = config.dispatcher.iter().flat_map(Dispatcher::moving_addresses).collect();
        let mut redirect = Vec::new();
        for address in config.dispatcher.iter().flat_map(|dispatcher| &dispatcher.redirect) {
            let listener = inherited.listen(REDIRECTED, *address, &moving)?;
            redirect.push((*address, to_tokio(REDIRECTED, *address, listener)?));
        }
        let mesh = inherited.listen("the mesh", config.node.mesh, &[])?;
        let (admin, has_admin) = match inherited.admin.take() {
            Some((path, socket)) if path == config.node.admin => (Server::inherit(socket, &path)?, true),
            _ => (Server::bind(&config.node.admin)?, false),
        };
        let clients = |dispatcher: &Dispatcher| {
            let threads = dispatcher.threads.get();
            each_clients(&dispatcher.clients_at(), |what, address| inherited.group(what, address, threads, &moving))
        };
        Ok(Self {
            clients: config.dispatcher.as_ref().map(clients).transpose()?.unwrap_or_default(),
            redirect,
            legs: config.agent.as_ref().map(|agent| inherited.listen("legs", agent.legs, &[])).transpose()?,
            mesh: to_tokio("the mesh", config.node.mesh, mesh)?,
            metrics: config.node.metrics.map(|address| inherited.listen("metrics", address, &[])).transpose()?,
            admin,
            has_admin,
        })
    }

    /// What a successor needs of this process, with handles of the listeners that no reload changes.
    /// `unlink` ends what a successor has instead.
    pub(super) fn predecessor(&self, unlink: CancellationToken) -> Result<Predecessor, NodeError> {
        let handles = || {
            let mesh = TcpListener::from(self.mesh.as_fd().try_clone_to_owned()?);
            let metrics = self.metrics.as_ref().map(TcpListener::try_clone).transpose()?;
            Ok(Predecessor::new([mesh].into_iter().chain(metrics).collect(), self.admin.handle()?, unlink))
        };
        handles().map_err(starting("listening"))
    }
}

fn to_tokio(
    what: &'static str,
    address: SocketAddr,
    listener: TcpListener,
) -> Result<tokio::net::TcpListener, NodeError> {
    tokio::net::TcpListener::from_std(listener).map_err(|cause| NodeError::Listen { what, address, cause })
}

/// Listens for clients and for relays of clients, at all of `addresses` or at none. Each address gets a listener for
/// each thread. Those at an address of `moving` do not need an interface that has it.
pub(super) fn clients_at(
    addresses: &watari_dispatcher::Listeners<SocketAddr>,
    threads: NonZeroUsize,
    moving: &[IpAddr],
) -> Result<watari_dispatcher::Listeners, NodeError> {
    each_clients(addresses, |what, address| {
        bind_group(address, threads.get(), moving).map_err(|cause| NodeError::Listen { what, address, cause })
    })
}

/// Calls `group` for each address.
fn each_clients(
    addresses: &watari_dispatcher::Listeners<SocketAddr>,
    mut group: impl FnMut(&'static str, SocketAddr) -> Result<Vec<TcpListener>, NodeError>,
) -> Result<watari_dispatcher::Listeners, NodeError> {
    let mut groups = |what, addresses: &[SocketAddr]| {
        addresses.iter().map(|address| group(what, *address)).collect::<Result<_, _>>()
    };
    Ok(watari_dispatcher::Listeners {
        clients: groups("clients", &addresses.clients)?,
        relays: groups("relays of clients", &addresses.relays)?,
    })
}

/// Listens for clients to redirect, at all of `addresses` or at none. For `moving`, see [`clients_at`]. Must be called
/// in a tokio runtime.
pub(super) fn redirects(
    addresses: impl IntoIterator<Item = SocketAddr>,
    moving: &[IpAddr],
) -> Result<Vec<(SocketAddr, tokio::net::TcpListener)>, NodeError> {
    let redirect = |address| Ok((address, to_tokio(REDIRECTED, address, listen(REDIRECTED, address, moving)?)?));
    addresses.into_iter().map(redirect).collect()
}

fn listen(what: &'static str, address: SocketAddr, moving: &[IpAddr]) -> Result<TcpListener, NodeError> {
    bind(address, moving).map_err(|cause| NodeError::Listen { what, address, cause })
}

/// Makes `count` listeners at one address, among which the system distributes the connections. When one is closed, the
/// system resets the connections in its queue, and later ones go to the others.
///
/// With `SO_REUSEPORT` alone, another process of the same user (such as a second start of this node) could join
/// unnoticed and get a share of the clients. So the first listener binds and listens exclusively, which fails if any
/// process listens there. Only then does it allow others. No process can bind in between, and a later exclusive bind
/// fails. A process of the same user that sets `SO_REUSEPORT` can still join; the system allows that.
fn bind_group(address: SocketAddr, count: usize, moving: &[IpAddr]) -> io::Result<Vec<TcpListener>> {
    let first = bind(address, moving)?;
    SockRef::from(&first).set_reuse_port(true)?;
    // The others need the same port if the system chose it.
    let address = first.local_addr()?;
    let further = (1..count).map(|_| {
        let socket = socket_for(address, moving)?;
        socket.set_reuse_port(true)?;
        listen_at(socket, address)
    });
    [Ok(first)].into_iter().chain(further).collect()
}

/// An IPv6 listener accepts no IPv4 connections, whatever the system's default is: the configuration names both.
fn bind(address: SocketAddr, moving: &[IpAddr]) -> io::Result<TcpListener> {
    listen_at(socket_for(address, moving)?, address)
}

fn socket_for(address: SocketAddr, moving: &[IpAddr]) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // No interface has the address while another node owns it (ip(7), `IP_FREEBIND`).
    match address {
        SocketAddr::V4(_) if moving.contains(&address.ip()) => socket.set_freebind_v4(true)?,
        SocketAddr::V6(_) if moving.contains(&address.ip()) => socket.set_freebind_v6(true)?,
        _ => {}
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn listen_at(socket: Socket, address: SocketAddr) -> io::Result<TcpListener> {
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use std::net::TcpStream;

    #[test]
    fn both_families_have_the_same_port() {
        let first = bind("[::]:0".parse().unwrap(), &[]).unwrap();
        let port = first.local_addr().unwrap().port();
        // Another process may hold the port of the other family. A collision with `first` would fail every time.
        let again = bind(SocketAddr::new("::".parse().unwrap(), port), &[]).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        if let Ok(second) = bind(SocketAddr::new("0.0.0.0".parse().unwrap(), port), &[]) {
            assert_eq!(second.local_addr().unwrap().port(), port);
        }
    }

    #[test]
    fn a_moving_address_needs_no_interface() {
        for address in ["203.0.113.1:0", "[2001:db8::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(bind(address, &[]).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
            assert_eq!(bind(address, &[address.ip()]).unwrap().local_addr().unwrap().ip(), address.ip());
        }
    }

    #[test]
    fn a_group_of_listeners_has_its_port_alone() {
        let group = bind_group("127.0.0.1:0".parse().unwrap(), 3, &[]).unwrap();
        let address = group[0].local_addr().unwrap();
        assert!(group.iter().all(|listener| listener.local_addr().unwrap() == address));
        for count in [1, 2] {
            assert_eq!(bind_group(address, count, &[]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        }
        assert_eq!(bind(address, &[]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(group);

        // Nor does it join a process that listens with `SO_REUSEPORT`.
        let other = socket_for(address, &[]).unwrap();
        other.set_reuse_port(true).unwrap();
        let _other = listen_at(other, address).unwrap();
        assert_eq!(bind_group(address, 2, &[]).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn every_listener_of_a_group_gets_its_share() {
        let group = bind_group("127.0.0.1:0".parse().unwrap(), 2, &[]).unwrap();
        let address = group[0].local_addr().unwrap();
        let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        let accepted = group.iter().map(|listener| std::iter::from_fn(|| listener.accept().ok()).count());
        let accepted: Vec<_> = accepted.collect();
        assert_eq!(accepted.iter().sum::<usize>(), clients.len());
        // A count below 20 has a probability of 1e-10.
        assert!(accepted.iter().all(|count| *count >= 20), "{accepted:?}");
    }

    #[test]
    fn an_address_in_use_is_named() {
        let taken = bind("127.0.0.1:0".parse().unwrap(), &[]).unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen("legs", address, &[]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for legs: Address already in use")), "{error}");
    }
}
