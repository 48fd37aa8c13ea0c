//! The gate: a packet filter in the kernel that lets packets from a service address out only while its lease lasts.
//!
//! The kernel compares the time limit of a lease for every packet, so a process that is killed, stopped or starved
//! cannot keep an address. A process that stands still between reading its clock and its order to the kernel must not
//! open the gate late. So [`Gate::open`] works in three steps:
//!
//! 1. It puts an element with a time limit of 20 ms into the set `fresh`.
//! 2. It reads the clock, and computes how long the lease still lasts.
//! 3. In one transaction, it takes that element out of `fresh` and opens the gate for this time. The kernel refuses the
//!    whole transaction if the element is there no more.
//!
//! So the kernel carries out the order at most 20 ms, and a tick of its own, after the clock was read
//! ([`GATE_SLACK`](watari_takeover::GATE_SLACK)).
//!
//! # Flows that change machines
//! In a planned switch, flows move to the next owner one by one, before the address does ([`Flow`]). At the owner,
//! [`Gate::send_away`] forwards their packets, and drops what this machine would answer. At the next owner,
//! [`Gate::expect`] and [`Gate::let_in`] let packets of these flows out, and nothing else from the address. All of it
//! ends by time limits in the kernel, and when the gate opens by [`Gate::open_first`].

mod batch;
mod expressions;
mod flows;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use watari_takeover::Time;

use batch::Batch;
use flows::{AwayMacs, Elements};
pub use flows::{FLOWS_MAX, Flow};
use rules::AddressSet;

use crate::link::{Interface, InterfaceError};
use crate::packets::Mac;

/// The longest time limit of a flow.
const TTL_MAX: Duration = Duration::from_hours(1);
/// The longest time between the two orders of [`Gate::open`]. Part of [`GATE_SLACK`](watari_takeover::GATE_SLACK).
const FRESH_MS: u64 = 20;
/// Attempts of [`Gate::open`], if the machine is busy.
const ATTEMPTS: usize = 10;
/// How long the kernel may take for an order. Another program may change a large rule set at the same time.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// An order for the gate failed.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    #[error("cannot make a netlink socket for nf_tables: {0}")]
    Socket(io::Error),
    #[error(
        "nf_tables of the kernel refuse {what}: {cause} (needed: CAP_NET_ADMIN, and Linux 5.16 with \
         NF_TABLES_INET and NF_TABLES_NETDEV)"
    )]
    Refused { what: &'static str, cause: io::Error },
    #[error("the kernel did not answer an order for nf_tables within 5 s")]
    NoAnswer,
    #[error("the machine is too busy to open the gate of an address within {FRESH_MS} ms")]
    TooSlow,
    #[error("the lease ended before the gate of the address was open")]
    LeaseOver,
    #[error("a new process of the node has the gates")]
    Retired,
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    #[error("{0} is not a flow of a service address of this node")]
    ForeignFlow(Flow),
    #[error("{0} is no service address of this node")]
    ForeignAddress(IpAddr),
    #[error("{0} flows in one order, at most {FLOWS_MAX} are possible")]
    TooManyFlows(usize),
}

impl GateError {
    /// The kernel does not have a table, a set or an element.
    fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
    }

    /// An element of a map exists with another value.
    fn is_other_value(&self) -> bool {
        let codes = [Errno::EXIST, Errno::BUSY].map(|code| Some(code.raw_os_error()));
        matches!(self, Self::Refused { cause, .. } if codes.contains(&cause.raw_os_error()))
    }
}

/// The tables of this node in `nf_tables`. They stay if the process ends without [`Gate::remove`], and are closed then.
pub struct Gate {
    socket: OwnedFd,
    /// The number of the last message.
    last: u32,
    addresses: Vec<IpAddr>,
    interfaces: Vec<String>,
    /// Until when addresses have flows that are away.
    shared_until: BTreeMap<IpAddr, Instant>,
    away: AwayMacs,
    is_retired: bool,
}

impl Gate {
    /// Makes the tables for these service addresses, which replace those of an earlier process. All gates are closed.
    /// `interfaces` have the addresses.
    pub fn make(addresses: Vec<IpAddr>, interfaces: Vec<String>) -> Result<Self, GateError> {
        let mut gate = Self::connect(addresses, interfaces)?;
        gate.make_tables()?;
        Ok(gate)
    }

