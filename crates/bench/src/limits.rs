//! What this process and this machine allow, and whether it is enough for a load.

use std::collections::HashMap;
use std::fs;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sample::Family;

/// What is allowed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files that a process may have open; `None`: any number.
    pub files: Option<u64>,
    /// Ports that the system chooses from for connections that begin here. Each address has so many.
    pub ports: u64,
}

impl Limits {
    /// What is allowed to this process, after its limit on open files is raised as far as it goes.
    pub fn of_this_process() -> Result<Self, LimitsError> {
        let [range, reserved] = [PORT_RANGE, RESERVED_PORTS].map(|path| {
            let failed = |error| LimitsError { path, error };
            fs::read_to_string(path).map_err(failed)
        });
        let invalid = LimitsError { path: PORT_RANGE, error: io::ErrorKind::InvalidData.into() };
        Ok(Self { files: raise_files(), ports: ports(&range?, &reserved?).ok_or(invalid)? })
    }

    /// Whether they are enough for a load; says what is not, and what to do.
    pub fn check(&self, load: &Load<'_>) -> Result<(), Shortage> {
        load.check_families()?;
        self.check_files(load)?;
        if load.sources.is_empty() { self.check_destinations(load) } else { self.check_sources(load) }
    }

    fn check_files(&self, load: &Load<'_>) -> Result<(), Shortage> {
        let Some(allowed) = self.files else { return Ok(()) };
        let connections = load.connections.div_ceil(load.processes.max(1));
        let needed = connections.saturating_add(FILES_RESERVE);
        if needed <= allowed {
            return Ok(());
        }
        match allowed.saturating_sub(FILES_RESERVE) {
            0 => Err(Shortage::HardlyAnyFiles { allowed }),
            usable => {
                let processes = load.connections.div_ceil(usable);
                Err(Shortage::Files { connections, needed, allowed, processes })
            }
        }
    }

    /// A socket that is bound to an address has a port of it to itself, whichever the destination: the system does not know that yet
    /// when it chooses the port.
    fn check_sources(&self, load: &Load<'_>) -> Result<(), Shortage> {
        let needed = busiest(load.connections, load.sources);
        if needed <= self.ports {
            return Ok(());
        }
        let (connections, ports) = (load.connections, self.ports);
        Err(Shortage::PortsOfSources { connections, needed, ports, enough: self.addresses_for(connections) })
    }

    /// The system gives sockets that are not bound the same port again, as long as their destinations differ.
    fn check_destinations(&self, load: &Load<'_>) -> Result<(), Shortage> {
        let needed = busiest(load.connections, load.destinations);
        if needed <= self.ports {
            return Ok(());
        }
        let (connections, ports) = (load.connections, self.ports);
        Err(Shortage::PortsToDestinations { connections, needed, ports, enough: self.addresses_for(connections) })
    }

    fn addresses_for(&self, connections: u64) -> u64 {
        connections.div_ceil(self.ports.max(1))
    }
}

/// A load, as far as limits matter.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Connections in progress at the same time, in all processes of this machine.
    pub connections: u64,
    /// How many processes share them.
    pub processes: u64,
    /// The addresses that they are bound to in turn; empty: the system chooses.
    pub sources: &'a [IpAddr],
    /// Where they go to, in turn; of each family, if sources are given.
    pub destinations: &'a [SocketAddr],
}

impl Load<'_> {
    fn check_families(&self) -> Result<(), Shortage> {
        let family = |source: &IpAddr| Family::of(SocketAddr::new(*source, 0));
        let reachable = |source: &&IpAddr| self.destinations.iter().any(|to| Family::of(*to) == family(source));
        match self.sources.iter().find(|source| !reachable(source)) {
            Some(source) => Err(Shortage::NoDestination { address: *source }),
            None => Ok(()),
        }
    }
}

