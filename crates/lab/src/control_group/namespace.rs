//! Without control groups: the processes of a host are those in its network namespace.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use rustix::process::Pid;

/// The number of `utime` in `proc_pid_stat(5)`. After it come `stime`, `cutime` and `cstime`.
const UTIME: usize = 14;
/// The number of the first field after the name, which may contain blanks.
const STATE: usize = 3;

/// The processes in a network namespace.
pub(super) fn processes(namespace: &Path) -> Vec<Pid> {
    let Ok(namespace) = fs::metadata(namespace) else { return Vec::new() };
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?));
    let is_in = |id: &Pid| {
        let theirs = fs::metadata(format!("/proc/{id}/ns/net"));
        theirs.is_ok_and(|theirs| (theirs.dev(), theirs.ino()) == (namespace.dev(), namespace.ino()))
    };
    ids.filter(is_in).collect()
}

/// The CPU time of the processes that run in a network namespace, and of their children that have ended.
pub(super) fn used(namespace: &Path) -> Duration {
    let ticks_per_s = rustix::param::clock_ticks_per_second();
    let stats = processes(namespace).into_iter().filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
    let ticks: u64 = stats.map(|stat| ticks(&stat)).sum();
    Duration::from_millis(ticks * 1000 / ticks_per_s)
}

fn ticks(stat: &str) -> u64 {
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
    fields.skip(UTIME - STATE).take(4).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_in_its_namespace() {
        let own = processes(Path::new("/proc/self/ns/net"));
        assert!(own.contains(&rustix::process::getpid()));
        assert!(processes(Path::new("/proc/self/ns/pid")).is_empty());
    }

    #[test]
    fn all_kinds_of_cpu_time_count() {
        let stat = "7 (a ) 1 b) S 1 7 7 0 -1 4194560 1 2 3 4 1000 200 30 4 20 0 1 0 99 100 5";
        assert_eq!(ticks(stat), 1234);
        assert_eq!(ticks(""), 0);
    }
}
