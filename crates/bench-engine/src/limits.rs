//! The limits of this process and machine, and whether they suffice for a load.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Open files that a process may have; `None`: no limit.
    pub files: Option<u64>,
    /// Local ports that the kernel may select for outgoing connections. Each address has this number.
    pub ports: u64,
}

impl Limits {
    /// The limits of this process. Raises its limit of open files to the maximum first.
    pub fn of_this_process() -> Result<Self, LimitsError> {
        let [range, reserved] = [PORT_RANGE, RESERVED_PORTS].map(|path| {
            let failed = |error| LimitsError { path, error };
            fs::read_to_string(path).map_err(failed)
        });
        let invalid = LimitsError { path: PORT_RANGE, error: io::ErrorKind::InvalidData.into() };
        Ok(Self { files: raise_files(), ports: ports(&range?, &reserved?).ok_or(invalid)? })
    }

    /// Checks whether the limits suffice for a load. An error says which does not, and what to do.
    pub fn check(&self, load: &Load<'_>) -> Result<(), Shortage> {
        self.check_files(load)?;
        self.check_ports(load)
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

    /// The kernel uses a port again for another destination, also for sockets that are bound to an address before they
    /// connect (`IP_BIND_ADDRESS_NO_PORT`).
    fn check_ports(&self, load: &Load<'_>) -> Result<(), Shortage> {
        let all: u128 = load.ways.values().map(|weight| u128::from(*weight)).sum();
        let most = load.ways.values().copied().max().unwrap_or(0);
        let share = (u128::from(load.connections) * u128::from(most)).div_ceil(all.max(1));
        let (connections, needed) = (load.connections, u64::try_from(share).unwrap_or(u64::MAX));
        if needed <= self.ports {
            return Ok(());
        }
        let enough = connections.div_ceil(self.ports.max(1));
        Err(Shortage::Ports { connections, needed, ports: self.ports, enough })
    }
}

/// The parts of a load that limits apply to.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// Connections in progress at the same time, in all processes of this machine.
    pub connections: u64,
    /// Number of processes that share the connections.
    pub processes: u64,
    /// The address pairs of the connections, each with its share.
    pub ways: &'a HashMap<Way, u64>,
}

/// The address pair of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// The address that it is bound to; `None`: the kernel selects one.
    pub source: Option<IpAddr>,
    pub destination: SocketAddr,
}

/// A resource that the load needs more of than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// The server has no address of the same family as a source address.
    #[error(
        "{address} cannot reach the server, which has no address of its family: remove it from --source, or use another server"
    )]
    NoDestination { address: IpAddr },
    /// Too few open files.
    #[error(
        "{connections} connections in one process need {needed} open files, and {allowed} are allowed: \
        raise the limit (ulimit -n), or share the load among processes (--processes {processes})"
    )]
    Files {
        /// Connections of one process.
        connections: u64,
        /// Files that it needs.
        needed: u64,
        /// Files that it may have open.
        allowed: u64,
        /// Number of processes that would suffice.
        processes: u64,
    },
    /// So few open files that no number of processes suffices.
    #[error("{allowed} open files are allowed, too few for any load: raise the limit (ulimit -n)")]
    HardlyAnyFiles {
        /// Files that a process may have open.
        allowed: u64,
    },
    /// Too few ports between two addresses.
    #[error(
        "{connections} connections need {needed} ports between one address here and one of the server, and there are \
        {ports} (net.ipv4.ip_local_port_range): let them come from {enough} addresses (--source), or widen the range"
    )]
    Ports {
        /// Connections in all.
        connections: u64,
        /// Ports that the busiest address pair needs.
        needed: u64,
        /// Ports that an address has.
        ports: u64,
        /// Number of source addresses that would suffice.
        enough: u64,
    },
}

/// The kernel's settings cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {error}")]
pub struct LimitsError {
    path: &'static str,
    error: io::Error,
}

fn raise_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// The number of ports: `range`, such as `32768 60999`, without `reserved`, such as `8080,9148-9200`.
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

