//! Flows that change machines before their address does: what the node orders.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use watari_takeover::{OwnershipRole, Time};

use super::{Addresses, CHANGE_MAX, Entry, Shared};
use crate::clock;
use crate::gate::{Flow, Gate, GateError};
use crate::hold::Holder;
use crate::keeper::{Silence, Wanted};
use crate::link::Interface;
use crate::lock;
use crate::packets::Mac;

/// How long an address stays silently on its interface after [`Addresses::expect`], unless this node becomes its owner.
pub const EXPECT_MAX: Duration = Duration::from_secs(10);

/// How long packets of a flow are held at most.
pub const HOLD_MAX: Duration = EXPECT_MAX;

/// This node cannot expect flows of an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExpectError {
    #[error("this node is no candidate for {0}")]
    UnknownAddress(IpAddr),
    #[error("this node owns {0} already")]
    Owner(IpAddr),
    #[error("this node is about to get or to leave {0}")]
    Changing(IpAddr),
    #[error("this node cannot serve clients at {0}: its interface is down, or it has no available agent")]
    NotReady(IpAddr),
    #[error("the system refused to add {0} to its interface: see the log")]
    SystemRefused(IpAddr),
    #[error("this node ends, or a new process of it has its addresses")]
    Ending,
}

/// An order for flows failed. The flows are as before.
#[derive(Debug, thiserror::Error)]
pub enum FlowsError {
    #[error("this node is no candidate for service addresses")]
    NoCandidate,
    #[error("this node neither owns {0} nor expects flows of it")]
    NotExpected(IpAddr),
    #[error(transparent)]
    Gate(#[from] GateError),
    #[error("the thread of the gate has failed")]
    Panicked,
    #[error("cannot hold or deliver packets: {0}")]
    Packets(io::Error),
}

/// Orders for single flows, whose dispatcher is another one than the owner of their address for a while. Clones share
/// the gate. Each order is one transaction in the kernel, for at most [`FLOWS_MAX`](crate::FLOWS_MAX) flows: it has its
/// effect for all flows or for none. Orders for flows that are there already, or are gone, succeed.
#[derive(Clone)]
pub struct Flows {
    shared: Arc<Shared>,
}

impl Addresses {
    /// Orders for single flows.
    pub fn flows(&self) -> Flows {
        Flows { shared: self.shared.clone() }
    }

    /// Puts `address` silently on its interface, for [`EXPECT_MAX`], or for as long again if it is there. Only packets of
    /// flows that are let in leave the machine then ([`Flows::let_in`]). The address stays if this node becomes its
    /// owner before. Returns the link-layer address of the interface, for [`Flows::send_away`] at the owner.
    pub async fn expect(&self, address: IpAddr) -> Result<Mac, ExpectError> {
        let entry = self.shared.entry(address).ok_or(ExpectError::UnknownAddress(address))?;
        let mut silence = entry.silence.subscribe();
        let until = self.shared.want_silence(entry)?;
        let is_done = |silence: &Silence| match *silence {
            Silence::No => false,
            Silence::Until(time) | Silence::Refused(time) => time >= until,
        };
        match timeout(CHANGE_MAX, silence.wait_for(is_done)).await {
            Ok(Ok(silence)) if matches!(*silence, Silence::Until(_)) => Ok(entry.interface.mac),
            Ok(_) => Err(ExpectError::SystemRefused(address)),
            // This node has become the owner meanwhile, or the kernel is slow.
            Err(_) => Err(ExpectError::Changing(address)),
        }
    }
}

impl Flows {
    /// At the owner: the flows are at the dispatcher with this link-layer address, on the same link. Their packets are
    /// forwarded to it, and this machine sends none.
    ///
    /// All of that ends after `ttl`. The kernel of this machine would then answer with RST, if the client still sends
    /// here. So `ttl` has to cover the rest of the switch, and the time in which clients learn the new link-layer
    /// address: a minute. A later order for the flows replaces the dispatcher and the time.
    pub async fn send_away(&self, flows: &[Flow], mac: Mac, ttl: Duration) -> Result<(), FlowsError> {
        let flows = flows.to_vec();
        self.with_gate(move |gate| gate.send_away(&flows, mac, ttl)).await
    }

    /// At the owner: this machine has the flows again.
    pub async fn bring_back(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let flows = flows.to_vec();
        self.with_gate(move |gate| gate.bring_back(&flows)).await
    }

    /// At the next owner: lets packets of the flows out for `ttl`, and at most as long as the address is expected. The
    /// owner must have sent them away before. The next hops of the flows are resolved meanwhile.
    pub async fn let_in(&self, flows: &[Flow], ttl: Duration) -> Result<(), FlowsError> {
        let flows = plain(flows);
        self.check_expected(&flows)?;
        self.resolve(&flows).await;
        self.with_gate(move |gate| gate.let_in(&flows, ttl)).await
    }

    /// At the next owner: lets no packets of the flows out any more, unless it owns their address, and drops packets that
    /// are held.
    pub async fn forget(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let (flows, holder) = (plain(flows), self.shared.holder.clone());
        self.with_gate(move |gate| {
            lock(&holder).forget(&flows);
            gate.forget(&flows)
        })
        .await
    }