/// What a load needs and there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Of a family that the server has no address of.
    #[error(
        "{address} cannot reach the server, which has no address of its family: take it from --source, or name another server"
    )]
    NoDestination {
        /// The source address.
        address: IpAddr,
    },
    /// Files.
    #[error(
        "{connections} connections in one process need {needed} open files, and {allowed} are allowed: \
        raise the limit (ulimit -n), or share the load among processes (--processes {processes})"
    )]
    Files {
        /// Connections of one process.
        connections: u64,
        /// Files that it needs.
        needed: u64,
        /// Files that it may have.
        allowed: u64,
        /// How many processes would be enough.
        processes: u64,
    },
    /// So few files that no number of processes helps.
    #[error("{allowed} open files are allowed, too few for any load: raise the limit (ulimit -n)")]
    HardlyAnyFiles {
        /// Files that a process may have.
        allowed: u64,
    },
    /// Ports of the addresses that connections are bound to.
    #[error(
        "{connections} connections need {needed} ports of one source address, and it has {ports} \
        (net.ipv4.ip_local_port_range): use {enough} different addresses (--source), or widen the range"
    )]
    PortsOfSources {
        /// Connections in all.
        connections: u64,
        /// Ports needed of the busiest address.
        needed: u64,
        /// Ports that an address has.
        ports: u64,
        /// How many addresses would be enough.
        enough: u64,
    },
    /// Ports towards one destination.
    #[error(
        "{connections} connections need {needed} ports towards one address of the server, and there are {ports} \
        (net.ipv4.ip_local_port_range): let them come from {enough} addresses (--source), or widen the range"
    )]
    PortsToDestinations {
        /// Connections in all.
        connections: u64,
        /// Ports needed towards the busiest.
        needed: u64,
        /// Ports that there are.
        ports: u64,
        /// How many source addresses would be enough.
        enough: u64,
    },
}

/// The system does not say what it allows.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {error}")]
pub struct LimitsError {
    path: &'static str,
    error: io::Error,
}

/// How many of `connections`, which are dealt in turn, the most frequent of `items` gets.
fn busiest<T: Eq + Hash>(connections: u64, items: &[T]) -> u64 {
    let mut counts = HashMap::new();
    for item in items {
        *counts.entry(item).or_insert(0_u64) += 1;
    }
    let most = counts.into_values().max().unwrap_or(0);
    let share = u128::from(connections) * u128::from(most);
    u64::try_from(share.div_ceil(items.len().max(1) as u128)).unwrap_or(u64::MAX)
}

fn raise_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// How many ports there are: a range, `32768 60999`, without those that are reserved, `8080,9148-9200`.
fn ports(range: &str, reserved: &str) -> Option<u64> {
    let (first, last) = range.trim().split_once(char::is_whitespace)?;
    let (first, last): (u16, u16) = (first.parse().ok()?, last.trim().parse().ok()?);
    let reserved: Vec<_> =
        reserved.trim().split(',').filter(|part| !part.is_empty()).map(span).collect::<Option<_>>()?;
    let free = |port: &u16| !reserved.iter().any(|(first, last)| (first..=last).contains(&port));
    Some((first..=last).filter(free).count() as u64)
}

