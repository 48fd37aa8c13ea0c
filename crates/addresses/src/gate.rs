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

mod batch;
mod rules;

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};
use watari_takeover::Time;

use batch::Batch;

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
}

/// The tables of this node in `nf_tables`. They stay if the process ends without [`Gate::remove`], and are closed then.
pub struct Gate {
    socket: OwnedFd,
    /// The number of the last message.
    last: u32,
    addresses: Vec<IpAddr>,
    interfaces: Vec<String>,
    is_retired: bool,
}

impl Gate {
    /// Makes the tables for these service addresses, which replace those of an earlier process. All gates are closed.
    /// `interfaces` have the addresses.
    pub fn make(addresses: Vec<IpAddr>, interfaces: Vec<String>) -> Result<Self, GateError> {
        let mut gate = Self::take_over(addresses, interfaces)?;
        gate.make_tables()?;
        Ok(gate)
    }

    /// Takes over the tables of another process of this node, which has the same addresses and interfaces. Gates that
    /// are open stay so.
    pub fn take_over(addresses: Vec<IpAddr>, interfaces: Vec<String>) -> Result<Self, GateError> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(netlink::NETFILTER));
        let socket = socket.map_err(|error| GateError::Socket(error.into()))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_MAX))
            .map_err(|error| GateError::Socket(error.into()))?;
        Ok(Self { socket, last: 0, addresses, interfaces, is_retired: false })
    }

    /// From now on, another process has the tables, and all orders fail here.
    pub fn retire(&mut self) {
        self.is_retired = true;
    }

    fn make_tables(&mut self) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        let interfaces: Vec<_> = self.interfaces.iter().map(String::as_str).collect();
        rules::make(&mut batch, &self.addresses, &interfaces);
        self.commit(batch, "the tables of the gate")
    }

    /// Lets packets from `address` out until the time `until`, by the clock `now`.
    pub fn open(&mut self, address: IpAddr, until: Time, now: impl Fn() -> Time) -> Result<(), GateError> {
        for _ in 0..ATTEMPTS {
            match self.try_to_open(address, until, &now) {
                // The element of step 1 has expired, or another program has removed the tables.
                Err(GateError::Refused { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                    if self.note_freshness().is_err() {
                        tracing::warn!("another program has removed the nf_tables tables of watari: making them again");
                        self.make_tables()?;
                    }
                }
                done => return done,
            }
        }
        Err(GateError::TooSlow)
    }

    fn try_to_open(&mut self, address: IpAddr, until: Time, now: impl Fn() -> Time) -> Result<(), GateError> {
        self.note_freshness()?;
        let left = until.saturating_sub(now());
        let ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        if ms == 0 {
            return Err(GateError::LeaseOver);
        }
        let mut batch = Batch::new(self.last);
        rules::spend_freshness(&mut batch);
        rules::lease(&mut batch, address, Some(ms));
        self.commit(batch, "to open a gate")
    }

    fn note_freshness(&mut self) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::note_freshness(&mut batch, FRESH_MS);
        self.commit(batch, "to note the time")
    }

    /// Lets no packets from `address` out.
    pub fn close(&mut self, address: IpAddr) -> Result<(), GateError> {
        let mut batch = Batch::new(self.last);
        rules::lease(&mut batch, address, None);
        match self.commit(batch, "to close a gate") {
            // Another program has removed the tables. New ones are closed.
            Err(GateError::Refused { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => self.make_tables(),
            done => done,
        }
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
