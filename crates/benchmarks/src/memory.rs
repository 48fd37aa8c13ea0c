//! Memory of other processes.

use std::fs;
use std::io;

use crate::cpu::children;

/// Anonymous memory of `pid` and its children, in bytes (`RssAnon` of proc(5)). It does not include files.
pub(crate) fn of_tree(pid: u32) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let mut used = resident(&status).ok_or(io::ErrorKind::InvalidData)?;
    for child in children(pid)? {
        used += of_tree(child)?;
    }
    Ok(used)
}

fn resident(status: &str) -> Option<u64> {
    let kib = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_found() {
        assert_eq!(resident("VmRSS:\t  900 kB\nRssAnon:\t     120 kB\nRssFile: 1 kB\n"), Some(120 * 1024));
        assert_eq!(resident("VmRSS:\t  900 kB\n"), None);
    }
}
