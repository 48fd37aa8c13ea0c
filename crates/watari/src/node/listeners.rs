//! Every socket that a node listens on.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::NodeError;
use crate::admin::Server;
use crate::config::Config;

/// Connections that may wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Every socket that a node listens on, bound and not yet accepted from.
pub(super) struct Listeners {
    pub(super) mesh: tokio::net::TcpListener,
    pub(super) clients: Vec<TcpListener>,
    pub(super) legs: Option<TcpListener>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) admin: Server,
}

impl Listeners {
    /// Binds all, or says which one cannot be had. Must be called in a tokio runtime.
    pub(super) fn bind(config: &Config) -> Result<Self, NodeError> {
        let clients = config.dispatcher.iter().flat_map(|dispatcher| &dispatcher.listen);
        let mesh_failed = |cause| NodeError::Listen { what: "the mesh", address: config.node.mesh, cause };
        Ok(Self {
            clients: clients.map(|address| listen("clients", *address)).collect::<Result<_, _>>()?,
            legs: config.agent.as_ref().map(|agent| listen("legs", agent.legs)).transpose()?,
            mesh: tokio::net::TcpListener::from_std(listen("the mesh", config.node.mesh)?).map_err(mesh_failed)?,
            metrics: config.node.metrics.map(|address| listen("metrics", address)).transpose()?,
            admin: Server::bind(&config.node.admin)?,
        })
    }
}

fn listen(what: &'static str, address: SocketAddr) -> Result<TcpListener, NodeError> {
    bind(address).map_err(|cause| NodeError::Listen { what, address, cause })
}

/// An IPv6 listener takes no IPv4 connections, whatever the system's default is: both are listened on by name.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn both_families_have_the_same_port() {
        let first = bind("[::]:0".parse().unwrap()).unwrap();
        let port = first.local_addr().unwrap().port();
        // Somebody else may hold the port of the other family; a collision with `first` would fail always.
        let again = bind(SocketAddr::new("::".parse().unwrap(), port)).unwrap_err();
        assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        if let Ok(second) = bind(SocketAddr::new("0.0.0.0".parse().unwrap(), port)) {
            assert_eq!(second.local_addr().unwrap().port(), port);
        }
    }

    #[test]
    fn an_address_in_use_is_named() {
        let taken = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = taken.local_addr().unwrap();
        let error = listen("legs", address).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot listen on {address} for legs: Address already in use")), "{error}");
    }
}
