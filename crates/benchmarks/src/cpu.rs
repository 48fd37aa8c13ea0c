//! CPU time of other processes.

use std::fs;
use std::io;
use std::time::Duration;

/// CPU time (user and system) of `pid` and its children, in steps of a clock tick (10 ms).
///
/// Only children of the main thread count. nginx's workers are such children.
pub(crate) fn of_tree(pid: u32) -> io::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let mut used = of_ticks(ticks_at(&stat, OWN).ok_or(io::ErrorKind::InvalidData)?);
    for child in children(pid)? {
        used += of_tree(child)?;
    }
    Ok(used)
}

/// The children of the main thread of `pid`.
pub(crate) fn children(pid: u32) -> io::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let parse = |child: &str| child.parse().map_err(|_| io::ErrorKind::InvalidData.into());
    children.split_whitespace().map(parse).collect()
}

/// CPU time of the children that this process has waited for, in steps of a clock tick (10 ms).
pub(crate) fn of_ended_children() -> io::Result<Duration> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let ticks = ticks_at(&stat, CHILDREN).ok_or(io::ErrorKind::InvalidData)?;
    Ok(of_ticks(ticks))
}

/// Position of utime and stime in `/proc/PID/stat` (proc(5): fields 14 and 15), counted after the name.
const OWN: usize = 11;
/// Position of cutime and cstime, the times of children that the process has waited for (fields 16 and 17).
const CHILDREN: usize = 13;

/// Sum of user and system time, which are adjacent. The second field, a name in parentheses, may contain any character.
fn ticks_at(stat: &str, at: usize) -> Option<u64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(at);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_found_behind_any_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 2411 0 3 0 700 31 9 9 20 0 3 0 100 0 0";
        assert_eq!((ticks_at(stat, OWN), ticks_at(stat, CHILDREN)), (Some(731), Some(18)));
        assert_eq!(ticks_at("42 (cut) S 1 42", OWN), None);
    }
}