/// Files besides connections: runtimes, output, bodies.
const FILES_RESERVE: u64 = 128;
const PORT_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
const RESERVED_PORTS: &str = "/proc/sys/net/ipv4/ip_local_reserved_ports";

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { files: Some(20_000), ports: 28_232 };

    fn way(source: Option<u8>, destination: &str) -> Way {
        let source = source.map(|last| [127, 0, 0, last].into());
        Way { source, destination: destination.parse().unwrap() }
    }

    fn check(connections: u64, processes: u64, ways: &[(Way, u64)]) -> Result<(), String> {
        let load = Load { connections, processes, ways: &ways.iter().copied().collect() };
        LIMITS.check(&load).map_err(|shortage| shortage.to_string())
    }

    #[test]
    fn files_are_those_of_one_process() {
        let one = [(way(None, "127.0.0.1:80"), 1)];
        assert_eq!(check(19_872, 1, &one), Ok(()));
        assert_eq!(
            check(19_873, 1, &one).unwrap_err(),
            "19873 connections in one process need 20001 open files, and 20000 are allowed: \
             raise the limit (ulimit -n), or share the load among processes (--processes 2)"
        );
        let three = [1, 2, 3].map(|source| (way(Some(source), "127.0.0.1:80"), 1));
        assert!(check(60_000, 3, &three).unwrap_err().contains("(--processes 4)"));
        assert_eq!(check(60_000, 4, &three), Ok(()));
    }

    #[test]
    fn with_hardly_any_files_there_is_no_load() {
        let load = Load { connections: 1, processes: 1, ways: &HashMap::from([(way(None, "127.0.0.1:80"), 1)]) };
        for allowed in [FILES_RESERVE, 3] {
            let limits = Limits { files: Some(allowed), ..LIMITS };
            assert_eq!(limits.check(&load), Err(Shortage::HardlyAnyFiles { allowed }));
        }
        assert_eq!(Limits { files: None, ..LIMITS }.check(&load), Ok(()));
    }

    #[test]
    fn ports_are_those_between_two_addresses() {
        let two = [1, 2].map(|source| (way(Some(source), "127.0.0.1:80"), 1));
        assert_eq!(check(56_464, 4, &two), Ok(()));
        assert_eq!(
            check(60_000, 4, &two).unwrap_err(),
            "60000 connections need 30000 ports between one address here and one of the server, and there are 28232 \
             (net.ipv4.ip_local_port_range): let them come from 3 addresses (--source), or widen the range"
        );
        // Another destination helps, and so does another source, each for its share of connections.
        let four = [way(Some(1), "127.0.0.1:81"), way(Some(2), "127.0.0.1:81")].map(|way| (way, 1));
        assert_eq!(check(60_000, 4, &[two, four].concat()), Ok(()));
        let uneven = [(two[0].0, 2), (two[1].0, 1)];
        assert!(check(60_000, 4, &uneven).unwrap_err().contains("need 40000 ports"));
        let families = [way(None, "127.0.0.1:80"), way(None, "[::1]:80")].map(|way| (way, 1));
        assert_eq!(check(56_464, 4, &families), Ok(()));
        assert!(check(60_000, 4, &families).unwrap_err().contains("need 30000 ports"));
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
            let mut load = Load { connections, processes: 1, ways: &HashMap::from([(way(None, "127.0.0.1:80"), 1)]) };
            if let Err(Shortage::Files { processes, .. }) = limits.check(&load) {
                load.processes = processes;
            }
            let from = match limits.check(&load) {
                Err(Shortage::Ports { enough, .. }) => 1..=enough as u32,
                _ => 1..=1,
            };
            let ways = from.map(|source| (Way { source: Some(IpAddr::V4(source.into())), ..way(None, "127.0.0.1:80") }, 1));
            prop_assert_eq!(limits.check(&Load { ways: &ways.collect(), ..load }), Ok(()));
        }
    }
}
