//! Network interfaces of the host.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

/// All interfaces at once.
pub(crate) const ANY: &str = "any";

/// The names that [`Options`](crate::Options) accepts.
pub(crate) fn names() -> Vec<String> {
    let mut names: Vec<_> = getifaddrs().into_iter().flatten().map(|interface| interface.interface_name).collect();
    names.push(ANY.to_owned());
    names.sort();
    names.dedup();
    names
}

pub(crate) fn exists(name: &str) -> bool {
    name == ANY || if_nametoindex(name).is_ok()
}

/// Whether it is a loopback interface, on which sent frames arrive again.
pub(crate) fn is_loopback(name: &str) -> bool {
    getifaddrs()
        .into_iter()
        .flatten()
        .any(|interface| interface.interface_name == name && interface.flags.contains(InterfaceFlags::IFF_LOOPBACK))
}

/// Counts the frames that an interface dropped before the kernel got them. libpcap counts them too, but opens the files
/// each time, which [`privileges`](crate::privileges) forbids.
#[derive(Debug)]
pub(crate) struct Drops {
    /// Empty if this interface has no such files.
    files: Vec<File>,
    begun: u64,
}

impl Drops {
    /// Counts from now on.
    pub(crate) fn of(interface: &str) -> Self {
        let drops = Self { files: statistics(interface), begun: 0 };
        Self { begun: drops.now(), ..drops }
    }

    /// Counts no interface.
    pub(crate) const fn none() -> Self {
        Self { files: Vec::new(), begun: 0 }
    }

    /// Number of frames dropped since the begin.
    pub(crate) fn count(&self) -> u64 {
        self.now().saturating_sub(self.begun)
    }

    fn now(&self) -> u64 {
        self.files.iter().filter_map(number).sum()
    }
}

fn statistics(interface: &str) -> Vec<File> {
    let dir = format!("/sys/class/net/{interface}");
    // In a network namespace this may be the directory of an interface of another namespace.
    let index = fs::read_to_string(format!("{dir}/ifindex")).ok().and_then(|index| index.trim().parse().ok());
    if index.is_none() || index != if_nametoindex(interface).ok() {
        return Vec::new();
    }
    let open = |name| File::open(format!("{dir}/statistics/{name}")).ok();
    ["rx_missed_errors", "rx_fifo_errors"].into_iter().filter_map(open).collect()
}

fn number(file: &File) -> Option<u64> {
    let mut text = [0; 24];
    let len = file.read_at(&mut text, 0).ok()?;
    str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_those_of_interfaces_that_exist() {
        assert!(names().iter().all(|name| exists(name)));
        assert!(names().contains(&"lo".to_owned()) && is_loopback("lo"));
        assert!(!exists("none0") && !is_loopback("none0") && !is_loopback(ANY));
    }

    #[test]
    fn numbers_are_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rx_missed_errors");
        fs::write(&path, "7\n").unwrap();
        let mut drops = Drops { files: vec![File::open(&path).unwrap()], begun: 0 };
        drops.begun = drops.now();
        assert_eq!(drops.count(), 0);
        fs::write(&path, "18446744073709551615\n").unwrap();
        assert_eq!(drops.count(), u64::MAX - 7);
        fs::write(&path, "no number\n").unwrap();
        assert_eq!((drops.count(), Drops::none().count()), (0, 0));
    }
}
