//! Control groups: the CPU quota of each host, and the CPU time that it has used.
//!
//! ```text
//!   watari-lab-PID                 of a supervisor with that process id. Its successor removes what it has left
//!     server-a, server-b, ..       of hosts
//! ```
//!
//! Version 1 has them in the hierarchies `cpu` and `cpuacct`, which can be one. Version 2 has one hierarchy. Where groups
//! cannot be made, hosts have no quotas.

mod namespace;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde::{Deserialize, Serialize};

use crate::hosts::NAMESPACES;

/// What the names of everything start with that a supervisor could leave behind.
pub(crate) const PREFIX: &str = "watari-lab-";
/// The period in which a quota holds. A short one delays a host less.
const PERIOD: Duration = Duration::from_millis(20);
/// In cores. The kernel takes a millisecond and more for each period.
const QUOTA_MIN: f64 = 0.05;
/// How long killed processes may take to leave their group.
const EMPTY_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("this system has no control groups for CPU time: mount cgroup2 at /sys/fs/cgroup")]
    None,
    #[error("cannot create the control group {path}: {error} (run as root, or where control groups are delegated)")]
    Create { path: String, error: io::Error },
    #[error(
        "the control group {path} cannot limit those below it: {error} (the root of the hierarchy has \
         processes of its own, or lacks the controller cpu)"
    )]
    Limit { path: String, error: io::Error },
    #[error("the quota of {host} is {quota} cores: set {QUOTA_MIN} or more")]
    Quota { host: String, quota: f64 },
    #[error("cannot use the control group {path}: {error}")]
    Use { path: String, error: io::Error },
}

impl Error {
    /// True if this user or this container may not make groups with quotas.
    fn is_refusal(&self) -> bool {
        match self {
            Self::Create { error, .. } | Self::Use { error, .. } => {
                matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
            }
            Self::Limit { .. } => true,
            Self::None | Self::Quota { .. } => false,
        }
    }
}

/// The groups of one supervisor.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Groups {
    hierarchies: Hierarchies,
    name: String,
}

/// The directories in which hierarchies are mounted.
#[derive(Clone, Debug, Deserialize, Serialize)]
enum Hierarchies {
    One { cpu: PathBuf, cpuacct: PathBuf },
    Two(PathBuf),
    None { because: String },
}

/// The group of a host.
#[derive(Clone, Debug)]
pub struct HostGroup {
    hierarchies: Hierarchies,
    /// Below each hierarchy.
    path: PathBuf,
}

/// Refuses a quota, in cores, that is too small or no number.
pub(crate) fn check_quota(host: &str, quota: Option<f64>) -> Result<(), Error> {
    match quota {
        Some(quota) if !(QUOTA_MIN..=f64::MAX).contains(&quota) => Err(Error::Quota { host: host.to_owned(), quota }),
        Some(_) | None => Ok(()),
    }
}

impl Groups {
    /// Makes the groups of this process, and removes those of processes that have ended.
    pub fn create() -> Result<Self, Error> {
        let hierarchies = Hierarchies::find(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())?;
        let groups = Self { hierarchies, name: format!("{PREFIX}{}", std::process::id()) };
        groups.remove_stale();
        // In a container, a predecessor may have had the same process id.
        groups.remove();
        let Err(failed) = groups.create_top() else { return Ok(groups) };
        groups.remove();
        if !failed.is_refusal() {
            return Err(failed);
        }
        Ok(Self { hierarchies: Hierarchies::None { because: failed.to_string() }, ..groups })
    }

    fn create_top(&self) -> Result<(), Error> {
        self.hierarchies.create(Path::new(&self.name))?;
        if let Hierarchies::Two(root) = &self.hierarchies {
            for group in [root, &root.join(&self.name)] {
                let path = group.display().to_string();
                fs::write(group.join("cgroup.subtree_control"), "+cpu")
                    .map_err(|error| Error::Limit { path, error })?;
            }
        }
        Ok(())
    }

    /// How a run without control groups differs.
    pub fn deviation(&self) -> Option<String> {
        let Hierarchies::None { because } = &self.hierarchies else { return None };
        Some(format!(
            "Hosts have no CPU quotas, and the CPU time of a host lacks that of programs that have ended: {because}."
        ))
    }

