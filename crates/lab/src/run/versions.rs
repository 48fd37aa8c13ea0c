//! The machine of a run, and the versions of programs on it.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// Programs that experiments use, the argument for their version, and what the line of the version starts with.
const PROGRAMS: [(&str, &str, &str); 16] = [
    ("watari", "--version", "watari"),
    ("apache2", "-v", "Server version"),
    ("nginx", "-v", "nginx version"),
    ("haproxy", "-v", "HAProxy version"),
    ("hitch", "-V", "hitch"),
    ("varnishd", "-V", "varnishd"),
    ("squid", "-v", "Squid Cache"),
    ("lighttpd", "-v", "lighttpd"),
    ("caddy", "version", ""),
    ("h2o", "--version", "h2o"),
    ("keepalived", "-v", "Keepalived"),
    ("openssl", "version", "OpenSSL"),
    ("java", "-version", "openjdk"),
    ("python3", "--version", "Python"),
    ("iperf3", "--version", "iperf"),
    ("curl", "--version", "curl"),
];

/// What the figures of this run depend on.
pub(super) fn all() -> BTreeMap<String, String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let mut versions = BTreeMap::new();
    versions.insert("processor".to_owned(), format!("{}, {cores} cores", model.map_or("unknown", |(_, model)| model)));
    for (name, path) in [("kernel", "/proc/sys/kernel/osrelease"), ("TCP congestion control", CONGESTION_CONTROL)] {
        versions.insert(name.to_owned(), fs::read_to_string(path).unwrap_or_default().trim().to_owned());
    }
    for (program, argument, prefix) in PROGRAMS {
        if let Some(version) = version(program, argument, prefix) {
            versions.insert(program.to_owned(), version);
        }
    }
    versions
}

const CONGESTION_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// None if the program is not there.
fn version(program: &str, argument: &str, prefix: &str) -> Option<String> {
    let output = Command::new(program).arg(argument).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|line| line.starts_with(prefix)).map(|line| line.trim().to_owned())
}