    /// At the next owner: stores the packets of the flows that arrive from now on, for [`deliver`](Self::deliver), and
    /// for [`HOLD_MAX`] at most. To be called before the owner sends the flows away. The next hops of the flows are
    /// resolved meanwhile.
    ///
    /// Without it, the kernel drops the packets until the connections are released, and the clients repeat them.
    pub async fn hold(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let mut by_interface: BTreeMap<u32, (Interface, Vec<Flow>)> = BTreeMap::new();
        for flow in plain(flows) {
            let entry = self.shared.entry(flow.server.ip()).ok_or(GateError::ForeignFlow(flow))?;
            let group = by_interface.entry(entry.interface.index);
            group.or_insert_with(|| (entry.interface.clone(), Vec::new())).1.push(flow);
        }
        self.with_holder(move |holder| {
            let until = Instant::now() + HOLD_MAX;
            by_interface.values().try_for_each(|(interface, flows)| holder.hold(interface, flows, until))
        })
        .await?;
        let shared = self.shared.clone();
        self.shared.spawn(async move {
            sleep(HOLD_MAX).await;
            lock(&shared.holder).end_in_time();
        });
        self.resolve(flows).await;
        Ok(())
    }

    /// At the next owner, after the connections are released: delivers the packets that are held to their sockets, in
    /// the order of their arrival. Returns their number. It succeeds for flows that are not held.
    pub async fn deliver(&self, flows: &[Flow]) -> Result<usize, FlowsError> {
        let flows = plain(flows);
        self.with_holder(move |holder| holder.deliver(&flows)).await
    }

    /// At the owner: drops the first segments of new connections to `address`, for `ttl`. Their clients repeat them, and
    /// the next owner answers. It ends when this node becomes the owner again.
    pub async fn close_to_new(&self, address: IpAddr, ttl: Duration) -> Result<(), FlowsError> {
        self.with_gate(move |gate| gate.close_to_new(address, ttl)).await
    }

    /// At the owner: new connections to `address` are answered again ([`close_to_new`](Self::close_to_new)).
    pub async fn open_to_new(&self, address: IpAddr) -> Result<(), FlowsError> {
        self.with_gate(move |gate| gate.open_to_new(address)).await
    }

    async fn with_holder<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut Holder) -> io::Result<T> + Send + 'static,
    ) -> Result<T, FlowsError> {
        let holder = self.shared.holder.clone();
        let done = spawn_blocking(move || order(&mut lock(&holder))).await;
        done.map_err(|_| FlowsError::Panicked)?.map_err(FlowsError::Packets)
    }

    async fn with_gate(
        &self,
        order: impl FnOnce(&mut Gate) -> Result<(), GateError> + Send + 'static,
    ) -> Result<(), FlowsError> {
        let gate = self.shared.gate.clone().ok_or(FlowsError::NoCandidate)?;
        let done = spawn_blocking(move || order(&mut lock(&gate))).await;
        Ok(done.map_err(|_| FlowsError::Panicked)??)
    }

    fn check_expected(&self, flows: &[Flow]) -> Result<(), FlowsError> {
        let addresses: BTreeSet<IpAddr> = flows.iter().map(|flow| flow.server.ip()).collect();
        for address in addresses {
            let wanted = self.shared.entry(address).map_or(Wanted::Absent, |entry| *entry.wanted.borrow());
            match wanted {
                Wanted::Silent { until } | Wanted::Present { until } if until > clock::now() => {}
                _ => return Err(FlowsError::NotExpected(address)),
            }
        }
        Ok(())
    }

    /// Has the kernel resolve the next hops to the clients. It would name the service address as the source of its
    /// requests otherwise, and the gate drops those.
    async fn resolve(&self, flows: &[Flow]) {
        let Some(netlink) = &self.shared.netlink else { return };
        let clients: BTreeSet<IpAddr> = flows.iter().map(|flow| flow.client.ip()).collect();
        for (client, done) in clients.iter().zip(join_all(clients.iter().map(|client| netlink.resolve(*client))).await)
        {
            if let Err(error) = done {
                tracing::debug!(%client, %error, "cannot resolve the next hop to a client");
            }
        }
    }
}

fn plain(flows: &[Flow]) -> Vec<Flow> {
    flows.iter().map(|flow| flow.plain()).collect()
}

impl Shared {
    pub(super) fn entry(&self, address: IpAddr) -> Option<&Entry> {
        self.candidates.iter().find(|entry| entry.service.address.addr() == address)
    }

    /// Has the keeper add the address silently. Returns until when.
    fn want_silence(&self, entry: &Entry) -> Result<Time, ExpectError> {
        let address = entry.service.address.addr();
        // Orders of the candidate are carried out under this lock.
        let machine = entry.machine();
        if self.is_passed.load(Ordering::SeqCst) || self.is_ending.load(Ordering::SeqCst) {
            return Err(ExpectError::Ending);
        }
        let now = clock::now();
        let status = machine.status(now);
        match status.role {
            OwnershipRole::Standby if status.ready => {}
            OwnershipRole::Standby => return Err(ExpectError::NotReady(address)),
            OwnershipRole::Active => return Err(ExpectError::Owner(address)),
            OwnershipRole::Asking | OwnershipRole::Leaving => return Err(ExpectError::Changing(address)),
        }
        let until = now + EXPECT_MAX;
        entry.wanted.send_replace(Wanted::Silent { until });
        Ok(until)
    }

    /// Has the keepers remove the addresses that are there silently.
    pub(super) fn end_silences(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        for entry in &self.candidates {
            let _machine = entry.machine();
            entry.wanted.send_if_modified(|wanted| {
                let is_silent = matches!(wanted, Wanted::Silent { .. });
                if is_silent {
                    *wanted = Wanted::Absent;
                }
                is_silent
            });
        }
    }
}