fn span(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

/// For what is no connection: the runtimes, output, bodies.
const FILES_RESERVE: u64 = 128;
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED_PORTS: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { files: Some(20_000), ports: 28_232 };

    fn sources(count: u8) -> Vec<IpAddr> {
        (1..=count).map(|last| [127, 0, 0, last].into()).collect()
    }

    fn check(connections: u64, processes: u64, sources: &[IpAddr], destinations: &[&str]) -> Result<(), String> {
        let destinations: Vec<_> = destinations.iter().map(|text| text.parse().unwrap()).collect();
        let load = Load { connections, processes, sources, destinations: &destinations };
        LIMITS.check(&load).map_err(|shortage| shortage.to_string())
    }

    #[test]
    fn files_are_those_of_one_process() {
        assert_eq!(check(19_872, 1, &[], &["127.0.0.1:80"]), Ok(()));
        assert_eq!(
            check(19_873, 1, &[], &["127.0.0.1:80"]).unwrap_err(),
            "19873 connections in one process need 20001 open files, and 20000 are allowed: \
             raise the limit (ulimit -n), or share the load among processes (--processes 2)"
        );
        assert!(check(60_000, 3, &sources(3), &["127.0.0.1:80"]).unwrap_err().contains("(--processes 4)"));
        assert_eq!(check(60_000, 4, &sources(3), &["127.0.0.1:80"]), Ok(()));
    }

    #[test]
    fn with_hardly_any_files_there_is_no_load() {
        let load =
            Load { connections: 1, processes: 1, sources: &[], destinations: &["127.0.0.1:80".parse().unwrap()] };
        for allowed in [FILES_RESERVE, 3] {
            let limits = Limits { files: Some(allowed), ..LIMITS };
            assert_eq!(limits.check(&load), Err(Shortage::HardlyAnyFiles { allowed }));
        }
        assert_eq!(Limits { files: None, ..LIMITS }.check(&load), Ok(()));
    }

    #[test]
    fn ports_of_source_addresses_are_counted() {
        assert_eq!(check(56_464, 4, &sources(2), &["127.0.0.1:80"]), Ok(()));
        let shortage = "60000 connections need 30000 ports of one source address, and it has 28232 \
             (net.ipv4.ip_local_port_range): use 3 different addresses (--source), or widen the range";
        assert_eq!(check(60_000, 4, &sources(2), &["127.0.0.1:80"]).unwrap_err(), shortage);
        // More destinations do not help, nor does the same address again.
        assert_eq!(check(60_000, 4, &sources(2), &["127.0.0.1:80", "127.0.0.1:81"]).unwrap_err(), shortage);
        let again = [sources(2), sources(1)].concat();
        assert!(check(60_000, 4, &again, &["127.0.0.1:80"]).unwrap_err().contains("need 40000 ports"));
    }

    #[test]
    fn without_source_addresses_ports_are_counted_by_destination() {
        assert_eq!(check(56_464, 4, &[], &["127.0.0.1:80", "[::1]:80"]), Ok(()));
        assert_eq!(
            check(60_000, 4, &[], &["127.0.0.1:80"]).unwrap_err(),
            "60000 connections need 60000 ports towards one address of the server, and there are 28232 \
             (net.ipv4.ip_local_port_range): let them come from 3 addresses (--source), or widen the range"
        );
    }

    #[test]
    fn a_source_without_a_destination_of_its_family_is_told() {
        assert_eq!(
            check(1, 1, &["::1".parse().unwrap()], &["127.0.0.1:80"]).unwrap_err(),
            "::1 cannot reach the server, which has no address of its family: take it from --source, or name another server"
        );
    }

    #[test]
    fn the_range_of_ports_is_read() {
        assert_eq!(ports("32768\t60999\n", "\n"), Some(28_232));
        assert_eq!(ports("1024 1033", "1000-1024,1030,1033-2000,1030\n"), Some(7));
        assert_eq!(ports("0 65535", "0-65535"), Some(0));
        for (range, reserved) in [("", ""), ("1", ""), ("1 x", ""), ("1 70000", ""), ("1 2", "x"), ("1 2", "1-")] {
            assert_eq!(ports(range, reserved), None);
        }
    }

    #[test]
    fn this_process_has_limits() {
        let limits = Limits::of_this_process().unwrap();
        assert!(limits.ports > 0);
        assert_eq!(limits.files, getrlimit(Resource::Nofile).current);
    }

    proptest! {
        #[test]
        fn what_is_advised_is_enough(connections in 1_u64..10_000_000, ports in 100_u64..60_000, files in 129_u64..60_000) {
            let limits = Limits { files: Some(files), ports };
            let to = ["127.0.0.1:80".parse().unwrap()];
            let mut load = Load { connections, processes: 1, sources: &[], destinations: &to };
            if let Err(Shortage::Files { processes, .. }) = limits.check(&load) {
                load.processes = processes;
            }
            let mut from = Vec::new();
            if let Err(Shortage::PortsToDestinations { enough, .. }) = limits.check(&load) {
                from = (0..enough as u32).map(|i| IpAddr::V4((0x7f00_0001 + i).into())).collect();
            }
            prop_assert_eq!(limits.check(&Load { sources: &from, ..load }), Ok(()));
        }
    }
}