    /// Makes the group of a host, with a quota in cores that `hosts::check` has accepted.
    pub fn add_host(&self, name: &str, quota: Option<f64>) -> Result<HostGroup, Error> {
        let path = Path::new(&self.name).join(name);
        self.hierarchies.create(&path)?;
        let group = HostGroup { hierarchies: self.hierarchies.clone(), path };
        if let Some(quota) = quota {
            group.limit(quota)?;
        }
        Ok(group)
    }

    /// Kills all processes in these groups, and removes them.
    pub fn remove(&self) {
        for root in self.hierarchies.roots() {
            remove_tree(&root.join(&self.name));
        }
    }

    fn remove_stale(&self) {
        for root in self.hierarchies.roots() {
            remove_stale_entries(&root, &remove_tree);
        }
    }
}

/// Removes the entries of a directory that are named after a supervisor that has ended: `watari-lab-PID`, and
/// `watari-lab-PID-..`.
pub(crate) fn remove_stale_entries(directory: &Path, remove: &dyn Fn(&Path)) {
    let is_stale = |name: &str| {
        let pid = name.strip_prefix(PREFIX).map(|rest| rest.split('-').next().unwrap_or_default());
        let pid = pid.and_then(|pid| Pid::from_raw(pid.parse().ok()?));
        pid.is_some_and(|pid| test_kill_process(pid) == Err(rustix::io::Errno::SRCH))
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_stale)) {
        remove(&entry.path());
    }
}

impl HostGroup {
    /// The files to which a process writes `0` to be in the group.
    pub fn entrances(&self) -> Vec<PathBuf> {
        self.hierarchies.roots().into_iter().map(|root| root.join(&self.path).join("cgroup.procs")).collect()
    }

    /// The CPU time of all processes that were in the group.
    pub fn used(&self) -> Result<Duration, Error> {
        match &self.hierarchies {
            Hierarchies::One { cpuacct, .. } => {
                let path = cpuacct.join(&self.path).join("cpuacct.usage");
                parse(&path, read(&path)?.trim()).map(Duration::from_nanos)
            }
            Hierarchies::Two(root) => {
                let path = root.join(&self.path).join("cpu.stat");
                let text = read(&path)?;
                let usage = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
                parse(&path, usage.unwrap_or_default()).map(Duration::from_micros)
            }
            Hierarchies::None { .. } => Ok(namespace::used(&self.namespace())),
        }
    }

    /// Kills all processes in the group.
    pub fn kill(&self) {
        match self.entrances().first() {
            Some(list) => kill_all(|| listed(list)),
            None => kill_all(|| namespace::processes(&self.namespace())),
        }
    }

    /// Kills all processes in the group, and removes it.
    pub fn remove(&self) {
        self.kill();
        for root in self.hierarchies.roots() {
            remove_tree(&root.join(&self.path));
        }
    }

    /// The network namespace of the host.
    fn namespace(&self) -> PathBuf {
        Path::new(NAMESPACES).join(self.path.file_name().unwrap_or_default())
    }

    fn limit(&self, quota: f64) -> Result<(), Error> {
        let period_us = PERIOD.as_micros();
        let quota_us = (quota * PERIOD.as_secs_f64() * 1e6).round();
        match &self.hierarchies {
            Hierarchies::One { cpu, .. } => {
                let group = cpu.join(&self.path);
                // The quota must not exceed what the period allows, so the period comes first.
                write(&group.join("cpu.cfs_period_us"), &period_us.to_string())?;
                write(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
            Hierarchies::Two(root) => write(&root.join(&self.path).join("cpu.max"), &format!("{quota_us} {period_us}")),
            Hierarchies::None { .. } => Ok(()),
        }
    }
}

impl Hierarchies {
    /// Finds them in the text of `/proc/self/mountinfo` (proc(5)). Version 1 comes first: where it has the controller
    /// `cpu`, version 2 does not.
    fn find(mounts: &str) -> Result<Self, Error> {
        let mounts = || mounts.lines().filter_map(Mount::parse);
        let with = |controller: &str| {
            let mut found = mounts().filter(|mount| mount.kind == "cgroup" && mount.options.contains(&controller));
            found.next().map(|mount| PathBuf::from(mount.directory))
        };
        if let (Some(cpu), Some(cpuacct)) = (with("cpu"), with("cpuacct")) {
            return Ok(Self::One { cpu, cpuacct });
        }
        let two = mounts().find(|mount| mount.kind == "cgroup2");
        two.map(|mount| Self::Two(mount.directory.into())).ok_or(Error::None)
    }

    fn roots(&self) -> Vec<PathBuf> {
        match self {
            Self::One { cpu, cpuacct } if cpu == cpuacct => vec![cpu.clone()],
            Self::One { cpu, cpuacct } => vec![cpu.clone(), cpuacct.clone()],
            Self::Two(root) => vec![root.clone()],
            Self::None { .. } => Vec::new(),
        }
    }

    fn create(&self, group: &Path) -> Result<(), Error> {
        for root in self.roots() {
            let path = root.join(group);
            fs::create_dir(&path).map_err(|error| Error::Create { path: path.display().to_string(), error })?;
        }
        Ok(())
    }
}

/// A line of mountinfo.
struct Mount<'a> {
    directory: &'a str,
    kind: &'a str,
    options: Vec<&'a str>,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1)?);
        Some(Self { directory: mount.split(' ').nth(4)?, kind, options: options.split(',').collect() })
    }
}