    /// Takes over the tables of another process of this node, which has the same addresses and interfaces. Gates that
    /// are open stay so, unless the process was of a version with other tables.
    pub fn take_over(addresses: Vec<IpAddr>, interfaces: Vec<String>) -> Result<Self, GateError> {
        let mut gate = Self::connect(addresses, interfaces)?;
        let mut batch = Batch::new(gate.last);
        // An address that changes nothing.
        rules::begin_ownership(&mut batch, Ipv4Addr::UNSPECIFIED.into());
        match gate.commit(batch, "the tables of the previous process") {
            Err(error) if error.is_not_found() => gate.make_tables()?,
            done => done?,
        }
        Ok(gate)
    }

    fn connect(addresses: Vec<IpAddr>, interfaces: Vec<String>) -> Result<Self, GateError> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER));
        let socket = socket.map_err(|error| GateError::Socket(error.into()))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))
            .map_err(|error| GateError::Socket(error.into()))?;
        Ok(Self {
            socket,
            last: 0,
            addresses,
            interfaces,
            shared_until: BTreeMap::new(),
            away: AwayMacs::default(),
            is_retired: false,
        })
    }

    /// From now on, another process has the tables, and all orders fail here.
    pub fn retire(&mut self) {
        self.is_retired = true;
    }

    fn make_tables(&mut self) -> Result<(), GateError> {
        let mac = |name: &String| Ok((name.clone(), Interface::find(name)?.mac));
        let interfaces = self.interfaces.iter().map(mac).collect::<Result<Vec<_>, InterfaceError>>()?;
        let mut batch = Batch::new(self.last);
        rules::make(&mut batch, &self.addresses, &interfaces);
        self.commit(batch, "the tables of the gate")
    }

    /// Lets packets from `address` out until the time `until`, by the clock `now`.
    pub fn open(&mut self, address: IpAddr, until: Time, now: impl Fn() -> Time) -> Result<(), GateError> {
        self.open_with(address, until, now, |_| ())
    }

    /// As [`open`](Self::open), for an address that this node has not owned until now. No flow of the address is at
    /// another dispatcher any more, and flows that have arrived need no exception.
    pub fn open_first(&mut self, address: IpAddr, until: Time, now: impl Fn() -> Time) -> Result<(), GateError> {
        self.open_with(address, until, now, |batch| rules::begin_ownership(batch, address))?;
        self.shared_until.remove(&address);
        Ok(())
    }

    fn open_with(
        &mut self,
        address: IpAddr,
        until: Time,
        now: impl Fn() -> Time,
        further: impl Fn(&mut Batch),
    ) -> Result<(), GateError> {
        for _ in 0..ATTEMPTS {
            match self.try_to_open(address, until, &now, &further) {
                // The element of step 1 has expired, or another program has removed the tables.
                Err(error) if error.is_not_found() => {
                    if self.note_freshness().is_err() {
                        self.make_tables_again()?;
                    }
                }
                done => return done,
            }
        }
        Err(GateError::TooSlow)
    }

    fn try_to_open(
        &mut self,
        address: IpAddr,
        until: Time,
        now: impl Fn() -> Time,
        further: impl Fn(&mut Batch),
    ) -> Result<(), GateError> {
        self.note_freshness()?;
        let left = until.saturating_sub(now());
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if ms == 0 {
            return Err(GateError::LeaseOver);
        }
        let mut batch = Batch::new(self.last);
        rules::spend_freshness(&mut batch);
        rules::put(&mut batch, AddressSet::Lease, address, Some(ms));
        further(&mut batch);
        self.commit(batch, "to open a gate")
    }

    fn make_tables_again(&mut self) -> Result<(), GateError> {
        tracing::warn!("another program has removed the nf_tables tables of watari: making them again");
        self.shared_until.clear();
        self.make_tables()
    }

    fn note_freshness(&mut self) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::note_freshness(&mut batch, FRESH_MS);
        self.commit(batch, "to note the time")
    }

    /// Lets no packets from `address` out. Flows that are away stay so.
    pub fn close(&mut self, address: IpAddr) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::put(&mut batch, AddressSet::Lease, address, None);
        rules::put(&mut batch, AddressSet::Expected, address, None);
        match self.commit(batch, "to close a gate") {
            // New tables are closed.
            Err(error) if error.is_not_found() => self.make_tables_again(),
            done => done,
        }
    }

    /// Closes the gate of `address`, except for flows that are let in, for this time. From now on, no flow of it is away:
    /// its owner may send flows back here that this machine has sent away before, and their packets would go back and
    /// forth for ever.
    pub fn expect(&mut self, address: IpAddr, ttl: Duration) -> Result<(), GateError> {
        match self.try_to_expect(address, ttl) {
            Err(error) if error.is_not_found() => {
                self.make_tables_again()?;
                self.try_to_expect(address, ttl)
            }
            done => done,
        }
    }

    fn try_to_expect(&mut self, address: IpAddr, ttl: Duration) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::put(&mut batch, AddressSet::Lease, address, None);
        rules::put(&mut batch, AddressSet::Shared, address, None);
        rules::put(&mut batch, AddressSet::Expected, address, Some(millis(ttl)));
        self.commit(batch, "to expect flows of an address")?;
        self.shared_until.remove(&address);
        Ok(())
    }

    /// From now on, the dispatcher with this link-layer address has the flows, for this time: their packets are
    /// forwarded to it, and this machine sends none. The time must be longer than the rest of the switch: after it, this
    /// machine resets the flows if it still has the address. Flows that are away already get this dispatcher and time.
    pub fn send_away(&mut self, flows: &[Flow], mac: Mac, ttl: Duration) -> Result<(), GateError> {
        let (flows, ms, now) = (self.own(flows)?, millis(ttl), Instant::now());
        let until = now + Duration::from_millis(ms);
        let mut shared_until = BTreeMap::new();
        for address in flows.iter().map(|flow| flow.server.ip()) {
            let earlier = self.shared_until.get(&address).copied().unwrap_or(until);
            shared_until.insert(address, earlier.max(until));
        }
        self.commit_flows(&flows, "to send flows away", |batch, elements| {
            elements.put_away(batch, mac, ms);
            elements.put_arrived(batch, None);
            for (address, until) in &shared_until {
                let ms = millis(until.saturating_duration_since(now));
                rules::put(batch, AddressSet::Shared, *address, Some(ms));
            }
        })?;
        self.shared_until.extend(shared_until);
        self.away.note(&flows, mac, now, until);
        Ok(())
    }

    /// This machine has the flows again. Flows that are not away stay as they are.
    pub fn bring_back(&mut self, flows: &[Flow]) -> Result<(), GateError> {
        let flows = self.own(flows)?;
        self.commit_flows(&flows, "to bring flows back", |batch, elements| elements.end_away(batch))?;
        self.away.forget(&flows);
        Ok(())
    }

    /// Lets packets of the flows out for this time, and as long as their address is expected
    /// ([`expect`](Self::expect)). They are not away any more.
    pub fn let_in(&mut self, flows: &[Flow], ttl: Duration) -> Result<(), GateError> {
        let (flows, ms) = (self.own(flows)?, millis(ttl));
        self.commit_flows(&flows, "to let flows in", |batch, elements| {
            elements.end_away(batch);
            elements.put_arrived(batch, Some(ms));
        })?;
        self.away.forget(&flows);
        Ok(())
    }

    /// Lets no packets of the flows out any more, unless this node owns the address.
    pub fn forget(&mut self, flows: &[Flow]) -> Result<(), GateError> {
        let flows = self.own(flows)?;
        self.commit_flows(&flows, "to forget flows", |batch, elements| elements.put_arrived(batch, None))
    }

    /// Drops the first segments (SYN) of new connections to `address` for this time, or until this node becomes its
    /// owner. The clients repeat them.
    pub fn close_to_new(&mut self, address: IpAddr, ttl: Duration) -> Result<(), GateError> {
        if !self.addresses.contains(&address) {
            return Err(GateError::ForeignAddress(address));
        }
        let mut batch = Batch::new(self.last);
        rules::put(&mut batch, AddressSet::Closing, address, Some(millis(ttl)));
        self.commit(batch, "to close an address to new connections")
    }

    /// Ends [`close_to_new`](Self::close_to_new).
    pub fn open_to_new(&mut self, address: IpAddr) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::put(&mut batch, AddressSet::Closing, address, None);
        self.commit(batch, "to open an address to new connections")
    }

    /// The flows, each once, if all are of service addresses of this node.
    fn own(&self, flows: &[Flow]) -> Result<BTreeSet<Flow>, GateError> {
        if flows.len() > FLOWS_MAX {
            return Err(GateError::TooManyFlows(flows.len()));
        }
        let flows: BTreeSet<Flow> = flows.iter().map(|flow| flow.plain()).collect();
        let is_own =
            |flow: &Flow| self.addresses.contains(&flow.server.ip()) && flow.server.is_ipv4() == flow.client.is_ipv4();
        match flows.iter().find(|flow| !is_own(flow)) {
            Some(foreign) => Err(GateError::ForeignFlow(*foreign)),
            None => Ok(flows),
        }
    }

    /// Commits a transaction that replaces or deletes elements of flows. The kernel refuses to replace an element that
    /// an earlier process has made with another value. Such elements are deleted first, in transactions of their own.
    /// Then the flows are not forwarded for a moment, and this machine still sends nothing for them.
    fn commit_flows(
        &mut self,
        flows: &BTreeSet<Flow>,
        what: &'static str,
        fill: impl Fn(&mut Batch, &Elements),
    ) -> Result<(), GateError> {
        let elements = Elements::of(flows, &self.away);
        let mut batch = Batch::new(self.last);
        fill(&mut batch, &elements);
        match self.commit(batch, what) {
            Err(error) if error.is_other_value() => {}
            done => return done,
        }
        for delete in elements.each_away() {
            let mut batch = Batch::new(self.last);
            delete(&mut batch);
            match self.commit(batch, what) {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
        self.away.forget(flows);
        let mut batch = Batch::new(self.last);
        fill(&mut batch, &Elements::of(flows, &self.away));
        self.commit(batch, what)
    }

    /// Removes the tables. The interfaces must not have the addresses any more.
    pub fn remove(&mut self) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::remove(&mut batch);
        self.commit(batch, "to remove the tables")
    }

    /// Sends a transaction, and waits until the kernel has answered each message.
    fn commit(&mut self, batch: Batch, what: &'static str) -> Result<(), GateError> {
        if self.is_retired {
            return Err(GateError::Retired);
        }
        let (bytes, numbers) = batch.finish();
        if numbers.is_empty() {
            return Ok(());
        }
        self.last = *numbers.end() + 1;
        let refused = |cause: Errno| GateError::Refused { what, cause: cause.into() };
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).map_err(refused)?;
        let mut error = None;
        let mut buffer = vec![0; 32 << 10];
        loop {
            let len = match recv(&self.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, len)) => len.min(buffer.len()),
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(GateError::NoAnswer),
                Err(cause) => return Err(refused(cause)),
            };
            for (number, code) in answers(&buffer[..len]) {
                if code != 0 && error.is_none() {
                    error = Some(Errno::from_raw_os_error(code));
                }
                if number == *numbers.end() {
                    return error.map_or(Ok(()), |cause| Err(refused(cause)));
                }
            }
        }
    }
}

/// A time limit for the kernel. 0 would be none.
fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.min(TTL_MAX).as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The numbers of answered messages, with the error or 0 of each (`nlmsgerr`).
fn answers(mut bytes: &[u8]) -> Vec<(u32, i32)> {
    const ERROR: u16 = 2;
    let mut answers = Vec::new();
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        let len = u32::from_ne_bytes(*len) as usize;
        let (Some(kind), Some(number)) = (rest.first_chunk::<2>(), rest.get(4..8)) else { break };
        if let (ERROR, Some(code), Ok(number)) = (u16::from_ne_bytes(*kind), rest.get(12..16), number.try_into()) {
            let code = i32::from_ne_bytes(code.try_into().expect("four bytes"));
            answers.push((u32::from_ne_bytes(number), code.saturating_neg()));
        }
        match bytes.get(len.max(16).next_multiple_of(4)..) {
            Some(next) => bytes = next,
            None => break,
        }
    }
    answers
}

#[cfg(test)]
mod tests;
