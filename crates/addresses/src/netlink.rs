//! Addresses and states of interfaces, over rtnetlink.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt};
use ipnet::IpNet;
use rtnetlink::packet_core::NetlinkPayload;
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::address::{AddressAttribute, AddressFlags, AddressHeaderFlags, CacheInfo};
use rtnetlink::packet_route::link::{LinkFlags, LinkMessage};
use rtnetlink::packet_route::neighbour::{NeighbourFlags, NeighbourState};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope, RouteType};
use rtnetlink::{Error, Handle, MulticastGroup, RouteMessageBuilder};
use tokio::sync::watch;

/// `EADDRNOTAVAIL`: the interface does not have the address.
const NOT_AVAILABLE: i32 = 99;
/// `ESRCH`: there is no such route.
const NO_SUCH_ROUTE: i32 = 3;
/// The table of local routes.
const LOCAL_TABLE: u32 = 255;
/// `EEXIST`: there is an entry already.
const EXISTS: i32 = 17;

/// The interfaces of this machine.
#[derive(Clone)]
pub(crate) struct Netlink {
    handle: Handle,
    /// By index: whether the interface can carry packets.
    running: watch::Receiver<Arc<BTreeMap<u32, bool>>>,
}

/// An address that an interface has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PresentAddress {
    pub(crate) index: u32,
    pub(crate) address: IpAddr,
    pub(crate) prefix_len: u8,
    /// Whether it stays until it is removed. Those of Watari have a lifetime.
    pub(crate) is_permanent: bool,
}

impl Netlink {
    /// Opens the socket, and follows the states of interfaces. Must be called in a tokio runtime.
    pub(crate) async fn open() -> Result<Self, Error> {
        let opened = rtnetlink::new_multicast_connection(&[MulticastGroup::Link]);
        let (connection, handle, mut messages) = opened.map_err(|error| Error::NetlinkError(not_opened(&error)))?;
        tokio::spawn(connection);
        let mut states = BTreeMap::new();
        let mut links = handle.link().get().execute();
        while let Some(link) = links.try_next().await? {
            states.insert(link.header.index, is_running(&link));
        }
        let (sender, running) = watch::channel(Arc::new(states));
        tokio::spawn(async move {
            while let Some((message, _)) = messages.next().await {
                let (index, is_running) = match message.payload {
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => {
                        (link.header.index, is_running(&link))
                    }
                    NetlinkPayload::InnerMessage(RouteNetlinkMessage::DelLink(link)) => (link.header.index, false),
                    _ => continue,
                };
                sender.send_modify(|states| {
                    Arc::make_mut(states).insert(index, is_running);
                });
            }
        });
        Ok(Self { handle, running })
    }

    /// Whether the interface can carry packets.
    pub(crate) fn is_running(&self, index: u32) -> bool {
        self.running.borrow().get(&index).copied().unwrap_or(false)
    }

    /// Notified when the state of an interface changes.
    pub(crate) fn running(&self) -> watch::Receiver<Arc<BTreeMap<u32, bool>>> {
        self.running.clone()
    }

    /// For orders of other kinds.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// All addresses of all interfaces.
    pub(crate) async fn addresses(&self) -> Result<Vec<PresentAddress>, Error> {
        let mut found = Vec::new();
        let mut addresses = self.handle.address().get().execute();
        while let Some(message) = addresses.try_next().await? {
            // IPv4 has the interface's own address as `Local`, IPv6 as `Address`.
            let local = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let other = message.attributes.iter().find_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            let (index, prefix_len) = (message.header.index, message.header.prefix_len);
            let is_permanent = message.header.flags.contains(AddressHeaderFlags::Permanent);
            if let Some(address) = local.or(other) {
                found.push(PresentAddress { index, address, prefix_len, is_permanent });
            }
        }
        Ok(found)
    }

    /// Adds an address, or gives it the lifetime again. The kernel removes it when the lifetime has passed. It is not
    /// preferred as a source address, and the kernel does not check for duplicates.
    pub(crate) async fn add(&self, index: u32, address: IpNet, lifetime_s: u32) -> Result<(), Error> {
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len()).replace();
        let mut lifetime = CacheInfo::default();
        (lifetime.ifa_preferred, lifetime.ifa_valid) = (0, lifetime_s);
        let message = request.message_mut();
        message.attributes.push(AddressAttribute::CacheInfo(lifetime));
        message.attributes.push(AddressAttribute::Flags(AddressFlags::Nodad));
        request.execute().await
    }

    /// Has the kernel resolve the link-layer address of the next hop to `to`, unless the kernel has an entry for it. It
    /// asks from an address of the interface that is preferred as a source. Does not wait for the answer.
    pub(crate) async fn resolve(&self, to: IpAddr) -> Result<(), Error> {
        let len = if to.is_ipv4() { 32 } else { 128 };
        let question = RouteMessageBuilder::<IpAddr>::new().destination_prefix(to, len);
        let Ok(question) = question.map(RouteMessageBuilder::build) else { return Ok(()) };
        let mut routes = self.handle.route().get(question).execute();
        let Some(route) = routes.try_next().await? else { return Ok(()) };
        let (mut hop, mut index) = (to, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => hop = (*gateway).into(),
                RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => hop = (*gateway).into(),
                RouteAttribute::Oif(interface) => index = Some(*interface),
                _ => {}
            }
        }
        let Some(index) = index else { return Ok(()) };
        // Not of an existing entry: the order would make a permanent one temporary.
        let request = self.handle.neighbours().add(index, hop).state(NeighbourState::None).flags(NeighbourFlags::Use);
        match request.execute().await {
            Err(Error::NetlinkError(error)) if error.raw_code() == -EXISTS => Ok(()),
            done => done,
        }
    }

    /// Has packets to `address` come to this machine, whether an interface has the address or not.
    pub(crate) async fn add_local_route(&self, loopback: u32, address: IpAddr) -> Result<(), Error> {
        self.handle.route().add(local_route(loopback, address)).replace().execute().await
    }

    /// Ends that.
    pub(crate) async fn remove_local_route(&self, loopback: u32, address: IpAddr) -> Result<(), Error> {
        match self.handle.route().del(local_route(loopback, address)).execute().await {
            Err(Error::NetlinkError(error)) if error.raw_code() == -NO_SUCH_ROUTE => Ok(()),
            done => done,
        }
    }

    /// Removes an address, if the interface has it.
    pub(crate) async fn remove(&self, index: u32, address: IpNet) -> Result<(), Error> {
        let mut request = self.handle.address().add(index, address.addr(), address.prefix_len());
        let message = request.message_mut().clone();
        match self.handle.address().del(message).execute().await {
            Err(Error::NetlinkError(error)) if error.raw_code() == -NOT_AVAILABLE => Ok(()),
            done => done,
        }
    }
}

fn local_route(loopback: u32, address: IpAddr) -> RouteMessage {
    let len = if address.is_ipv4() { 32 } else { 128 };
    RouteMessageBuilder::<IpAddr>::new()
        .destination_prefix(address, len)
        .expect("a prefix as long as the address")
        .kind(RouteType::Local)
        .scope(RouteScope::Host)
        .table_id(LOCAL_TABLE)
        .output_interface(loopback)
        .build()
}

fn is_running(link: &LinkMessage) -> bool {
    link.header.flags.contains(LinkFlags::Up | LinkFlags::Running)
}

fn not_opened(error: &std::io::Error) -> rtnetlink::packet_core::ErrorMessage {
    let mut message = rtnetlink::packet_core::ErrorMessage::default();
    message.code = error.raw_os_error().and_then(|code| std::num::NonZeroI32::new(-code));
    message
}