/// Removes a group and those below it, whose processes it kills. What cannot be removed stays for the next supervisor.
fn remove_tree(group: &Path) {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    for below in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&below.path());
    }
    kill_all(|| listed(&group.join("cgroup.procs")));
    let deadline = Instant::now() + EMPTY_MAX;
    while fs::remove_dir(group).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
        && Instant::now() < deadline
    {
        sleep(POLL);
    }
}

/// Kills processes until there are none.
fn kill_all(processes: impl Fn() -> Vec<Pid>) {
    let deadline = Instant::now() + EMPTY_MAX;
    loop {
        let ids = processes();
        if ids.is_empty() || Instant::now() > deadline {
            return;
        }
        for id in ids {
            let _ = kill_process(id, Signal::KILL);
        }
        sleep(POLL);
    }
}

/// The processes of a group.
fn listed(list: &Path) -> Vec<Pid> {
    let ids = fs::read_to_string(list).unwrap_or_default();
    // A process of another pid namespace is listed as 0.
    ids.lines().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| Error::Use { path: path.display().to_string(), error })
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|error| Error::Use { path: path.display().to_string(), error })
}

fn parse(path: &Path, text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| {
        let error = io::Error::new(io::ErrorKind::InvalidData, format!("\"{text}\" is no number"));
        Error::Use { path: path.display().to_string(), error }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn both_versions_are_found() {
        let separate = "36 30 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                        37 30 0:32 / /sys/fs/cgroup/cpuacct rw shared:9 - cgroup cgroup rw,cpuacct\n\
                        38 30 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let roots = |mounts| Hierarchies::find(mounts).unwrap().roots();
        assert_eq!(roots(separate), ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpuacct"].map(PathBuf::from));
        let joined = "36 30 0:31 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(roots(joined), [PathBuf::from("/sys/fs/cgroup/cpu,cpuacct")]);
        let second = "36 30 0:31 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(roots(second), [PathBuf::from("/sys/fs/cgroup")]);
        assert!(matches!(Hierarchies::find("36 30 0:31 / /proc rw - proc proc rw\n"), Err(Error::None)));
    }

    /// A directory stands for the hierarchy of version 2, because a machine with version 1 has no other.
    #[test]
    fn version_2_has_one_file_for_the_quota_and_one_for_the_use() {
        let root = tempfile::tempdir().unwrap();
        let groups = Groups { hierarchies: Hierarchies::Two(root.path().to_owned()), name: "lab".to_owned() };
        groups.create_top().unwrap();
        let host = groups.add_host("a", Some(0.5)).unwrap();
        let text = |name: &str| fs::read_to_string(root.path().join(name)).unwrap();
        assert_eq!(
            (text("cgroup.subtree_control"), text("lab/cgroup.subtree_control")),
            ("+cpu".into(), "+cpu".into())
        );
        assert_eq!(text("lab/a/cpu.max"), "10000 20000");
        assert_eq!(host.entrances(), [root.path().join("lab/a/cgroup.procs")]);
        fs::write(root.path().join("lab/a/cpu.stat"), "nr_periods 3\nusage_usec 1500\nuser_usec 900\n").unwrap();
        assert_eq!(host.used().unwrap(), Duration::from_micros(1500));
    }
}
