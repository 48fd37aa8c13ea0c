//! The program and its maps in the kernel.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rtnetlink::Handle;
use watari_sys::bpf::{Map, MapKind, Program, ProgramRefused};

use crate::attach;
use crate::program::{
    ADDRESS_LEN, CONTROL_LEN, COUNTERS, ENTRY_LEN, FLOW_LEN, MAC_LEN, Mac, Maps, SECOND_CHANCE, TO_PRIMARY, key,
    program,
};
use crate::table::{SLOTS, Table};

/// The most addresses.
pub const ADDRESSES_MAX: u32 = 256;
/// The most connections that change machines at a time.
const FLOWS_MAX: u32 = 65_536;
/// While the program reads one table, the process writes the other.
const TABLES: u16 = 2;

/// The program for the packets of an interface.
#[derive(Debug)]
pub struct Steering {
    program: Program,
    flows: Map<FLOW_LEN, MAC_LEN>,
    control: Map<4, CONTROL_LEN>,
    table: Map<4, ENTRY_LEN>,
    counters: Map<4, 8>,
    /// What is in `control`.
    until: Duration,
    valid: u16,
    is_sure: bool,
}

/// The kernel refuses what steering needs.
#[derive(Debug, thiserror::Error)]
pub enum SteeringError {
    #[error("cannot make or fill BPF maps (CAP_BPF is needed): {0}")]
    Map(io::Error),
    #[error(transparent)]
    Program(#[from] ProgramRefused),
    #[error("cannot attach a BPF program to an interface: {0}")]
    Attach(rtnetlink::Error),
}

/// Packets that were passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// To the primaries of their slots.
    pub to_primary: u64,
    /// To dispatchers that may have strays.
    pub second_chance: u64,
}

impl Steering {
    /// Loads the program for an interface with this link-layer address. It is not attached yet, and all packets would
    /// stay here.
    pub fn load(addresses: &BTreeSet<IpAddr>, own: Mac) -> Result<Self, SteeringError> {
        let map = |error| SteeringError::Map(error);
        // The program keeps the map. Only its keys count.
        let known = Map::<ADDRESS_LEN, 1>::create(MapKind::Hash, ADDRESSES_MAX).map_err(map)?;
        let flows = Map::create(MapKind::Hash, FLOWS_MAX).map_err(map)?;
        let control = Map::create(MapKind::Array, 1).map_err(map)?;
        let table = Map::create(MapKind::Array, u32::from(TABLES * SLOTS)).map_err(map)?;
        let counters = Map::create(MapKind::Array, COUNTERS).map_err(map)?;
        let maps = Maps {
            addresses: known.number(),
            flows: flows.number(),
            control: control.number(),
            table: table.number(),
            counters: counters.number(),
        };
        let program = Program::load(&program(maps, own))?;
        for address in addresses {
            known.put(&key(*address), &[1]).map_err(map)?;
        }
        Ok(Self { program, flows, control, table, counters, until: Duration::ZERO, valid: 0, is_sure: false })
    }

    /// Attaches the program to the interface with this index, in place of that of an earlier process.
    pub async fn attach(&self, handle: &Handle, interface: u32) -> Result<(), SteeringError> {
        attach::attach(handle, interface, self.program.number()).await.map_err(SteeringError::Attach)
    }

    /// Removes a program from the interface, of this process or an earlier one.
    pub async fn detach(handle: &Handle, interface: u32) -> Result<(), SteeringError> {
        attach::detach(handle, interface).await.map_err(SteeringError::Attach)
    }

    /// Replaces the table, at once for all packets.
    pub fn set_table(&mut self, table: &Table) -> io::Result<()> {
        let other = SLOTS - self.valid;
        for (slot, entry) in (u32::from(other)..).zip(&table.0) {
            self.table.put(&slot.to_ne_bytes(), &entry.encode())?;
        }
        self.valid = other;
        self.write_control()
    }

    /// Until `until`, this machine accepts connections where it is the primary: [`SILENT_AFTER`](crate::SILENT_AFTER)
    /// after an advert was sent. Times are those of `CLOCK_BOOTTIME`.
    /// `is_sure`: whether packets of unknown connections are answered with RST ([`Members::is_sure`]).
    ///
    /// [`Members::is_sure`]: crate::Members::is_sure
    pub fn renew(&mut self, until: Duration, is_sure: bool) -> io::Result<()> {
        (self.until, self.is_sure) = (until, is_sure);
        self.write_control()
    }

    /// A connection changes machines, between this one and `other`. Its packets are passed on to the other, whether a
    /// socket of this machine has the connection or not, and those that come from there are dropped. `client` and
    /// `server` are both IPv4, or both IPv6.
    ///
    /// If both machines do so, no packet reaches a socket. Captured ones can be delivered later.
    pub fn move_flow(&self, client: SocketAddr, server: SocketAddr, other: Mac) -> io::Result<()> {
        let mut value = [0; MAC_LEN];
        value[..6].copy_from_slice(&other);
        self.flows.put(&flow(client, server), &value)
    }

    /// Ends [`move_flow`](Self::move_flow).
    pub fn keep_flow(&self, client: SocketAddr, server: SocketAddr) -> io::Result<()> {
        match self.flows.remove(&flow(client, server)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// How many packets were passed on so far.
    pub fn counts(&self) -> io::Result<Counts> {
        let count = |index: i32| self.counters.get(&index.to_ne_bytes()).map(u64::from_ne_bytes);
        Ok(Counts { to_primary: count(TO_PRIMARY)?, second_chance: count(SECOND_CHANCE)? })
    }

    fn write_control(&self) -> io::Result<()> {
        let mut control = [0; CONTROL_LEN];
        let until = u64::try_from(self.until.as_nanos()).unwrap_or(u64::MAX);
        control[..8].copy_from_slice(&until.to_ne_bytes());
        control[8..16].copy_from_slice(&u64::from(self.valid).to_ne_bytes());
        control[16..].copy_from_slice(&u64::from(self.is_sure).to_ne_bytes());
        self.control.put(&[0; 4], &control)
    }
}

/// A key of the connections that change machines.
fn flow(client: SocketAddr, server: SocketAddr) -> [u8; FLOW_LEN] {
    let mut key = [0; FLOW_LEN];
    let mut at = 0;
    let mut add = |bytes: &[u8]| {
        key[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
    };
    for end in [client, server] {
        match end.ip().to_canonical() {
            IpAddr::V4(address) => add(&address.octets()),
            IpAddr::V6(address) => add(&address.octets()),
        }
    }
    for end in [client, server] {
        add(&end.port().to_be_bytes());
    }
    key
}

#[cfg(test)]
mod tests;
